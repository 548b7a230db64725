"""What probes read from the residual stream; means over seeds."""

from collections.abc import Sequence
from dataclasses import dataclass

from lengthwise.records.findings import AnalysisRows, Row
from lengthwise.report.model.grouping import grouped, mean, mean_or_none


@dataclass(frozen=True)
class Probed:
    """What one kind of probe reads from one residual stream; means over seeds."""

    encoding: str
    target: str
    probe: str
    layer: int
    within: dict[str, float | None]
    beyond: dict[str, float | None]
    """`r2`, `error` in tokens, `slope`."""
    control: dict[str, float | None]
    """`within_r2`, `within_error`, `beyond_error` of the probe that was fitted to shuffled answers."""
    holds_until: float
    accuracy_until: float | None
    """In tokens: of the longest examples before exact match falls below a half."""
    trained_tokens: int
    runs: int
    error_at: dict[int, float]
    """Position, counted from 0 -> mean error in tokens."""


def probed(analysis: AnalysisRows, task: str) -> list[Probed]:
    """All residual streams; stream 0 is the embedding."""
    rows = [row for row in analysis.probes if row["task"] == task]
    groups = grouped(rows, lambda row: (row["encoding"], row["target"], row["probe"], row["layer"]))
    return [_probed(*key, here) for key, here in groups.items()]


def _probed(encoding: str, target: str, probe: str, layer: int, rows: list[Row]) -> Probed:
    true, control = ([row for row in rows if row["control"] == kind] for kind in (False, True))
    pairs = [pair for row in true for pair in zip(*map(row["by_position"].get, ("position", "error")), strict=True)]
    until = [row["accuracy_holds_until"]["tokens"] for row in true if row.get("accuracy_holds_until")]

    def part(chosen: list[Row], name: str, score: str) -> float | None:
        return mean_or_none(row[name][score] for row in chosen)

    return Probed(
        encoding,
        target,
        probe,
        layer,
        {score: part(true, "within", score) for score in ("r2", "error", "slope")},
        {score: part(true, "beyond", score) for score in ("r2", "error", "slope")},
        {
            "within_r2": part(control, "within", "r2"),
            "within_error": part(control, "within", "error"),
            "beyond_error": part(control, "beyond", "error"),
        },
        mean(row["holds_until"] for row in true),
        mean(until) if until else None,
        rows[0]["trained_tokens"],
        len({row["run"] for row in true}),
        {place: mean(error for _, error in here) for place, here in sorted(grouped(pairs, lambda p: p[0]).items())},
    )


def best_layers(every: Sequence[Probed]) -> list[Probed]:
    """Of each encoding, target and probe the layer that reads best within the training length."""
    groups = grouped(every, lambda each: (each.encoding, each.target, each.probe))
    known = ([each for each in here if each.within["r2"] is not None] for here in groups.values())
    return [max(here, key=lambda each: each.within["r2"] or 0.0) for here in known if here]
