"""Columns of a grid: a table that names a facet, such as `copy · layers=4`, names the task and each axis apart."""

from collections.abc import Mapping
from dataclasses import replace

from lengthwise.records.points import short_names, written
from lengthwise.records.results import Facet, Results
from lengthwise.report.model.table import MISSING, Align, Cell, Column, Table, TableRow, Value, Words

TASK = "task"


def with_axes(table: Table, results: Results, keep_titles: bool = False) -> Table:
    """The same where there is no grid, or where no column names a task.

    `keep_titles`: the task keeps the title of the facet, by which the scripts of a page find it.
    """
    place = next((i for i, each in enumerate(table.columns) if TASK in (each.heading, *each.fields)), None)
    if not results.facets or place is None:
        return table
    column, short = table.columns[place], short_names(results.axes)
    axes = tuple(
        Column(short[axis], _align(results, axis), (axis,) if column.fields else (), shown=column.shown)
        for axis in results.axes
    )
    rows = tuple(row if row.heads else _row(row, place, column, results, keep_titles) for row in table.rows)
    columns = (*table.columns[: place + 1], *axes, *table.columns[place + 1 :])
    return replace(table, columns=columns, rows=rows, names=table.names + (len(axes) if place < table.names else 0))


def _row(row: TableRow, place: int, column: Column, results: Results, keep_titles: bool) -> TableRow:
    cell = row.cells[place]
    number = column.fields.index(TASK) if TASK in column.fields else 0
    title = str(cell.values[number]) if len(cell.values) > number else cell.text
    facet = _facet(title, results.facets)
    if facet is None:  # a task that we have no run of
        return replace(row, cells=(*row.cells[: place + 1], *(MISSING for _ in results.axes), *row.cells[place + 1 :]))
    axes = tuple(_cell(facet.values.get(axis)) for axis in results.axes)
    named = cell if keep_titles else _named(cell, number, title, facet)
    return replace(row, cells=(*row.cells[:place], named, *axes, *row.cells[place + 1 :]))


def _named(cell: Cell, number: int, title: str, facet: Facet) -> Cell:
    """With the task's own name."""
    values = tuple(facet.task if i == number else value for i, value in enumerate(cell.values))
    words = tuple(replace(each, text=each.text.replace(title, facet.task)) for each in cell.words)
    return replace(cell, values=values, words=words)


def _facet(title: str, facets: Mapping[str, Facet]) -> Facet | None:
    """Behind the title of a facet may stand more."""
    if title in facets:
        return facets[title]
    return next((facets[each] for each in sorted(facets, key=len, reverse=True) if title.startswith(each)), None)


def _cell(value: Value) -> Cell:
    return MISSING if value is None else Cell((Words(written(value)),), (value,))


def _align(results: Results, axis: str) -> Align:
    values = (facet.values.get(axis) for facet in results.facets.values())
    return "left" if any(isinstance(value, str | bool) for value in values) else "right"
