"""What heads attend to, layer by layer; means over heads and seeds."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lengthwise.records.findings import HEAD_KINDS, AnalysisRows, Row, is_kind
from lengthwise.report.model.grouping import grouped, mean, mean_or_none

SCORES = {
    "tokens_back": "tokens back",
    "entropy_share": "entropy, share of its bound",
    "first": "attention on the first token",
    "previous": "attention on the token before",
    "diagonal": "attention on the token itself",
    "induction": "induction",
}
"""What is told of every head."""

KIND_NAMES = {"previous": "token before", "diagonal": "itself", "induction": "induction"}


@dataclass(frozen=True)
class LayerStatistics:
    """Where the heads of one layer attend; means over heads and seeds."""

    encoding: str
    group: str
    layer: int
    scores: dict[str, float | None]
    even: dict[str, float | None]
    """What a head would score that looks at everything alike."""
    kinds: dict[str, float]
    """Heads of each kind in a run."""
    heads: int
    runs: int
    examples: int
    reach: list[tuple[int, float]]
    """Last distance of each bin, share of attention."""
    entropy: list[float]
    entropy_bound: list[float]
    first: list[float]
    """By position, counted from 1."""


def layer_statistics(analysis: AnalysisRows, task: str) -> list[LayerStatistics]:
    """By encoding, seen and unseen lengths, and layer."""
    rows = [row for row in analysis.heads if row["task"] == task]
    groups = grouped(rows, lambda row: (row["encoding"], row["group"], row["layer"]))
    return [_statistics(*key, here) for key, here in groups.items()]


def _statistics(encoding: str, group: str, layer: int, rows: list[Row]) -> LayerStatistics:
    runs = len({row["run"] for row in rows})
    return LayerStatistics(
        encoding,
        group,
        layer,
        {score: mean_or_none(row[score] for row in rows) for score in SCORES},
        {score: mean_or_none(row["even"].get(score) for row in rows) for score in SCORES},
        {kind: sum(is_kind(row, kind) for row in rows) / runs for kind in HEAD_KINDS},
        len(rows) // runs,
        runs,
        rows[0]["n"],
        list(zip(_longest(rows, "distance_up_to"), _reach(rows), strict=True)),
        _by_place(rows, "entropy_by_position"),
        _longest(rows, "entropy_bound"),
        _by_place(rows, "first_by_position"),
    )


def shown_group(every: Sequence[LayerStatistics]) -> str:
    """Unseen lengths, or seen ones where there are no others."""
    return "unseen" if any(each.group == "unseen" for each in every) else "seen"


def first_seeds(rows: Iterable[Row]) -> list[Row]:
    """Of each task and encoding the run with the lowest seed: heads of different runs have nothing but a number in
    common, so they are not averaged."""
    found = []
    for here in grouped(rows, lambda row: (row["task"], row["encoding"])).values():
        lowest = min(row["seed"] for row in here)
        found += [row for row in here if row["seed"] == lowest]
    return found


# Runs may have been asked at different lengths, so lists need not be equally long.


def _longest(rows: list[Row], name: str) -> list[Any]:
    return max((row[name] for row in rows), key=len)


def _by_place(rows: list[Row], name: str) -> list[float]:
    """Means over the rows that reach so far."""
    values = [row[name] for row in rows]
    return [mean(each[i] for each in values if i < len(each)) for i in range(max(map(len, values)))]


def _reach(rows: list[Row]) -> list[float]:
    bins = len(_longest(rows, "distance_share"))
    return np.mean([row["distance_share"] + [0.0] * (bins - len(row["distance_share"])) for row in rows], 0).tolist()
