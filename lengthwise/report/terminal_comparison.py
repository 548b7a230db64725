"""Tables for the terminal: our cells beside the published ones, correlations, orders, departures."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from lengthwise.records.comparison import CLOSE, ComparedCell, Comparison
from lengthwise.records.published import ENCODINGS, Figure
from lengthwise.report.phrases import beside, places
from lengthwise.report.terminal import counted
from lengthwise.report.terminal_table import plain_table


def comparison_tables(comparison: Comparison) -> list[RenderableType]:
    """Everything of a comparison but its curves, which are for programs."""
    found: list[RenderableType] = [Text(line, style="yellow") for line in warnings(comparison)]
    found += [cell_table(comparison), correlation_table(comparison)]
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
    table = plain_table(
        f"Accuracy on unseen lengths, {comparison.checkpoint} checkpoint: mean ± standard deviation (seeds)"
    )
    table.add_column("task, encoding")
    for heading in ("ours", "published", "difference", *(("allowed", "within") if comparison.judged else ())):
        table.add_column(heading, justify="right")
    before = ""
    for cell in comparison.shared:
        if not (cell.ours and cell.published and cell.difference is not None):
            continue
        if cell.title != before:
            table.add_row(Text(cell.title, style="bold"))
        mark = Text("*" if cell.unlearned else " ", style="yellow")
        table.add_row(
            Text(f"  {cell.encoding}"),
            Text.assemble(_figure(cell.ours), mark),
            _figure(cell.published),
            _difference(cell.difference, cell.tolerance),
            *(_verdict(cell.difference, cell.tolerance) if comparison.judged else ()),
        )
        before = cell.title
    lines = []
    if comparison.judged:
        lines.append(
            f"{comparison.within} of {counted(len(comparison.judged), 'cell')} within: the difference is at most "
            f"{CLOSE} or twice the pooled standard deviation"
        )
    if any(cell.unlearned for cell in comparison.shared):
        lines.append("* some seed did not learn its training lengths: no failure to generalize")
    table.caption = "\n".join(lines) or None
    return table


def _verdict(difference: float, allowed: float | None) -> tuple[str | Text, Text]:
    """What is allowed, and whether the difference is no more."""
    if allowed is None:
        return Text("–", style="dim"), Text("–", style="dim")
    within = abs(difference) <= allowed
    return beside(allowed, abs(difference)), Text("yes", style="green") if within else Text("no", style="red")


def correlation_table(comparison: Comparison) -> Table:
    table = plain_table("Rank correlation with published (Spearman)")
    table.add_column("task")
    table.add_column("correlation", justify="right")
    table.add_column("cells", justify="right")
    for each in comparison.by_task:
        table.add_row(Text(each.title), _correlation(each.correlation), str(each.encodings))
    table.add_section()
    table.add_row("all cells", _correlation(comparison.correlation), str(len(comparison.shared)))
    if comparison.correlation is None or any(each.correlation is None for each in comparison.by_task):
        table.caption = "–: fewer than three cells, or no order among them on one side"
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


def _figure(figure: Figure) -> str:
    spread = f" ± {figure.deviation:.2f}" if figure.deviation is not None else ""
    return f"{figure.mean:.2f}{spread} ({figure.seeds})"


def _difference(difference: float, allowed: float | None) -> str:
    text = f"{difference:+.2f}" if allowed is None else beside(difference, allowed, "+")
    return text if float(text) else "+0.00"  # never -0.00


def _correlation(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}"
