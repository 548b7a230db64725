"""Where answers first go wrong, and how; sums over seeds."""

from dataclasses import dataclass

import numpy as np

from lengthwise.records.findings import AnalysisRows, Row
from lengthwise.report.model.grouping import grouped
from lengthwise.report.model.summaries import ERROR_KINDS


@dataclass(frozen=True)
class FirstErrors:
    """The first errors of one encoding, at one length or several; sums over seeds."""

    encoding: str
    lengths: tuple[int, ...]
    seen: bool
    n: int
    kinds: dict[str, int]
    """Examples that are correct, and first errors of each kind."""
    parts: list[int]
    """First errors in each tenth of the target, its end included."""
    place: float | None
    """Mean place of the first error: 0 the beginning of the target, 1 its end."""
    beyond_trained: int
    """First errors at a place that no training target had."""

    @property
    def wrong(self) -> int:
        return self.n - self.kinds["correct"]


def first_errors(analysis: AnalysisRows, task: str, by_length: bool) -> list[FirstErrors]:
    """By length, or seen and unseen lengths each together."""
    rows = [row for row in analysis.failures if row["task"] == task]
    groups = grouped(rows, lambda row: (row["encoding"], row["seen"], row["length"] if by_length else 0))
    return [_first_errors(encoding, seen, here) for (encoding, seen, _), here in groups.items()]


def _first_errors(encoding: str, seen: bool, rows: list[Row]) -> FirstErrors:
    weighed = [(row["first_error_share"], row["n"] - row["correct"]) for row in rows if row["n"] > row["correct"]]
    wrong = sum(count for _, count in weighed)
    return FirstErrors(
        encoding,
        tuple(sorted({row["length"] for row in rows})),
        seen,
        sum(row["n"] for row in rows),
        {kind: sum(row[kind] for row in rows) for kind in ERROR_KINDS},
        np.sum([row["first_error_part"] for row in rows], axis=0).tolist(),
        sum(share * count for share, count in weighed) / wrong if wrong else None,
        sum(row["beyond_trained"] for row in rows),
    )
