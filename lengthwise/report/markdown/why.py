"""What analyses found, as Markdown."""

from lengthwise.report.figures.findings import TaskFindings
from lengthwise.report.markdown.table import plain, table
from lengthwise.report.model import why
from lengthwise.report.model.phrases import known
from lengthwise.report.model.why_tables import VARIANTS


def why_parts(found: TaskFindings) -> list[str]:
    """Of one task; nothing of analyses that were not made."""
    parts = [_distances(comparison) for comparison, _ in found.comparisons]
    if found.looks:
        parts.append(_looks(found))
    if found.best:
        parts.append(_probes(found))
    if found.anatomy:
        parts.append(_anatomy(found))
    return parts


def _distances(comparison: why.Comparison) -> str:
    layers = sorted({layer for line in comparison.lines for layer in line.by_layer})
    rows = []
    for line in comparison.lines:
        rows.append([line.label, *(f"{line.by_layer[layer]:.3f}" for layer in layers), f"{line.overall:.3f}"])
        if line.published_overall is not None:
            theirs = (f"{line.published[layer]:.3f}" if layer in line.published else "–" for layer in layers)
            unlike = "".join(f", {words}" for words in comparison.unlike(line))
            rows.append([f"published {line.label}{unlike}", *theirs, f"{line.published_overall:.3f}"])
    seeds = "the same seed" if comparison.same_seed else "different seeds"
    title = f"{plain(comparison.task)}: attention distance to {plain(comparison.lines[0].reference)}"
    note = f"{VARIANTS[comparison.variant]} of the nearest heads, pairs of runs with {seeds}; means over lengths."
    return f"## {title}\n\n{table(['layer', *map(str, layers), 'all'], rows)}\n\n{note}"


def _looks(found: TaskFindings) -> str:
    rows = [
        [f"{each.encoding} {each.layer}", *(known(each.scores[score]) for score in why.SCORES)]
        for each in found.looks
    ]  # fmt: skip
    note = f"Means over heads and {found.looks[0].runs} seeds, {found.looks[0].group} lengths."
    headings = ["encoding and layer", *why.SCORES.values()]
    return f"## {plain(found.task)}: how heads look\n\n{table(headings, rows)}\n\n{note}"


def _probes(found: TaskFindings) -> str:
    rows = [
        [f"{each.encoding}: {each.target}, {each.probe}", str(each.layer), known(each.within["r2"]),
         known(each.within["error"]), known(each.beyond["r2"]), known(each.beyond["error"]),
         known(each.control["within_r2"]), f"{each.holds_until:.0f}"]
        for each in found.best
    ]  # fmt: skip
    headings = ["probe", "layer", "R² within", "error within", "R² beyond", "error beyond", "control R²", "holds until"]
    note = (
        f"At the layer that reads best within the training length of {found.best[0].trained_tokens} tokens; errors in "
        "tokens."
    )
    return f"## {plain(found.task)}: probes\n\n{table(headings, rows)}\n\n{note}"


def _anatomy(found: TaskFindings) -> str:
    rows = [
        [each.encoding, "seen" if each.seen else "unseen", str(each.n),
         *(f"{each.kinds[kind] / each.n:.2f}" for kind in why.ERRORS), known(each.place)]
        for each in found.anatomy
    ]  # fmt: skip
    headings = ["encoding", "lengths", "n", "correct", "wrong symbol", "stopped early", "ran on", "place"]
    note = "Shares of all examples; place: where in the target the first error falls, 0 its beginning, 1 its end."
    return f"## {plain(found.task)}: first errors\n\n{table(headings, rows)}\n\n{note}"
