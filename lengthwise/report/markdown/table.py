"""Tables and words in Markdown."""

from lengthwise.report.model.table import Column, Table, TableRow


def to_markdown(table: Table) -> str:
    """The table alone, without its title and its notes."""
    shown = table.shown()
    lines = [
        [plain(column.heading) for column in shown.columns],
        [_rule(column) for column in shown.columns],
        *(_row(row, len(shown.columns)) for row in shown.rows),
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def section(table: Table, title: str = "", level: int = 2) -> str:
    """Under its title, or another one, with its notes below."""
    parts = [f"{'#' * level} {plain(title or table.title)}", to_markdown(table) if table.rows else "", notes(table)]
    return "\n\n".join(part for part in parts if part)


def notes(table: Table) -> str:
    return plain(" ".join(table.sentences))


def plain(words: str) -> str:
    """Words in which nothing is markup."""
    escaped = "".join(f"\\{letter}" if letter in "|<>`[]\\" else letter for letter in words)
    return escaped.replace("_", "\\_")


def _rule(column: Column) -> str:
    return ":--" if column.align == "left" else "--:"


def _row(row: TableRow, columns: int) -> list[str]:
    if row.heads:
        return [f"**{plain(row.cells[0].text)}**", *[""] * (columns - 1)]
    return [plain(cell.text).strip() for cell in row.cells]
