"""Whether our mean over seeds reproduces a published one: an interval of their difference, and a verdict from it."""

import math
from dataclasses import dataclass
from enum import StrEnum

from lengthwise.records.published import Score
from lengthwise.records.statistics import EQUAL, Interval
from lengthwise.records.student_t import student_t_quantile

MARGIN = 0.10
"""Accuracies that differ by no more are taken to be the same result."""

LEVEL = 0.90
"""Of the interval of the difference. Where all of it is inside the margin, two one-sided tests at 0.05 both reject a
difference of the margin or more (Schuirmann 1987): that is what makes a 90 % interval a test at 0.05.
"""

NEAR = 0.05
"""As near to chance, to 0 or to 1 as this is at the floor or at the ceiling."""


class Verdict(StrEnum):
    """What the seeds say about a difference."""

    equivalent = "equivalent"
    """The interval is inside the margin."""
    undecided = "undecided"
    """The interval has parts inside and outside of the margin: too few seeds, or too far apart."""
    different = "different"
    """The interval is wholly outside of the margin."""


class Extreme(StrEnum):
    """Where both sides are: any two models agree there, so such a cell tells nothing of a reproduction."""

    floor = "floor"
    ceiling = "ceiling"


@dataclass(frozen=True)
class Judgement:
    """Our figure against a published one."""

    difference: float
    """Ours minus published."""
    interval: Interval | None
    """90 % interval of the difference; None where neither side has a standard deviation."""
    borrowed_deviation: bool
    """Whether one side has a single seed, and was given the standard deviation of the other."""
    verdict: Verdict | None
    """None where there is no interval."""
    close: bool
    """Whether the difference is at most the margin, whatever the seeds say about it."""
    extreme: Extreme | None
    """None for an informative cell."""

    @property
    def informative(self) -> bool:
        return self.extreme is None


def judge(ours: Score, theirs: Score, chance: float) -> Judgement:
    """Our figure against a published one; `chance`: the accuracy of a guesser."""
    difference = ours.mean - theirs.mean
    interval = difference_interval(ours, theirs)
    return Judgement(
        difference,
        interval,
        interval is not None and None in (_deviation(ours), _deviation(theirs)),
        verdict(interval) if interval else None,
        abs(difference) <= MARGIN + EQUAL,
        extreme(ours.mean, theirs.mean, chance),
    )


def difference_interval(ours: Score, theirs: Score, level: float = LEVEL) -> Interval | None:
    """Interval of the difference of two means (ours minus theirs), from mean, standard deviation and number of seeds.

    Welch's: each side has a standard deviation of its own, and Welch and Satterthwaite's degrees of freedom. A side
    with a single seed has none: it is taken to be that of the other side, whose degrees of freedom then are all there
    are (the interval for one more observation). Two deviations of 0 leave the difference itself. None where neither
    side has a deviation.
    """
    own, other = _deviation(ours), _deviation(theirs)
    borrowed = own is None or other is None
    own, other = (other if own is None else own), (own if other is None else other)
    if own is None or other is None:
        return None
    difference = ours.mean - theirs.mean
    parts = own**2 / ours.seeds, other**2 / theirs.seeds
    variance = sum(parts)
    if variance == 0:
        return difference, difference
    freedoms = ours.seeds - 1, theirs.seeds - 1
    if borrowed:
        freedom = float(sum(freedoms))  # that of the single seed is 0
    else:
        freedom = variance**2 / sum(part**2 / each for part, each in zip(parts, freedoms, strict=True))
    half = student_t_quantile((1 + level) / 2, freedom) * math.sqrt(variance)
    return difference - half, difference + half


def verdict(interval: Interval) -> Verdict:
    """The verdict of an interval of a difference."""
    low, high = interval
    if low >= -MARGIN - EQUAL and high <= MARGIN + EQUAL:
        return Verdict.equivalent
    return Verdict.different if low > MARGIN or high < -MARGIN else Verdict.undecided


def extreme(ours: float, theirs: float, chance: float) -> Extreme | None:
    """Whether two accuracies are both at the floor (at most 0.05, or within 0.05 of a higher chance) or at the ceiling.

    None where the cell tells something.
    """
    both = (ours, theirs)
    if all(value >= 1 - NEAR - EQUAL for value in both):
        return Extreme.ceiling
    above_floor = (abs(value - chance) if chance > NEAR else value for value in both)
    return Extreme.floor if all(distance <= NEAR + EQUAL for distance in above_floor) else None


def _deviation(figure: Score) -> float | None:
    return figure.deviation if figure.seeds > 1 else None
