"""How far the attention of encodings is from that of a reference; means over lengths and pairs of runs."""

from dataclasses import dataclass

from lengthwise.records.findings import AnalysisRows, Row, distance_label
from lengthwise.records.published_distance import LAYERS, published_distances
from lengthwise.report.model.grouping import grouped, mean

VARIANTS = {"distance": "Jensen-Shannon", "distance-published": "published variant"}


@dataclass(frozen=True)
class Distances:
    """How far the heads of one encoding are from those of the reference; means over lengths and pairs of runs."""

    label: str
    encoding: str
    reference: str
    by_layer: dict[int, float]
    seen: dict[int, float]
    unseen: dict[int, float]
    """Layer -> mean over the lengths of that kind."""
    overall: float
    pairs: int
    """Of runs."""
    examples: int
    """Of all lengths, for each pair."""
    published: dict[int, float]
    """Layer -> published mean over the same lengths; empty where the model has other layers or nothing is published."""
    published_overall: float | None


@dataclass(frozen=True)
class DistanceComparison:
    """Distances that may be compared with each other, nearest first."""

    task: str
    variant: str
    """`distance` or `distance-published`."""
    same_seed: bool
    """Whether the runs of a pair share their seed, and so began with the same weights."""
    lines: list[Distances]

    def unlike(self, line: Distances) -> list[str]:
        """What keeps the published distances of a line from being compared with ours."""
        divergence = ["another divergence"] if self.variant == "distance" else []
        return divergence + ([f"of {LAYERS} layers"] if len(line.by_layer) != LAYERS else [])


def comparisons(analysis: AnalysisRows, task: str) -> list[DistanceComparison]:
    """Each variant, with pairs of the same seed and of different seeds apart."""
    found = []
    rows = [row for row in analysis.distances if row["task"] == task]
    for variant, here in grouped(rows, lambda row: row["variant"]).items():
        own = [row for row in here if row["encoding"] == row["reference"]]
        others = [row for row in here if row["encoding"] != row["reference"]]
        for same_seed in (True, False):
            chosen = [row for row in others if (row["seed"] == row.get("reference_seed")) == same_seed]
            if chosen or (own and not others and not same_seed):
                lines = [_distances(each, task) for each in grouped([*chosen, *own], distance_label).values()]
                found.append(DistanceComparison(task, variant, same_seed, sorted(lines, key=lambda line: line.overall)))
    return found


def _distances(rows: list[Row], task: str) -> Distances:
    first = rows[0]
    lengths = {row["length"] for row in rows}
    theirs = published_distances(task).get(distance_label(first), {}) if first["reference"] == "none" else {}
    known = [(layer, value) for (layer, length), value in theirs.items() if length in lengths]
    by_layer = {kind: _layer_means([row for row in rows if row["seen"] == kind], "distance") for kind in (True, False)}
    pairs = {(row["run"], row["reference_run"]) for row in rows}
    return Distances(
        distance_label(first),
        first["encoding"],
        first["reference"],
        _layer_means(rows, "distance"),
        by_layer[True],
        by_layer[False],
        mean(row["distance"] for row in rows),
        len(pairs),
        sum(row["n"] for row in rows) // (len(pairs) * first["layers"]),
        {layer: mean(v for other, v in known if other == layer) for layer, _ in known}
        if first["layers"] == LAYERS
        else {},
        mean(value for _, value in known) if known else None,
    )


def _layer_means(rows: list[Row], name: str) -> dict[int, float]:
    by_layer = grouped(rows, lambda row: row["layer"])
    return {layer: mean(row[name] for row in here) for layer, here in sorted(by_layer.items())}
