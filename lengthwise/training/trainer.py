"""Training a fleet from its plan to finished run folders; killed at any moment, it resumes.

Shape letters: N models, W weights of one model.
"""

import math
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lengthwise.data import splits
from lengthwise.encodings.encoding import Encoding
from lengthwise.errors import RunError
from lengthwise.evaluation.exact import judge
from lengthwise.mixers.mixer import Mixer
from lengthwise.model.backend import explain
from lengthwise.model.decoder import Decoder
from lengthwise.records.directory import RunDirectory, StudyDirectory, make_folder
from lengthwise.records.files import append_rows, read_rows, write_json, write_rows
from lengthwise.records.points import axis_columns
from lengthwise.records.provenance import provenance
from lengthwise.runtime import Listener, device_name
from lengthwise.seeding import derive
from lengthwise.study import Run
from lengthwise.training.batches import collate
from lengthwise.training.capture import CapturedUpdater
from lengthwise.training.evaluator import Evaluator, failures
from lengthwise.training.examples_of import test_of, training_data, validation_of, watched_of
from lengthwise.training.fleet import Fleet
from lengthwise.training.loop import STEPS_AT_ONCE, Loop
from lengthwise.training.memory import keep_freed_memory
from lengthwise.training.optimizer import corrections
from lengthwise.training.plan import FleetPlan, run_directory
from lengthwise.training.state import STATE, Saver, TrainingState, save_tensors
from lengthwise.training.update import Measured, Steps, Updater
from lengthwise.training.validation import Validation, is_best, validations


class TaskSteps:
    """Prepares steps for a fleet: the same ones, however they are cut into stretches."""

    def __init__(self, runs: Sequence[Run], pad: int, row_width: int) -> None:
        self.runs, self.row_width = runs, row_width
        self.data = [training_data(run) for run in runs]
        self.pad = pad

    def steps(self, first: int, end: int) -> Steps:
        """Steps `first` to `end`."""
        recipe = self.runs[0].training
        numbers = range(first, end)
        rates = [[run.training.learning_rate_at(step) for run in self.runs] for step in numbers]
        examples = [each.batches(first, end, recipe.batch) for each in self.data]
        return Steps(
            collate(examples, self.pad, self.row_width, recipe.batch),
            seeds_KN=np.array([[derive(run.seed, "dropout", step) for run in self.runs] for step in numbers]),
            rates_KN=np.array(rates, np.float32),
            corrections_K2=np.array([corrections(recipe, step) for step in numbers], np.float32),
        )


class Trainer:
    """Trains the runs of one fleet."""

    def __init__(
        self,
        plan: FleetPlan,
        directory: StudyDirectory,
        device: torch.device,
        listener: Listener | None = None,
        save_every: float = 30.0,
        captures: bool = True,
        until: float = math.inf,
    ) -> None:
        """`save_every`: seconds between saved states. `captures`: whether a GPU's steps are captured in graphs.
        `until`: when to save and stop, in seconds of `time.monotonic`."""
        self.plan, self.runs, self.device = plan, plan.runs, device
        self.recipe = plan.runs[0].training
        self.listener = listener or Listener()
        self.study = directory
        self.folder = directory.fleets / plan.id
        self.directories: list[RunDirectory] = [run_directory(directory, run) for run in plan.runs]
        self.tasks = [run.make_task() for run in plan.runs]
        self.tokens = [run.make_tokens() for run in plan.runs]
        if device.type == "cpu":
            keep_freed_memory()
        self.precision = self.recipe.precision_on(device.type)
        self.fleet = Fleet(plan.build(), len(plan.runs), device, self.precision)
        self.evaluator = Evaluator(self.fleet, self.tasks, self.tokens, self.listener.note)
        self.validation = Validation(self.evaluator, self.runs)
        self.saver = Saver()
        self.captures = captures
        at_once, every = STEPS_AT_ONCE[device.type], self.recipe.validate_every
        self.loop = Loop(self.recipe.steps, every, at_once, save_every, self.listener, until=until)

    @property
    def state_file(self) -> Path:
        return self.folder / STATE

    def run(self) -> None:
        """Begins or resumes, trains, evaluates, writes; does nothing for runs that are finished.

        Asked to stop, it raises KeyboardInterrupt: at once when the state is saved, or, where the last steps were being
        done, when the runs are finished.
        """
        self.state = self._begin()
        self.updating = self.updater(self.state)
        self.source = TaskSteps(self.runs, self.tokens[0].pad, self.plan.row_width(self.device.type))
        try:
            self.loop.train(self)
        finally:
            self.saver.close()  # nobody writes here any more when others may
        self._finish(self.state)
        with self.study.lock():  # nobody looks what is left to do while it goes
            shutil.rmtree(self.folder)
        if self.loop.interrupted():
            raise KeyboardInterrupt  # so that no other fleet begins

    def _begin(self) -> TrainingState:
        session = provenance(device_name(self.device))
        for directory in self.directories:
            if not directory.is_finished:
                directory.refuse_other_precision(self.precision)
        for run, directory in zip(self.runs, self.directories, strict=True):
            directory.begin({**self._description(run), **session})
        make_folder(self.folder)
        for folder in (self.folder, *(directory.path for directory in self.directories)):
            for partial in folder.glob(".*.partial"):  # left by a process that was killed while it wrote
                partial.unlink()
        write_json(self.folder / "fleet.json", {"runs": [run.fingerprint for run in self.runs]})
        self.fleet.initialize([run.seed for run in self.runs])
        state = TrainingState.begin(self.fleet.matrix_NW)
        warning = state.restore(self.state_file, self.recipe.steps)
        self.fleet.refresh()
        if warning:
            self.listener.note(warning)
        for directory in self.directories:
            if directory.is_finished:
                continue
            directory.note_session(state.step, session)
            if directory.training.exists():
                # What was logged after the saved state will be logged again.
                write_rows(directory.training, logged_until(directory, state.step))
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
            **({"grid": dict(run.grid)} if run.grid else {}),
            "settings": run.table(),
            **({"outside": run.outside} if run.outside else {}),
            "train_lengths": [train.first, train.last],
            "test_lengths": [test.first, test.last],
            "lengths_with_shared_examples": shared_lengths(run),
            "examples": self._examples(run),
            "encoding_of_each_layer": model.encoding_names(),
            "encoding_resolved": resolved_encodings(model),
            "attention_scale": run.model.logit_scale,
            "precision": self.precision,
            "parameters": sum(parameters.values()),
            "parameters_of_encoding": sum(n for name, n in parameters.items() if name.startswith("encodings.")),
        }

    def _examples(self, run: Run) -> dict[str, int]:
        """How many there are of each kind; 0 for endless ones."""
        watched, task = watched_of(run), run.make_task()
        return {
            "training": min(training_data(run).period, run.data.training_count(task)),
            "validation": len(validation_of(run)),
            "watched": 0 if watched is None else len(watched),
            "test": len(test_of(run)),
        }

    def updater(self, state: TrainingState) -> Updater:
        if self.device.type == "cuda" and self.captures:
            return CapturedUpdater(self.fleet, self.recipe, state, self.listener.note)
        return Updater(self.fleet, self.recipe, state)

    # What the loop asks for.

    @property
    def reached(self) -> TrainingState:
        return self.state

    def prepare(self, first: int, end: int) -> Steps:
        return self.source.steps(first, end)

    def update(self, steps: Steps) -> Measured:
        return self.updating.run(steps)

    def settle(self) -> None:
        self.updating.settle()

    def save(self) -> None:
        self.saver.save(self.state, self.state_file)

    def note(self, first: int, measured: Measured) -> None:
        """Logs some of the steps. A model that diverges is named, and keeps the weights it had; no other notices."""
        state, (losses_KN, norms_KN) = self.state, measured.read()
        for index, model in zip(*np.nonzero(~np.isfinite(norms_KN)), strict=True):
            if state.diverged_N[model] < 0:
                step = first + int(index) + 1
                state.diverged_N[model] = step
                self.listener.note(f"{self.runs[model].name} diverged at step {step}: its gradient is not finite")
        every = max(1, self.recipe.steps // 200)
        steps = first + 1 + np.arange(len(losses_KN))
        for index in np.flatnonzero((steps % every == 0) | (steps == self.recipe.steps)):
            values = {"loss": losses_KN[index].tolist(), "gradient_norm": norms_KN[index].tolist()}
            self._log(int(steps[index]), values)

    def _log(self, step: int, values: dict[str, list[float]]) -> None:
        for i, directory in enumerate(self.directories):
            if directory.is_finished:
                continue
            rate = self.runs[i].training.learning_rate_at(step - 1)
            row = {"step": step, "learning_rate": rate, **{name: column[i] for name, column in values.items()}}
            self._append(i, [row])

    def _append(self, model: int, rows: list[dict[str, Any]]) -> None:
        append_rows(self.directories[model].training, rows)
        self.listener.rows(self.runs[model].name, rows)

    def validate(self) -> None:
        state = self.state
        for i, (directory, row) in enumerate(zip(self.directories, self.validation.rows(), strict=True)):
            if not directory.is_finished:
                self._append(i, [{"step": state.step, **row}])
            score = row["validation_exact_match"]
            if is_best(self.recipe.best, score, float(state.best_score_N[i])):
                state.best_score_N[i], state.best_step_N[i] = score, state.step
                state.best_NW[i] = self.fleet.matrix_NW[i]

    def _finish(self, state: TrainingState) -> None:
        tests = [test_of(run) for run in self.runs]
        checkpoints = {"last": self.fleet.matrix_NW, "best": state.best_NW}
        predicted = {name: self.evaluator.predicted(matrix, tests) for name, matrix in checkpoints.items()}
        for i, (run, directory) in enumerate(zip(self.runs, self.directories, strict=True)):
            if directory.is_finished:
                continue
            steps = {"last": state.step, "best": int(state.best_step_N[i])}
            for name, matrix in checkpoints.items():
                file = directory.last if name == "last" else directory.best
                described = {"run": run.table(), "step": steps[name], "lengths": vars(self.plan.lengths)}
                save_tensors(file, self.fleet.row(matrix, i), described)
            outcomes = {name: judge(tokens[i], tests[i], self.tokens[i].end) for name, tokens in predicted.items()}
            wrong = failures(self.tasks[i], self.tokens[i], tests[i], predicted["last"][i], outcomes["last"])
            write_rows(directory.failures, [{"run": run.fingerprint, **row} for row in wrong])
            found: dict[int, list[dict[str, Any]]] = {}  # by step: the best weights are often the last ones
            for name, matrix in checkpoints.items():
                if steps[name] not in found:
                    judged = self.evaluator.rows(i, run, matrix, tests[i], predicted[name][i], outcomes[name])
                    found[steps[name]] = list(judged)
            rows = [
                {"run": run.fingerprint, "task": run.title, "encoding": run.encoding.label, "seed": run.seed,
                 **axis_columns(run.grid), "checkpoint": name, "step": step, **row}
                for name, step in steps.items()
                for row in found[step]
            ]  # fmt: skip
            write_rows(directory.rows, rows)
            self.listener.rows(self.runs[i].name, rows)
            write_json(
                directory.finished,
                {
                    "steps": state.step,
                    "best_step": steps["best"],
                    "best_validation": float(state.best_score_N[i]),
                    "validations": validations(directory),
                    "diverged_at": int(state.diverged_N[i]) if state.diverged_N[i] >= 0 else None,
                    "trained_together": len(self.runs),
                    "seconds_together": round(state.seconds, 3),
                },
            )


def logged_until(directory: RunDirectory, step: int) -> list[dict[str, Any]]:
    """What was logged up to a step."""
    rows = read_rows(directory.training)
    for number, row in enumerate(rows, start=1):
        if not isinstance(row, dict) or type(row.get("step")) is not int:
            raise RunError(f"{directory.training}:{number} has no step; restore it, or delete {directory.path}")
    return [row for row in rows if row["step"] <= step]


def resolved_encodings(model: Decoder) -> dict[str, dict[str, Any]]:
    """The facts of every distinct encoding and mixer, by name, and by layers where two have the same name.

    `attention` says how a GPU computes that of packed rows: fused, or eager and why.
    """
    layers: dict[Encoding | Mixer, list[str]] = {}
    for layer, mixer in enumerate(model.mixers()):
        layers.setdefault(mixer or model.encoding_at(layer), []).append(str(layer + 1))
    names = [each.name for each in layers]
    return {
        each.name if names.count(each.name) == 1 else f"{each.name} in layers {', '.join(used)}": {
            **each.resolved(),
            **({"attention": explain(each, model.config)} if isinstance(each, Encoding) else {}),
        }
        for each, used in layers.items()
    }


def shared_lengths(run: Run) -> list[int]:
    """Training lengths with so few different examples that training, validation and test share them."""
    task = run.make_task()
    buckets = task.buckets(run.data.spans(task)[0])
    return sorted(
        {task.length_of(bucket) for bucket in buckets if splits.is_shared(task, bucket, run.data.division(task))}
    )
