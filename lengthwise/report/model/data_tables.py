"""Every table of a study for programs: what the page offers for download, and what is written as CSV."""

from lengthwise.records.results import Results
from lengthwise.report.model import reference
from lengthwise.report.model.accuracy_tables import accuracy_values, scratchpad_values
from lengthwise.report.model.axis_columns import with_axes
from lengthwise.report.model.difference_tables import difference_table
from lengthwise.report.model.length_curves import LengthCurves, curves_of
from lengthwise.report.model.length_tables import length_values, validation_values
from lengthwise.report.model.outcome_tables import error_table
from lengthwise.report.model.published_tables import agreement_values, comparison_values, order_table
from lengthwise.report.model.ranking_table import ranking_table
from lengthwise.report.model.run_tables import run_table, task_table
from lengthwise.report.model.table import Table


def data_tables(results: Results, curves: list[LengthCurves] | None = None, keep_titles: bool = False) -> list[Table]:
    """All of them but the failures; `keep_titles` as for `with_axes`."""
    every = curves or [curves_of(results, task) for task in results.tasks]
    found = [
        ranking_table(results), accuracy_values(results), length_values(every), difference_table(results),
        error_table(results), task_table(results), run_table(results),
    ]  # fmt: skip
    if results.has_scratchpads:
        found.append(scratchpad_values(results))
    if (during_training := validation_values(results)).rows:
        found.append(during_training)
    if comparison := reference.comparison(results):
        found += [comparison_values(comparison), agreement_values(comparison), order_table(comparison)]
    return [with_axes(table, results, keep_titles) for table in found]
