"""The training loop, with a training that knows what must happen; and what listeners are told."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import slow

from lengthwise.errors import UserError
from lengthwise.executors.local import run_study
from lengthwise.records.files import read_rows
from lengthwise.runtime import Listener, Row, choose_device, together
from lengthwise.study import load_study
from lengthwise.training.loop import Loop
from lengthwise.training.update import Measured


class Recorded:
    """A training that does nothing and remembers what it was asked for."""

    def __init__(self, step: int = 0, when: Callable[[int], None] = lambda step: None) -> None:
        self.step, self.seconds, self.when = step, 5.0, when
        self.prepared: list[tuple[int, int]] = []
        self.updated: list[tuple[int, int]] = []
        self.noted: list[tuple[int, int]] = []
        self.validated: list[int] = []
        self.saved: list[int] = []
        self.settled: list[int] = []

    @property
    def reached(self) -> "Recorded":
        return self

    def prepare(self, first: int, end: int) -> tuple[int, int]:
        self.prepared.append((first, end))
        return first, end

    def update(self, steps: tuple[int, int]) -> Measured:
        self.updated.append(steps)
        self.when(steps[1])
        return Measured(torch.zeros(steps[1] - steps[0], 2, 1))

    def note(self, first: int, measured: Measured) -> None:
        self.noted.append((first, first + len(measured.read()[0])))

    def settle(self) -> None:
        self.settled.append(self.step)

    def validate(self) -> None:
        assert self.settled[-1] == self.step and self.noted[-1][1] == self.step, "all is there before it is judged"
        self.validated.append(self.step)

    def save(self) -> None:
        assert self.settled[-1] == self.step and self.noted[-1][1] == self.step, "all is there before it is saved"
        self.saved.append(self.step)


def test_stretches_end_at_validations_and_every_step_is_prepared_run_and_noted_once() -> None:
    training, told = Recorded(), []
    Loop(25, 10, 4, save_every=1e9, listener=Listener(step=lambda *each: told.append(each))).train(training)
    stretches = [(0, 4), (4, 8), (8, 10), (10, 14), (14, 18), (18, 20), (20, 24), (24, 25)]
    assert training.prepared == training.updated == training.noted == stretches
    assert training.validated == [10, 20, 25]
    assert training.saved == [25], "the end is always saved"
    assert told == [(end, 25) for _, end in stretches]
    assert training.seconds >= 5.0


def test_it_resumes_and_does_nothing_at_the_end() -> None:
    training = Recorded(step=13)
    Loop(20, 10, 4).train(training)
    assert training.updated == [(13, 17), (17, 20)]
    finished = Recorded(step=20)
    Loop(20, 10, 4).train(finished)
    assert finished.updated == finished.saved == []


def test_it_saves_after_so_many_seconds() -> None:
    training = Recorded()
    Loop(12, 100, 4, save_every=0.0).train(training)
    assert training.saved == [4, 8, 12]


def test_asked_to_stop_it_saves_and_stops() -> None:
    def ask(step: int) -> None:
        if step == 8:
            signal.raise_signal(signal.SIGTERM)

    training, notes = Recorded(when=ask), []
    loop = Loop(20, 100, 4, listener=Listener(note=notes.append))
    with pytest.raises(KeyboardInterrupt):
        loop.train(training)
    assert training.saved == [8] and training.updated[-1] == (4, 8)
    assert len(notes) == 1 and "stopping" in notes[0]


def test_asked_during_the_last_steps_it_ends_and_the_question_is_not_lost() -> None:
    training = Recorded(when=lambda step: signal.raise_signal(signal.SIGTERM) if step == 20 else None)
    loop = Loop(20, 100, 4)
    loop.train(training)
    assert training.saved == training.validated == [20]
    assert loop.interrupted()


def test_processes_stop_and_save_together() -> None:
    """What one says, all do, and all ask as often: else they would wait for each other for ever."""
    asked: list[bool] = []

    def agree(said: bool) -> bool:
        asked.append(said)
        return len(asked) == 3  # another process wants to stop after the second stretch

    training = Recorded()
    with pytest.raises(KeyboardInterrupt):
        Loop(20, 100, 4, save_every=1e9, agree=agree).train(training)
    assert training.updated == [(0, 4), (4, 8)]
    assert asked == [False, False, False, True]


def test_an_error_beside_is_raised() -> None:
    class Broken(Recorded):
        def prepare(self, first: int, end: int) -> tuple[int, int]:
            if first >= 8:
                raise UserError("no more examples")
            return super().prepare(first, end)

    with pytest.raises(UserError, match="no more examples"):
        Loop(20, 100, 4).train(Broken())


@pytest.mark.parametrize("workers", [1, slow(2)])
def test_listeners_are_told_every_row_that_is_written(tmp_path: Path, workers: int) -> None:
    """In this process and from workers: losses, validations and results, in the order of the files."""
    study = load_study(
        "quickstart",
        [
            "tasks=[{name='copy.repeat', symbols=20}]",
            "encodings=['none', 'alibi']",
            *("seeds=[1]", "training.steps=16", "training.validate_every=8"),
            *("data.validation=10", "data.test_per_length=2", "data.watched=5"),
        ],
    )
    told: dict[str, list[Row]] = {}
    done: list[int] = []
    steps: list[int] = []

    def watch(number: int, fleets: int, plan: object) -> Listener:
        one = Listener(rows=lambda run, rows: told.setdefault(run, []).extend(rows))
        other = Listener(step=lambda step, steps_: steps.append(step), done=lambda: done.append(number))
        return together([one, other])

    run_study(study, tmp_path, "cpu", watch, workers=workers)
    assert sorted(told) == ["copy.repeat/alibi/seed-1", "copy.repeat/none/seed-1"]
    for run, rows in told.items():
        task, encoding, _ = run.split("/")
        (folder,) = (tmp_path / task / encoding).iterdir()
        assert rows == read_rows(folder / "training.jsonl") + read_rows(folder / "rows.jsonl")
    assert sorted(done) == [0, 1] and steps.count(16) == 2


@pytest.mark.parametrize("name", ["gpu", "cuda:x", "cpu:0", "cuda:99", ""])
def test_a_device_that_is_not_there_is_one_line(name: str) -> None:
    with pytest.raises(UserError, match="device"):
        choose_device(name)
