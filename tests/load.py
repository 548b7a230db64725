"""Made-up collections of many runs, to see what `show`, `report`, `compare` and `collect` cost.

python tests/load.py write FOLDER --runs 20000            run folders; --collected for what `collect` writes
python tests/load.py measure lengthwise show FOLDER       CPU seconds and peak MB of a command
python tests/load.py study FOLDER --runs 2000             a study of so many runs, all of them finished in FOLDER/runs
python tests/load.py begin FOLDER/study.toml              CPU seconds until its first fleet begins, none finished
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from lengthwise.executors.local import run_study
from lengthwise.records.directory import StudyDirectory, make_folder
from lengthwise.records.files import write_json, write_rows
from lengthwise.records.packed import write_fitting
from lengthwise.study import load_study
from lengthwise.training.plan import run_directory

TASKS, SEEDS = 20, 10
TRAINED = 20
"""Of the lengths of a run, those that it is trained on."""


def descriptions(runs: int, lengths: int = 40) -> Iterator[dict[str, Any]]:
    """As many encodings as it takes; every run is one of TASKS x encodings x SEEDS."""
    for number in range(runs):
        rest, seed = divmod(number, SEEDS)
        encoding, task = divmod(rest, TASKS)
        yield description(f"task-{task:02}", f"encoding-{encoding:03}", seed + 1, f"{number:012x}", lengths)


def description(task: str, encoding: str, seed: int, fingerprint: str, lengths: int) -> dict[str, Any]:
    return {
        "fingerprint": fingerprint,
        "name": f"{task}/{encoding}/seed-{seed}",
        "task": task,
        "encoding": encoding,
        "seed": seed,
        "settings": {
            "task": {"name": task, "symbols": 100},
            "encoding": [{"name": encoding, "base": 10000.0}],
            "seed": seed,
            "model": {"size": "small", "style": "t5", "layers": 4, "width": 256, "heads": 8, "dropout": 0.0},
            "data": {"train_lengths": None, "test_lengths": None, "examples": 0, "scratchpad": "none", "anchor": True},
            "training": {"steps": 10_000, "batch": 64, "learning_rate": 3e-4, "precision": "bf16", "warmup": 0.05},
            "numerics": 2,
        },
        "train_lengths": [1, TRAINED],
        "test_lengths": [TRAINED + 1, lengths],
        "lengths_with_shared_examples": [],
        "encoding_of_each_layer": [encoding] * 4,
        "encoding_resolved": {encoding: {"buckets": 32}},
        "attention_scale": 1.0,
        "parameters": 3_212_345,
        "parameters_of_encoding": 0,
        "precision": "bf16",
        "started": "2026-01-02T03:04:05+00:00",
        "commit": "0123456789ab",
        "versions": {"python": "3.11.7", "lengthwise": "0.1.0", "torch": "2.11.0", "numpy": "2.4.6"},
        "hardware": {"device": "NVIDIA H200", "processors": 16, "machine": "x86_64"},
    }


def rows(run: dict[str, Any], lengths: int) -> list[dict[str, Any]]:
    generator = random.Random(run["fingerprint"])
    strength = (sum(map(ord, run["encoding"])) % 17) / 17
    found = []
    for checkpoint in ("last", "best"):
        for length in range(1, lengths + 1):
            seen = length <= TRAINED
            share = 0.98 if seen else max(0.0, min(1.0, strength + generator.gauss(0, 0.1)))
            n = 100
            correct = round(n * share)
            found.append(
                {
                    "run": run["fingerprint"],
                    "task": run["task"],
                    "encoding": run["encoding"],
                    "seed": run["seed"],
                    "checkpoint": checkpoint,
                    "step": 10_000,
                    "bucket": length,
                    "length": length,
                    "seen": seen,
                    "n": n,
                    "correct": correct,
                    "tokens": n * length,
                    "right_tokens": correct * length,
                    "wrong_symbol": n - correct,
                    "stopped_early": 0,
                    "ran_on": 0,
                    "sequence_tokens": length + 5.5,
                    "chance": 0.1,
                }
            )
    return found


def failures(run: dict[str, Any], lengths: int, of_each: int) -> list[dict[str, Any]]:
    return [
        {
            "run": run["fingerprint"],
            "length": length,
            "prompt": "Copy: " + " ".join(f"w{(number * 7 + place) % 100}" for place in range(length)),
            "target": " ".join(f"w{(number * 7 + place) % 100}" for place in range(length)),
            "predicted": [f"w{(number * 7 + place) % 100}" for place in range(length - 1)],
            "first_error": length - 1,
            "kind": "stopped early",
        }
        for length in range(TRAINED + 1, lengths + 1, max(1, (lengths - TRAINED) // 3))
        for number in range(of_each)
    ]


FINISHED = {
    "steps": 10_000,
    "best_step": 9000,
    "best_validation": 1.0,
    "diverged_at": None,
    "trained_together": 15,
    "seconds_together": 900.0,
}


def write(folder: Path, runs: int, lengths: int, collected: bool, of_each: int = 1) -> None:
    every = list(descriptions(runs, lengths))
    make_folder(folder)
    order = {key: list(dict.fromkeys(run[key] for run in every)) for key in ("task", "encoding")}
    seeds = sorted({run["seed"] for run in every})
    study = {"task_order": order["task"], "encoding_order": order["encoding"], "seeds": seeds}
    write_json(folder / "study.json", {"name": "load", "summary": "Made-up numbers.", **study})
    if collected:
        write_rows(folder / "runs.jsonl", ({"description": run, "finished": FINISHED} for run in every))
        write_fitting(folder / "rows.jsonl", (row for run in every for row in rows(run, lengths)))
        write_fitting(folder / "failures.jsonl", (row for run in every for row in failures(run, lengths, of_each)))
        return
    for run in every:
        path = folder / run["task"] / run["encoding"] / f"seed-{run['seed']}-{run['fingerprint']}"
        path.mkdir(parents=True)
        # Plain writes: waiting for the disk 80,000 times takes hours.
        (path / "run.json").write_text(_json(run))
        (path / "rows.jsonl").write_text("".join(_json(row) + "\n" for row in rows(run, lengths)))
        (path / "failures.jsonl").write_text("".join(_json(row) + "\n" for row in failures(run, lengths, of_each)))
        (path / "finished.json").write_text(_json(FINISHED))


def _json(value: Any) -> str:
    return json.dumps(value)


def write_study(folder: Path, runs: int) -> None:
    """20 tasks, 10 seeds and as many encodings as it takes, and a folder in which every run is finished."""
    make_folder(folder)
    numbers = range(runs // (TASKS * SEEDS))
    tasks = [f'{{ name = "copy.repeat", symbols = 100, separator_tokens = {number + 1} }}' for number in range(TASKS)]
    encodings = [f'{{ name = "rotary", base = {10_000 + number}.0, label = "e{number}" }}' for number in numbers]
    text = f"""summary = "Many runs."
tasks = [{", ".join(tasks)}]
encodings = [{", ".join(encodings)}]
seeds = {list(range(1, SEEDS + 1))}
[model]
size = "tiny"
[data]
examples = 0
validation = 50
test_per_length = 2
[training]
steps = 10
"""
    (folder / "study.toml").write_text(text)
    study = load_study(str(folder / "study.toml"))
    directory = StudyDirectory(folder / "runs")
    make_folder(directory.path)
    with directory.lock():
        directory.agree(study.description())
    for run in study.runs():
        path = run_directory(directory, run).path
        path.mkdir(parents=True)
        for name in ("run.json", "rows.jsonl", "finished.json"):
            (path / name).write_text("{}\n")


def begin(study: Path) -> None:
    """Until a fleet would begin to train; in a folder of its own."""

    class Begun(Exception):
        pass

    def watch(*_: Any) -> Any:
        raise Begun

    before = os.times()
    with tempfile.TemporaryDirectory() as folder:
        with suppress(Begun):
            run_study(load_study(str(study)), Path(folder) / "runs", "cpu", watch, workers=1)
        after = os.times()
    print(
        f"{after.user + after.system - before.user - before.system:.1f} CPU s, {after.elapsed - before.elapsed:.1f} s"
    )


def measure(command: list[str]) -> None:
    """Of the command and its children; what it prints goes nowhere but to a file's size."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "COLUMNS": "200"}) as process:
        assert process.stdout is not None
        printed = len(process.stdout.read())
        # Of this command alone. What RUSAGE_CHILDREN says may hold others before it: a shell that becomes the last
        # command of a group hands on what it has waited for.
        _, status, used = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    seconds, peak = used.ru_utime + used.ru_stime, used.ru_maxrss / 1024
    print(f"{seconds:.1f} CPU s, {peak:,.0f} MB at most, {printed:,} bytes printed, exit {process.returncode}")


def main() -> None:
    if sys.argv[1:2] == ["measure"]:
        measure(sys.argv[2:])
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["write", "study", "begin"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--lengths", type=int, default=40)
    parser.add_argument("--collected", action="store_true")
    given = parser.parse_args()
    if given.what == "study":
        write_study(given.folder, given.runs)
    elif given.what == "begin":
        begin(given.folder)
    else:
        write(given.folder, given.runs, given.lengths, given.collected)


if __name__ == "__main__":
    main()
