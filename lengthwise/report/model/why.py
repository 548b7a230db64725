"""What analyses say of a study: distances between models, how heads look, what probes read, where answers go wrong.

Means over heads, lengths and seeds of the rows that `lengthwise analyze` leaves.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from lengthwise.records.findings import HEAD_KINDS, AnalysisRows, Row, distance_label, is_kind
from lengthwise.records.published_distance import LAYERS, published_distances
from lengthwise.records.rows import Results

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

ERRORS = ("correct", "wrong_symbol", "stopped_early", "ran_on")

Key = TypeVar("Key", bound=Hashable)


def relevant(results: Results, analysis: AnalysisRows | None) -> AnalysisRows:
    """The rows about the runs of the report, in the study's order; its numbers are of the last checkpoint."""
    found = (analysis or AnalysisRows()).of_runs({run.description["fingerprint"] for run in results.runs})

    def place(row: Row) -> tuple[int, int, int]:
        return results.tasks.index(row["task"]), results.encodings.index(row["encoding"]), row["seed"]

    kinds = found.distances, found.heads, found.probes, found.failures, found.maps
    return AnalysisRows(*(sorted(rows, key=place) for rows in kinds))


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
class Comparison:
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


def comparisons(analysis: AnalysisRows, task: str) -> list[Comparison]:
    """Each variant, with pairs of the same seed and of different seeds apart."""
    found = []
    rows = [row for row in analysis.distances if row["task"] == task]
    for variant, here in grouped(rows, lambda row: row["variant"]).items():
        own = [row for row in here if row["encoding"] == row["reference"]]
        others = [row for row in here if row["encoding"] != row["reference"]]
        for same_seed in (True, False):
            chosen = [row for row in others if (row["seed"] == row["reference_seed"]) == same_seed]
            if chosen or (own and not others and not same_seed):
                lines = [_distances(each, task) for each in grouped([*chosen, *own], distance_label).values()]
                found.append(Comparison(task, variant, same_seed, sorted(lines, key=lambda line: line.overall)))
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


@dataclass(frozen=True)
class LayerLooks:
    """How the heads of one layer look; means over heads and seeds."""

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


def layer_looks(analysis: AnalysisRows, task: str) -> list[LayerLooks]:
    """By encoding, seen and unseen lengths, and layer."""
    rows = [row for row in analysis.heads if row["task"] == task]
    groups = grouped(rows, lambda row: (row["encoding"], row["group"], row["layer"]))
    return [_looks(*key, here) for key, here in groups.items()]


def _looks(encoding: str, group: str, layer: int, rows: list[Row]) -> LayerLooks:
    runs = len({row["run"] for row in rows})
    return LayerLooks(
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


def shown_group(looks: Sequence[LayerLooks]) -> str:
    """Unseen lengths, or seen ones where there are no others."""
    return "unseen" if any(each.group == "unseen" for each in looks) else "seen"


def first_seeds(rows: Iterable[Row]) -> list[Row]:
    """Of each task and encoding the run with the lowest seed: heads of different runs have nothing but a number in
    common, so they are not averaged."""
    found = []
    for here in grouped(rows, lambda row: (row["task"], row["encoding"])).values():
        lowest = min(row["seed"] for row in here)
        found += [row for row in here if row["seed"] == lowest]
    return found


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


@dataclass(frozen=True)
class Anatomy:
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


def anatomy(analysis: AnalysisRows, task: str, by_length: bool) -> list[Anatomy]:
    """By length, or seen and unseen lengths each together."""
    rows = [row for row in analysis.failures if row["task"] == task]
    groups = grouped(rows, lambda row: (row["encoding"], row["seen"], row["length"] if by_length else 0))
    return [_anatomy(encoding, seen, here) for (encoding, seen, _), here in groups.items()]


def _anatomy(encoding: str, seen: bool, rows: list[Row]) -> Anatomy:
    weighed = [(row["first_error_share"], row["n"] - row["correct"]) for row in rows if row["n"] > row["correct"]]
    wrong = sum(count for _, count in weighed)
    return Anatomy(
        encoding,
        tuple(sorted({row["length"] for row in rows})),
        seen,
        sum(row["n"] for row in rows),
        {kind: sum(row[kind] for row in rows) for kind in ERRORS},
        np.sum([row["first_error_part"] for row in rows], axis=0).tolist(),
        sum(share * count for share, count in weighed) / wrong if wrong else None,
        sum(row["beyond_trained"] for row in rows),
    )


def analysed(results: Results, analysis: AnalysisRows) -> list[str]:
    """Tasks that something was found about, in the study's order."""
    kinds = analysis.distances, analysis.heads, analysis.probes, analysis.failures
    found = {row["task"] for rows in kinds for row in rows}
    return [task for task in results.tasks if task in found]


def grouped(items: Iterable[Any], key: Callable[[Any], Key]) -> dict[Key, list[Any]]:
    found: dict[Key, list[Any]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def mean_or_none(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean(known) if known else None


def _layer_means(rows: list[Row], name: str) -> dict[int, float]:
    by_layer = grouped(rows, lambda row: row["layer"])
    return {layer: mean(row[name] for row in here) for layer, here in sorted(by_layer.items())}


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
