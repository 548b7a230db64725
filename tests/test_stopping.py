"""Ctrl-C: what was reached is saved, and nothing of it is done again."""

import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from lengthwise.engine.stopping import heeding
from lengthwise.records.files import read_rows

LENGTHWISE = [sys.executable, "-c", "from lengthwise.cli import main; main()"]
RUN = [*LENGTHWISE, "run", "quickstart", "--device", "cpu", "--save-every", "1000"]
ONE = "task=copy.repeat,encoding=none"
TEXT = "It was a dark and stormy night; the rain fell in torrents. " * 100


def interrupted(command: list[str], folder: Path, number: int = signal.SIGINT) -> tuple[int, str]:
    """Sends a signal when steps have been logged; returns the exit code and what was said."""
    process = subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    while not list(folder.rglob("training.jsonl")) and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(number)
    out, error = process.communicate(timeout=120)
    return process.returncode, " ".join((out + error).split())


def logged(folder: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in folder.rglob("training.jsonl")}


@pytest.mark.parametrize(("workers", "number"), [("1", signal.SIGINT), ("1", signal.SIGTERM), ("2", signal.SIGINT)])
def test_an_interrupted_run_goes_on_where_it_was(workers: str, number: int, tmp_path: Path) -> None:
    only = ONE if workers == "1" else "task=copy.repeat"
    settings = ["training.steps=120", "training.validate_every=60", "data.validation=20", "data.test_per_length=5"]
    changed = [word for setting in settings for word in ("--set", setting)]
    command = [*RUN, *changed, "--only", only, "--workers", workers]
    stopped = [*command, "--out", str(tmp_path / "stopped")]
    code, said = interrupted(stopped, tmp_path / "stopped", number)
    assert code == 130 and "Traceback" not in said, said
    assert list((tmp_path / "stopped").rglob("state.safetensors")), said
    if workers == "2":
        return
    before = logged(tmp_path / "stopped")
    done = subprocess.run(stopped, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    subprocess.run([*command, "--out", str(tmp_path / "whole")], check=True, capture_output=True)
    after = logged(tmp_path / "stopped")
    assert after == logged(tmp_path / "whole")
    assert all(after[name].startswith(rows) for name, rows in before.items()), "nothing was done again"


def test_a_language_model_that_is_interrupted_goes_on(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    for number in range(30):
        (tmp_path / "texts" / f"{number}.txt").write_text(f"{number} {TEXT}")
    words = ["language", "train", str(tmp_path / "texts"), "--device", "cpu", "--tokens", "200k", "--context", "64",
             "--batch-tokens", "1024", "--layers", "1", "--width", "32", "--heads", "2", "--set", "data.vocabulary=300",
             "--save-every", "1000", "--out"]  # fmt: skip
    command = [*LENGTHWISE, *words, str(tmp_path / "run")]
    code, said = interrupted(command, tmp_path / "run")
    assert code == 130 and (tmp_path / "run/state.safetensors").exists(), said
    before = read_rows(tmp_path / "run/training.jsonl")
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert read_rows(tmp_path / "run/training.jsonl")[: len(before)] == before


def test_the_second_question_is_an_order() -> None:
    notes: list[str] = []
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), heeding(notes.append) as asked:
        assert not asked()
        signal.raise_signal(signal.SIGINT)
        assert asked() and len(notes) == 1
        signal.raise_signal(signal.SIGINT)
        time.sleep(1)  # never reached the end of
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_hear_nothing() -> None:
    heard: list[bool] = []

    def heed() -> None:
        with heeding(lambda text: None) as asked:
            heard.append(asked())

    thread = threading.Thread(target=heed)
    thread.start()
    thread.join()
    assert heard == [False]
