"""Which runs of a study are not there: what its description asks for, less what is finished."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from lengthwise.records.points import short_names, written
from lengthwise.records.results import Results
from lengthwise.records.run_result import RunResult

MOST_NAMED = 3
"""More missing tasks, encodings or seeds than this are counted, not named."""


@dataclass(frozen=True)
class Missing:
    """How much of a study is finished, and what is not."""

    finished: int
    expected: int
    """Tasks x encodings x seeds x grid of the study."""
    tasks: list[str]
    """Those without a single finished run; so with encodings, seeds and values of the grid."""
    encodings: list[str]
    seeds: list[int]
    others: int
    """Missing runs whose task, encoding, seed and values of the grid all have finished runs."""
    values: dict[str, list[str]] = field(default_factory=dict)
    """By axis of the grid."""

    @property
    def words(self) -> str:
        """One line, such as: 5 of 255 runs of this study; missing: 16 tasks, seeds 2 and 3."""
        wholes = [
            _named(each, noun)
            for noun, each in (("task", self.tasks), ("encoding", self.encodings), ("seed", self.seeds))
            if each
        ]
        short = short_names(self.values)
        wholes += [f"{short[axis]}={value}" for axis, values in self.values.items() for value in values]
        if self.others:
            kind = "other run" if wholes else "run"
            wholes.append(f"{self.others:,} {kind}{'' if self.others == 1 else 's'}")
        return f"{self.finished:,} of {self.expected:,} runs of this study; missing: {', '.join(wholes)}"


def missing(results: Results) -> Missing | None:
    """None where nothing is missing, or where the study does not say which runs it asks for."""
    tasks, encodings, seeds = (results.study.get(key, []) for key in ("task_order", "encoding_order", "seeds"))
    axes = {axis: list(map(written, values)) for axis, values in results.study.get("grid", {}).items()}
    asked = [set(each) for each in (tasks, encodings, seeds, *axes.values())]
    expected = math.prod(map(len, asked))
    every = {_place(results, run, list(axes)) for run in results.runs}
    there = [run for run in every if all(part in known for part, known in zip(run, asked, strict=True))]
    if len(there) == expected:
        return None
    with_runs = [set(each) for each in zip(*there, strict=True)] or [set() for _ in asked]
    absent = {
        axis: [value for value in values if value not in have]
        for (axis, values), have in zip(axes.items(), with_runs[3:], strict=True)
    }
    return Missing(
        len(there),
        expected,
        [task for task in tasks if task not in with_runs[0]],
        [encoding for encoding in encodings if encoding not in with_runs[1]],
        [seed for seed in seeds if seed not in with_runs[2]],
        math.prod(map(len, with_runs)) - len(there),
        {axis: values for axis, values in absent.items() if values},
    )


def _place(results: Results, run: RunResult, axes: list[str]) -> tuple[object, ...]:
    own, title = dict(run.point), run.description["task"]
    task = results.facets[title].task if title in results.facets else title
    return (task, run.description["encoding"], run.description["seed"], *map(own.get, axes))


def _named(items: Sequence[object], noun: str) -> str:
    if len(items) > MOST_NAMED:
        return f"{len(items)} {noun}s"
    *firsts, last = map(str, items)
    return f"{noun}s {', '.join(firsts)} and {last}" if firsts else f"{noun} {last}"
