"""Results of runs, and what people ask of them: accuracy by length, accuracy overall.

Results may be of a grid, or of several studies. Numbers of different points of a grid are never put together: whoever
asks for a mean asks `by_point` for the results of each point first, and is refused otherwise.
"""

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, wraps
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from lengthwise.door import visible
from lengthwise.errors import UserError, nearest
from lengthwise.records.choosing import USUAL, choose, named, named_values
from lengthwise.records.directory import GRID
from lengthwise.records.points import STUDY as STUDY_AXIS
from lengthwise.records.points import Point, axis_columns, written
from lengthwise.records.row_table import Row
from lengthwise.records.run_result import Measure, RunResult
from lengthwise.records.schema import CHECKPOINTS


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
