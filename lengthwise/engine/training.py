"""Training a fleet from its plan to finished run folders; killed at any moment, it goes on where it was.

Shape letters: N models, W weights of one model.
"""

import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lengthwise import splits
from lengthwise.engine.batches import TrainingData, collate
from lengthwise.engine.fleet import Fleet, to_device
from lengthwise.engine.optimizer import AdamW
from lengthwise.engine.plan import FleetPlan, row_width_of, run_directory
from lengthwise.engine.state import TrainingState, save_tensors
from lengthwise.errors import UserError
from lengthwise.evaluation.answers import Verdict
from lengthwise.evaluation.exact import Outcomes, judge
from lengthwise.evaluation.generate import verdicts_by_bucket
from lengthwise.evaluation.test_set import test_set, validation_set
from lengthwise.model.decoder import Decoder
from lengthwise.records.directory import RunDirectory, StudyDirectory, make_folder
from lengthwise.records.files import append_rows, read_rows, write_json, write_rows
from lengthwise.records.provenance import provenance
from lengthwise.scratchpad import Scratchpad
from lengthwise.seeding import derive
from lengthwise.sequences import Sequences
from lengthwise.study import Run

LARGEST_LOGITS = 2**25
"""Elements of the largest logits tensor that evaluation makes at once (128 MiB)."""


@dataclass
class Progress:
    """What a trainer tells whoever watches; the default watches nothing."""

    step: Callable[[int, int], None] = lambda step, steps: None
    note: Callable[[str], None] = lambda text: None
    done: Callable[[], None] = lambda: None


class Trainer:
    """Trains the runs of one fleet."""

    def __init__(
        self,
        plan: FleetPlan,
        directory: StudyDirectory,
        device: torch.device,
        progress: Progress | None = None,
        save_every: float = 30.0,
    ) -> None:
        """`save_every`: seconds between saved states; changes nothing in the results."""
        self.plan, self.runs, self.device = plan, plan.runs, device
        self.recipe = plan.runs[0].training
        self.progress = progress or Progress()
        self.save_every = save_every
        self.folder = directory.fleets / plan.id
        self.directories: list[RunDirectory] = [run_directory(directory, run) for run in plan.runs]
        self.tasks = [run.make_task() for run in plan.runs]
        self.fleet = Fleet(plan.build(), len(plan.runs), device, self.recipe.precision)

    @property
    def state_file(self) -> Path:
        return self.folder / "state.safetensors"

    def run(self) -> None:
        """Begins or goes on, trains, evaluates, writes; does nothing for runs that are finished."""
        state = self._begin()
        self._train(state)
        self._finish(state)
        shutil.rmtree(self.folder)

    def _begin(self) -> TrainingState:
        for run, directory in zip(self.runs, self.directories, strict=True):
            directory.begin(self._description(run))
        make_folder(self.folder)
        for folder in (self.folder, *(directory.path for directory in self.directories)):
            for partial in folder.glob(".*.partial"):  # left by a process that was killed while it wrote
                partial.unlink()
        write_json(self.folder / "fleet.json", {"runs": [run.fingerprint for run in self.runs]})
        self.fleet.initialize([run.seed for run in self.runs])
        state = TrainingState.begin(self.fleet.matrix_NW)
        warning = state.restore(self.state_file)
        if warning:
            self.progress.note(warning)
        for directory in self.directories:
            if directory.training.exists() and not directory.is_finished:
                # What was logged after the saved state will be logged again.
                write_rows(directory.training, [r for r in read_rows(directory.training) if r["step"] <= state.step])
        return state

    def _description(self, run: Run) -> dict[str, Any]:
        parameters = {name: shape.numel() for name, shape in self.fleet.shapes.items()}
        model = self.fleet.model
        train, test = run.data.spans(run.make_task())
        return {
            "fingerprint": run.fingerprint,
            "name": run.name,
            "task": run.title,
            "encoding": run.encoding.label,
            "seed": run.seed,
            "settings": run.table(),
            "train_lengths": [train.first, train.last],
            "test_lengths": [test.first, test.last],
            "lengths_with_shared_examples": shared_lengths(run),
            "encoding_of_each_layer": model.encoding_names(),
            "encoding_resolved": resolved_encodings(model),
            "attention_scale": run.model.logit_scale,
            "parameters": sum(parameters.values()),
            "parameters_of_encoding": sum(n for name, n in parameters.items() if name.startswith("encodings.")),
            **provenance(device_name(self.device)),
        }

    def _train(self, state: TrainingState) -> None:
        recipe, fleet = self.recipe, self.fleet
        optimizer = AdamW(recipe, fleet.decays(), state.first_NW, state.second_NW)
        data = [TrainingData(task, run.data, run.seed) for task, run in zip(self.tasks, self.runs, strict=True)]
        validation = [validation_set(task, run.data) for task, run in zip(self.tasks, self.runs, strict=True)]
        pad = self.tasks[0].vocabulary.pad
        row_width = max(row_width_of(run) for run in self.runs)
        drops = self.runs[0].model.dropout > 0
        log_every = max(1, recipe.steps // 200)
        started, seconds_before, saved = time.monotonic(), state.seconds, time.monotonic()
        while state.step < recipe.steps:
            step = state.step
            batch = collate([each.slice(step * recipe.batch, recipe.batch) for each in data], pad, row_width)
            seeds_N = self._dropout_seeds(step) if drops else None
            losses_N, gradients_NW = fleet.gradients(to_device(batch, self.device), seeds_N)
            rate = recipe.learning_rate_at(step)
            rates_N = torch.full((len(self.runs),), rate, device=self.device)
            norms_N = optimizer.update(fleet.matrix_NW, gradients_NW, rates_N, step)
            state.step = step + 1
            last = state.step == recipe.steps
            self._watch(state, norms_N)
            if state.step % log_every == 0 or last:
                self._log(state.step, {"loss": losses_N.tolist(), "gradient_norm": norms_N.tolist()}, rate)
            if state.step % recipe.validate_every == 0 or last:
                self._validate(state, validation)
            state.seconds = seconds_before + time.monotonic() - started
            if last or time.monotonic() - saved >= self.save_every:
                state.save(self.state_file)
                saved = time.monotonic()
            self.progress.step(state.step, recipe.steps)

    def _dropout_seeds(self, step: int) -> Tensor:
        seeds = [derive(run.seed, "dropout", step) for run in self.runs]
        return torch.tensor(seeds, dtype=torch.int64, device=self.device)

    def _watch(self, state: TrainingState, norms_N: Tensor) -> None:
        """A model that diverges is named, and keeps the weights it had; the others do not notice."""
        finite_N = norms_N.isfinite()
        if bool(finite_N.all()):
            return
        for i in np.flatnonzero(~finite_N.cpu().numpy()):
            if state.diverged_N[i] < 0:
                state.diverged_N[i] = state.step
                self.progress.note(f"{self.runs[i].name} diverged at step {state.step}: its gradient is not finite")

    def _log(self, step: int, values: dict[str, list[float]], rate: float) -> None:
        for i, directory in enumerate(self.directories):
            if directory.is_finished:
                continue
            row = {"step": step, "learning_rate": rate, **{name: column[i] for name, column in values.items()}}
            append_rows(directory.training, [row])

    def _validate(self, state: TrainingState, validation: list[Sequences]) -> None:
        outcomes = self.evaluate(self.fleet.matrix_NW, validation)
        for i, (directory, outcome) in enumerate(zip(self.directories, outcomes, strict=True)):
            score = float(outcome.correct_E.mean())
            tokens = float(outcome.right_tokens_E.sum() / outcome.tokens_E.sum())
            row = {"step": state.step, "validation_exact_match": score, "validation_token_accuracy": tokens}
            if not directory.is_finished:
                append_rows(directory.training, [row])
            if score > float(state.best_score_N[i]):
                state.best_score_N[i], state.best_step_N[i] = score, state.step
                state.best_NW[i] = self.fleet.matrix_NW[i]

    def evaluate(self, matrix_NW: Tensor, sequences: list[Sequences]) -> list[Outcomes]:
        """Each model on its own sequences."""
        vocabulary_rows = self.fleet.model.embedding.num_embeddings
        longest = max(int((each.size - each.prompt).max()) for each in sequences)
        together = max(1, LARGEST_LOGITS // (len(self.runs) * vocabulary_rows * longest))
        predicted: list[list[np.ndarray]] = [[] for _ in sequences]
        parts = -(-max(map(len, sequences)) // together)
        for chosen in zip(*(np.array_split(np.arange(len(each)), parts) for each in sequences), strict=True):
            rows = [each.select(indices) for each, indices in zip(sequences, chosen, strict=True)]
            batch = collate(rows, self.tasks[0].vocabulary.pad)
            tokens_NP = self.fleet.predictions(matrix_NW, to_device(batch, self.device)).cpu().numpy()
            for i, real in enumerate(batch.weights_NP > 0):
                predicted[i].append(tokens_NP[i][real])
        return [
            judge(np.concatenate(tokens), each, task.vocabulary.end)
            for tokens, each, task in zip(predicted, sequences, self.tasks, strict=True)
        ]

    def _finish(self, state: TrainingState) -> None:
        tests = [test_set(task, run.data) for task, run in zip(self.tasks, self.runs, strict=True)]
        checkpoints = {"last": self.fleet.matrix_NW, "best": state.best_NW}
        outcomes = {name: self.evaluate(matrix, tests) for name, matrix in checkpoints.items()}
        for i, (run, directory) in enumerate(zip(self.runs, self.directories, strict=True)):
            if directory.is_finished:
                continue
            steps = {"last": state.step, "best": int(state.best_step_N[i])}
            for name, matrix in checkpoints.items():
                file = directory.last if name == "last" else directory.best
                described = {"run": run.table(), "step": steps[name], "lengths": vars(self.plan.lengths)}
                save_tensors(file, self.fleet.row(matrix, i), described)
            rows = [
                {"run": run.fingerprint, "task": run.title, "encoding": run.encoding.label, "seed": run.seed,
                 "checkpoint": name, "step": steps[name], **row}
                for name, matrix in checkpoints.items()
                for row in self._rows(i, matrix, tests[i], outcomes[name][i])
            ]  # fmt: skip
            write_rows(directory.rows, rows)
            write_json(
                directory.finished,
                {
                    "steps": state.step,
                    "best_step": steps["best"],
                    "best_validation": float(state.best_score_N[i]),
                    "diverged_at": int(state.diverged_N[i]) if state.diverged_N[i] >= 0 else None,
                    "trained_together": len(self.runs),
                    "seconds_together": round(state.seconds, 3),
                },
            )

    def _rows(self, i: int, matrix_NW: Tensor, test: Sequences, outcomes: Outcomes) -> Iterator[dict[str, Any]]:
        """What model i got right in each bucket; with a scratchpad also what it writes when nobody corrects it."""
        run, task = self.runs[i], self.tasks[i]
        scratchpad = Scratchpad(run.data.scratchpad)
        written: dict[int, Counter[Verdict]] = {}
        if scratchpad.steps:
            self.fleet.model.load_state_dict(self.fleet.row(matrix_NW, i))
            written = verdicts_by_bucket(self.fleet.model, task, scratchpad, test)
        for counts in outcomes.by_bucket():
            length = task.length_of(counts["bucket"])
            row: dict[str, Any] = {"length": length, "seen": length <= run.data.spans(task)[0].last, **counts}
            row["chance"] = task.chance(counts["bucket"])
            if scratchpad.steps:
                row["answers"] = {verdict.value: written[counts["bucket"]][verdict] for verdict in Verdict}
            yield row


def resolved_encodings(model: Decoder) -> dict[str, dict[str, Any]]:
    """The facts of every distinct encoding, by name, and by layers where two have the same name."""
    names = [each.name for each in model.distinct_encodings()]
    found = {}
    for index, each in enumerate(model.distinct_encodings()):
        layers = [str(layer + 1) for layer, used in enumerate(model.encoding_of_layer) if used == index]
        name = each.name if names.count(each.name) == 1 else f"{each.name} in layers {', '.join(layers)}"
        found[name] = each.resolved()
    return found


def shared_lengths(run: Run) -> list[int]:
    """Training lengths with so few different examples that training, validation and test share them."""
    task = run.make_task()
    buckets = task.buckets(run.data.spans(task)[0])
    return sorted({task.length_of(bucket) for bucket in buckets if splits.is_shared(task, bucket)})


def device_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def choose_device(name: str) -> torch.device:
    """`auto` takes a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    kind, colon, number = name.partition(":")
    if kind not in ("cpu", "cuda") or (colon and not number.isdecimal()) or (kind == "cpu" and colon):
        raise UserError(f"unknown device {name!r}; use auto, cpu, cuda or cuda:1")
    if kind == "cuda" and int(number or 0) >= torch.cuda.device_count():
        raise UserError(
            f"device {name!r} is not there: PyTorch sees {torch.cuda.device_count()} GPUs; use --device cpu"
        )
    return torch.device(name)
