"""Results as a notebook or a Python prompt shows them: a table of accuracies, and a figure of accuracy by length."""

import dataclasses
from dataclasses import dataclass
from html import escape
from pathlib import Path

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from lengthwise.errors import UserError
from lengthwise.records.completeness import missing
from lengthwise.records.facets import faceted
from lengthwise.records.merging import told_apart
from lengthwise.records.results import Results
from lengthwise.records.schema import CHECKPOINTS
from lengthwise.report.figures.drawing import Figure
from lengthwise.report.figures.length_curves import accuracy_by_length
from lengthwise.report.figures.palette import styles
from lengthwise.report.figures.picture import write_figure
from lengthwise.report.html.table import to_html
from lengthwise.report.model.accuracy_tables import pair_tables
from lengthwise.report.model.axis_columns import with_axes
from lengthwise.report.model.displayed import displayed
from lengthwise.report.model.ranking_table import ranking_table
from lengthwise.report.model.table import Table
from lengthwise.report.terminal.table import to_terminal

STYLE = "<style>.lengthwise .hidden { display: none } .lengthwise .sign { width: .7em; height: .7em }</style>"
"""A notebook has none of the styles of a report."""


@dataclass(frozen=True)
class Plot:
    """A figure that a notebook shows; `save` writes it to a file."""

    figure: Figure

    def _repr_svg_(self) -> str:
        return self.figure.file()

    def save(self, path: str | Path) -> Path:
        """Writes it to a file that ends in .svg or .png."""
        write_figure(self.figure, Path(path))
        return Path(path)

    def __repr__(self) -> str:
        return f"<Plot: {self.figure.title}; .save('figure.svg') writes it>"


class NotebookResults(Results):
    """Results that can be looked at where Python is typed."""

    def plot(self, checkpoint: str = "last", columns: int = 3) -> Plot:
        """Accuracy by length, a panel for each task; with a grid, or several studies, for each task at each point."""
        if checkpoint not in CHECKPOINTS:
            raise UserError(f"checkpoint must be {' or '.join(map(repr, CHECKPOINTS))}, not {checkpoint!r}")
        if columns < 1:
            raise UserError(f"columns must be 1 or more, not {columns}")
        return Plot(accuracy_by_length(faceted(displayed(self)), checkpoint, columns))

    def _repr_html_(self) -> str:
        results, notes, tables = self._shown()
        said = "".join(f"<p>{escape(line)}</p>" for line in notes)
        drawn = "".join(
            f"{to_html(table, styles(results.encodings), scrolls=False)}<p>{escape(' '.join(table.sentences))}</p>"
            for table in tables
        )
        return f'<div class="lengthwise">{STYLE}{said}{drawn}</div>'

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        _, notes, tables = self._shown()
        yield from (Text(line, style="yellow") for line in notes)
        yield from map(to_terminal, tables)

    def _shown(self) -> tuple[Results, list[str], list[Table]]:
        """The results as they may be shown, what has to be known first, and the tables that say most."""
        results = faceted(displayed(self))
        partial = missing(results)
        notes = [repr(self)[1:-1], *([partial.words] if partial else []), *told_apart(results)]
        if not results.runs:
            return results, notes, []
        return results, notes, [with_axes(t, results) for t in (*pair_tables(results), ranking_table(results))]


def in_notebook(results: Results) -> NotebookResults:
    """The same results."""
    return NotebookResults(**{each.name: getattr(results, each.name) for each in dataclasses.fields(results)})
