"""Training a language model from a corpus to a finished run folder; killed at any moment, it goes on where it was.

RUN/
  run.json                  before step 0: settings, corpus, commit, versions, hardware; later who else went on with it
  tokenizer.json
  training.jsonl            loss by step, validation loss
  state.safetensors         while it is unfinished (sharded: sharded-STEP/)
  last.safetensors          the weights
  finished.json             written last
"""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lengthwise.engine.state import save_tensors
from lengthwise.engine.stopping import heeding
from lengthwise.engine.training import STEPS_AT_ONCE, Progress, device_name, resolved_encodings
from lengthwise.engine.update import Measured
from lengthwise.errors import UserError
from lengthwise.language.learner import Learner
from lengthwise.language.model import TOKENIZER, build_language_model, resolved_layers
from lengthwise.language.prepared import tokens_of
from lengthwise.language.processes import Processes, together
from lengthwise.language.settings import LanguageSettings
from lengthwise.language.sharded import ShardedLearner
from lengthwise.language.source import Source
from lengthwise.language.store import TokenStore
from lengthwise.language.whole import WholeLearner
from lengthwise.language.windows import Arrangement
from lengthwise.records.directory import RunDirectory, StudyDirectory, differences
from lengthwise.records.files import append_rows, read_json, read_rows, write_json, write_rows, write_text
from lengthwise.records.provenance import provenance
from lengthwise.seeding import stream

TOKENS_AT_ONCE = 2**21
"""Tokens that are prepared together, where fewer than the usual number of steps have as many."""
LARGEST_LOGITS = {"cpu": 2**25, "cuda": 2**29}
"""Elements of the largest logits tensor of a validation."""


def train_language_model(
    corpus: Path,
    settings: LanguageSettings,
    out: Path,
    device: str = "auto",
    progress: Progress | None = None,
    save_every: float = 60.0,
    tokens_folder: Path | None = None,
) -> bool:
    """Trains into the folder `out`; returns False where that was finished already.

    `corpus`: texts, or what `lengthwise language prepare` made of them. `save_every`: seconds between saved states.
    `tokens_folder`: where tokens of texts are kept, for all runs that read them; by default `tokens` beside `out`.
    Under torchrun every process calls this.
    """
    progress = progress or Progress()
    with ExitStack() as stack:
        processes, place = stack.enter_context(together(device))
        directory = RunDirectory(out)
        if processes.is_first:
            stack.enter_context(StudyDirectory(out).lock())  # one at a time
        else:
            progress = Progress()
        _ = processes.part(settings.rows)
        given = (corpus, settings.data, tokens_folder or out.parent / "tokens", progress.note)
        store = tokens_of(*given) if processes.is_first else None
        processes.wait()
        store = store or tokens_of(*given)
        finished = directory.is_finished
        processes.wait()  # nobody finishes before all have looked
        trainer = LanguageTrainer(settings, store, directory, processes, place, progress, save_every)
        if finished:
            trainer.refuse_other_settings()
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
        processes: Processes,
        device: torch.device,
        progress: Progress,
        save_every: float,
    ) -> None:
        self.settings, self.recipe = settings, settings.training
        self.store, self.directory, self.processes, self.device = store, directory, processes, device
        self.progress, self.save_every = progress, save_every
        self.precision = self.recipe.recipe.precision_on(device.type)
        self.asked_to_stop: Callable[[], bool] = lambda: False
        """Whether someone asked while it trained; still true when training is over."""

    @cached_property
    def session(self) -> dict[str, Any]:
        """Who trains from here on, and with what."""
        return {"processes": self.processes.count, **provenance(device_name(self.device))}

    def run(self) -> None:
        """Begins or goes on, trains, writes.

        Asked to stop, it raises KeyboardInterrupt: at once when the state is saved, or, where the last steps were being
        done, when the run is finished.
        """
        source = Source(self.settings, self.store, self.processes)
        model = build_language_model(self.settings, self.store.tokenizer.rows)
        if model.last_position is not None and model.last_position < self.settings.data.context - 1:
            raise UserError(
                f"the encoding ends at position {model.last_position}, the context at {self.settings.data.context - 1};"
                " set the encoding's 'rows' to 0 or higher"
            )
        if source.windows.passkeys is not None:
            # Refused now, not at the first row with keys: the context may be too short for them.
            source.windows.passkeys.row(self.settings.data.context, self.settings.seed, 0)
        self.refuse_other_settings()
        self.directory.refuse_other_precision(self.precision)
        if self.processes.is_first:
            self.directory.begin(self._description(source, model))
            write_text(self.directory.path / TOKENIZER, self.store.tokenizer.text())
        self.processes.wait()
        learner: Learner
        if self.recipe.sharded:
            learner = ShardedLearner(model, self.settings, self.processes, self.device)
        else:
            learner = WholeLearner(model, self.settings, self.processes, self.device, self.progress.note)
        try:
            self._restore(learner)
            self._train(learner, source)
            self._finish(learner)
        finally:
            learner.close()  # nobody writes here any more when others may
        if self.processes.agree(self.asked_to_stop(), self.device):
            raise KeyboardInterrupt  # so that nothing that would come next begins

    def refuse_other_settings(self) -> None:
        """A folder holds one run."""
        if (self.directory.path / "study.json").exists():
            raise UserError(f"{self.directory.path} holds a study; choose another folder with --out")
        if not self.directory.description.exists():
            return
        before, now = read_json(self.directory.description), self._facts()
        changes = [f"{key} was {old!r}, is {new!r}" for key, old, new in differences(_flat(before), _flat(now))]
        if changes:
            raise UserError(
                f"{self.directory.path} holds a run with other settings ({'; '.join(changes[:3])}); "
                "choose another folder with --out, or delete this one"
            )

    def _facts(self) -> dict[str, Any]:
        """What must be the same when a run goes on."""
        return {"settings": self.settings.table(), "tokens": self.store.key}

    def _description(self, source: Source, model: Any) -> dict[str, Any]:
        parameters = {name: weight.numel() for name, weight in model.named_parameters()}
        return {
            "kind": "language model",
            "encoding": self.settings.choice.label,
            "seed": self.settings.seed,
            **self._facts(),
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
            for partial in self.directory.path.glob(".*.partial"):  # left by a process that was killed while it wrote
                partial.unlink()
        warning = learner.restore(self.directory.path)
        if warning:
            self.progress.note(warning)
        if not self.processes.is_first:
            return
        self.directory.note_session(learner.step, self.session)
        log = self.directory.training
        if log.exists():
            # What was logged after the saved state will be logged again.
            write_rows(log, [row for row in read_rows(log) if row["step"] <= learner.step])

    def _train(self, learner: Learner, source: Source) -> None:
        steps_in_all = self.recipe.steps
        held_out = Arrangement(
            self.store.documents("validation"), self.settings.data.context, self.store.tokenizer.padding
        )
        started, seconds_before, saved = time.monotonic(), learner.seconds, time.monotonic()
        unread: tuple[int, Measured] | None = None
        # A thread beside prepares the next steps while the device does these.
        with ThreadPoolExecutor(1) as beside, heeding(self.progress.note) as self.asked_to_stop:
            upcoming = beside.submit(source.steps, learner.step, self._until(learner.step))
            while learner.step < steps_in_all:
                first, steps = learner.step, upcoming.result()
                learner.step = first + len(steps)
                last = learner.step == steps_in_all
                if not last:
                    upcoming = beside.submit(source.steps, learner.step, self._until(learner.step))
                measured = learner.run(steps)
                # What the steps before gave is read while the device is busy with these.
                self._note(unread)
                unread = (first, measured)
                # After the last steps, `run` heeds it.
                stops = self.processes.agree(self.asked_to_stop() and not last, self.device)
                due = last or stops or time.monotonic() - saved >= self.save_every
                saves = self.processes.agree(due, self.device)
                validates = last or learner.step % self.recipe.validate_every == 0
                if saves or validates:
                    self._note(unread)
                    unread = None
                    learner.settle()
                if validates:
                    self._validate(learner, held_out)
                learner.seconds = seconds_before + time.monotonic() - started
                if saves:
                    learner.save(self.directory.path)
                    saved = time.monotonic()
                self.progress.step(learner.step, steps_in_all)
                if stops:
                    raise KeyboardInterrupt

    def _until(self, step: int) -> int:
        """Where the steps that begin at `step` and are done in one go end; never beyond a validation."""
        every = self.recipe.validate_every
        own_tokens = self.recipe.batch_tokens // self.processes.count
        together = max(1, min(STEPS_AT_ONCE[self.device.type], TOKENS_AT_ONCE // own_tokens))
        return min(step + together, (step // every + 1) * every, self.recipe.steps)

    def _note(self, measured: tuple[int, Measured] | None) -> None:
        """Logs some of the steps, and says where a gradient was not finite: that update was left out."""
        if measured is None:
            return
        first, (losses_KN, norms_KN) = measured[0], measured[1].read()
        if not self.processes.is_first:
            return
        steps = first + 1 + np.arange(len(losses_KN))
        for step in steps[~np.isfinite(norms_KN[:, 0])]:
            self.progress.note(f"step {step} was left out: its gradient is not finite")
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
        append_rows(self.directory.training, rows)

    def _validate(self, learner: Learner, held_out: Arrangement) -> None:
        """The mean loss of held-out rows, always the same ones."""
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
            append_rows(self.directory.training, [row])

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


def _flat(facts: dict[str, Any]) -> dict[str, Any]:
    """Settings under names such as `training.tokens`."""
    flat = {"tokens": facts["tokens"]}
    for name, value in facts["settings"].items():
        inside = name in ("model", "data", "training")
        flat |= {f"{name}.{key}": each for key, each in value.items()} if inside else {name: value}
    return flat
