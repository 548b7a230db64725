"""Results as long rows, and what people ask of them: accuracy by length, accuracy overall.

Results may be of a grid, or of several studies. Numbers of different points of a grid are never put together: whoever
asks for a mean asks `by_point` for the results of each point first, and is refused otherwise.
"""

import gc
import operator
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, wraps
from itertools import groupby
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import numpy as np

from lengthwise.door import ANY_OBJECT, Object, visible
from lengthwise.errors import RunError, UserError, nearest
from lengthwise.records.choosing import USUAL, choose, named, named_values
from lengthwise.records.directory import COLLECTED, GRID, RunDirectory, StudyDirectory, make_folder
from lengthwise.records.failure_files import FailureFile, RunFailures
from lengthwise.records.files import REMEDY, iterate_rows, read_json, reading_error, write_json, write_rows
from lengthwise.records.findings import read_all_findings, write_packed_findings
from lengthwise.records.packed import fitting, is_there, write_fitting
from lengthwise.records.points import STUDY as STUDY_AXIS
from lengthwise.records.points import Point, axis_columns, point_of, written
from lengthwise.records.row_files import rows_by_run
from lengthwise.records.row_pieces import Pieces
from lengthwise.records.row_table import Row, column, distinct, has_field
from lengthwise.records.schema import CHECKPOINTS, DESCRIPTION, FINISHED, NAME, RUN, STUDY, refuse_newer
from lengthwise.records.sharing import Shared

Measure = Literal["answer", "text"]
"""What counts as right: the final answer, as published, or the whole text with its scratchpad (exact match).

Without a scratchpad they are the same: answers are then judged by exact match, the end included.
"""

ROWS = "rows.jsonl"
FAILURES = "failures.jsonl"
ANALYSIS = "analysis"
STUDY_FILE = "study.json"
UNFINISHED_RUN = Object({"name": NAME})
UNFINISHED = "unfinished"
"""In the study.json of a collection: the names of runs that were not finished."""


@dataclass
class Totals:
    """Of a run at one checkpoint, over all seen or all unseen lengths."""

    n: int = 0
    correct: int = 0
    right: int = 0
    """As the final answer counts; see Measure."""
    guessed: float = 0.0
    """Examples that a guesser gets right on average, and their variance."""
    variance: float = 0.0


@dataclass(frozen=True)
class RunResult:
    """One finished run: how it was made, its rows, and some examples that it got wrong."""

    description: Row
    """What was written before the first step: settings, seeds, versions, hardware."""
    finished: Row
    """What was written at the end: steps, seconds, validations."""
    rows: Sequence[Row]
    """One for each checkpoint and length."""
    failures: Sequence[Row] = ()
    """Some examples that it got wrong."""

    @cached_property
    def point(self) -> Point:
        """Its place in the grid of its study; empty without one."""
        return point_of(self.description)

    @cached_property
    def totals(self) -> dict[tuple[str, bool], Totals]:
        """(checkpoint, whether lengths are seen) -> sums over rows, for the checkpoints that were tested."""
        names = "checkpoint", "seen", "n", "chance"
        at, kinds, every, chances = (tuple(column(self.rows, name, 0.0)) for name in names)
        correct, right = column(self.rows, "correct"), self.right("answer")
        found: dict[tuple[str, bool], Totals] = defaultdict(Totals)
        for key, start, stop, n, guessed, variance in _asked(at, kinds, every, chances):
            total = found[key]
            total.n += n
            total.correct += sum(correct[start:stop])
            total.right += sum(right[start:stop])
            total.guessed += guessed
            total.variance += variance
        return dict(found)

    def total(self, name: str, checkpoint: str, seen: bool) -> int:
        """The sum of a field of its rows."""
        chosen = zip(*(column(self.rows, each) for each in ("checkpoint", "seen", name)), strict=True)
        return sum(value for at, kind, value in chosen if at == checkpoint and kind == seen)

    def accuracy(self, checkpoint: str, seen: bool, measure: Measure = "answer") -> float:
        """The share of test examples that are right, over all seen or all unseen lengths."""
        total = self.totals[checkpoint, seen]
        return (total.right if measure == "answer" else total.correct) / total.n

    def counts_by_length(self, checkpoint: str, measure: Measure = "answer") -> dict[int, tuple[int, int]]:
        """Length -> how many examples are right, and how many there are."""
        right, every = self.right(measure), column(self.rows, "n")
        at, lengths = (tuple(column(self.rows, name)) for name in ("checkpoint", "length"))
        found = {}
        for length, (place, *others) in _places(at, lengths, checkpoint):
            found[length] = right[place], every[place]
            for other in others:
                found[length] = found[length][0] + right[other], found[length][1] + every[other]
        return found

    def seen_lengths(self) -> dict[int, bool]:
        """Length -> whether it was trained on."""
        return dict(zip(column(self.rows, "length"), column(self.rows, "seen"), strict=True))

    @property
    def has_answers(self) -> bool:
        """Whether final answers were judged beside whole texts."""
        return has_field(self.rows, "answers")

    def right(self, measure: Measure = "answer") -> Sequence[int]:
        """How many examples of each row are right."""
        correct = column(self.rows, "correct")
        if measure != "answer" or not self.has_answers:
            return correct
        pairs = zip(correct, column(self.rows, "answers"), strict=True)
        return [text if answers is None else answers["right"] for text, answers in pairs]


# What the runs of a task are asked is the same, and is looked at once for all of them.


@lru_cache(maxsize=64)
def _asked(
    at: tuple[str, ...], kinds: tuple[bool, ...], every: tuple[int, ...], chances: tuple[float, ...]
) -> list[tuple[tuple[str, bool], int, int, int, float, float]]:
    """Rows of one checkpoint and of seen or unseen lengths that follow each other: which, where they begin and end,
    how many examples they are, how many of them a guesser gets right on average, and the variance of that."""
    found, stop = [], 0
    for key, rows in groupby(zip(at, kinds, strict=True)):
        start, stop = stop, stop + sum(1 for _ in rows)
        guesses = list(zip(chances[start:stop], every[start:stop], strict=True))
        guessed = sum([chance * n for chance, n in guesses])
        variance = sum([chance * (1 - chance) * n for chance, n in guesses])
        found.append((key, start, stop, sum(every[start:stop]), guessed, variance))
    return found


@lru_cache(maxsize=64)
def _places(at: tuple[str, ...], lengths: tuple[int, ...], checkpoint: str) -> list[tuple[int, list[int]]]:
    """Of the rows of a checkpoint: length -> which they are."""
    found: dict[int, list[int]] = {}
    for place, (where, length) in enumerate(zip(at, lengths, strict=True)):
        if where == checkpoint:
            found.setdefault(length, []).append(place)
    return list(found.items())


@dataclass(frozen=True)
class Facet:
    """A task at one point of a grid, or of one of several studies."""

    task: str
    values: dict[str, str | int | float]
    """Of every axis that the point has."""
    words: str
    """`layers=4, learning_rate=0.001`."""


@dataclass(frozen=True, repr=False)
class Results:
    """All finished runs of a study, and the names of those that are not finished."""

    runs: list[RunResult]
    """The finished runs."""
    unfinished: list[str]
    """Names of runs that were begun and are not finished."""
    study: Row
    """What the study's file said: its name, settings, and the order of tasks and encodings."""
    folders: tuple[Path, ...] = field(default=(), compare=False)
    """Where they were read from."""
    studies: Mapping[str, Row] = field(default_factory=dict, compare=False)
    """Where they are of several: what each says of itself, by the name that it has here."""
    facets: Mapping[str, "Facet"] = field(default_factory=dict, compare=False)
    """Where every point of a grid is a task of its own: which task, and which point, a title stands for."""
    baseline: str = field(default="", compare=False)
    """The encoding that others are measured against; empty for `none`, or the first where there is none."""

    def __repr__(self) -> str:
        """What they are of; the numbers would fill many screens."""
        seeds = {run.description["seed"] for run in self.runs}
        counts = {
            "finished runs": len(self.runs), "unfinished": len(self.unfinished), "tasks": len(self.tasks),
            "encodings": len(self.encodings), "seeds": len(seeds),
        } | {axis: len(values) for axis, values in self.axes.items()}  # fmt: skip
        shown = ", ".join(f"{name}: {count:,}" for name, count in counts.items() if count)
        return f"<Results of {visible(str(self.study.get('name', 'study')))}; {shown or 'no run'}>"

    @property
    def rows(self) -> list[Row]:
        """The rows of all runs, one for each run, checkpoint and length. The list is made anew with each call."""
        return list(self._every_row())

    def _every_row(self) -> Iterator[Row]:
        for run in self.runs:
            yield from run.rows

    @cached_property
    def tasks(self) -> list[str]:
        """The tasks that have a finished run, in the study's order."""
        order = list(self.facets) or self.study.get("task_order", [])
        return _in_order((run.description["task"] for run in self.runs), order)

    @cached_property
    def encodings(self) -> list[str]:
        """The encodings that have a finished run, in the study's order."""
        return _in_order((run.description["encoding"] for run in self.runs), self.study.get("encoding_order", []))

    @cached_property
    def axes(self) -> dict[str, list[str]]:
        """Settings that the runs vary, with their values as the study has them; `study` where there are several."""
        found: dict[str, dict[str, None]] = {}
        for run in self.runs:
            for axis, value in run.point:
                found.setdefault(axis, {})[value] = None
        order = self.study.get(GRID, {})
        declared = {axis: [written(value) for value in values] for axis, values in order.items()}
        names = sorted(found, key=lambda axis: (axis != STUDY_AXIS, [*declared, axis].index(axis)))
        return {axis: _in_order(found[axis], declared.get(axis, list(found[axis]))) for axis in names}

    @cached_property
    def by_point(self) -> dict[Point, "Results"]:
        """The results of every point of the grid, or of several studies; the whole of them where there is no such.

        Means, rankings, differences and intervals are made of one of these.
        """
        groups: dict[Point, list[RunResult]] = {}
        for run in self.runs:
            groups.setdefault(run.point, []).append(run)
        if len(groups) < 2:
            return {next(iter(groups), ()): self}
        places = {axis: {value: i for i, value in enumerate(values)} for axis, values in self.axes.items()}

        def place(point: Point) -> list[int]:
            own = dict(point)
            return [places[axis].get(own.get(axis, ""), -1) for axis in places]

        return {point: self._part(point, groups[point]) for point in sorted(groups, key=place)}

    def _part(self, point: Point, runs: list[RunResult]) -> "Results":
        study = dict(self.studies.get(dict(point).get(STUDY_AXIS, ""), self.study))
        if GRID in study:
            study[GRID] = {axis: [value] for axis, value in runs[0].description.get(GRID, {}).items()}
        return replace(self, runs=runs, unfinished=[], study=study, studies={})

    def against(self, encoding: str) -> "Results":
        """The same, measured against this encoding; its name may be an alias, such as `RoPE`. Empty: as it was."""
        if not encoding:
            return self
        found = named(encoding, "encoding", self.encodings)
        if found not in self.encodings:
            raise UserError(f"--baseline {visible(encoding, 60)}: no run has it; {nearest(encoding, self.encodings)}")
        return replace(self, baseline=found)

    def only(self, chosen: str) -> "Results":
        """A part of them, as `--only` chooses one: `task=addition,encoding=none,model.layers=4`; empty for all."""
        if not chosen.strip() or not self.runs:
            return self
        runs = choose(self.runs, chosen, _place)
        if not runs:
            raise UserError(f"--only {visible(chosen, 100)} leaves no finished run; leave a part of it out")
        wanted = named_values(chosen, [_place(run) for run in self.runs])
        studies = {name: _narrowed(study, wanted) for name, study in self.studies.items()}
        if STUDY_AXIS in wanted:
            studies = {name: study for name, study in studies.items() if name in wanted[STUDY_AXIS]}
        return replace(self, runs=runs, study=_narrowed(self.study, wanted), studies=studies)

    def _require_one_point(self) -> None:
        """Refuses a mean over several points; in facets, every task is at one of them."""
        if len({(run.description["task"], run.point) for run in self.runs}) > len(self.by_task):
            several = "; ".join(f"{axis}: {', '.join(values)}" for axis, values in self.axes.items())
            raise UserError(
                f"these results are of several points of a grid ({visible(several, 200)}), and a mean is of one; "
                "choose one with `only`, or take each of `by_point`"
            )

    def of(self, task: str, encoding: str) -> list[RunResult]:
        """The runs of one task and one encoding, by seed."""
        return self._cells.get((task, encoding), [])

    @cached_property
    def _cells(self) -> dict[tuple[str, str], list[RunResult]]:
        self._require_one_point()
        found: dict[tuple[str, str], list[RunResult]] = defaultdict(list)
        for run in self.runs:
            found[run.description["task"], run.description["encoding"]].append(run)
        return {key: sorted(runs, key=lambda run: run.description["seed"]) for key, runs in found.items()}

    @cached_property
    def by_task(self) -> dict[str, list[RunResult]]:
        """Task -> its runs, in their order."""
        return _grouped(self.runs, "task")

    @cached_property
    def by_encoding(self) -> dict[str, list[RunResult]]:
        """Encoding -> its runs, in their order."""
        return _grouped(self.runs, "encoding")

    @cached_property
    def has_scratchpads(self) -> bool:
        """Whether some run writes steps before its answer."""
        return any(run.has_answers for run in self.runs)

    def accuracies(
        self, checkpoint: str = "last", seen: bool = False, measure: Measure = "answer"
    ) -> dict[tuple[str, str], dict[int, float]]:
        """(task, encoding) -> seed -> overall accuracy on unseen (or seen) lengths.

        `checkpoint`: `last` or `best`. `measure`: what counts as right, the final `answer` or the whole `text`.
        """
        return _accuracies(self, checkpoint, seen, measure)

    @cached_property
    def _remembered(self) -> dict[Hashable, Any]:
        """For `once`."""
        return {}

    def by_length(
        self, task: str, encoding: str, checkpoint: str = "last", measure: Measure = "answer"
    ) -> dict[int, list[float]]:
        """Length -> accuracy of every seed, for one task and one encoding."""
        found: dict[int, list[float]] = defaultdict(list)
        for run in self.of(task, encoding):
            for length, (correct, n) in run.counts_by_length(checkpoint, measure).items():
                found[length].append(correct / n)
        return dict(sorted(found.items()))

    def train_length(self, task: str) -> int:
        """The longest length that runs of the task were trained on."""
        return self._train_lengths[task]

    @cached_property
    def _train_lengths(self) -> dict[str, int]:
        return {task: max(run.description["train_lengths"][1] for run in runs) for task, runs in self.by_task.items()}

    def table(self, checkpoint: str | None = "last") -> Any:
        """The same as `to_polars`."""
        return self.to_polars(checkpoint)

    def to_polars(self, checkpoint: str | None = "last") -> Any:
        """The rows as a Polars data frame, one for each run and length.

        `checkpoint`: `last` for the weights at the end, `best` for those that were best in validation. None takes both;
        the column `checkpoint` then distinguishes them. Settings that a
        grid varies are columns, such as `model.layers`; of several studies, `study` says which.
        """
        rows = self._rows_at(checkpoint)
        try:
            import polars
        except ImportError:
            raise UserError("tables need Polars: pip install 'lengthwise[report]'") from None
        return polars.DataFrame(rows, infer_schema_length=None)  # the first rows may lack a column of later ones

    def to_pandas(self, checkpoint: str | None = "last") -> Any:
        """The same rows as a pandas data frame."""
        rows = self._rows_at(checkpoint)
        try:
            import pandas
        except ImportError:
            raise UserError("to_pandas needs pandas: pip install 'lengthwise[pandas]'") from None
        return pandas.DataFrame(rows)

    def _rows_at(self, checkpoint: str | None) -> list[Row]:
        if checkpoint not in (*CHECKPOINTS, None):
            raise UserError(f"checkpoint must be {' or '.join(map(repr, CHECKPOINTS))}, or None, not {checkpoint!r}")
        return [
            {**about, **row}
            for run in self.runs
            for about in [_of_point(run)]
            for row in run.rows
            if checkpoint in (row["checkpoint"], None)
        ]


def _of_point(run: RunResult) -> Row:
    """Columns that tell the study and the point of a grid apart; rows of a study without a grid lack them."""
    study = {STUDY_AXIS: run.description[STUDY_AXIS]} if STUDY_AXIS in run.description else {}
    return {**study, **axis_columns(run.description.get(GRID, {}))}


P = ParamSpec("P")
T = TypeVar("T")


def once(compute: Callable[Concatenate[Results, P], T]) -> Callable[Concatenate[Results, P], T]:
    """What is asked of the same results again and again is computed once; whoever gets it must not change it."""

    @wraps(compute)
    def remembered(results: Results, *given: P.args, **named: P.kwargs) -> T:
        key = compute, given, tuple(named.items())
        if key not in results._remembered:
            results._remembered[key] = compute(results, *given, **named)
        return results._remembered[key]

    return remembered


@once
def _accuracies(
    results: Results, checkpoint: str, seen: bool, measure: Measure
) -> dict[tuple[str, str], dict[int, float]]:
    results._require_one_point()
    found: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
    for run in results.runs:
        key = run.description["task"], run.description["encoding"]
        found[key][run.description["seed"]] = run.accuracy(checkpoint, seen, measure)
    return dict(found)


def load_results(path: Path) -> Results:
    """The results in a study's folder, or in one that they were collected into."""
    try:
        with collector_paused():
            next(path.iterdir(), None)  # a folder that may not be read must not look like an empty one
            return _load(path)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"no such folder: {path}; it is made by `lengthwise run`") from None
    except OSError as error:
        raise reading_error(error, path) from None
    except ValueError:  # a null in it
        raise UserError(f"{str(path)!r} is no name of a folder") from None


def read_run(directory: RunDirectory) -> RunResult:
    """One finished run."""
    return _Reader().read(directory)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Python looks for cycles among all objects, again and again while there come to be more of them; results have
    none, and reading and showing many of them takes half as long again with it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _load(path: Path) -> Results:
    directories = StudyDirectory(path).runs()
    if (path / COLLECTED).exists():
        if directories:
            raise UserError(f"{path} holds run folders and collected results ({COLLECTED}); move one of them elsewhere")
        return _read_collection(path)
    if not directories:
        raise UserError(f"{path} holds no runs; {_instead(path)}")
    are_finished = [directory.is_finished for directory in directories]  # asked once: runs may end meanwhile
    reader = _Reader()
    finished = [reader.read(directory) for directory, done in zip(directories, are_finished, strict=True) if done]
    unfinished = [
        read_json(directory.description, UNFINISHED_RUN)["name"]
        for directory, done in zip(directories, are_finished, strict=True)
        if not done
    ]
    _refuse_doubles(path, finished)
    return Results(finished, unfinished, _study(path) if (path / STUDY_FILE).exists() else {"name": path.name}, (path,))


def _instead(path: Path) -> str:
    """What to do with a folder that is of something else."""
    if (path / "table.json").exists() or any(path.glob("*/table.json")):
        return f"it is of extended models: lengthwise extend report {path}"
    if (path / "config.json").exists():
        return f"it is a model: lengthwise evaluate {path} --task copy.words asks it a task's questions"
    return "name the folder that `lengthwise run` wrote, such as runs/quickstart"


def _study(path: Path) -> Row:
    """Of a folder that this version can read."""
    file = path / STUDY_FILE
    study = read_json(file, STUDY)
    refuse_newer(study, str(file))
    return study


def collect(results: Results, path: Path, failures_of_a_length: int | None = None) -> None:
    """Writes the results into a few small files, for sharing; `load_results` reads them like a study's folder.

    What analyses found in the same runs goes along, where the results were read from a folder that has it.
    `failures_of_a_length`: examples of failures that are kept of each run and length; None for all there are.
    """
    if StudyDirectory(path).is_begun:
        raise UserError(f"{path} is the folder of a study with its runs; collect its results into another one")
    # All that is to be read is read before anything is written.
    number, found = sum(len(run.failures) for run in results.runs), _findings(results)
    make_folder(path)
    unfinished = {UNFINISHED: results.unfinished} if results.unfinished else {}
    write_json(path / STUDY_FILE, {**results.study, **unfinished})
    write_rows(path / COLLECTED, [{"description": run.description, "finished": run.finished} for run in results.runs])
    write_fitting(path / ROWS, results._every_row())
    failures = (failure for run in results.runs for failure in _some(run.failures, failures_of_a_length))
    if number or is_there(path / FAILURES):  # none of an earlier collection may stay
        write_fitting(path / FAILURES, failures)
    write_packed_findings(path / ANALYSIS, found)


def _findings(results: Results) -> dict[str, list[Row]]:
    runs = {run.description["fingerprint"] for run in results.runs}
    found: dict[str, list[Row]] = {}
    for folder in results.folders:
        for kind, rows in read_all_findings(folder / ANALYSIS, runs).items():
            known = found.setdefault(kind, [])
            known += [row for row in rows if row not in known] if known else rows
    return found


def _some(failures: Iterable[Row], of_a_length: int | None) -> Iterator[Row]:
    seen: Counter[int] = Counter()
    for failure in failures:
        seen[failure["length"]] += 1
        if of_a_length is None or seen[failure["length"]] <= of_a_length:
            yield failure


def _read_collection(path: Path) -> Results:
    study = _study(path)
    unfinished = study.pop(UNFINISHED, [])
    file = fitting(path / ROWS)
    rows, reader = rows_by_run(file), _Reader()
    failures = FailureFile(path / FAILURES)
    runs = []
    for line, found in enumerate(iterate_rows(path / COLLECTED, schema=ANY_OBJECT), start=1):
        run = reader.shared.checked(found, RUN, f"{path / COLLECTED}:{line}")
        description = run["description"]
        fingerprint = description["fingerprint"]
        reader.refuse_other(file, description, rows.get(fingerprint, []))
        runs.append(RunResult(description, run["finished"], rows[fingerprint], RunFailures(failures, fingerprint)))
    if len({run.description["fingerprint"] for run in runs}) < len(runs):
        raise RunError(f"{path / COLLECTED} holds a run twice; restore it, or collect again")
    if len(rows) > len(runs):
        raise RunError(f"{path / COLLECTED} lacks runs that have rows; restore it, or collect again")
    _refuse_doubles(path, runs)
    return Results(runs, unfinished, study, (path,))


class _Reader:
    """Reads runs one after the other; what they say alike is looked at once."""

    def __init__(self) -> None:
        self.shared, self.pieces = Shared(), Pieces()
        self._judged: tuple[Sequence[Any], ...] = ((),) * 4
        """Columns of the run before, which were found to be whole; runs that say the same share them."""

    def read(self, directory: RunDirectory) -> RunResult:
        description = self.shared.read(directory.description, DESCRIPTION)
        file, fingerprint = directory.rows, description["fingerprint"]
        found = rows_by_run(file, self.pieces)
        rows = found.get(fingerprint, [])
        if len(found) > 1 or (found and not rows):
            raise RunError(f"{file} has rows of another run than {fingerprint}; restore it, or run it again")
        self.refuse_other(file, description, rows)
        failures = RunFailures(FailureFile(directory.failures), fingerprint)
        return RunResult(description, self.shared.read(directory.finished, FINISHED), rows, failures)

    def refuse_other(self, file: Path, description: Row, rows: Sequence[Row]) -> None:
        """Refuses the rows of a run where some are missing: both checkpoints are judged on the same examples; and
        those that say another task, encoding or seed than the run does."""
        judged = tuple(column(rows, key) for key in ("checkpoint", "seen", "length", "n"))
        if not rows or not (all(map(operator.is_, judged, self._judged)) or _judged_alike(*judged)):
            raise RunError(f"{file} lacks rows of {visible(description['name'])}; {REMEDY}")
        self._judged = judged
        said = {key: description[key] for key in ("task", "encoding", "seed")} | axis_columns(description.get(GRID, {}))
        for key, value in said.items():
            if distinct(rows, key) != {value}:
                raise RunError(
                    f"{file} has rows of {visible(description['name'])} with another {key} than the run's; "
                    "restore it, or run it again"
                )


def _judged_alike(*columns: Sequence[Any]) -> bool:
    """Whether both checkpoints have the same rows, in any order; by checkpoint, seen, length and n."""
    judged: dict[str, list[tuple[bool, int, int]]] = {checkpoint: [] for checkpoint in CHECKPOINTS}
    for checkpoint, *row in zip(*columns, strict=True):
        judged[checkpoint].append((row[0], row[1], row[2]))
    last, best = judged["last"], judged["best"]
    return last == best or sorted(last) == sorted(best)


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


def _place(run: RunResult) -> dict[str, str]:
    """What a run can be chosen by."""
    return {key: written(run.description[key]) for key in USUAL} | dict(run.point)


def _narrowed(study: Row, wanted: Mapping[str, set[str]]) -> Row:
    """What a study says of itself, of a part of it: nothing else is missing from that part."""

    def kept(key: str, values: list[Any]) -> list[Any]:
        return [value for value in values if key not in wanted or written(value) in wanted[key]]

    orders = {"task_order": "task", "encoding_order": "encoding", "seeds": "seed"}
    found: Row = {name: kept(key, study[name]) for name, key in orders.items() if name in study}
    if GRID in study:
        found[GRID] = {axis: kept(axis, values) for axis, values in study[GRID].items()}
    return {**study, **found}


def _in_order(found: Iterable[str], declared: list[str]) -> list[str]:
    """Distinct names: those that the study declares first, in its order."""
    places = {name: place for place, name in reversed(list(enumerate(declared)))}

    def rank(name: str) -> tuple[int, str]:
        return places.get(name, len(declared)), name

    return sorted(set(found), key=rank)


def _grouped(runs: Iterable[RunResult], key: str) -> dict[str, list[RunResult]]:
    found: dict[str, list[RunResult]] = defaultdict(list)
    for run in runs:
        found[run.description[key]].append(run)
    return dict(found)


def mean_interval(values: list[float], level: float = 0.95) -> tuple[float, float, float]:
    """Mean and percentile bootstrap interval over `values` (seeds); with one value the interval is that value."""
    array = np.asarray(values)
    generator = np.random.Generator(np.random.PCG64(0))
    means = array[generator.integers(len(array), size=(2000, len(array)))].mean(axis=1)
    low, high = np.quantile(means, [(1 - level) / 2, (1 + level) / 2])
    return float(array.mean()), float(low), float(high)
