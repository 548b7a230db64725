"""What analyses found as tables for programs."""

from lengthwise.records.findings import HEAD_KINDS, AnalysisRows
from lengthwise.report.model.attention_distances import VARIANTS, comparisons
from lengthwise.report.model.first_errors import first_errors
from lengthwise.report.model.head_statistics import SCORES, first_seeds, layer_statistics
from lengthwise.report.model.numbers import known
from lengthwise.report.model.probes import probed
from lengthwise.report.model.summaries import ERROR_KINDS
from lengthwise.report.model.table import Table, Value, value_table


def finding_values(analysis: AnalysisRows, tasks: list[str]) -> list[Table]:
    """Those that have rows."""
    found = [
        distance_values(analysis, tasks), statistics_values(analysis, tasks), probe_values(analysis, tasks),
        first_error_values(analysis, tasks),
    ]  # fmt: skip
    return [table for table in found if table.rows]


def distance_values(analysis: AnalysisRows, tasks: list[str]) -> Table:
    rows: list[list[Value]] = []
    for task in tasks:
        for comparison in comparisons(analysis, task):
            for line in comparison.lines:
                shared = comparison.same_seed and line.encoding != line.reference
                unlike = "; ".join(comparison.unlike(line)) if line.published_overall is not None else None
                about = [task, VARIANTS[comparison.variant], "same" if shared else "different", line.label]
                for layer, distance in line.by_layer.items():
                    rows.append(
                        [*about, line.reference, layer, known(distance), known(line.seen.get(layer)),
                         known(line.unseen.get(layer)), line.pairs, line.examples,
                         known(line.published.get(layer)), unlike if layer in line.published else None]
                    )  # fmt: skip
                rows.append(
                    [*about, line.reference, "all", known(line.overall), None, None, line.pairs, line.examples,
                     known(line.published_overall), unlike]
                )  # fmt: skip
    return value_table(
        "attention-distance",
        "Distance between the attention of two models, nearest heads, by layer",
        ["task", "divergence", "seeds_of_a_pair", "encoding", "reference", "layer", "distance", "distance_seen",
         "distance_unseen", "pairs_of_runs", "examples_of_a_pair", "published", "published_is"],
        rows,
    )  # fmt: skip


def statistics_values(analysis: AnalysisRows, tasks: list[str]) -> Table:
    return value_table(
        "attention-by-layer",
        "How heads look, by layer: means over heads and seeds",
        ["task", "encoding", "lengths", "layer", *SCORES, *(f"even_{score}" for score in EVEN),
         *(f"{kind}_heads" for kind in HEAD_KINDS), "heads", "runs", "examples"],
        [
            [task, each.encoding, each.group, each.layer, *(known(each.scores[score]) for score in SCORES),
             *(known(each.even[score]) for score in EVEN),
             *(known(each.kinds[kind]) for kind in HEAD_KINDS), each.heads, each.runs, each.examples]
            for task in tasks
            for each in layer_statistics(analysis, task)
        ],
    )  # fmt: skip


EVEN = ("tokens_back", "first", "previous", "diagonal", "induction")
"""Scores of even attention that are not always the same."""


def head_values(analysis: AnalysisRows, tasks: list[str], first_seeds_only: bool = False) -> Table:
    """Every head, or those of one run of each task and encoding."""
    rows = [row for row in analysis.heads if row["task"] in tasks]
    rows = first_seeds(rows) if first_seeds_only else rows
    return value_table(
        "attention-heads",
        "How every head looks" + (", lowest seed" if first_seeds_only else ""),
        ["task", "encoding", "seed", "lengths", "layer", "head", "examples", *SCORES],
        [
            [*(row[name] for name in ("task", "encoding", "seed", "group", "layer", "head", "n")),
             *(known(row[score]) for score in SCORES)]
            for row in rows
        ],
    )  # fmt: skip


def probe_values(analysis: AnalysisRows, tasks: list[str]) -> Table:
    return value_table(
        "probes",
        "What probes read from the residual stream: means over seeds; layer 0 is the embedding",
        ["task", "encoding", "of", "probe", "layer", "trained_tokens", "r2_within", "error_within", "r2_beyond",
         "error_beyond", "slope_beyond", "control_r2_within", "control_error_within", "control_error_beyond",
         "holds_until", "accuracy_until", "runs"],
        [
            [task, each.encoding, each.target, each.probe, each.layer, each.trained_tokens,
             known(each.within["r2"]), known(each.within["error"]), known(each.beyond["r2"]),
             known(each.beyond["error"]), known(each.beyond["slope"]), *map(known, each.control.values()),
             known(each.holds_until), known(each.accuracy_until), each.runs]
            for task in tasks
            for each in probed(analysis, task)
        ],
    )  # fmt: skip


def first_error_values(analysis: AnalysisRows, tasks: list[str]) -> Table:
    return value_table(
        "first-errors",
        "Where answers first go wrong, by length: sums over seeds",
        ["task", "encoding", "length", "trained", "n", *ERROR_KINDS, "mean_place", "beyond_trained_places",
         *(f"in_tenth_{i + 1}" for i in range(10))],
        [
            [task, each.encoding, each.lengths[0], each.seen, each.n, *each.kinds.values(), known(each.place),
             each.beyond_trained, *each.parts]
            for task in tasks
            for each in first_errors(analysis, task, by_length=True)
        ],
    )  # fmt: skip
