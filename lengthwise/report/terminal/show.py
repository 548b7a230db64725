"""What `lengthwise show` prints of a study."""

from rich.console import RenderableType
from rich.text import Text

from lengthwise.records.completeness import missing
from lengthwise.records.rows import Results
from lengthwise.report.terminal.results import length_tables, overall_tables, ranking_table
from lengthwise.report.terminal.statistics import statistics_tables


def show_tables(results: Results, checkpoint: str = "last") -> list[RenderableType]:
    """What matters most comes first; tables by length, of which there are most, come last."""
    partial = missing(results)
    return [
        *([Text(partial.words, style="yellow")] if partial else []),
        *overall_tables(results, checkpoint),
        ranking_table(results, checkpoint),
        *statistics_tables(results, checkpoint),
        *length_tables(results, checkpoint),
    ]
