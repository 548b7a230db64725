"""Workers that die: the reason is told, what they worked on is tried once more, and no pipe is taken for a terminal."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import small_study

from lengthwise.errors import RunError
from lengthwise.executors import processes
from lengthwise.executors.local import run_study
from lengthwise.runtime import Listener
from lengthwise.training.plan import FleetPlan

STUDY = small_study(seeds=[1], training__steps=4, training__validate_every=2)
KILLED = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
HALF = "import sys; sys.stdin.readline(); sys.stdin.readline(); print('{\"kind\": ', end=''); sys.exit(3)"
BROKEN = "import sys, json; sys.stdin.readline(); print(json.dumps({'kind': 'died', 'text': 'CUDA error: gone'}))"


def dying(monkeypatch: pytest.MonkeyPatch, code: str, times: int) -> list[int]:
    """The first `times` workers run `code` instead; returns a list that grows with each start."""
    start, started = processes._start, []

    def begin() -> subprocess.Popen[str]:
        started.append(1)
        if len(started) > times:
            return start()
        pipe = subprocess.PIPE
        return subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True)

    monkeypatch.setattr(processes, "_start", begin)
    return started


def watching(notes: list[str]) -> Callable[[int, int, FleetPlan], Listener]:
    return lambda number, fleets, plan: Listener(note=notes.append)


REASONS = {KILLED: "killed by SIGKILL, perhaps for want of memory", HALF: "exit code 3", BROKEN: "CUDA error: gone"}


@pytest.mark.slow
@pytest.mark.parametrize("code", REASONS, ids=["killed", "half a line", "device"])
def test_what_a_dead_worker_did_is_tried_once_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    notes: list[str] = []
    started = dying(monkeypatch, code, times=1)
    run_study(STUDY, tmp_path, "cpu", watching(notes), workers=2)
    assert len(started) == 3 and len(list(tmp_path.glob("*/*/*/finished.json"))) == 2
    (note,) = notes
    assert REASONS[code] in note and note.endswith("once more in a new process")


@pytest.mark.parametrize("code", REASONS, ids=["killed", "half a line", "device"])
def test_workers_that_die_again_are_an_error_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    dying(monkeypatch, code, times=99)
    with pytest.raises(RunError, match="a worker process ended unexpectedly") as caught:
        run_study(STUDY, tmp_path, "cpu", workers=2)
    assert REASONS[code] in str(caught.value) or "killed by SIGKILL" in str(caught.value)


ON_A_CPU = """
import sys, torch, types
from pathlib import Path
from lengthwise.executors import worker

def device(name):
    with Path({file!r}).open("a") as file:
        file.write(name + "\\n")
    return torch.device("cpu")

worker.torch = types.SimpleNamespace(device=device, cuda=torch.cuda)
worker.main()
"""
"""A worker that says which device it was given, and works on the CPU."""


@pytest.mark.slow
@pytest.mark.parametrize(("device", "given"), [("cuda", ["cuda:0", "cuda:1"]), ("cuda:1", ["cuda:1", "cuda:1"])])
def test_workers_are_spread_over_all_gpus(
    device: str, given: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (2**34, 2**34))
    code, pipe = ON_A_CPU.format(file=str(tmp_path / "devices")), subprocess.PIPE

    def begin() -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-c", code], stdin=pipe, stdout=pipe, text=True)

    monkeypatch.setattr(processes, "_start", begin)
    run_study(STUDY, tmp_path / "runs", device, workers=0 if device == "cuda" else 2)
    assert sorted((tmp_path / "devices").read_text().split()) == given
    assert len(list((tmp_path / "runs").glob("*/*/*/finished.json"))) == 2
