"""Kills a command at its k-th file operation, runs it again, and compares what is there with an undisturbed run.

Commands run in processes forked from a server that has imported everything (multiprocessing's forkserver), so that a
kill costs what the command costs. An audit hook in the child counts what it is about to do to files below its folder.
Only this file knows of it: the package is as it always is.

python tests/killing.py --kills 200     at so many random moments over all commands
"""

import argparse
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import tempfile
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

IMPORTED = [
    "lengthwise.analysis.analyses",
    "lengthwise.cli.main",
    "lengthwise.cli.run",
    "lengthwise.cli.results",
    "lengthwise.cli.data",
    "lengthwise.context_extension.extending",
    "lengthwise.context_extension.merging",
    "lengthwise.executors.local",
    "lengthwise.hub.export",
    "lengthwise.language.training",
    "lengthwise.report.export",
    "lengthwise.report.html.page",
    "tokenizers",
]
CHANGING = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate"}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
REFUSED, BROKEN = 3, 4
"""How a child ends after a UserError, and after anything else that was raised."""
PASSING = {"started", "finished", "seconds", "seconds_together"}
"""Fields of JSON files that say when and how long: the only ones that may differ."""


# In the child.

TRUSTED = tuple({sys.prefix, sys.base_prefix, str(Path(__file__).parents[1]), str(Path(__file__).resolve().parents[1])})
"""Where code may come from: Python, what is installed, the package."""


def refuse_foreign_code(event: str, given: tuple[Any, ...]) -> None:
    """What no command may ever do: unpickle, or run a file of code from among what it reads."""
    if event == "pickle.find_class":
        raise RuntimeError(f"it unpickles {given[0]}.{given[1]}")
    if event == "exec":
        file = getattr(given[0], "co_filename", "")
        if file.startswith("/") and not str(Path(file).resolve()).startswith(TRUSTED) and not file.startswith(TRUSTED):
            raise RuntimeError(f"it runs {file}")


class Counter:
    """Counts file operations below a folder; at number `kill_at`, counted from 1, the process is killed before it."""

    def __init__(self, below: Path, kill_at: int) -> None:
        self.below, self.kill_at, self.count = str(below.resolve()), kill_at, 0

    def __call__(self, event: str, given: tuple[Any, ...]) -> None:
        refuse_foreign_code(event, given)
        if event == "open":
            path, _, flags = given
            if not flags & WRITING and not str(path).endswith(".partial"):
                return
        elif event not in CHANGING:
            return
        if not isinstance(given[0], str | bytes | os.PathLike):
            return
        if str(Path.cwd() / os.fsdecode(given[0])).startswith(self.below):
            self.count += 1
            if self.count == self.kill_at:
                os.kill(os.getpid(), signal.SIGKILL)


def _child(words: Sequence[str], below: Path, kill_at: int, told: Path) -> None:
    """Runs a command; writes to the file `told` what it did to files, or what was wrong."""
    os.chdir(below)
    output = os.open(told.with_suffix(".out"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2):
        os.dup2(output, stream)
    import torch

    from lengthwise.cli.main import app
    from lengthwise.errors import UserError

    torch.set_num_threads(1)
    counter = Counter(below, kill_at)
    sys.addaudithook(counter)
    try:
        app(list(words), standalone_mode=False)
    except UserError as error:
        told.write_text(str(error))
        os._exit(REFUSED)
    except BaseException:
        told.write_text(traceback.format_exc())
        os._exit(BROKEN)
    told.write_text(str(counter.count))


# In the parent.


@cache
def _server() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(IMPORTED)
    return context


def call(words: Sequence[str], below: Path, kill_at: int = 0) -> tuple[int, str]:
    """Runs a command in the folder `below`; returns how it ended (-9: killed) and what it told: operations, an error.

    `kill_at`: the number of the file operation below the folder before which it is killed; 0 for never.
    """
    below.mkdir(parents=True, exist_ok=True)
    told = below.with_name(f"{below.name}.told")
    told.unlink(missing_ok=True)
    process = _server().Process(target=_child, args=(tuple(words), below, kill_at, told))
    process.start()
    process.join(timeout=120)
    if process.is_alive():
        process.kill()
        raise AssertionError(f"{' '.join(words)} goes on for more than 2 minutes")
    return process.exitcode, told.read_text() if told.exists() else ""


@dataclass(frozen=True)
class Command:
    name: str
    words: tuple[str, ...]
    """Of the command line; it writes below the folder that it is called in."""
    needs: str = ""
    """A folder of the world that it changes, which each try gets a copy of."""
    complete: str = ""
    """What the refusal says of a second call, where there is nothing left to do."""

    def begin(self, world: Path, below: Path) -> None:
        shutil.rmtree(below, ignore_errors=True)
        below.mkdir(parents=True)
        if self.needs:
            shutil.copytree(world / self.needs, below / self.needs)

    def finish(self, below: Path) -> int:
        """Runs to the end; returns how many file operations that took."""
        code, told = call(self.words, below)
        if code == REFUSED and self.complete and self.complete in told:
            return 0
        assert code == 0, f"{self.name} ended with {code}: {told}"
        return int(told)


def compare(wanted: Path, found: Path, name: str) -> None:
    """The same files with the same content, but for times; nothing else."""
    files = {path: _files(path) for path in (wanted, found)}
    missing, more = files[wanted] - files[found], files[found] - files[wanted]
    assert not missing and not more, f"{name}: missing {sorted(missing)}, left behind {sorted(more)}"
    for file in sorted(files[wanted]):
        if (wanted / file).is_file() and Path(file).name != "lock":  # which says who held it last
            assert _content(wanted / file) == _content(found / file), f"{name}: {file} differs"


def _files(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def _content(file: Path) -> Any:
    if file.suffix == ".json":
        return _without_times(json.loads(file.read_text()))
    return file.read_bytes()


def _without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_times(each) for key, each in value.items() if key not in PASSING}
    return [_without_times(each) for each in value] if isinstance(value, list) else value


# What is killed.

WORDS = ("the", "old", "captain", "saw", "a", "small", "lamp", "near", "river", "and", "went", "home", "in", "1843")
SHAPE = ("--layers", "1", "--width", "32", "--heads", "2", "--context", "32", "--batch-tokens", "256")
SMALL = ("--set", "data.vocabulary=280", "--set", "data.validation_tokens=128", "--set", "training.validations=2")
STUDY = """
name = "small"
summary = "a test"
tasks = [{ name = "copy.repeat", symbols = 20 }]
encodings = ["none", "alibi"]
seeds = [1]
[model]
layers = 1
width = 16
heads = 2
[data]
train_lengths = [2, 4]
test_lengths = [5, 6]
examples = 0
validation = 20
test_per_length = 5
[training]
steps = 6
batch = 4
validate_every = 3
"""


def make_world(folder: Path) -> Path:
    """A corpus, a matched pair trained on it, one of it exported; a study, run and analysed: what the commands read."""
    generator = random.Random(0)
    for split, sizes in {"train": (900, 400), "validation": (300, 40), "test": (300,)}.items():
        (folder / "corpus" / split).mkdir(parents=True)
        for number, size in enumerate(sizes):
            text = " ".join(generator.choices(WORDS, k=size)) + ".\n"
            (folder / "corpus" / split / f"{number}.txt").write_text(text)
    (folder / "small.toml").write_text(STUDY)
    for encoding in ("none", "rotary"):
        told = call(_train(folder, folder / encoding, "--encoding", encoding), folder)
        assert told[0] == 0, told
    for words in (
        ("run", str(folder / "small.toml"), "--out", str(folder / "runs"), "--device", "cpu", "--workers", "1"),
        ("analyze", "heads", str(folder / "runs"), "--count", "2", "--device", "cpu"),
        ("export", str(folder / "none"), "--to", str(folder / "exported")),
    ):
        told = call(words, folder)
        assert told[0] == 0, told
    return folder


def _train(world: Path, out: Path | str, *more: str) -> tuple[str, ...]:
    words = ("language", "train", str(world / "corpus"), "--out", str(out), "--tokens", "2048", "--device", "cpu")
    return (*words, *SHAPE, *SMALL, *more)


def commands(world: Path) -> list[Command]:
    runs, device = str(world / "runs"), ("--device", "cpu")
    few = ("--scored", "8", "--steps", "2", "--batch", "2", *device)
    compared = ("--extension", "streaming", "--context", "64", "--windows", "2", "--trials", "0", "--heads", "1")
    measured = "measure={times=[1,2], windows=2, search_windows=2, trials=0, scored=8, heads=1}"
    changes = (measured, "only_times=[2]", "seeds=[1]", "fit={steps=2, batch=2}")
    lines = [word for change in changes for word in ("--set", change)]
    models = ("--model", f"none={world / 'none'}", "--model", f"rotary={world / 'rotary'}")
    fit = ("extend", "fit", str(world / "none"), "head-scale", "--length", "64", "--out", "fit", "--initial", "1.2")
    merge = ("extend", "merge", str(world / "exported"), "--extension", "uniform-scale:constant=1.2", "--out", "merged")
    small = ("run", str(world / "small.toml"), "--out", "runs", "--workers", "1", "--save-every", "0", *device)
    return [
        Command("run", small),
        Command("language prepare", ("language", "prepare", str(world / "corpus"), "--out", "prepared", *SMALL[:2])),
        Command("language train", _train(world, "run", "--save-every", "0")),
        Command("extend fit", (*fit, *few), complete="holds a fit already"),
        Command("extend study", ("extend", "study", "headscale-small", *models, "--out", "study", *lines, *device)),
        Command(
            "extend compare",
            ("extend", "compare", str(world / "none"), *compared, "--scored", "8", "--out", "compared", *device),
        ),
        Command("extend merge", (*merge, *device), complete="is there already"),
        Command("dataset", ("dataset", "copy.repeat", "--out", "examples", "--set", "symbols=4", "--all")),
        Command("analyze heads", ("analyze", "heads", runs, "--count", "2", "--out", "analysis", *device)),
        Command("analyze distance", ("analyze", "distance", runs, "--count", "2", "--out", "analysis", *device)),
        Command("collect", ("collect", runs, "--out", "collected")),
        Command("report", ("report", runs, "--out", "report.html")),
        Command("report csv", ("report", runs, "--out", "tables", "--format", "csv")),
    ]


def kill(command: Command, world: Path, reference: Path, below: Path, moments: Sequence[int]) -> None:
    """Kills a command once at each of these moments, one try after another on the same folder; then lets it end."""
    command.begin(world, below)
    for moment in moments:
        code, told = call(command.words, below, moment)
        if code == REFUSED and command.complete and command.complete in told:
            break
        assert code in (-signal.SIGKILL, 0), f"{command.name} killed at {moments} ended with {code}: {told}"
    command.finish(below)
    compare(reference, below, f"{command.name} killed at {', '.join(map(str, moments))}")
    shutil.rmtree(below)


def undisturbed(command: Command, world: Path, reference: Path) -> int:
    """Leaves in `reference` what the command makes; returns how many file operations that takes."""
    command.begin(world, reference)
    return command.finish(reference)


def moments_of(count: int, wanted: int) -> list[tuple[int, ...]]:
    """So many moments, spread over all; and a try that is killed twice."""
    step = max(1.0, count / wanted)
    once = sorted({min(count, round(1 + step * number)) for number in range(min(wanted, count))} | {count})
    return [*((moment,) for moment in once), (max(1, count // 2), max(1, count // 3))]


def at_random(kills: int, seed: int, folder: Path) -> int:
    """Kills every command equally often, at random moments of one to three tries; returns how many tries went wrong."""
    generator = random.Random(seed)
    world = make_world(folder / "world")
    every = commands(world)
    wrong, done = 0, 0
    for number, command in enumerate(every):
        reference = folder / "undisturbed" / command.name
        count = undisturbed(command, world, reference)
        own, left = done, kills * (number + 1) // len(every) - done
        while left > 0:
            moments = [generator.randint(1, count) for _ in range(min(left, generator.choice((1, 1, 2, 3))))]
            left, done = left - len(moments), done + len(moments)
            try:
                kill(command, world, reference, folder / "killed" / command.name, moments)
            except AssertionError as error:
                wrong += 1
                print(error, flush=True)
        print(f"{command.name}: {done - own} kills, among {count} file operations", flush=True)
    print(f"{done} kills, {wrong} tries left other files behind than an undisturbed run")
    return wrong


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(bool(at_random(given.kills, given.seed, Path(folder))))


if __name__ == "__main__":
    main()
