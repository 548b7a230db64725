"""Means with intervals in figures of encodings downwards: what is said of them, room for their names."""

from lengthwise.records.statistics import Interval
from lengthwise.report.figures.drawing import width_of

Estimate = tuple[float, Interval | None]
"""A mean and its interval, where there are seeds enough for one."""


def room(names: list[str]) -> float:
    """For names left of an axis."""
    return min(180.0, max((width_of(name, 12) for name in names), default=0) + 24)


def estimate_words(estimate: Estimate, sign: str = "") -> str:
    mean, interval = estimate
    ends = f" ({interval[0]:{sign}.2f} to {interval[1]:{sign}.2f})" if interval else ""
    return f"{mean:{sign}.2f}{ends}"
