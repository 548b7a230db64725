"""Tables as CSV: their values for programs, or, of a table that has none, what it shows."""

import csv
import io

from lengthwise.report.model.table import Table


def to_csv(table: Table) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    if table.fields:
        writer.writerow(table.fields)
        writer.writerows([["" if value is None else value for value in row] for row in table.values])
    else:
        writer.writerow([column.heading for column in table.columns])
        writer.writerows([[cell.text for cell in row.cells] for row in table.rows if not row.heads])
    return file.getvalue()
