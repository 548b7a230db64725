"""Training a language model from a corpus to a finished run folder; killed at any moment, it resumes.

RUN/
  run.json                  before step 0: settings, corpus, commit, versions, hardware; later who else went on with it
  tokenizer.json
  training.jsonl            loss by step, validation loss
  state.safetensors         while it is unfinished (sharded: sharded-STEP/)
  last.safetensors          the weights
  finished.json             written last
"""

import os
import shutil
from contextlib import ExitStack
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lengthwise.errors import UserError
from lengthwise.language.learner import Learner
from lengthwise.language.model import TOKENIZER, build_language_model, resolved_layers
from lengthwise.language.origin import Origin
from lengthwise.language.prepared import tokens_of
from lengthwise.language.processes import ProcessGroup, together
from lengthwise.language.refusals import Beginning, refuse_impossible, refuse_others
from lengthwise.language.settings import LanguageSettings
from lengthwise.language.sharded import NEWEST as SHARDED
from lengthwise.language.sharded import ShardedLearner
from lengthwise.language.steps import TextSteps
from lengthwise.language.store import TokenStore
from lengthwise.language.whole import WholeLearner
from lengthwise.language.windows import Arrangement
from lengthwise.leftovers import clear_leftovers
from lengthwise.records.directory import RunDirectory, StudyDirectory
from lengthwise.records.files import append_rows, read_rows, write_json, write_rows, write_text
from lengthwise.records.provenance import provenance
from lengthwise.runtime import Listener, device_name
from lengthwise.seeding import stream
from lengthwise.training.loop import STEPS_AT_ONCE, Loop
from lengthwise.training.state import STATE, previous, save_tensors
from lengthwise.training.trainer import resolved_encodings
from lengthwise.training.update import Measured, Steps

TOKENS_AT_ONCE = 2**21
"""Tokens that are prepared together, where fewer than the usual number of steps have as many."""
LARGEST_LOGITS = {"cpu": 2**25, "cuda": 2**29}
"""Elements of the largest logits tensor of a validation."""


def train_language_model(
    corpus: Path,
    settings: LanguageSettings,
    out: Path,
    device: str = "auto",
    listener: Listener | None = None,
    save_every: float = 60.0,
    tokens_folder: Path | None = None,
    begin_from: Path | None = None,
) -> bool:
    """Trains into the folder `out`; returns False where that was finished already.

    `corpus`: texts, or what `lengthwise language prepare` made of them. `save_every`: seconds between saved states.
    `tokens_folder`: where tokens of texts are kept, for all runs that read them; by default `tokens` beside `out`.
    `begin_from`: a finished run whose weights take the place of initial ones; its encoding may be another.
    Under torchrun every process calls this.
    """
    listener = listener or Listener()
    if begin_from is None and settings.begins_from is not None:
        raise UserError("begins_from is no setting to be given; say with --begin-from which run's weights to take")
    origin = None if begin_from is None else Origin.load(begin_from)
    if origin is not None:
        origin.refuse_other_shape(settings)
        settings = replace(settings, begins_from=origin.checksum)
    with ExitStack() as stack:
        processes, place = stack.enter_context(together(device))
        directory = RunDirectory(out)
        _ = processes.part(settings.rows)
        # Before anything is written.
        refuse_impossible(settings)
        refuse_others(directory, {"settings": settings.table()})
        beginning = Beginning(out, tokens_folder or out.parent / "tokens")
        if processes.is_first:
            stack.enter_context(StudyDirectory(out).lock())  # one at a time
            stack.enter_context(beginning.restored_if_refused())
        else:
            listener = Listener()
        given = (corpus, settings.data, beginning.tokens, listener.note)
        store = tokens_of(*given) if processes.is_first else None
        beginning.store = store.folder if store else None
        processes.wait()
        store = store or tokens_of(*given)
        finished = directory.is_finished
        processes.wait()  # nobody finishes before all have looked
        trainer = LanguageTrainer(settings, store, directory, processes, place, listener, save_every, origin)
        if finished:
            trainer.refuse_other_settings()
            if processes.is_first:
                trainer.clear()
            return False
        trainer.run()
        processes.wait()
    return True


class LanguageTrainer:
    """Trains one model."""

    def __init__(
        self,
        settings: LanguageSettings,
        store: TokenStore,
        directory: RunDirectory,
        processes: ProcessGroup,
        device: torch.device,
        listener: Listener,
        save_every: float,
        origin: Origin | None = None,
    ) -> None:
        self.origin = origin
        self.settings, self.recipe = settings, settings.training
        self.store, self.directory, self.processes, self.device = store, directory, processes, device
        self.listener, self.save_every = listener, save_every
        self.precision = self.recipe.recipe.precision_on(device.type)

    @cached_property
    def session(self) -> dict[str, Any]:
        """Who trains from here on, and with what."""
        return {"processes": self.processes.count, **provenance(device_name(self.device))}

    def run(self) -> None:
        """Begins or resumes, trains, writes.

        Asked to stop, it raises KeyboardInterrupt: at once when the state is saved, or, where the last steps were being
        done, when the run is finished.
        """
        source = self.source = TextSteps(self.settings, self.store, self.processes)
        model = build_language_model(self.settings, self.store.tokenizer.rows)
        if source.windows.passkeys is not None:
            # Refused now, not at the first row with keys: the context may be too short for them.
            source.windows.passkeys.row(self.settings.data.context, self.settings.seed, 0)
        first = {} if self.origin is None else self.origin.weights(self.settings, model, self.store.tokenizer)
        self.refuse_other_settings()
        self.directory.refuse_other_precision(self.precision)
        if self.processes.is_first:
            self.directory.begin(self._description(source, model))
            write_text(self.directory.path / TOKENIZER, self.store.tokenizer.text())
        self.processes.wait()
        if self.recipe.sharded:
            learner: Learner = ShardedLearner(model, self.settings, self.processes, self.device, first)
        else:
            learner = WholeLearner(model, self.settings, self.processes, self.device, self.listener.note, first)
        self.learner, loop = learner, self._loop()
        context, padding = self.settings.data.context, self.store.tokenizer.padding
        self.held_out = Arrangement(self.store.documents("validation"), context, padding)
        try:
            self._restore(learner)
            loop.train(self)
            self._finish(learner)
        finally:
            learner.close()  # nobody writes here any more when others may
        if self.processes.agree(loop.interrupted(), self.device):
            raise KeyboardInterrupt  # so that nothing that would come next begins

    def refuse_other_settings(self) -> None:
        """A folder holds one run."""
        refuse_others(self.directory, self._facts())

    def clear(self) -> None:
        """Removes what a process has left that was killed while it wrote, or right after it had finished."""
        clear_leftovers(self.directory.path)
        if self.directory.is_finished:
            for file in (STATE, previous(Path(STATE)), SHARDED):
                (self.directory.path / file).unlink(missing_ok=True)
            for place in self.directory.path.glob("sharded-*"):
                shutil.rmtree(place)

    def _facts(self) -> dict[str, Any]:
        """What must be the same when a run is resumed."""
        return {"settings": self.settings.table(), "tokens": self.store.key}

    def _description(self, source: TextSteps, model: Any) -> dict[str, Any]:
        parameters = {name: weight.numel() for name, weight in model.named_parameters()}
        return {
            "kind": "language model",
            "encoding": self.settings.choice.label,
            "seed": self.settings.seed,
            **self._facts(),
            "begin_from": None if self.origin is None else str(self.origin.folder),
            "corpus": {key: self.store.manifest[key] for key in ("corpus", "splits", "empty_documents")},
            # As seen from here, so that both can be moved together.
            "tokens_folder": os.path.relpath(self.store.folder.resolve(), self.directory.path.resolve()),
            "tokenizer_rows": self.store.tokenizer.rows,
            "steps": self.recipe.steps,
            "epochs": round(source.epochs, 4),
            "rows_of_an_epoch": len(source.arrangement),
            "encoding_of_each_layer": model.encoding_names(),
            "encoding_settings": resolved_layers(self.settings),
            "encoding_resolved": resolved_encodings(model),
            "attention_scale": self.settings.model.logit_scale,
            "precision": self.precision,
            "parameters": sum(parameters.values()),
            "parameters_of_embeddings": sum(n for name, n in parameters.items() if "embedding" in name.split(".")[0]),
            "parameters_of_encoding": sum(n for name, n in parameters.items() if name.startswith("encodings.")),
            **self.session,
        }

    def _restore(self, learner: Learner) -> None:
        if self.processes.is_first:
            self.clear()
        warning = learner.restore(self.directory.path)
        if warning:
            self.listener.note(warning)
        if not self.processes.is_first:
            return
        self.directory.note_session(learner.step, self.session)
        log = self.directory.training
        if log.exists():
            # What was logged after the saved state will be logged again.
            write_rows(log, [row for row in read_rows(log) if row["step"] <= learner.step])

    def _loop(self) -> Loop:
        own_tokens = self.recipe.batch_tokens // self.processes.count
        return Loop(
            self.recipe.steps,
            self.recipe.validate_every,
            max(1, min(STEPS_AT_ONCE[self.device.type], TOKENS_AT_ONCE // own_tokens)),
            self.save_every,
            self.listener,
            agree=lambda said: self.processes.agree(said, self.device),
        )

    # What the loop asks for.

    @property
    def reached(self) -> Learner:
        return self.learner

    def prepare(self, first: int, end: int) -> Steps:
        return self.source.steps(first, end)

    def update(self, steps: Steps) -> Measured:
        return self.learner.run(steps)

    def settle(self) -> None:
        self.learner.settle()

    def save(self) -> None:
        self.learner.save(self.directory.path)

    def note(self, first: int, measured: Measured) -> None:
        """Logs some of the steps, and says where a gradient was not finite: that update was left out."""
        losses_KN, norms_KN = measured.read()
        if not self.processes.is_first:
            return
        steps = first + 1 + np.arange(len(losses_KN))
        for step in steps[~np.isfinite(norms_KN[:, 0])]:
            self.listener.note(f"step {step} was left out: its gradient is not finite")
        every = max(1, self.recipe.steps // 500)
        logged = np.flatnonzero((steps % every == 0) | (steps == self.recipe.steps))
        rows = [
            {
                "step": int(steps[index]),
                "tokens": int(steps[index]) * self.recipe.batch_tokens,
                "learning_rate": self.recipe.learning_rate_at(int(steps[index]) - 1),
                "loss": float(losses_KN[index, 0]),
                "gradient_norm": float(norms_KN[index, 0]),
            }
            for index in logged
        ]
        self._append(rows)

    def _append(self, rows: list[dict[str, Any]]) -> None:
        append_rows(self.directory.training, rows)
        self.listener.rows(self.directory.path.name, rows)

    def validate(self) -> None:
        """The mean loss of held-out rows, always the same ones."""
        held_out, learner = self.held_out, self.learner
        context, vocabulary = self.settings.data.context, self.store.tokenizer.rows
        wanted = -(-self.settings.data.validation_tokens // context)
        numbers = np.sort(stream(0, "validation").permutation(len(held_out))[:wanted])
        # As many rounds in all processes: those of a sharded model can only work together.
        together = max(1, LARGEST_LOGITS[self.device.type] // (context * vocabulary))
        total_2 = torch.zeros(2, dtype=torch.float64)
        for start in range(0, len(numbers), together * self.processes.count):
            group = numbers[start : start + together * self.processes.count]
            # Where there are fewer rows than processes, the rest reads one and does not count it.
            own = group[self.processes.number :: self.processes.count]
            losses_2 = learner.losses(held_out.fill(own if len(own) else group[:1])).cpu()
            total_2 += losses_2 if len(own) else 0
        total_2 = self.processes.add_up(total_2.to(self.device)).cpu()
        if self.processes.is_first:
            loss = float(total_2[0] / total_2[1])
            row = {"step": learner.step, "validation_loss": loss, "validation_targets": int(total_2[1])}
            self._append([row])

    def _finish(self, learner: Learner) -> None:
        weights = learner.weights()
        if self.processes.is_first:
            described = {
                "settings": self.settings.table(),
                "vocabulary_rows": self.store.tokenizer.rows,
                "step": learner.step,
            }
            save_tensors(self.directory.last, weights, described)
            validations = [row for row in read_rows(self.directory.training) if "validation_loss" in row]
            write_json(
                self.directory.finished,
                {
                    "steps": learner.step,
                    "tokens": learner.step * self.recipe.batch_tokens,
                    "validation_loss": validations[-1]["validation_loss"],
                    "processes": self.processes.count,
                    "seconds": round(learner.seconds, 3),
                },
            )
        learner.forget(self.directory.path)
