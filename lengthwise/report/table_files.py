"""Every table of a report as a folder of CSV files."""

from pathlib import Path

from lengthwise.records.directory import make_folder
from lengthwise.records.files import write_text
from lengthwise.records.findings import AnalysisRows
from lengthwise.records.results import Results
from lengthwise.report.model.axis_columns import with_axes
from lengthwise.report.model.data_tables import data_tables
from lengthwise.report.model.finding_values import finding_values, head_values
from lengthwise.report.model.findings import analysed
from lengthwise.report.model.operand_grid import grid_values, operand_grids
from lengthwise.report.model.run_tables import failure_values
from lengthwise.report.model.table_csv import to_csv


def write_tables(results: Results, analysis: AnalysisRows, folder: Path) -> None:
    """`analysis`: what is relevant to the results. All are made before the first is written."""
    tasks = analysed(results, analysis)
    found = [failure_values(results), *finding_values(analysis, tasks)]
    if grids := operand_grids(results):
        found.append(grid_values(grids))
    if analysis.heads:
        found.append(head_values(analysis, tasks))
    every = [*data_tables(results), *(with_axes(table, results) for table in found)]
    texts = {table.name: to_csv(table) for table in every}
    make_folder(folder)
    for name, text in texts.items():
        write_text(folder / f"{name}.csv", text)
