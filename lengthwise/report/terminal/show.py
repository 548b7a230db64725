"""What `lengthwise show` prints of a study."""

from statistics import mean

from rich.console import RenderableType
from rich.text import Text

from lengthwise.records.completeness import missing
from lengthwise.records.facets import faceted
from lengthwise.records.merging import told_apart
from lengthwise.records.results import Results
from lengthwise.report.model.accuracy_tables import pair_tables, shown_accuracies
from lengthwise.report.model.axis_columns import with_axes
from lengthwise.report.model.difference_tables import difference_table
from lengthwise.report.model.displayed import displayed
from lengthwise.report.model.length_tables import length_table
from lengthwise.report.model.outcome_tables import budget_table, outcome_table
from lengthwise.report.model.ranking_table import ranking_table
from lengthwise.report.model.table import Table
from lengthwise.report.terminal.table import ForWidth, to_terminal

MOST_LENGTHS = 16
"""Columns of lengths at most, however wide the terminal is."""

MOST_ENCODINGS = 20
"""Of a table by length: of more, those that are best on the task's unseen lengths."""

LENGTH = len(" 0.00")
"""Characters of a column of lengths."""


def show_tables(results: Results, checkpoint: str = "last") -> list[RenderableType]:
    """What matters most comes first; tables by length, of which there are most, come last."""
    results = faceted(displayed(results))
    partial = missing(results)
    statistics = outcome_table(results, checkpoint), difference_table(results, checkpoint), budget_table(results)
    ranked = [ranking_table(results, checkpoint)] if len(results.encodings) > 1 else []
    tables = [*pair_tables(results, checkpoint), *ranked]
    tables += [table for table in statistics if table.rows]
    return [
        *([Text(partial.words, style="yellow")] if partial else []),
        *(Text(line, style="yellow") for line in told_apart(results)),
        *(to_terminal(with_axes(table, results)) for table in tables),
        *(lengths(results, task, checkpoint) for task in results.tasks),
    ]


def show_values(results: Results, checkpoint: str = "last") -> Table:
    """The accuracies alone, for programs."""
    results = faceted(displayed(results))
    return with_axes(shown_accuracies(results, checkpoint), results)


def lengths(results: Results, task: str, checkpoint: str = "last") -> RenderableType:
    """Encodings by as many lengths as the terminal has room for."""
    shown = best_encodings(results, task, checkpoint)
    names = max(map(len, ["encoding", *shown]))

    def fitted(width: int) -> RenderableType:
        room = (width - names - len("  │ ")) // LENGTH
        most = max(2, min(MOST_LENGTHS, room))
        return to_terminal(length_table(results, task, checkpoint, most, shown).transposed())

    return ForWidth(fitted)


def best_encodings(results: Results, task: str, checkpoint: str) -> list[str]:
    """In the order of tables; of more than there is room for, the best on unseen lengths of the task."""
    if len(results.encodings) <= MOST_ENCODINGS:
        return results.encodings
    accuracies = results.accuracies(checkpoint)
    means = {
        encoding: mean(found.values()) for encoding in results.encodings if (found := accuracies.get((task, encoding)))
    }
    best = sorted(means, key=lambda encoding: -means[encoding])[:MOST_ENCODINGS]
    return [encoding for encoding in results.encodings if encoding in best]
