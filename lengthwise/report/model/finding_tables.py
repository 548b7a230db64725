"""What analyses found as tables: distances, what heads attend to, probes, first errors."""

import math
from collections.abc import Sequence

from lengthwise.report.model.attention_distances import VARIANTS, DistanceComparison, Distances
from lengthwise.report.model.first_errors import FirstErrors
from lengthwise.report.model.head_statistics import KIND_NAMES, SCORES, LayerStatistics
from lengthwise.report.model.outcome_tables import error_columns
from lengthwise.report.model.phrases import known, plural
from lengthwise.report.model.probes import Probed
from lengthwise.report.model.summaries import ERROR_KINDS
from lengthwise.report.model.table import (
    MISSING,
    Cell,
    Column,
    Table,
    TableRow,
    Words,
    encoding_cell,
    number_cell,
    text_cell,
)

KIND_RULE = (
    "a head is counted as one that attends to the token before, to itself, or by induction (to what followed the same "
    "token earlier) if more than half of its attention goes there, and twice as much as even attention would have"
)
HOLDS = (
    "holds until: the last position with an error of at most twice that within, or one token; accuracy until: tokens "
    "of the longest examples before exact match falls below a half"
)
PLACE = (
    "shares of all examples over all seeds; place: where in the target the first error falls, 0 its beginning, 1 its "
    "end; beyond trained: the share of first errors at a place that no training target had"
)


def distance_table(comparison: DistanceComparison) -> Table:
    """By layer, nearest first; published distances below ours."""
    lines = comparison.lines
    layers = sorted({layer for line in lines for layer in line.by_layer})
    rows = []
    for line in lines:
        name = text_cell(line.label) if line.encoding == line.reference else encoding_cell(line.label)
        counts = (number_cell(str(line.pairs)), number_cell(str(line.examples)))
        rows.append(TableRow((name, *_layer_cells(line.by_layer, layers, line.overall), *counts)))
        if line.published_overall is not None:
            unlike = "".join(f", {words}" for words in comparison.unlike(line))
            theirs = _layer_cells(line.published, layers, line.published_overall)
            rows.append(
                TableRow((text_cell(f"  published {line.label}{unlike}"), *theirs, MISSING, MISSING), tone="quiet")
            )
    columns = (
        Column("layer", "left"),
        *(Column(str(layer)) for layer in layers),
        Column("all layers"),
        *(Column(heading, detail=True) for heading in ("pairs of runs", "examples of a pair")),
    )
    seeds = "the same seed" if comparison.same_seed else "different seeds"
    title = f"{comparison.task}: attention distance to {lines[0].reference}, {VARIANTS[comparison.variant]}, {seeds}"
    return Table("attention-distance", title, columns, tuple(rows), _distance_notes(comparison), task=comparison.task)


def _layer_cells(by_layer: dict[int, float], layers: Sequence[int], overall: float) -> list[Cell]:
    cells = [number_cell(f"{by_layer[layer]:.3f}") if layer in by_layer else MISSING for layer in layers]
    return [*cells, number_cell(f"{overall:.3f}", tone="main")]


def _distance_notes(comparison: DistanceComparison) -> tuple[str, ...]:
    notes = ["nearest heads, means over lengths and pairs of runs; nearest first"]
    ours = comparison.variant == "distance"
    if ours:
        notes.append(f"at most ln 2 = {math.log(2):.3f} nats, over all pairs of heads")
    if comparison.same_seed:
        notes.append("runs of the same seed began with the same weights; pairs of different seeds compare without that")
    published = [line for line in comparison.lines if line.published_overall is not None]
    if published:
        order = sorted(published, key=_published)
        notes.append("published order, these lengths: " + ", ".join(line.label for line in order))
        if ours:
            notes.append("their values are of another divergence, unbounded, over 66 of 144 pairs of heads")
    return tuple(notes)


def _published(line: Distances) -> float:
    return line.published_overall or 0.0


def statistics_table(task: str, found: Sequence[LayerStatistics]) -> Table:
    """Every score of every layer: means over heads and seeds."""
    first = found[0]
    columns = (
        Column("encoding", "left"),
        Column("layer"),
        *map(Column, SCORES.values()),
        *(Column(f"heads: {name}") for name in KIND_NAMES.values()),
    )
    rows = [
        TableRow(
            (
                encoding_cell(each.encoding),
                number_cell(str(each.layer)),
                *(number_cell(known(each.scores[score])) for score in SCORES),
                *(number_cell(f"{each.kinds[kind]:.3g} of {each.heads}") for kind in KIND_NAMES),
            )
        )
        for each in found
    ]
    title = (
        f"{task}: how heads look on {first.group} lengths, means over heads and {plural(first.runs, 'run')}, "
        f"{plural(first.examples, 'example')} each"
    )
    return Table("attention-by-layer", title, columns, tuple(rows), (KIND_RULE,), names=2, task=task)


def probe_table(task: str, best: Sequence[Probed]) -> Table:
    """Each encoding at the layer that reads best."""
    scores = ("R² within", "error within", "R² beyond", "error beyond", "slope beyond", "control R²")
    columns = (
        *(Column(heading, "left") for heading in ("encoding", "of", "probe")),
        *(
            Column(heading, detail=heading in ("R² within", "R² beyond"))
            for heading in ("layer", *scores, "holds until", "accuracy until")
        ),
    )
    rows = []
    for each in best:
        values = (
            each.within["r2"], each.within["error"], each.beyond["r2"], each.beyond["error"], each.beyond["slope"],
            each.control["within_r2"],
        )  # fmt: skip
        until = MISSING if each.accuracy_until is None else number_cell(f"{each.accuracy_until:.0f}")
        rows.append(
            TableRow(
                (
                    encoding_cell(each.encoding),
                    text_cell(each.target),
                    text_cell(each.probe),
                    number_cell(str(each.layer)),
                    *(number_cell(known(value)) for value in values),
                    number_cell(f"{each.holds_until:.0f}"),
                    until,
                )
            )
        )
    runs, trained = plural(best[0].runs, "run"), best[0].trained_tokens
    title = f"{task}: probes at the layer that reads best within the training length of {trained} tokens; {runs}"
    notes = (
        "layer 0 is the embedding; errors in tokens; slope: by how much the estimate grows when the answer grows by "
        "one, 0 for an estimate that has stopped",
        HOLDS,
    )
    return Table("probes", title, columns, tuple(rows), notes, names=3, task=task)


def first_error_table(task: str, found: Sequence[FirstErrors]) -> Table:
    """What becomes of answers, and where the first error falls."""
    columns = (
        Column("encoding", "left"),
        Column("lengths", "left"),
        Column("examples"),
        *error_columns(),
        Column("place"),
        Column("beyond trained"),
    )
    rows = []
    for each in found:
        shares = [each.kinds[kind] / each.n for kind in ERROR_KINDS]
        rows.append(
            TableRow(
                (
                    encoding_cell(each.encoding),
                    text_cell("seen" if each.seen else "unseen"),
                    number_cell(str(each.n)),
                    *(Cell((Words(f"{share:.2f}"),), share=share) for share in shares),
                    number_cell(known(each.place)),
                    number_cell(f"{each.beyond_trained / each.wrong:.2f}") if each.wrong else MISSING,
                )
            )
        )
    return Table("first-errors", f"{task}: first errors", columns, tuple(rows), (PLACE,), names=2, task=task)
