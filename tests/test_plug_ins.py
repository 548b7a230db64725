"""Plug-ins that end the program, never end, change what they are given, or answer otherwise each time: one line."""

import hashlib
import json
import re
import shutil
import signal
from pathlib import Path

import pytest
import torch
from conftest import small_table
from test_early_checks import Write, forget, write  # noqa: F401 (a fixture)
from test_one_file import ENCODING, TASK

import lengthwise as lw
from lengthwise import registry
from lengthwise.encodings.check import check
from lengthwise.encodings.encoding import Encoding, Geometry
from lengthwise.errors import UserError
from lengthwise.executors.local import outdated_runs, run_study
from lengthwise.mixers.check import check_mixer
from lengthwise.model.build import make_encoding, make_mixer
from lengthwise.placements.choosing import placement_words
from lengthwise.records.files import read_rows
from lengthwise.runtime import Listener
from lengthwise.study import study_from
from lengthwise.tasks import check as task_check
from lengthwise.tasks.choosing import make_task

GEOMETRY = Geometry.of(width=16, heads=2)
HOOK = """
import sys
from dataclasses import dataclass

import torch

from lengthwise.encodings.contribution import Contribution
from lengthwise.encodings.encoding import Encoding


class Mine(Encoding):
    name = "mine"

    def contribute(self, layout):
        return Contribution(distance_bias=self.by_distance)

    def by_distance(self, distance):
        bias = -distance.float().expand(self.geometry.heads, *distance.shape)
        BODY
        return bias
"""

STUBBORN = """
        while True:
            try:
                1 / 0
            except Exception:
                pass
"""
BODIES = {
    "NaN": ("bias = bias * float('nan')", "distance_bias must be finite, not nan"),
    "infinite": ("bias = bias + float('inf')", "distance_bias must be finite, not inf"),
    "random": ("bias = bias + torch.rand(())", "must answer the same when it is asked twice"),
    "in place": ("distance += 1", "must not change what it is given"),
    "whole numbers": ("bias = bias.long()", r"of floating point, not of torch\.int64"),
    "exit": ("sys.exit(0)", "fails: SystemExit: it ends the program"),
    "quit": ("raise SystemExit", "fails: SystemExit"),
    "interrupt": ("raise KeyboardInterrupt", "fails: KeyboardInterrupt"),
    "an odd error": (r"raise RuntimeError('a\nb\x1b[31m')", r"RuntimeError: a b\\u001b"),
    "forever": ("while True: pass", "distance_bias takes more than 1 seconds"),
    "forever in spite of errors": (
        "\n        while True:\n            try: 1 / 0\n            except Exception: pass",
        "takes",
    ),
}


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "PATIENCE", 1.0)


@pytest.mark.parametrize("kind", BODIES)
def test_encodings(write: Write, kind: str) -> None:  # noqa: F811
    body, message = BODIES[kind]
    file = write("encodings/mine.py", HOOK.replace("BODY", body))
    with pytest.raises(UserError) as caught:
        check(make_encoding({"name": "mine"}, GEOMETRY))
    said = str(caught.value)
    assert re.search(message, said) and str(file) in said and "\n" not in said, said


def test_in_the_background_an_interrupt_is_the_hook_s_own(write: Write) -> None:  # noqa: F811
    """Shells let commands in the background ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        test_encodings(write, "interrupt")
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_good_one_passes(write: Write) -> None:  # noqa: F811
    write("encodings/mine.py", HOOK.replace("BODY", "bias = bias.masked_fill(distance > 3, -torch.inf)"))
    check(make_encoding({"name": "mine"}, GEOMETRY))
    write("encodings/squared.py", ENCODING)
    forget()
    check(make_encoding({"name": "squared"}, GEOMETRY))


@pytest.mark.parametrize(
    ("line", "kind"), [("import sys; sys.exit(0)", "SystemExit"), ("raise KeyboardInterrupt", "Key")]
)
def test_a_file_that_ends_the_program(write: Write, line: str, kind: str) -> None:  # noqa: F811
    file = write("encodings/mine.py", f"{HOOK.replace('BODY', 'pass')}\n{line}\n")
    for _ in range(2):
        with pytest.raises(UserError, match=rf"{file} could not be imported: {kind}"):
            registry.encodings.get("mine")


@pytest.mark.parametrize("content", [b"\0", b"\xff", b"(" * 5000, b"x = " + b"-" * 100_000 + b"1"], ids=range(4))
def test_files_that_are_no_python(write: Write, content: bytes) -> None:  # noqa: F811
    write("encodings/mine.py", "").write_bytes(content)
    with pytest.raises(UserError, match=r"mine\.py"):
        registry.encodings.names()


TASKS = {
    "random": ("np.random.default_rng().integers(8, size=(count, length))", "the same examples for the same generator"),
    "exit": ("exit()", "draw fails: SystemExit"),
    "forever": ("next(each for each in iter(int, 1) if each)", "draw takes more than 1 seconds"),
}


@pytest.mark.parametrize("kind", TASKS)
def test_tasks(write: Write, kind: str) -> None:  # noqa: F811
    wrong, message = TASKS[kind]
    right = "generator.integers(8, size=(count, length))"
    assert right in TASK
    file = write("tasks/last.py", TASK.replace(right, wrong))
    task = make_task("last")
    with pytest.raises(UserError, match=message) as caught:
        task_check.check(task, task.train_lengths, task.test_lengths)
    assert str(file) in str(caught.value)


MIXER = """
import torch

from lengthwise.mixers.mixer import Mixer


class Mine(Mixer):
    name = "mine"

    def forward(self, x_BTD, here):
        BODY
        return x_BTD
"""
MIXERS = {
    "NaN": ("return x_BTD * float('nan')", "finite numbers of torch.float32, not NaN"),
    "another type": ("return x_BTD.double()", r"not torch\.float64"),
    "random": ("return x_BTD + torch.rand(())", "asked twice"),
    "in place": ("x_BTD += 1", "must not change what it is given"),
    "exit": ("exit(0)", "forward fails: SystemExit"),
}


@pytest.mark.parametrize("kind", MIXERS)
def test_mixers(write: Write, kind: str) -> None:  # noqa: F811
    registry.mixers.__dict__.pop("entries", None)
    body, message = MIXERS[kind]
    write("mixers/mine.py", MIXER.replace("BODY", body))
    try:
        with pytest.raises(UserError, match=message):
            check_mixer(make_mixer({"name": "mine"}, GEOMETRY))
    finally:
        registry.mixers.__dict__.pop("entries", None)


PLACEMENT = """
import numpy as np

from lengthwise.placements.placement import Placement


class Mine(Placement):
    name = "mine"

    def place(self, size_E, tracks_EW, generators):
        positions = np.tile(np.arange(size_E.max()), (len(size_E), 1))
        BODY
        return positions
"""
PLACEMENTS = {
    "good": ("pass", None),
    "random": ("positions = np.random.permutation(5)[None].repeat(3, 0)", "asked twice"),
    "in place": ("size_E += 1", "must not change|asked twice|must return"),
    "fractions": ("positions = positions / 2", "whole numbers"),
    "below 0": ("positions -= 3", "positions from 0 to below 5"),
    "beyond its reach": ("positions += 1", "positions from 0 to below 5"),
    "another shape": ("positions = positions[0]", r"must return \(examples, tokens\)"),
    "exit": ("exit(0)", "place fails: SystemExit"),
}


@pytest.mark.parametrize("kind", PLACEMENTS)
def test_placements(write: Write, kind: str) -> None:  # noqa: F811
    body, message = PLACEMENTS[kind]
    write("placements/mine.py", PLACEMENT.replace("BODY", body))
    if message is None:
        assert placement_words("mine") == "mine"
        return
    with pytest.raises(UserError, match=message):
        placement_words("mine")


def test_ctrl_c_is_not_the_fault_of_a_hook() -> None:
    import os
    import signal

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt), registry.asking("encoding none", Encoding, "embed"):
            os.kill(os.getpid(), signal.SIGINT)
            torch.zeros(1).item()
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


def test_nothing_is_written(tmp_path: Path, write: Write) -> None:  # noqa: F811
    from conftest import small_table

    from lengthwise.executors.local import run_study
    from lengthwise.study import study_from

    write("encodings/mine.py", HOOK.replace("BODY", "sys.exit(0)"))
    with pytest.raises(UserError, match="SystemExit"):
        run_study(study_from(small_table(encodings=["mine"])), tmp_path / "out", "cpu")
    assert not (tmp_path / "out").exists()


# Files that change between two commands


def stop(step: int, steps: int) -> None:
    if 10 <= step < steps:
        raise KeyboardInterrupt


def version(write: Write, slope: float) -> str:  # noqa: F811
    """Writes the encoding `mine` with another slope, as if in a new process; returns the checksum of its file."""
    file = write("encodings/mine.py", HOOK.replace("BODY", f"bias = {slope} * bias"))
    forget()
    return hashlib.sha256(file.read_bytes()).hexdigest()


def described(folder: Path) -> list[dict[str, str]]:
    return [json.loads(file.read_text()).get("outside") for file in sorted(folder.glob("*/*/*/run.json"))]


def test_a_run_knows_all_its_files_from_outside(write: Write) -> None:  # noqa: F811
    files = [write("tasks/last.py", TASK), write("encodings/squared.py", ENCODING)]
    for room, file, name in (("placements", "random_start", "random-start"), ("mixers", "lstm", "lstm")):
        text = (Path(lw.__file__).parent / room / f"{file}.py").read_text()
        files.append(write(f"{room}/my_{file}.py", text.replace(f'name = "{name}"', f'name = "my-{name}"')))
    forget()
    changes = {"tasks": ["last"], "encodings": [["squared", "my-lstm"]], "data__placement": "my-random-start"}
    (run,) = study_from(small_table(**changes, seeds=[1])).runs()
    expected = {f"{file.parent.name}/{file.name}": hashlib.sha256(file.read_bytes()).hexdigest() for file in files}
    assert run.outside == expected
    (own,) = study_from(small_table(encodings=["none"], seeds=[1])).runs()
    assert own.outside == {}
    files[0].write_text(TASK + "\n")
    (again,) = study_from(small_table(**changes, seeds=[1])).runs()
    assert again.outside == expected, "what was imported counts"


def test_finished_runs_of_an_earlier_version_stay_and_are_named(write: Write, tmp_path: Path) -> None:  # noqa: F811
    out, changes = tmp_path / "runs", {"encodings": ["mine"], "seeds": [1], "training__steps": 2}
    first = version(write, 1)
    study = study_from(small_table(**changes))
    names = [run.fingerprint for run in study.runs()]
    run_study(study, out, "cpu")
    assert described(out) == [{"encodings/mine.py": first}] and outdated_runs(study, out) == []
    assert version(write, 2) != first
    study = study_from(small_table(**changes))
    assert [run.fingerprint for run in study.runs()] == names
    with pytest.warns(UserWarning, match=r"encodings/mine\.py has changed since .*\(1 of them\).*--out"):
        lw.run(study, out, "cpu")
    assert described(out) == [{"encodings/mine.py": first}]
    version(write, 1)
    assert outdated_runs(study_from(small_table(**changes)), out) == []


def test_a_half_trained_run_is_not_resumed_with_another_version(write: Write, tmp_path: Path) -> None:  # noqa: F811
    out, changes = tmp_path / "runs", {"encodings": ["mine"], "seeds": [1]}
    version(write, 1)
    with pytest.raises(KeyboardInterrupt):
        run_study(study_from(small_table(**changes)), out, "cpu", lambda *_: Listener(step=stop), save_every=0)
    second = version(write, 2)
    study = study_from(small_table(**changes))
    with pytest.raises(UserError, match=r"was begun with another version of encodings/mine\.py; .*--out") as caught:
        run_study(study, out, "cpu")
    (fleet,) = re.findall(r"or delete (\S+), and its runs begin anew", str(caught.value))
    shutil.rmtree(fleet)
    run_study(study, out, "cpu")
    assert described(out) == [{"encodings/mine.py": second}] and outdated_runs(study, out) == []
    steps = [row["step"] for row in read_rows(next(out.glob("*/*/*/training.jsonl"))) if "loss" in row]
    assert steps == list(range(1, 31)), "from the first step on"
