"""Accuracy by length as data: ours with intervals, chance, and the published curves of the same lengths."""

from dataclasses import dataclass

from lengthwise.records.facets import heading
from lengthwise.records.results import Results
from lengthwise.records.row_table import column
from lengthwise.records.statistics import Interval
from lengthwise.report.model import reference
from lengthwise.report.model.summaries import examples_by_length, means_and_intervals

FEW = 50
"""Examples: the accuracy of fewer is coarse, and the drawing says so."""


@dataclass(frozen=True)
class LengthPoint:
    """One encoding at one length of one task."""

    encoding: str
    length: int
    mean: float
    interval: Interval | None
    by_seed: list[float]
    published: float | None
    chance: float
    n: int
    """Examples that each seed was asked."""


@dataclass(frozen=True)
class LengthCurves:
    """The curves of one task."""

    task: str
    longest_trained: int
    points: list[LengthPoint]
    published: dict[str, dict[int, float]]
    """Encoding -> length -> published accuracy, also where we have not tested."""
    heading: tuple[str, str] = ("", "")
    """The task, and the point of a grid that it is at."""

    def of(self, encoding: str) -> list[LengthPoint]:
        return [point for point in self.points if point.encoding == encoding]

    @property
    def span(self) -> tuple[float, float]:
        lengths = [point.length for point in self.points]
        return min(lengths) - 0.5, max(lengths) + 0.5

    @property
    def fewest(self) -> int:
        """Examples at a length."""
        return min(point.n for point in self.points)

    @property
    def few(self) -> bool:
        return self.fewest < FEW


def curves_of(results: Results, task: str, checkpoint: str = "last") -> LengthCurves:
    chance = _chance(results, task)
    published = {encoding: reference.curve(results, task, encoding) for encoding in results.encodings}
    examples = examples_by_length(results, task)
    points = []
    for encoding in results.encodings:
        by_length = results.by_length(task, encoding, checkpoint)
        cells = means_and_intervals(list(by_length.values()))
        theirs = published[encoding]
        points += [
            LengthPoint(encoding, length, *cell, values, theirs.get(length), chance.get(length, 0.0), examples[length])
            for (length, values), cell in zip(by_length.items(), cells, strict=True)
        ]
    return LengthCurves(task, results.train_length(task), points, published, heading(results, task))


def shared_span(every: list[LengthCurves]) -> tuple[float, float]:
    """The first and last length of all tasks: with it also the axes of lengths are alike."""
    return min(curves.span[0] for curves in every), max(curves.span[1] for curves in every)


def _chance(results: Results, task: str) -> dict[int, float]:
    """Length -> chance; several buckets may share a length."""
    sums: dict[int, tuple[float, int]] = {}
    for run in results.by_task[task]:
        fields = (column(run.rows, name, 0.0) for name in ("checkpoint", "length", "chance", "n"))
        for checkpoint, length, chance, n in zip(*fields, strict=True):
            if checkpoint == "last":
                total, before = sums.get(length, (0.0, 0))
                sums[length] = total + chance * n, before + n
    return {length: total / n for length, (total, n) in sums.items()}
