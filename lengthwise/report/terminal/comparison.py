"""Tables for the terminal: our cells beside the published ones, agreement, correlations, orders, departures."""

from collections.abc import Iterable, Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from lengthwise.records.comparison import ComparedCell, Comparison
from lengthwise.records.equivalence import MARGIN, Verdict
from lengthwise.records.published import ENCODINGS, Figure
from lengthwise.report.model import agreement
from lengthwise.report.model.phrases import beside, places
from lengthwise.report.terminal.results import counted
from lengthwise.report.terminal.table import plain_table


def comparison_tables(comparison: Comparison) -> list[RenderableType]:
    """Everything of a comparison but its curves, which are for programs."""
    found: list[RenderableType] = [Text(line, style="yellow") for line in warnings(comparison)]
    found.append(cell_table(comparison))
    if comparison.counts:
        found.append(agreement_table(comparison))
    found.append(correlation_table(comparison))
    if comparison.order:
        found.append(order_table(comparison))
    return [*found, Text("\n".join(notes(comparison)))]


def warnings(comparison: Comparison) -> Iterator[str]:
    """What has to be known before the first number is read."""
    if comparison.missing:
        yield comparison.missing.words
    if comparison.other_lengths:
        which = "Some lengths" if comparison.judged else "Lengths"
        lines = "".join(f"\n  {line}" for line in comparison.other_lengths)
        yield f"{which} are not the published ones, so these cells are not judged:{lines}"


def cell_table(comparison: Comparison) -> Table:
    """Every cell that both sides have."""
    shared = comparison.shared
    table = plain_table(f"Accuracy on unseen lengths, {comparison.checkpoint} checkpoint: mean ± standard deviation")
    seeds = [_same_seeds(cell.ours for cell in shared), _same_seeds(cell.published for cell in shared)]
    table.add_column("task, encoding")
    for name, number in zip(("ours", "published"), seeds, strict=True):
        table.add_column(f"{name},\n{counted(number, 'seed') if number else '(seeds)'}", justify="right")
    table.add_column(f"difference\n({agreement.INTERVAL})" if comparison.judged else "difference", justify="right")
    if comparison.judged:
        table.add_column("verdict")
    before = ""
    for cell in shared:
        if not (cell.ours and cell.published):
            continue
        if cell.title != before:
            table.add_row(Text(cell.title, style="bold"))
        mark = Text("*" if cell.unlearned else " ", style="yellow")
        table.add_row(
            Text(f"  {cell.encoding}"),
            Text.assemble(_figure(cell.ours, not seeds[0]), mark),
            _figure(cell.published, not seeds[1]),
            _difference(cell),
            *([_verdict(cell)] if comparison.judged else []),
        )
        before = cell.title
    lines = list(agreement.verdict_notes(comparison))
    if any(cell.unlearned for cell in shared):
        lines.append("* some seed did not learn its training lengths: no failure to generalize")
    table.caption = "\n".join(lines) or None
    return table


def _verdict(cell: ComparedCell) -> Text:
    if cell.extreme:
        return Text(cell.extreme.value, style="dim")
    if cell.verdict is None:
        return Text("–", style="dim")
    styles = {Verdict.equivalent: "green", Verdict.undecided: "yellow", Verdict.different: "red"}
    return Text(cell.verdict.value + ("†" if cell.borrowed_deviation else ""), style=styles[cell.verdict])


def agreement_table(comparison: Comparison) -> Table:
    """How many cells agree, beside what predictors that ignore the encoding would get."""
    if comparison.counts is None:
        raise ValueError("no cell is judged")
    informative = counted(comparison.counts.informative, "informative cell")
    table = plain_table(f"Agreement with the published results, of {informative}")
    table.add_column("")
    for heading in agreement.headings(comparison.counts):
        table.add_column(heading.replace(", ", ",\n"), justify="right")
    for name, cells in agreement.rows(comparison):
        table.add_row(name, *cells)
    table.caption = "\n".join(agreement.notes(comparison))
    return table


def correlation_table(comparison: Comparison) -> Table:
    table = plain_table("Rank correlation with published (Spearman)")
    table.add_column("task")
    table.add_column("correlation", justify="right")
    table.add_column("cells", justify="right")
    for each in comparison.by_task:
        table.add_row(Text(each.title), _correlation(each.correlation), str(each.encodings))
    table.add_section()
    found = comparison.correlations
    table.add_row("all cells", _correlation(found.plain), str(len(comparison.shared)))
    table.add_row("all, task means removed", _correlation(found.residual_spearman), str(found.residual_cells))
    table.add_row("  the same, Pearson", _correlation(found.residual_pearson), str(found.residual_cells))
    lines = [
        "task means removed: each accuracy minus the mean over the encodings of its task, on both sides; tasks that "
        "have every encoding"
    ]
    shown = (found.plain, found.residual_spearman, *(each.correlation for each in comparison.by_task))
    if None in shown:
        lines.append("–: fewer than three cells, or no order among them on one side")
    table.caption = "\n".join(lines)
    return table


def order_table(comparison: Comparison) -> Table:
    """Mean reciprocal ranks and places, ours at both checkpoints; only encodings and tasks that both sides have."""
    table = plain_table("Order of the encodings by mean reciprocal rank")
    table.add_column("encoding")
    order = comparison.order
    columns = {
        f"ours,\n{comparison.checkpoint}": [place.ours for place in order],
        f"ours,\n{comparison.other_checkpoint}": [place.at_other for place in order],
        "published,\nthese tasks": [place.published_here for place in order],
        "published,\nall 17 tasks": [place.published for place in order],
    }
    open_places = {
        f"ours,\n{comparison.checkpoint}": [place.places for place in order],
        f"ours,\n{comparison.other_checkpoint}": [place.places_at_other for place in order],
    }
    shown = {heading: scores for heading, scores in columns.items() if None not in scores}
    for heading in shown:
        table.add_column(heading, justify="right")
    for row, place in enumerate(order):
        texts = []
        for heading, scores in shown.items():
            score = scores[row] or 0.0
            above = 1 + sum((other or 0.0) > score for other in scores)
            told = places(open_places[heading][row]) if heading in open_places else ""
            texts.append(f"{score:.2f} ({told or f'{above}.'})")
        table.add_row(Text(place.encoding), *texts)
    lines = ["these tasks: from the published means, a task a column; all tasks: as published, over 51 columns"]
    if any(place.places and place.places[0] != place.places[1] for place in order):
        lines.append(SHARED)
    if any(place.ours is not None and place.places is None for place in order):
        lines.append("ours: too few seeds to say which of them are told apart")
    if all(place.ours is None for place in order):
        lines.append("ours: no pair of task and seed is finished for all encodings yet")
    table.caption = "\n".join(lines)
    return table


SHARED = (
    "2.–3.: the seeds leave the place open; the 95 % interval over seeds of the paired difference of reciprocal ranks "
    "holds 0"
)


def notes(comparison: Comparison) -> Iterator[str]:
    """What is missing, and what is not alike."""
    ours, theirs = comparison.only_ours, comparison.only_published
    if ours:
        yield f"Not published ({counted(len(ours), 'cell')}): {_places(ours)}"
    if theirs:
        yield f"Published, not in these runs ({counted(len(theirs), 'cell')}): {_places(theirs)}"
    for cell in comparison.shared:
        if cell.published and cell.published.note:
            yield f"{cell.title}, {cell.encoding}: {cell.published.note}"
    if comparison.departures:
        yield "These runs are not the published protocol; differences may come from that:"
        yield from (f"  {line}" for line in comparison.departures)
    else:
        yield "Lengths, model and recipe are the published ones."


def _places(cells: list[ComparedCell]) -> str:
    """Tasks, with the encodings where only some of them are meant."""
    by_title: dict[str, list[str]] = {}
    for cell in cells:
        label = cell.title if cell.scratchpad == "none" or "(" in cell.title else f"{cell.title} ({cell.scratchpad})"
        by_title.setdefault(label, []).append(cell.encoding)
    return ", ".join(
        title if set(ENCODINGS) <= set(encodings) else f"{title} [{' '.join(encodings)}]"
        for title, encodings in by_title.items()
    )


def _same_seeds(figures: Iterable[Figure | None]) -> int | None:
    """The number of seeds that all of them have; None where they differ."""
    numbers = {figure.seeds for figure in figures if figure}
    return numbers.pop() if len(numbers) == 1 else None


def _figure(figure: Figure, with_seeds: bool) -> str:
    spread = f" ± {figure.deviation:.2f}" if figure.deviation is not None else ""
    return f"{figure.mean:.2f}{spread}{f' ({figure.seeds})' if with_seeds else ''}"


def _difference(cell: ComparedCell) -> str:
    """With its interval; numbers near the margin have the digits that tell on which side they are."""
    if cell.difference is None:
        return "–"
    if cell.informative is None:
        return _signed(cell.difference)
    ends = f" ({' – '.join(_signed(end, MARGIN) for end in cell.interval)})" if cell.interval else ""
    return f"{_signed(cell.difference, MARGIN)}{ends}"


def _signed(value: float, limit: float | None = None) -> str:
    text = f"{value:+.2f}" if limit is None else beside(value, limit, "+")
    return text if float(text) else "+0.00"  # never -0.00


def _correlation(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}"
