"""Training a fleet from its plan to finished run folders; killed at any moment, it goes on where it was.

Shape letters: N models, W weights of one model.
"""

import shutil
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lengthwise import splits
from lengthwise.encodings.encoding import Encoding
from lengthwise.engine.batches import collate
from lengthwise.engine.capture import CapturedUpdater
from lengthwise.engine.examination import Examination, failures
from lengthwise.engine.examples_of import test_of, training_data, validation_of, watched_of
from lengthwise.engine.fleet import Fleet
from lengthwise.engine.memory import keep_freed_memory
from lengthwise.engine.optimizer import corrections
from lengthwise.engine.plan import FleetPlan, run_directory
from lengthwise.engine.state import STATE, Saver, TrainingState, save_tensors
from lengthwise.engine.stopping import heeding
from lengthwise.engine.update import Measured, Steps, Updater
from lengthwise.engine.validation import Validation, is_best, validations
from lengthwise.errors import UserError
from lengthwise.evaluation.exact import judge
from lengthwise.mixers.mixer import Mixer
from lengthwise.model.decoder import Decoder
from lengthwise.records.directory import RunDirectory, StudyDirectory, make_folder
from lengthwise.records.files import append_rows, read_rows, write_json, write_rows
from lengthwise.records.provenance import provenance
from lengthwise.seeding import derive
from lengthwise.study import Run

STEPS_AT_ONCE = {"cpu": 8, "cuda": 64}
"""Steps that are prepared together; between two such stretches training can be saved."""


@dataclass
class Progress:
    """What a trainer tells whoever watches; the default watches nothing."""

    step: Callable[[int, int], None] = lambda step, steps: None
    note: Callable[[str], None] = lambda text: None
    done: Callable[[], None] = lambda: None


class Source:
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
        progress: Progress | None = None,
        save_every: float = 30.0,
        captures: bool = True,
    ) -> None:
        """`save_every`: seconds between saved states. `captures`: whether a GPU's steps are captured in graphs."""
        self.plan, self.runs, self.device = plan, plan.runs, device
        self.recipe = plan.runs[0].training
        self.progress = progress or Progress()
        self.save_every = save_every
        self.study = directory
        self.folder = directory.fleets / plan.id
        self.directories: list[RunDirectory] = [run_directory(directory, run) for run in plan.runs]
        self.tasks = [run.make_task() for run in plan.runs]
        self.tokens = [run.make_tokens() for run in plan.runs]
        if device.type == "cpu":
            keep_freed_memory()
        self.precision = self.recipe.precision_on(device.type)
        self.fleet = Fleet(plan.build(), len(plan.runs), device, self.precision)
        self.examination = Examination(self.fleet, self.tasks, self.tokens)
        self.validation = Validation(self.examination, self.runs)
        self.saver = Saver()
        self.captures = captures
        self.asked_to_stop: Callable[[], bool] = lambda: False
        """Whether someone asked while it trained; still true when training is over."""

    @property
    def state_file(self) -> Path:
        return self.folder / STATE

    def run(self) -> None:
        """Begins or goes on, trains, evaluates, writes; does nothing for runs that are finished.

        Asked to stop, it raises KeyboardInterrupt: at once when the state is saved, or, where the last steps were being
        done, when the runs are finished.
        """
        state = self._begin()
        try:
            self._train(state)
        finally:
            self.saver.close()  # nobody writes here any more when others may
        self._finish(state)
        with self.study.lock():  # nobody looks what is left to do while it goes
            shutil.rmtree(self.folder)
        if self.asked_to_stop():
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
        warning = state.restore(self.state_file)
        self.fleet.refresh()
        if warning:
            self.progress.note(warning)
        for directory in self.directories:
            if directory.is_finished:
                continue
            directory.note_session(state.step, session)
            if directory.training.exists():
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

    def _train(self, state: TrainingState) -> None:
        recipe = self.recipe
        updater = self.updater(state)
        source = Source(self.runs, self.tokens[0].pad, self.plan.row_width(self.device.type))
        started, seconds_before, saved = time.monotonic(), state.seconds, time.monotonic()
        unread: tuple[int, Measured] | None = None
        # A thread beside prepares the next steps while the device does these.
        with ThreadPoolExecutor(1) as beside, heeding(self.progress.note) as self.asked_to_stop:
            upcoming = beside.submit(source.steps, state.step, self._until(state.step))
            while state.step < recipe.steps:
                first, steps = state.step, upcoming.result()
                state.step = first + len(steps)
                last = state.step == recipe.steps
                if not last:
                    upcoming = beside.submit(source.steps, state.step, self._until(state.step))
                measured = updater.run(steps)
                # What the steps before gave is read while the device is busy with these.
                self._note(state, unread)
                unread = (first, measured)
                stops = self.asked_to_stop() and not last  # after the last steps, `run` heeds it
                saves = last or stops or time.monotonic() - saved >= self.save_every
                validates = last or state.step % recipe.validate_every == 0
                if saves or validates:
                    self._note(state, unread)
                    unread = None
                    updater.settle()
                if validates:
                    self._validate(state)
                state.seconds = seconds_before + time.monotonic() - started
                if saves:
                    self.saver.save(state, self.state_file)
                    saved = time.monotonic()
                self.progress.step(state.step, recipe.steps)
                if stops:
                    raise KeyboardInterrupt

    def updater(self, state: TrainingState) -> Updater:
        if self.device.type == "cuda" and self.captures:
            return CapturedUpdater(self.fleet, self.recipe, state, self.progress.note)
        return Updater(self.fleet, self.recipe, state)

    def _until(self, step: int) -> int:
        """Where the steps that begin at `step` and are done in one go end; never beyond a validation."""
        every = self.recipe.validate_every
        return min(step + STEPS_AT_ONCE[self.device.type], (step // every + 1) * every, self.recipe.steps)

    def _note(self, state: TrainingState, measured: tuple[int, Measured] | None) -> None:
        """Logs some of the steps. A model that diverges is named, and keeps the weights it had; no other notices."""
        if measured is None:
            return
        first, (losses_KN, norms_KN) = measured[0], measured[1].read()
        for index, model in zip(*np.nonzero(~np.isfinite(norms_KN)), strict=True):
            if state.diverged_N[model] < 0:
                step = first + int(index) + 1
                state.diverged_N[model] = step
                self.progress.note(f"{self.runs[model].name} diverged at step {step}: its gradient is not finite")
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
            append_rows(directory.training, [row])

    def _validate(self, state: TrainingState) -> None:
        for i, (directory, row) in enumerate(zip(self.directories, self.validation.rows(), strict=True)):
            if not directory.is_finished:
                append_rows(directory.training, [{"step": state.step, **row}])
            score = row["validation_exact_match"]
            if is_best(self.recipe.best, score, float(state.best_score_N[i])):
                state.best_score_N[i], state.best_step_N[i] = score, state.step
                state.best_NW[i] = self.fleet.matrix_NW[i]

    def _finish(self, state: TrainingState) -> None:
        tests = [test_of(run) for run in self.runs]
        checkpoints = {"last": self.fleet.matrix_NW, "best": state.best_NW}
        predicted = {name: self.examination.predicted(matrix, tests) for name, matrix in checkpoints.items()}
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
                    judged = self.examination.rows(i, run, matrix, tests[i], predicted[name][i], outcomes[name])
                    found[steps[name]] = list(judged)
            rows = [
                {"run": run.fingerprint, "task": run.title, "encoding": run.encoding.label, "seed": run.seed,
                 "checkpoint": name, "step": step, **row}
                for name, step in steps.items()
                for row in found[step]
            ]  # fmt: skip
            write_rows(directory.rows, rows)
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


def resolved_encodings(model: Decoder) -> dict[str, dict[str, Any]]:
    """The facts of every distinct encoding and mixer, by name, and by layers where two have the same name."""
    layers: dict[Encoding | Mixer, list[str]] = {}
    for layer, mixer in enumerate(model.mixers()):
        layers.setdefault(mixer or model.encoding_at(layer), []).append(str(layer + 1))
    names = [each.name for each in layers]
    return {
        each.name if names.count(each.name) == 1 else f"{each.name} in layers {', '.join(used)}": each.resolved()
        for each, used in layers.items()
    }


def shared_lengths(run: Run) -> list[int]:
    """Training lengths with so few different examples that training, validation and test share them."""
    task = run.make_task()
    buckets = task.buckets(run.data.spans(task)[0])
    return sorted(
        {task.length_of(bucket) for bucket in buckets if splits.is_shared(task, bucket, run.data.division(task))}
    )


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
