"""Ctrl-C: what was reached is saved, nothing of it is done again, and nothing else begins."""

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from conftest import small_study

from lengthwise.context_extension.extension_study import load_extension_study, run_extension_study
from lengthwise.executors.local import run_study
from lengthwise.records.files import read_rows
from lengthwise.runtime import Listener
from lengthwise.training.interrupts import noticing_interrupts
from lengthwise.training.update import Measured, Steps, Updater

FOREGROUND, BACKGROUND = "SIG_DFL", "SIG_IGN"
"""What becomes of SIGINT in a process: a shell without job control starts those in the background with it ignored."""
STARTED_WITH = """
import os, signal, sys
signal.signal(signal.SIGINT, getattr(signal, sys.argv[1]))
os.execv(sys.executable, [sys.executable, *sys.argv[2:]])
"""
LENGTHWISE = "from lengthwise.cli import main; main()"
HELD = """
import sys
from lengthwise.cli import main
from lengthwise.training.update import Updater

run = Updater.run

def held(self, steps):
    Updater.run = run
    print("training", flush=True)
    sys.stdin.readline()
    return run(self, steps)

Updater.run = held
main()
"""
"""The command, which says when its first steps begin and does them when it reads a line."""
RUN = ["run", "quickstart", "--device", "cpu", "--save-every", "1000"]
FEW = ["training.validate_every=24", "data.validation=20", "data.test_per_length=5"]
TEXT = "It was a dark and stormy night; the rain fell in torrents. " * 100


def start(program: str, words: list[str], interrupts: str) -> subprocess.Popen[str]:
    """Never as this process happens to have been started itself: `interrupts` says what becomes of SIGINT."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", STARTED_WITH, interrupts, "-c", program, *words]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def told(process: subprocess.Popen[str], number: int) -> tuple[int, str]:
    """Sends a signal; returns the exit code and what was said."""
    process.send_signal(number)
    out, error = process.communicate("go on\n", timeout=240)
    return process.returncode, " ".join((out + error).split())


def signalled(words: list[str], number: int, interrupts: str = FOREGROUND) -> tuple[int, str]:
    """Sends a signal within the first steps, which wait for it."""
    process = start(HELD, words, interrupts)
    assert process.stdout is not None and process.stdout.readline() == "training\n", process.communicate()
    return told(process, number)


def run_to_the_end(words: list[str]) -> None:
    done = subprocess.run([sys.executable, "-c", LENGTHWISE, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def logged(folder: Path) -> dict[str, bytes]:
    return {path.parent.name: path.read_bytes() for path in folder.rglob("training.jsonl")}


def study(steps: int, folder: Path, *more: str, only: str = "task=copy.repeat,encoding=none") -> list[str]:
    changed = [word for setting in (f"training.steps={steps}", *FEW) for word in ("--set", setting)]
    return [*RUN, *changed, "--only", only, *more, "--out", str(folder)]


@pytest.fixture
def interruptible() -> Iterator[None]:
    """SIGINT as in the foreground, also where these tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What a run that nobody stops has logged."""
    folder = tmp_path_factory.mktemp("whole")
    run_to_the_end(study(48, folder, "--workers", "1"))
    return logged(folder)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "interrupts"), [(signal.SIGINT, FOREGROUND), (signal.SIGTERM, BACKGROUND)])
def test_an_interrupted_run_goes_on_where_it_was(
    number: int, interrupts: str, tmp_path: Path, whole: dict[str, bytes]
) -> None:
    words = study(48, tmp_path, "--workers", "1")
    code, said = signalled(words, number, interrupts)
    assert code == 130 and "Traceback" not in said, said
    assert list(tmp_path.rglob("state.safetensors")), said
    before = logged(tmp_path)
    run_to_the_end(words)
    after = logged(tmp_path)
    assert after == whole
    assert before and all(after[name].startswith(rows) for name, rows in before.items()), "nothing was done again"


@pytest.mark.slow
def test_the_ctrl_c_of_others_does_not_stop_a_run_in_the_background(tmp_path: Path) -> None:
    """A terminal sends it to all that a script has started, and what it started with `&` is to ignore it."""
    code, said = signalled(study(16, tmp_path / "s", "--workers", "1"), signal.SIGINT, BACKGROUND)
    assert code == 0 and "Finished" in said and "stopping" not in said, said


@pytest.mark.slow
@pytest.mark.parametrize(("number", "interrupts"), [(signal.SIGINT, FOREGROUND), (signal.SIGTERM, BACKGROUND)])
def test_interrupted_workers_save_what_they_have_reached(number: int, interrupts: str, tmp_path: Path) -> None:
    # So many steps that none of them can end by itself; the first validation is when something is logged.
    words = study(100_000, tmp_path, "--workers", "2", "--set", "training.validate_every=8", only="task=copy.repeat")
    process = start(LENGTHWISE, words, interrupts)
    deadline = time.monotonic() + 240
    while not logged(tmp_path):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "nothing was logged"
        time.sleep(0.05)
    code, said = told(process, number)
    assert code == 130 and "Traceback" not in said and "stopping as soon as" in said, said
    assert list(tmp_path.rglob("state.safetensors")), said


@pytest.mark.slow
def test_a_language_model_that_is_interrupted_goes_on(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    for number in range(30):
        (tmp_path / "texts" / f"{number}.txt").write_text(f"{number} {TEXT}")
    words = ["language", "train", str(tmp_path / "texts"), "--device", "cpu", "--tokens", "100k", "--context", "64",
             "--batch-tokens", "1024", "--layers", "1", "--width", "32", "--heads", "2", "--set", "data.vocabulary=300",
             "--save-every", "1000", "--out", str(tmp_path / "run")]  # fmt: skip
    code, said = signalled(words, signal.SIGINT)
    assert code == 130 and (tmp_path / "run/state.safetensors").exists(), said
    before = read_rows(tmp_path / "run/training.jsonl")
    run_to_the_end(words)
    assert before and read_rows(tmp_path / "run/training.jsonl")[: len(before)] == before


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("moment", ["during the last steps", "after the last steps"])
def test_asked_in_the_last_steps_a_fleet_is_finished_and_no_other_begins(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, run = small_study(), Updater.run
    begun: list[int] = []
    notes: list[str] = []

    def asked_during(self: Updater, steps: Steps) -> Measured:
        if moment == "during the last steps" and self.state.step == study.training.steps:
            signal.raise_signal(signal.SIGINT)
        return run(self, steps)

    def asked_after(step: int, steps: int) -> None:
        if moment == "after the last steps" and step == steps:
            signal.raise_signal(signal.SIGINT)

    def watch(number: int, *_: object) -> Listener:
        begun.append(number)
        return Listener(step=asked_after, note=notes.append)

    with monkeypatch.context() as patched:
        patched.setattr(Updater, "run", asked_during)
        with pytest.raises(KeyboardInterrupt):
            run_study(study, tmp_path, "cpu", watch)
    assert begun == [0] and len(notes) == 1
    finished = len(list(tmp_path.rglob("finished.json")))
    assert 0 < finished < len(study.runs()), "one of two fleets"
    assert len(list(tmp_path.rglob("run.json"))) == finished, "the other was not begun"
    assert not list(tmp_path.rglob("state.safetensors"))
    assert run_study(study, tmp_path, "cpu") == 1
    assert len(list(tmp_path.rglob("finished.json"))) == len(study.runs())


@pytest.mark.usefixtures("interruptible")
def test_asked_in_the_last_steps_a_model_is_finished_and_the_other_of_the_pair_does_not_begin(tmp_path: Path) -> None:
    for split in ("train", "validation", "test"):
        (tmp_path / "corpus" / split).mkdir(parents=True)
        (tmp_path / "corpus" / split / "0.txt").write_text(f"{split} {TEXT}")
    changes = [
        "model={layers=1, width=16, heads=2, key_value_heads=1}", "data.context=128", "data.vocabulary=300",
        "data.validation_tokens=128", "data.passkey_share=0", "training.tokens=1024", "training.batch_tokens=512",
        "training.validations=2", "measure.times=[1,2]", "only_times=[2]", "measure.windows=2", "measure.scored=8",
        "measure.search_windows=1", "fit={steps=1, batch=1}", "measure.depths=2", "measure.trials=1", "seeds=[1]",
    ]  # fmt: skip

    def ask(step: int, steps: int) -> None:
        if step == steps:
            signal.raise_signal(signal.SIGINT)

    studies = load_extension_study("headscale-small", changes)
    with pytest.raises(KeyboardInterrupt):
        run_extension_study(studies, tmp_path / "corpus", tmp_path / "out", "cpu", 60.0, Listener(step=ask))
    assert [path.parent.name for path in (tmp_path / "out").rglob("finished.json")] == ["none"]
    place = tmp_path / "out/seed-1"
    assert not (place / "rotary").exists() and not (place / "none/state.safetensors").exists()


@pytest.mark.usefixtures("interruptible")
def test_asked_when_a_fleet_does_not_fit_no_half_of_it_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(self: Updater, steps: Steps) -> Measured:
        signal.raise_signal(signal.SIGINT)
        raise torch.cuda.OutOfMemoryError("a double")

    monkeypatch.setattr(Updater, "run", too_large)
    with pytest.raises(KeyboardInterrupt):
        run_study(small_study(), tmp_path, "cpu")


@pytest.mark.usefixtures("interruptible")
def test_the_second_question_is_an_order() -> None:
    notes: list[str] = []
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt), noticing_interrupts(notes.append) as asked:
        assert not asked()
        signal.raise_signal(signal.SIGINT)
        assert asked() and len(notes) == 1
        signal.raise_signal(signal.SIGINT)
        raise AssertionError("went on")
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.usefixtures("interruptible")
def test_what_was_ignored_stays_ignored() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with noticing_interrupts(lambda text: None) as asked:
        signal.raise_signal(signal.SIGINT)
        assert not asked() and signal.getsignal(signal.SIGINT) is signal.SIG_IGN
        signal.raise_signal(signal.SIGTERM)
        assert asked()
    assert asked(), "nobody who looks afterwards misses it"
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_other_threads_hear_nothing() -> None:
    heard: list[bool] = []

    def heed() -> None:
        with noticing_interrupts(lambda text: None) as asked:
            heard.append(asked())

    thread = threading.Thread(target=heed)
    thread.start()
    thread.join()
    assert heard == [False]
