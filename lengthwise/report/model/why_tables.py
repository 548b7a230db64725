"""What analyses found as tables of plain values."""

from lengthwise.records.findings import HEAD_KINDS, AnalysisRows
from lengthwise.report.model import why
from lengthwise.report.model.data_tables import Table, Value

VARIANTS = {"distance": "Jensen-Shannon", "distance-published": "published variant"}


def why_tables(analysis: AnalysisRows, tasks: list[str]) -> list[Table]:
    """Those that have rows."""
    found = [
        distance_table(analysis, tasks), looks_table(analysis, tasks), probes_table(analysis, tasks),
        anatomy_table(analysis, tasks),
    ]  # fmt: skip
    return [table for table in found if table.rows]


def distance_table(analysis: AnalysisRows, tasks: list[str]) -> Table:
    rows: list[list[Value]] = []
    for task in tasks:
        for comparison in why.comparisons(analysis, task):
            for line in comparison.lines:
                shared = comparison.same_seed and line.encoding != line.reference
                unlike = "; ".join(comparison.unlike(line)) if line.published_overall is not None else None
                about = [task, VARIANTS[comparison.variant], "same" if shared else "different", line.label]
                for layer, distance in line.by_layer.items():
                    rows.append(
                        [*about, line.reference, layer, rounded(distance), rounded(line.seen.get(layer)),
                         rounded(line.unseen.get(layer)), line.pairs, line.examples,
                         rounded(line.published.get(layer)), unlike if layer in line.published else None]
                    )  # fmt: skip
                rows.append(
                    [*about, line.reference, "all", rounded(line.overall), None, None, line.pairs, line.examples,
                     rounded(line.published_overall), unlike]
                )  # fmt: skip
    return Table(
        "attention-distance",
        "Distance between the attention of two models, nearest heads, by layer",
        ["task", "divergence", "seeds_of_a_pair", "encoding", "reference", "layer", "distance", "distance_seen",
         "distance_unseen", "pairs_of_runs", "examples_of_a_pair", "published", "published_is"],
        rows,
    )  # fmt: skip


def looks_table(analysis: AnalysisRows, tasks: list[str]) -> Table:
    return Table(
        "attention-by-layer",
        "How heads look, by layer: means over heads and seeds",
        ["task", "encoding", "lengths", "layer", *why.SCORES, *(f"even_{score}" for score in EVEN),
         *(f"{kind}_heads" for kind in HEAD_KINDS), "heads", "runs", "examples"],
        [
            [task, each.encoding, each.group, each.layer, *(rounded(each.scores[score]) for score in why.SCORES),
             *(rounded(each.even[score]) for score in EVEN),
             *(rounded(each.kinds[kind]) for kind in HEAD_KINDS), each.heads, each.runs, each.examples]
            for task in tasks
            for each in why.layer_looks(analysis, task)
        ],
    )  # fmt: skip


EVEN = ("tokens_back", "first", "previous", "diagonal", "induction")
"""Scores of even attention that are not always the same."""


def heads_table(analysis: AnalysisRows, tasks: list[str], first_seeds_only: bool = False) -> Table:
    """Every head, or those of one run of each task and encoding."""
    rows = [row for row in analysis.heads if row["task"] in tasks]
    rows = why.first_seeds(rows) if first_seeds_only else rows
    return Table(
        "attention-heads",
        "How every head looks" + (", lowest seed" if first_seeds_only else ""),
        ["task", "encoding", "seed", "lengths", "layer", "head", "examples", *why.SCORES],
        [
            [*(row[name] for name in ("task", "encoding", "seed", "group", "layer", "head", "n")),
             *(rounded(row[score]) for score in why.SCORES)]
            for row in rows
        ],
    )  # fmt: skip


def probes_table(analysis: AnalysisRows, tasks: list[str]) -> Table:
    return Table(
        "probes",
        "What probes read from the residual stream: means over seeds; layer 0 is the embedding",
        ["task", "encoding", "of", "probe", "layer", "trained_tokens", "r2_within", "error_within", "r2_beyond",
         "error_beyond", "slope_beyond", "control_r2_within", "control_error_within", "control_error_beyond",
         "holds_until", "accuracy_until", "runs"],
        [
            [task, each.encoding, each.target, each.probe, each.layer, each.trained_tokens,
             rounded(each.within["r2"]), rounded(each.within["error"]), rounded(each.beyond["r2"]),
             rounded(each.beyond["error"]), rounded(each.beyond["slope"]), *map(rounded, each.control.values()),
             rounded(each.holds_until), rounded(each.accuracy_until), each.runs]
            for task in tasks
            for each in why.probed(analysis, task)
        ],
    )  # fmt: skip


def anatomy_table(analysis: AnalysisRows, tasks: list[str]) -> Table:
    return Table(
        "first-errors",
        "Where answers first go wrong, by length: sums over seeds",
        ["task", "encoding", "length", "trained", "n", *why.ERRORS, "mean_place", "beyond_trained_places",
         *(f"in_tenth_{i + 1}" for i in range(10))],
        [
            [task, each.encoding, each.lengths[0], each.seen, each.n, *each.kinds.values(), rounded(each.place),
             each.beyond_trained, *each.parts]
            for task in tasks
            for each in why.anatomy(analysis, task, by_length=True)
        ],
    )  # fmt: skip


def rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 4)
