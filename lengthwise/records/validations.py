"""What the validations of a run found during training, and how much accuracy on unseen lengths swings between them.

All of it is descriptive and never chooses anything: no checkpoint, no setting, no end of training. Checkpoints are
chosen by accuracy in distribution alone; unseen lengths are watched, so that a reader can see how much a number
depends on the step at which training stopped.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from lengthwise.records.run_result import RunResult
from lengthwise.records.statistics import EQUAL, Interval

LAST = 5
"""Validations at the end of training that a swing is measured over."""

NOTICEABLE = 0.05
"""No smaller swing is pointed out.

About what a model that guesses one of two answers shows on a sample of 500 examples: the range of five binomial shares
is 2.3 standard deviations of 0.022.
"""


@dataclass(frozen=True)
class ValidationScore:
    """What one validation found."""

    step: int
    validation: float
    """Exact match in distribution, which chooses the best checkpoint."""
    unseen: float | None
    """Exact match on a fixed sample of unseen lengths; None where they were not watched."""


def validations(run: RunResult) -> list[ValidationScore]:
    """The validations of a run in the order of their steps; none for results of versions that did not keep them."""
    rows = sorted(run.finished.get("validations", []), key=lambda row: row["step"])
    return [ValidationScore(row["step"], row["validation"], row.get("unseen")) for row in rows]


def swing(run: RunResult) -> float | None:
    """Greatest minus least accuracy on unseen lengths over the last five validations that measured it.

    Over all of them where there are fewer than five; None with fewer than two. It does not tell a curve that goes up
    and down from one that still rises. Descriptive: it never chooses anything.
    """
    values = [each.unseen for each in validations(run) if each.unseen is not None][-LAST:]
    return max(values) - min(values) if len(values) > 1 else None


def mean_swing(runs: Iterable[RunResult]) -> float | None:
    """The mean over seeds of the swing, for the runs of one task and encoding; None where no run has one."""
    known = [value for run in runs if (value := swing(run)) is not None]
    return sum(known) / len(known) if known else None


def exceeds(swing: float | None, interval: Interval | None) -> bool:
    """Whether a swing is greater than `NOTICEABLE` and, where there is an interval over seeds, than that is wide."""
    if swing is None:
        return False
    width = max(NOTICEABLE, 0.0 if interval is None else interval[1] - interval[0])
    return swing > width + EQUAL  # shares of the same size may differ in their last bit
