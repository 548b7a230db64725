"""Numbers of tables: rounded for programs, in words and tones for people."""

from lengthwise.records.outcomes import LEARNED
from lengthwise.records.statistics import Interval
from lengthwise.report.model.table import Words

NOTHING = 0.05
"""An accuracy that is as good as none."""


def rounded(value: float) -> float:
    return round(value, 4)


def known(value: float | None) -> float | None:
    return None if value is None else rounded(value)


def digits(value: float) -> float:
    """Small ones too: what is not 0 does not become 0."""
    return float(f"{value:.3g}")


def ends(interval: Interval | None) -> tuple[float | None, float | None]:
    return (rounded(interval[0]), rounded(interval[1])) if interval else (None, None)


def accuracy_words(share: float) -> Words:
    return Words(f"{share:.2f}", "good" if share >= LEARNED else "bad" if share <= NOTHING else "")
