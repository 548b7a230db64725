"""Results as long rows, and what people ask of them: accuracy by length, accuracy overall."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lengthwise.errors import RunError, UserError
from lengthwise.records.directory import COLLECTED, RunDirectory, StudyDirectory, make_folder
from lengthwise.records.files import read_json, read_rows, write_json, write_rows
from lengthwise.records.findings import read_all_findings, write_packed_findings
from lengthwise.records.packed import is_there, read_fitting, write_fitting

Row = dict[str, Any]

Measure = Literal["answer", "text"]
"""What counts as right: the final answer, as published, or the whole text with its scratchpad (exact match).

Without a scratchpad they are the same: answers are then judged by exact match, the end included.
"""

CHECKPOINTS = ("last", "best")
ROWS = "rows.jsonl"
FAILURES = "failures.jsonl"
ANALYSIS = "analysis"
UNFINISHED = "unfinished"
"""In the study.json of a collection: the names of runs that were not finished."""


@dataclass(frozen=True)
class RunResult:
    """One finished run: how it was made, its rows, and some examples that it got wrong."""

    description: Row
    finished: Row
    rows: list[Row]
    failures: list[Row] = field(default_factory=list)

    def accuracy(self, checkpoint: str, seen: bool, measure: Measure = "answer") -> float:
        """Share of all its test examples, with seen or with unseen lengths, that are right."""
        chosen = [row for row in self.rows if row["checkpoint"] == checkpoint and row["seen"] == seen]
        return sum(right(row, measure) for row in chosen) / sum(row["n"] for row in chosen)

    def counts_by_length(self, checkpoint: str, measure: Measure = "answer") -> dict[int, tuple[int, int]]:
        """Length -> examples that are right, and all examples; several buckets may share a length."""
        found: dict[int, tuple[int, int]] = {}
        for row in self.rows:
            if row["checkpoint"] == checkpoint:
                correct, n = found.get(row["length"], (0, 0))
                found[row["length"]] = correct + right(row, measure), n + row["n"]
        return found


@dataclass(frozen=True)
class Results:
    """All finished runs of a study, and the names of those that are not."""

    runs: list[RunResult]
    unfinished: list[str]
    study: Row
    folders: tuple[Path, ...] = field(default=(), compare=False)
    """Where they were read from."""

    @cached_property
    def rows(self) -> list[Row]:
        return [row for run in self.runs for row in run.rows]

    @cached_property
    def tasks(self) -> list[str]:
        return _in_order((run.description["task"] for run in self.runs), self.study.get("task_order", []))

    @cached_property
    def encodings(self) -> list[str]:
        return _in_order((run.description["encoding"] for run in self.runs), self.study.get("encoding_order", []))

    def of(self, task: str, encoding: str) -> list[RunResult]:
        chosen = (r for r in self.runs if r.description["task"] == task and r.description["encoding"] == encoding)
        return sorted(chosen, key=lambda run: run.description["seed"])

    @cached_property
    def has_scratchpads(self) -> bool:
        return any("answers" in row for row in self.rows)

    def accuracies(
        self, checkpoint: str = "last", seen: bool = False, measure: Measure = "answer"
    ) -> dict[tuple[str, str], dict[int, float]]:
        """(task, encoding) -> seed -> overall accuracy on unseen (or seen) lengths."""
        found: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
        for run in self.runs:
            key = run.description["task"], run.description["encoding"]
            found[key][run.description["seed"]] = run.accuracy(checkpoint, seen, measure)
        return dict(found)

    def by_length(
        self, task: str, encoding: str, checkpoint: str = "last", measure: Measure = "answer"
    ) -> dict[int, list[float]]:
        """Length -> accuracy of every seed."""
        found: dict[int, list[float]] = defaultdict(list)
        for run in self.of(task, encoding):
            for length, (correct, n) in run.counts_by_length(checkpoint, measure).items():
                found[length].append(correct / n)
        return dict(sorted(found.items()))

    def train_length(self, task: str) -> int:
        """The longest training length."""
        return max(r.description["train_lengths"][1] for r in self.runs if r.description["task"] == task)

    def table(self, checkpoint: str | None = "last") -> Any:
        """The rows of one checkpoint as a Polars data frame: the weights at the end, or those best in validation.

        `None` for both: each length of a run then comes twice, told apart by the column `checkpoint`.
        """
        if checkpoint not in (*CHECKPOINTS, None):
            raise UserError(f"checkpoint must be {' or '.join(map(repr, CHECKPOINTS))}, or None, not {checkpoint!r}")
        try:
            import polars
        except ImportError:
            raise UserError("tables need Polars: pip install 'lengthwise[report]'") from None
        chosen = [row for row in self.rows if checkpoint in (row["checkpoint"], None)]
        return polars.DataFrame(chosen, infer_schema_length=None)  # the first rows may lack a column of later ones


def right(row: Row, measure: Measure) -> int:
    """How many examples of a row are right."""
    return row["answers"]["right"] if measure == "answer" and "answers" in row else row["correct"]


def load_results(path: Path) -> Results:
    """The results in a study's folder, or in one that they were collected into."""
    if not path.is_dir():
        raise UserError(f"no such folder: {path}; it is made by `lengthwise run`")
    directories = StudyDirectory(path).runs()
    if (path / COLLECTED).exists():
        if directories:
            raise UserError(f"{path} holds run folders and collected results ({COLLECTED}); move one of them elsewhere")
        return _read_collection(path)
    if not directories:
        raise UserError(f"{path} holds no runs; name the folder that `lengthwise run` wrote, such as runs/quickstart")
    are_finished = [directory.is_finished for directory in directories]  # asked once: runs may end meanwhile
    finished = [_read(directory) for directory, done in zip(directories, are_finished, strict=True) if done]
    unfinished = [
        read_json(directory.description)["name"]
        for directory, done in zip(directories, are_finished, strict=True)
        if not done
    ]
    _refuse_doubles(path, finished)
    study = path / "study.json"
    return Results(finished, unfinished, read_json(study) if study.exists() else {"name": path.name}, (path,))


def collect(results: Results, path: Path, failures_of_a_length: int | None = None) -> None:
    """Writes the results into a few small files, for sharing; `load_results` reads them like a study's folder.

    What analyses found in the same runs goes along, where the results were read from a folder that has it.
    `failures_of_a_length`: examples of failures that are kept of each run and length; None for all there are.
    """
    if StudyDirectory(path).is_begun:
        raise UserError(f"{path} is the folder of a study with its runs; collect its results into another one")
    make_folder(path)
    unfinished = {UNFINISHED: results.unfinished} if results.unfinished else {}
    write_json(path / "study.json", {**results.study, **unfinished})
    write_rows(path / COLLECTED, [{"description": run.description, "finished": run.finished} for run in results.runs])
    write_fitting(path / ROWS, results.rows)
    failures = [failure for run in results.runs for failure in _some(run.failures, failures_of_a_length)]
    if failures or is_there(path / FAILURES):  # none of an earlier collection may stay
        write_fitting(path / FAILURES, failures)
    write_packed_findings(path / ANALYSIS, _findings(results))


def _findings(results: Results) -> dict[str, list[Row]]:
    runs = {run.description["fingerprint"] for run in results.runs}
    found: dict[str, list[Row]] = {}
    for folder in results.folders:
        for kind, rows in read_all_findings(folder / ANALYSIS, runs).items():
            known = found.setdefault(kind, [])
            known += [row for row in rows if row not in known] if known else rows
    return found


def _some(failures: list[Row], of_a_length: int | None) -> list[Row]:
    seen: Counter[int] = Counter()
    kept = []
    for failure in failures:
        seen[failure["length"]] += 1
        if of_a_length is None or seen[failure["length"]] <= of_a_length:
            kept.append(failure)
    return kept


def _read_collection(path: Path) -> Results:
    study = read_json(path / "study.json")
    unfinished = study.pop(UNFINISHED, [])
    rows, failures = _by_run(path / ROWS), _by_run(path / FAILURES) if is_there(path / FAILURES) else {}
    runs = []
    for run in read_rows(path / COLLECTED, grows=False):
        fingerprint = run["description"]["fingerprint"]
        _refuse_incomplete(path / ROWS, run["description"]["name"], rows.get(fingerprint, []))
        runs.append(RunResult(run["description"], run["finished"], rows[fingerprint], failures.get(fingerprint, [])))
    if len(rows) > len(runs):
        raise RunError(f"{path / COLLECTED} lacks runs that have rows; restore it, or collect again")
    return Results(runs, unfinished, study, (path,))


def _by_run(path: Path) -> dict[str, list[Row]]:
    """Fingerprint -> its rows in a file of all runs."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in read_fitting(path):
        found[row["run"]].append(row)
    return found


def _read(directory: RunDirectory) -> RunResult:
    description, rows = read_json(directory.description), read_rows(directory.rows, grows=False)
    _refuse_incomplete(directory.rows, description["name"], rows)
    failures = read_rows(directory.failures, grows=False) if directory.failures.exists() else []
    return RunResult(description, read_json(directory.finished), rows, failures)


def _refuse_incomplete(file: Path, name: str, rows: list[Row]) -> None:
    """Refuses the rows of a run where some are missing: both checkpoints are judged on the same examples."""
    judged = {
        checkpoint: Counter((row["seen"], row["length"], row["n"]) for row in rows if row["checkpoint"] == checkpoint)
        for checkpoint in CHECKPOINTS
    }
    if not rows or judged["last"] != judged["best"]:
        raise RunError(f"{file} lacks rows of {name}; restore it, or delete its folder and run or collect again")


def _refuse_doubles(path: Path, runs: list[RunResult]) -> None:
    seen: dict[str, str] = {}
    for run in runs:
        name, fingerprint = run.description["name"], run.description["fingerprint"]
        if name in seen:
            raise UserError(
                f"{path} holds two runs called {name} with different settings ({seen[name]}, {fingerprint}); "
                "move one of them elsewhere"
            )
        seen[name] = fingerprint


def _in_order(found: Iterable[str], declared: list[str]) -> list[str]:
    """Distinct names: those that the study declares first, in its order."""

    def rank(name: str) -> tuple[int, str]:
        return (declared.index(name) if name in declared else len(declared), name)

    return sorted(set(found), key=rank)


def mean_interval(values: list[float], level: float = 0.95) -> tuple[float, float, float]:
    """Mean and percentile bootstrap interval over `values` (seeds); with one value the interval is that value."""
    array = np.asarray(values)
    generator = np.random.Generator(np.random.PCG64(0))
    means = array[generator.integers(len(array), size=(2000, len(array)))].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(array.mean()), float(low), float(high)
