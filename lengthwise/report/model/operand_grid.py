"""Accuracy of addition by the digits of both operands: one grid for each encoding."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lengthwise.records.operand_pairs import PAIRED, digits_of, is_pair
from lengthwise.records.results import Results
from lengthwise.records.row_table import column
from lengthwise.records.run_result import RunResult
from lengthwise.report.model.grouping import mean
from lengthwise.report.model.numbers import rounded
from lengthwise.report.model.table import Table, value_table

Pair = tuple[int, int]
"""Digits of the first operand, digits of the second."""

REGIONS = ("trained", "one operand longer", "both longer")
"""Parts of a grid: what was trained on, and pairs of which one or both operands are longer than any in training."""


@dataclass(frozen=True)
class PairAccuracy:
    by_seed: list[float]
    n: int
    """Examples that each seed was asked, the fewest."""

    @property
    def mean(self) -> float:
        return sum(self.by_seed) / len(self.by_seed)


@dataclass(frozen=True)
class OperandGrid:
    """The grids of one task."""

    task: str
    train_lengths: tuple[int, int]
    """First and last; the length of a pair is that of its longer operand."""
    cells: dict[str, dict[Pair, PairAccuracy]]
    """Encoding -> pair -> accuracy; only encodings that have runs, and pairs that were tested."""

    @cached_property
    def size(self) -> int:
        """Digits of the longest operand."""
        return max(max(pair) for cells in self.cells.values() for pair in cells)

    def trained(self, pair: Pair) -> bool:
        return self.train_lengths[0] <= max(pair) <= self.train_lengths[1]

    def region_means(self, encoding: str) -> dict[str, float]:
        """Region -> mean over its pairs, which weigh the same; regions without a pair are left out."""
        found: dict[str, list[float]] = {region: [] for region in REGIONS}
        for pair, cell in self.cells[encoding].items():
            longer = sum(digits > self.train_lengths[1] for digits in pair)
            if longer or self.trained(pair):
                found[REGIONS[longer]].append(cell.mean)
        return {region: mean(values) for region, values in found.items() if values}


def operand_grids(results: Results, checkpoint: str = "last") -> list[OperandGrid]:
    """One for each task that adds two numbers; none of a task that has only one pair of every length."""
    found = []
    for task in results.tasks:
        runs = results.by_task[task]
        # Rows that do not say their pair, or not the right one, leave the whole task without a grid.
        if all(_adds(run) and _has_pairs(run, checkpoint) for run in runs) and _varies(runs[0], checkpoint):
            cells = {
                encoding: _cells(of_encoding, checkpoint)
                for encoding in results.encodings
                if (of_encoding := results.of(task, encoding))
            }
            first = min(run.description["train_lengths"][0] for run in runs)
            found.append(OperandGrid(task, (first, results.train_length(task)), cells))
    return found


def grid_values(grids: list[OperandGrid]) -> Table:
    """For programs: a row for each task, encoding and pair."""
    return value_table(
        "operand-grid",
        "Accuracy by digits of both operands, last checkpoint",
        ["task", "encoding", "first_digits", "second_digits", "trained", "n", "mean", "by_seed"],
        [
            [grid.task, encoding, *pair, grid.trained(pair), cell.n, rounded(cell.mean),
             " ".join(f"{value:.3g}" for value in cell.by_seed)]
            for grid in grids
            for encoding, cells in grid.cells.items()
            for pair, cell in sorted(cells.items())
        ],
    )  # fmt: skip


def _adds(run: RunResult) -> bool:
    """Whether it is tested on addition: a mixture is tested on its first task."""
    task: Any = run.description["settings"]["task"]
    members = task.get("tasks") if task["name"] == "mixture" else None
    if isinstance(members, list) and members and isinstance(members[0], dict):
        task = members[0]
    return task.get("name") == PAIRED


def _has_pairs(run: RunResult, checkpoint: str) -> bool:
    return all(is_pair(bucket, length) for bucket, length, *_ in _tested(run, checkpoint))


def _varies(run: RunResult, checkpoint: str) -> bool:
    """Whether some length has two different pairs."""
    pairs = {(length, bucket) for bucket, length, *_ in _tested(run, checkpoint)}
    return len(pairs) > len({length for length, _ in pairs})


def _tested(run: RunResult, checkpoint: str) -> Iterator[tuple[int, int, int, int]]:
    """Bucket, length, examples, and how many of them are right, of each row."""
    fields = (column(run.rows, name) for name in ("checkpoint", "bucket", "length", "n"))
    for at, *row, right in zip(*fields, run.right(), strict=True):
        if at == checkpoint:
            yield row[0], row[1], row[2], right


def _cells(runs: list[RunResult], checkpoint: str) -> dict[Pair, PairAccuracy]:
    found: dict[int, PairAccuracy] = {}
    for run in runs:
        counts: dict[int, tuple[int, int]] = {}
        for bucket, _, n, right in _tested(run, checkpoint):
            before = counts.get(bucket, (0, 0))
            counts[bucket] = before[0] + right, before[1] + n
        for bucket, (right, n) in counts.items():
            cell = found.setdefault(bucket, PairAccuracy([], n))
            found[bucket] = PairAccuracy([*cell.by_seed, right / n], min(n, cell.n))
    return {digits_of(bucket): cell for bucket, cell in found.items()}
