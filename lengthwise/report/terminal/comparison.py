"""What `lengthwise compare` prints: our cells beside the published ones, agreement, orders, departures."""

from collections.abc import Iterator

from rich.console import RenderableType
from rich.text import Text

from lengthwise.records.comparison import ComparedCell, Comparison
from lengthwise.records.merging import told_apart
from lengthwise.records.published import ENCODINGS
from lengthwise.records.results import Results
from lengthwise.report.model.axis_columns import with_axes
from lengthwise.report.model.phrases import plural
from lengthwise.report.model.published_tables import agreement_table, cell_table, correlation_table, order_table
from lengthwise.report.terminal.table import to_terminal


def comparison_tables(comparison: Comparison, results: Results) -> list[RenderableType]:
    """Everything of a comparison but its curves, which are for programs."""
    tables = [cell_table(results, comparison)]
    if comparison.counts:
        tables.append(agreement_table(comparison))
    tables.append(correlation_table(comparison))
    if comparison.order:
        tables.append(order_table(comparison))
    return [
        *(Text(line, style="yellow") for line in (*warnings(comparison), *told_apart(results))),
        *(to_terminal(with_axes(table, results)) for table in tables),
        Text("\n".join(notes(comparison))),
    ]


def warnings(comparison: Comparison) -> Iterator[str]:
    """What has to be known before the first number is read."""
    if comparison.missing:
        yield comparison.missing.words
    if comparison.other_lengths:
        which = "Some lengths" if comparison.judged else "Lengths"
        lines = "".join(f"\n  {line}" for line in comparison.other_lengths)
        yield f"{which} are not the published ones, so these cells are not judged:{lines}"


def notes(comparison: Comparison) -> Iterator[str]:
    """What is missing, and what is not alike."""
    ours, theirs = comparison.only_ours, comparison.only_published
    if ours:
        yield f"Not published ({plural(len(ours), 'cell')}): {_places(ours)}"
    if theirs:
        yield f"Published, not in these runs ({plural(len(theirs), 'cell')}): {_places(theirs)}"
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
