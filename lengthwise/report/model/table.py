"""A table as data: a title, columns, rows of cells, notes. HTML, Markdown, the terminal and CSV are drawn from it."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

Value = str | int | float | bool | None
Align = Literal["left", "right"]
Tone = Literal["", "main", "good", "bad", "warning", "unsure", "mark", "quiet", "bold", "spoken"]
"""How words are meant; each renderer shows that in its own way. `main`: the number that matters; `mark`: a sign that
hangs on a number; `spoken`: said to somebody who cannot see the table, and shown nowhere."""


@dataclass(frozen=True)
class Words:
    text: str
    tone: Tone = ""


@dataclass(frozen=True)
class Note:
    """What stands below the words of a cell, smaller; in brackets behind them where a cell is one line."""

    words: tuple[Words, ...]
    sign: str = ""
    """Stands for it, behind the words of the cell, where a cell is one line."""
    short: str = ""
    """What stands in the brackets instead of its words."""
    detail: bool = False
    """Left out where a cell is one line."""


@dataclass(frozen=True)
class Cell:
    words: tuple[Words, ...] = ()
    values: tuple[Value, ...] = ()
    """The same for programs: one for each field of its column."""
    notes: tuple[Note, ...] = ()
    share: float | None = None
    """From 0 to 1: the colour behind it, or its part of a bar."""
    hatched: bool = False
    """Whether that colour must not be taken for a result."""
    description: str = ""
    """Said to somebody who looks closer."""
    encoding: str = ""
    """Whose sign stands before it."""
    link: str = ""
    """The element of a page that says more of it."""

    @property
    def line(self) -> tuple[Words, ...]:
        """All of it in one line: its words, signs of notes, other notes in brackets."""
        signs = [Words(note.sign, "mark") for note in self.notes if note.sign]
        notes = "; ".join(
            note.short or "".join(each.text for each in _seen(note.words))
            for note in self.notes
            if not (note.sign or note.detail)
        )
        return (*_seen(self.words), *signs, *([Words(f" ({notes})")] if notes else []))

    @property
    def text(self) -> str:
        return "".join(each.text for each in self.line)


def _seen(words: tuple[Words, ...]) -> tuple[Words, ...]:
    return tuple(each for each in words if each.tone != "spoken")


@dataclass(frozen=True)
class Column:
    heading: str
    align: Align = "right"
    fields: tuple[str, ...] = ()
    """What programs call its values; a column without them is for people alone."""
    encoding: str = ""
    """Whose sign stands before the heading."""
    tone: Tone = ""
    swatch: str = ""
    """Name of a colour that stands before the heading: the shares of such columns make a bar."""
    wide: bool = False
    """Its words may take several lines."""
    shown: bool = True
    """Whether people see it; else it is for programs alone."""
    detail: bool = False
    """Left out where there is little room."""
    data: Mapping[str, str] = field(default_factory=dict)
    """For scripts of a page."""


@dataclass(frozen=True)
class TableRow:
    cells: tuple[Cell, ...]
    heads: bool = False
    """Whether it is one cell, the heading of the rows that follow."""
    ruled: bool = False
    """Whether a line below it sets it apart from what follows."""
    tone: Tone = ""
    data: Mapping[str, str] = field(default_factory=dict)
    """For scripts of a page."""


@dataclass(frozen=True)
class Table:
    name: str
    """Of its data, and of their file; empty where a table has none but what it shows."""
    title: str
    columns: tuple[Column, ...]
    rows: tuple[TableRow, ...]
    notes: tuple[str, ...] = ()
    """A sentence each, which need not begin with a capital or end in a full stop."""
    names: int = 1
    """Columns from the left that name the rows."""
    task: str = ""
    """The task that all of it is about, if there is one."""
    warned: bool = False
    """Whether the notes warn."""
    heat: bool = False
    """Whether the shares of its cells are what it is about: they get the colours of a heat map, in a terminal too."""

    @property
    def fields(self) -> list[str]:
        return [name for column in self.columns for name in column.fields]

    @property
    def values(self) -> list[list[Value]]:
        """A row of values for each row that is not a heading: one value for each field."""
        found = []
        for row in self.rows:
            if not row.heads:
                pairs = zip(self.columns, row.cells, strict=True)
                found.append([value for column, cell in pairs if column.fields for value in cell.values])
        return found

    @property
    def data(self) -> dict[str, Any]:
        """For the scripts of a page."""
        return {"columns": self.fields, "rows": self.values}

    @property
    def records(self) -> list[dict[str, Value]]:
        """For programs: field -> value, of each row."""
        return [dict(zip(self.fields, row, strict=True)) for row in self.values]

    @property
    def sentences(self) -> list[str]:
        """The notes, as they stand in a text."""
        return [_sentence(note) for note in self.notes]

    def shown(self, details: bool = True) -> "Table":
        """What people see of it; without `details` where there is little room."""
        kept = [i for i, column in enumerate(self.columns) if column.shown and (details or not column.detail)]
        rows = [
            row if row.heads else replace(row, cells=tuple(row.cells[i] for i in kept if i < len(row.cells)))
            for row in self.rows
        ]
        return replace(self, columns=tuple(self.columns[i] for i in kept), rows=tuple(rows))

    def transposed(self, heading: str = "encoding") -> "Table":
        """Rows to the right, columns downwards; a line below a row becomes one between two columns, and what stands
        before it is quiet. `heading`: of what the columns were."""
        _, *others = self.columns
        columns, picked = [Column(heading, "left")], []
        last = max((i for i, row in enumerate(self.rows) if row.ruled), default=-1)
        for i, row in enumerate(self.rows):
            columns.append(Column(row.cells[0].text, tone="quiet" if i <= last else ""))
            picked.append(row.cells[1:])
            if row.ruled:
                columns.append(Column(RULE, "left", tone="quiet"))
                picked.append(tuple(text_cell(RULE, "quiet") for _ in others))
        rows = [
            TableRow((text_cell(column.heading), *(cells[i] for cells in picked))) for i, column in enumerate(others)
        ]
        return replace(self, columns=tuple(columns), rows=tuple(rows))


def _sentence(note: str) -> str:
    """With a capital, unless it begins with the name of a number such as p, and a full stop."""
    named = note[1:2] == ":"
    return (note if named else note[0].upper() + note[1:]) + ("" if note.endswith((".", ":")) else ".")


RULE = "│"
MISSING = Cell((Words("–", "quiet"),), (None,))


def text_cell(text: str, tone: Tone = "", *notes: str | Note) -> Cell:
    """Words, which are their own value."""
    return Cell((Words(text, tone),), (text,), tuple(map(as_note, notes)))


def encoding_cell(encoding: str, *notes: str | Note) -> Cell:
    """The name of an encoding, with its sign."""
    return replace(text_cell(encoding, "", *notes), encoding=encoding)


def number_cell(text: str, *values: Value, tone: Tone = "") -> Cell:
    return Cell((Words(text, tone),), values)


def value_cells(values: Iterable[Value]) -> tuple[Cell, ...]:
    """Of columns that are for programs, one field each."""
    return tuple(Cell(values=(value,)) for value in values)


def value_columns(*fields: str) -> tuple[Column, ...]:
    """For programs alone."""
    return tuple(Column(name, fields=(name,), shown=False) for name in fields)


def value_table(name: str, title: str, fields: Sequence[str], rows: Iterable[Sequence[Value]]) -> Table:
    """A table for programs."""
    return Table(name, title, value_columns(*fields), tuple(TableRow(value_cells(row)) for row in rows))


def as_note(words: str | Note) -> Note:
    return words if isinstance(words, Note) else Note((Words(words),))


def heading_row(text: str) -> TableRow:
    """The heading of the rows that follow."""
    return TableRow((text_cell(text, "bold"),), heads=True)


def heading_lines(heading: str, widest: int) -> list[str]:
    """A heading in several lines, so that it is hardly wider than its column: broken at commas, or else at spaces."""
    if ", " in heading:
        *parts, last = heading.split(", ")
        return [*(f"{part}," for part in parts), last]
    lines: list[str] = []
    most = max([widest, *map(len, heading.split())])
    for word in heading.split():
        if lines and len(lines[-1]) + 1 + len(word) <= most:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines or [""]


def widest(table: Table, number: int) -> int:
    """Letters of the longest cell of a column."""
    return max((len(row.cells[number].text) for row in table.rows if not row.heads), default=0)
