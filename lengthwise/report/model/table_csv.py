"""Tables as CSV: their values for programs, or, of a table that has none, what it shows."""

import csv
import io
import re

from lengthwise.report.model.table import Table, Value

FORMULAS = ("=", "+", "-", "@", "\t", "\r", "\n")
NUMBERS = re.compile(r"[-+\d.,%\[\]()\s–]+")


def to_csv(table: Table) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    if table.fields:
        writer.writerow(table.fields)
        writer.writerows([["" if value is None else harmless(value) for value in row] for row in table.values])
    else:
        writer.writerow([harmless(column.heading) for column in table.columns])
        writer.writerows([[harmless(cell.text) for cell in row.cells] for row in table.rows if not row.heads])
    return file.getvalue()


def harmless(value: Value) -> Value:
    """A text that a spreadsheet would take for a formula gets a `'` before it; what is only numbers and brackets
    stays."""
    if isinstance(value, str) and value.startswith(FORMULAS) and not NUMBERS.fullmatch(value):
        return f"'{value}"
    return value
