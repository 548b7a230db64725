"""What a page opens with: accuracy by length of every encoding in one picture, and what it shows in a sentence or two.

Tasks differ in their lengths. Several of them are put on one axis by counting in longest training lengths: 1 is the
longest length of training, 2 twice that.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lengthwise.records.asked import asked
from lengthwise.records.points import written
from lengthwise.records.results import Results
from lengthwise.report.model import summaries
from lengthwise.report.model.length_curves import LengthCurves
from lengthwise.report.model.phrases import decimals, listed

STEP = 0.1
"""Longest training lengths between two points of a mean over tasks."""
FEWEST = 2
"""Points beyond training that make a picture."""
MOST_NAMED = 6
"""More encodings than this make a list, not a sentence: the best three and the last are named."""
HALF = 0.5


@dataclass(frozen=True)
class Opening:
    """Mean accuracy over tasks and seeds, at places that all its tasks have."""

    tasks: list[str]
    boundary: float
    """The longest training length."""
    points: dict[str, list[tuple[float, float]]]
    """Encoding -> place and mean accuracy there."""
    is_relative: bool
    """Whether places are in longest training lengths instead of lengths."""

    @property
    def across(self) -> str:
        return "length ÷ longest training length" if self.is_relative else "length"


def opening(encodings: Sequence[str], every: Sequence[LengthCurves]) -> Opening | None:
    """None where tasks have no lengths in common, or no task was finished for every encoding."""
    shared = [curves for curves in every if all(curves.of(encoding) for encoding in encodings)]
    if not shared:
        return None
    lengths = [sorted({point.length for point in curves.points}) for curves in shared]
    limits = [curves.longest_trained for curves in shared]
    alike = all((each, limit) == (lengths[0], limits[0]) for each, limit in zip(lengths, limits, strict=True))
    if alike:
        boundary, places = float(limits[0]), list(map(float, lengths[0]))
    else:
        first = max(each[0] / limit for each, limit in zip(lengths, limits, strict=True))
        last = min(each[-1] / limit for each, limit in zip(lengths, limits, strict=True))
        numbers = range(1, int(last / STEP + 1e-9) + 1)
        boundary, places = 1.0, [number * STEP for number in numbers if number * STEP >= first - 1e-9]
    if sum(place > boundary + 1e-9 for place in places) < FEWEST:
        return None
    points = {name: [(place, _mean_at(shared, name, place / boundary)) for place in places] for name in encodings}
    return Opening([curves.task for curves in shared], boundary, points, not alike)


def _mean_at(every: Sequence[LengthCurves], encoding: str, place: float) -> float:
    """Over tasks, each at the length that is nearest to `place` longest training lengths, and on the same side of 1."""
    values = []
    for curves in every:
        seen = place <= 1 + 1e-9
        points = [point for point in curves.of(encoding) if (point.length <= curves.longest_trained) == seen]
        points = points or curves.of(encoding)
        values.append(min(points, key=lambda point: abs(point.length - place * curves.longest_trained)).mean)
    return sum(values) / len(values)


def opening_sentences(results: Results, found: Opening) -> list[str]:
    """Accuracy on training lengths and on unseen ones, and where the best encoding falls below one half."""
    seen, unseen = ({name: _mean(results, found.tasks, name, kind) for name in found.points} for kind in (True, False))
    order = sorted(unseen, key=lambda name: -unseen[name])
    low, high = min(seen.values()), max(seen.values())
    ranged = decimals(low) if decimals(low) == decimals(high) else f"{decimals(low)} to {decimals(high)}"
    whose = "each encoding" if len(order) > 1 else _quoted(order[0])
    named = order if len(order) <= MOST_NAMED else [*order[:3], order[-1]]
    kept = [f"{_quoted(name)} on {decimals(unseen[name])}" for name in named]
    if len(named) < len(order):
        kept[-1] = f"the last of {len(order)}, {kept[-1]}"
    over = _over(results, found.tasks)
    new = "examples" if asked(results) else "new examples"  # nobody knows which ones a model from elsewhere has seen
    first = f"{over}{whose} is right on {ranged} of {new} of training lengths; on unseen lengths {listed(kept)}."
    return [first, where_it_falls(order[0], found), *_by_axis(results, found.tasks, order[0])]


def _over(results: Results, titles: Sequence[str]) -> str:
    """Which tasks, and how many points of a grid: each point of a task has a title of its own."""
    facets = [results.facets[title] for title in titles if title in results.facets]
    tasks = list(dict.fromkeys(facet.task for facet in facets)) or titles
    points = len({facet.words for facet in facets})
    told = f"Over {len(tasks)} tasks, " if len(tasks) > 1 else f"On {tasks[0]}, "
    return told + (f"over {points} points of a grid, " if points > 1 else "")


def _by_axis(results: Results, titles: Sequence[str], best: str) -> Iterator[str]:
    """What each axis of a grid does to the best encoding, over the other axes."""
    for axis in results.axes:
        by_value: dict[str, list[str]] = {}
        for title in titles:
            if title in results.facets and axis in results.facets[title].values:
                by_value.setdefault(written(results.facets[title].values[axis]), []).append(title)
        if 1 < len(by_value) <= MOST_NAMED:
            means = [f"{decimals(_mean(results, at, best, seen=False))} with {value}" for value, at in by_value.items()]
            yield f"By {axis}, {_quoted(best)} is right on {listed(means)}, on unseen lengths."


def where_it_falls(best: str, found: Opening) -> str:
    """Where it is below one half for the first time after it was above; that may be among the lengths of training."""
    points = found.points[best]
    first = next((index for index, (_, mean) in enumerate(points) if mean >= HALF), None)
    if first is None:
        return f"{_quoted(best)} is below one half at every length."
    below = next((place for place, mean in points[first:] if mean < HALF), None)
    if below is None:
        return f"{_quoted(best)} stays above one half up to {_place(points[-1][0], found)}, the end of what was tested."
    trained = ", within the lengths of training" if below <= found.boundary + 1e-9 else ""
    return f"{_quoted(best)} falls below one half at {_place(below, found)}{trained}."


def _quoted(encoding: str) -> str:
    """Some are called `none`."""
    return f"“{encoding}”"


def _place(place: float, found: Opening) -> str:
    if found.is_relative:
        return f"{place:.1f} times the longest training length"
    times = f", {place / found.boundary:.1f} times the longest training length" if place > found.boundary else ""
    return f"length {place:g}{times}"


def _mean(results: Results, tasks: Sequence[str], encoding: str, seen: bool) -> float:
    cells = [summaries.accuracy(results, task, encoding, seen=seen) for task in tasks]
    values = [cell.mean for cell in cells if cell]
    return sum(values) / len(values) if values else 0.0
