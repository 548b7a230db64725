"""Published claims beside our numbers: what a study's file says was found, and whether our seeds find it too."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Literal

import numpy as np

from lengthwise import configuration
from lengthwise.errors import UserError, nearest
from lengthwise.records.comparison import score
from lengthwise.records.equivalence import LEVEL, Verdict, verdict
from lengthwise.records.outcomes import learned
from lengthwise.records.published import Score
from lengthwise.records.results import Results
from lengthwise.records.row_table import column
from lengthwise.records.run_result import RunResult
from lengthwise.records.statistics import EQUAL, Interval
from lengthwise.records.student_t import student_t_quantile

CLAIM = "claim"
"""The table of a study's file that holds one."""

Quantity = Literal["accuracy", "ran_on", "stopped_early"]
"""Share of examples that are right, whose answer did not end where it should, or that ended too early."""


@dataclass(frozen=True)
class Measurement:
    """What a number is measured on: the mean over tasks of what an encoding reaches at some lengths."""

    tasks: tuple[str, ...]
    encoding: str
    lengths: tuple[int, int] | None = None
    """First and last; by default all lengths that were not trained on."""
    quantity: Quantity = "accuracy"


@dataclass(frozen=True)
class PublishedNumber:
    """A published number, and where it is to be found in our results."""

    says: str
    tasks: tuple[str, ...]
    encoding: str
    published: float | None = None
    at_least: float | None = None
    """Where no number is published, but that it is at least (or at most) so much: `generalizes` is 0.9 or more."""
    at_most: float | None = None
    lengths: tuple[int, int] | None = None
    quantity: Quantity = "accuracy"
    minus: Measurement | None = None
    """For a difference: what is taken away, in the same seeds."""
    fitted: bool = False
    """Only of seeds that learned their training lengths, where the published mean is one of such seeds."""

    def __post_init__(self) -> None:
        if [self.published, self.at_least, self.at_most].count(None) != 2:
            raise ValueError(f"{self.says!r} must have one of published, at_least and at_most")

    @property
    def is_bound(self) -> bool:
        return self.published is None

    @property
    def value(self) -> float:
        """The number that ours is held against."""
        (found,) = (each for each in (self.published, self.at_least, self.at_most) if each is not None)
        return found

    def judge(self, interval: Interval) -> Verdict:
        """Equivalent: as published, within the margin; of a bound: all of the interval keeps it."""
        low, high = interval
        if self.published is not None:
            return verdict((low - self.published, high - self.published))
        inside, outside = (low, high) if self.at_least is not None else (-high, -low)
        bound = self.value if self.at_least is not None else -self.value
        if inside >= bound - EQUAL:
            return Verdict.equivalent
        return Verdict.different if outside < bound else Verdict.undecided

    @property
    def measured(self) -> list[Measurement]:
        own = Measurement(self.tasks, self.encoding, self.lengths, self.quantity)
        return [own, *([self.minus] if self.minus else [])]


@dataclass(frozen=True)
class Claim:
    """What somebody has published, as far as it can be said in numbers."""

    title: str
    source: str
    says: str
    numbers: tuple[PublishedNumber, ...]
    evidence: str = ""
    """Where the numbers are from, if not from the paper itself."""
    departs: tuple[str, ...] = ()
    """What our study does otherwise."""

    def __post_init__(self) -> None:
        if not self.numbers:
            raise ValueError("numbers must hold at least one number")

    def refuse_unknown(self, titles: Sequence[str], labels: Sequence[str]) -> None:
        """Refuses a number that the study does not measure."""
        for measured in (each for number in self.numbers for each in number.measured):
            for task in measured.tasks:
                if task not in titles:
                    raise UserError(f"claim: the study has no task {task!r}; {nearest(task, titles)}")
            if measured.encoding not in labels:
                raise UserError(
                    f"claim: the study has no encoding {measured.encoding!r}; {nearest(measured.encoding, labels)}"
                )


class Direction(StrEnum):
    """Of a difference, against the published one."""

    same = "same direction"
    opposite = "opposite direction"
    open = "no clear direction"
    """The interval has zero in it."""


class Outcome(StrEnum):
    """Of a whole claim."""

    reproduced = "reproduced"
    """Every number is equivalent to the published one."""
    direction = "reproduced in direction"
    """Every published difference has its sign, surely; not all numbers are equivalent."""
    contradicted = "contradicted"
    """Some published difference has the opposite sign, surely."""
    failed = "not reproduced"
    """Some number is surely another one, and differences do not make up for it."""
    undecided = "undecided"


@dataclass(frozen=True)
class JudgedNumber:
    """A published number and ours."""

    number: PublishedNumber
    ours: Score | None
    """None where no run is there, or none learned its training lengths and only such count."""
    interval: Interval | None
    """90 % interval of ours over seeds; None with fewer than two."""
    verdict: Verdict | None
    """Whether ours is the published one, within 0.10, or keeps the published bound."""
    direction: Direction | None
    """None for what is no difference, and where there is no interval."""
    left_out: tuple[int, ...]
    """Seeds that did not learn their training lengths, where only such count as did."""


@dataclass(frozen=True)
class JudgedClaim:
    claim: Claim
    numbers: tuple[JudgedNumber, ...]

    @property
    def outcome(self) -> Outcome:
        verdicts = [each.verdict for each in self.numbers]
        directions = [each.direction for each in self.numbers if each.number.minus]
        if Direction.opposite in directions:
            return Outcome.contradicted
        if all(each is Verdict.equivalent for each in verdicts):
            return Outcome.reproduced
        if directions and all(each is Direction.same for each in directions):
            return Outcome.direction
        return Outcome.failed if Verdict.different in verdicts else Outcome.undecided


def read_claim(table: Any) -> Claim:
    """From the table `claim` of a study's file."""
    return configuration.read(Claim, table, "claim")


def judge_claim(claim: Claim, results: Results, checkpoint: str) -> JudgedClaim:
    """Every number of a claim beside ours."""
    return JudgedClaim(claim, tuple(_judged(number, results, checkpoint) for number in claim.numbers))


def _judged(number: PublishedNumber, results: Results, checkpoint: str) -> JudgedNumber:
    sides = [_by_seed(measured, results, checkpoint) for measured in number.measured]
    seeds = sorted(set.intersection(*(set(side) for side in sides)))
    left_out: tuple[int, ...] = ()
    if number.fitted:
        left_out = tuple(seed for seed in seeds if not all(side[seed].learned for side in sides))
        seeds = [seed for seed in seeds if seed not in left_out]
    if not seeds:
        return JudgedNumber(number, None, None, None, None, left_out)
    values = [sides[0][seed].value - sum(side[seed].value for side in sides[1:]) for seed in seeds]
    ours = score(values)
    interval = _interval(ours)
    if interval is None:
        return JudgedNumber(number, ours, None, None, None, left_out)
    direction = _direction(interval, number) if number.minus else None
    return JudgedNumber(number, ours, interval, number.judge(interval), direction, left_out)


@dataclass(frozen=True)
class _OfSeed:
    value: float
    learned: bool


def _by_seed(measured: Measurement, results: Results, checkpoint: str) -> dict[int, _OfSeed]:
    """Seed -> the mean over tasks, for seeds that every task has."""
    found: list[dict[int, _OfSeed]] = []
    for task in measured.tasks:
        runs = results.of(task, measured.encoding)
        found.append(
            {
                run.description["seed"]: _OfSeed(_share(run, measured, checkpoint), learned(run, checkpoint))
                for run in runs
            }
        )
    seeds = set.intersection(*(set(each) for each in found)) if found else set()
    return {
        seed: _OfSeed(float(np.mean([each[seed].value for each in found])), all(each[seed].learned for each in found))
        for seed in seeds
    }


def _share(run: RunResult, measured: Measurement, checkpoint: str) -> float:
    """Of all examples of the lengths that are meant."""
    names = ("checkpoint", "length", "seen", "n")
    at, lengths, seen, every = (column(run.rows, name) for name in names)
    counts = run.right() if measured.quantity == "accuracy" else column(run.rows, measured.quantity)
    first, last = measured.lengths or (0, math.inf)
    chosen = [
        place
        for place, (where, length, trained) in enumerate(zip(at, lengths, seen, strict=True))
        if where == checkpoint and first <= length <= last and (measured.lengths is not None or not trained)
    ]
    if not chosen:
        told = f"the lengths {measured.lengths[0]} to {measured.lengths[1]}" if measured.lengths else "unseen lengths"
        raise UserError(f"the runs of {run.description['task']} were not tested at {told}")
    return sum(counts[place] for place in chosen) / sum(every[place] for place in chosen)


def _interval(ours: Score) -> Interval | None:
    if ours.seeds < 2 or ours.deviation is None:
        return None
    half = student_t_quantile((1 + LEVEL) / 2, ours.seeds - 1) * ours.deviation / math.sqrt(ours.seeds)
    return ours.mean - half, ours.mean + half


def _direction(interval: Interval, number: PublishedNumber) -> Direction:
    low, high = interval
    if low <= 0 <= high:
        return Direction.open
    above = number.at_most is None and number.value >= 0
    return Direction.same if (low > 0) == above else Direction.opposite
