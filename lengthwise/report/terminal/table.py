"""Tables for the terminal that fit its width: what does not fit side by side goes on below, and nothing is cut off."""

from collections.abc import Callable, Iterator
from itertools import takewhile

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Column
from rich.table import Table as RichTable
from rich.text import Text

from lengthwise.report.model.table import Cell, Table, Tone, heading_lines, widest

LEAST_WORDS = 24
"""Letters that a column of words needs to be read; with less room it goes on below the others."""


class PlainTable(RichTable):
    """A table whose columns are as wide as what is in them.

    Where that is more than the console has, the table is printed in several parts, each with the columns that name its
    rows: names and numbers stay in one piece.
    """

    names = 1
    """Columns from the left that name the rows."""
    wide: frozenset[int] = frozenset()
    """Columns of words that may take several lines, so that the others stay as they are, beside them."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Title and caption have the width of the console, not that of the table; without rows they are all."""
        if self.title:
            yield self.title
        for part in self._parts(console, options) if self.rows else ():
            above_and_below = [] if part.show_edge else [Text()]
            yield from above_and_below
            yield from RichTable.__rich_console__(part, console, options)
            yield from above_and_below
        if self.caption:
            yield self.caption if isinstance(self.caption, Text) else Text(self.caption, style="italic")

    def _parts(self, console: Console, options: ConsoleOptions) -> Iterator["PlainTable"]:
        """With as many columns as fit, one at least."""
        widths = [_width(column) + 1 for column in self.columns]  # and a space between columns
        if options.max_width - 1 <= sum(widths) - 1 <= options.max_width:
            # One part is worth more than its margins.
            yield self._part(list(range(len(widths))), widths, fits=True, margins=False)
            return
        others = sum(width for number, width in enumerate(widths) if number not in self.wide)
        if self.wide and options.max_width - others >= LEAST_WORDS * len(self.wide):
            yield self._part(list(range(len(widths))), widths, fits=False)
            return
        named = range(min(self.names, len(widths)))
        # Names that take more than half of the console, or several columns more than three quarters, are folded: the
        # numbers beside them matter as much.
        names = sum(widths[i] for i in named)
        most = options.max_width // 2 if len(named) == 1 else options.max_width * 3 // 4
        room = options.max_width - 1 - min(names, most)

        def part(chosen: list[int]) -> PlainTable:
            fits = names + sum(widths[i] for i in chosen) < options.max_width
            return self._part([*named, *chosen], widths, fits)

        chosen: list[int] = []
        for number in range(len(named), len(widths)):
            if chosen and sum(widths[i] for i in (*chosen, number)) > room:
                yield part(chosen)
                chosen = []
            chosen.append(number)
        yield part(chosen)

    def _part(self, chosen: list[int], widths: list[int], fits: bool, margins: bool = True) -> "PlainTable":
        """With these columns. `fits`: there is room for all, and none of the cells needs to be measured or folded
        again, which is most of the work."""
        part = plain_table("")
        part.show_edge = margins
        for number in chosen:
            column = self.columns[number]
            stays = fits or (bool(self.wide) and number not in self.wide)
            width = widths[number] - 1 if stays else None
            part.add_column(column.header, justify=column.justify, overflow="fold", width=width, no_wrap=stays)
        for row, *cells in zip(self.rows, *(self.columns[i].cells for i in chosen), strict=True):
            part.add_row(*cells, style=row.style, end_section=row.end_section)
        return part


class ForWidth:
    """Something that is made for the width of the console that prints it."""

    def __init__(self, make: Callable[[int], RenderableType]) -> None:
        self.make = make

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.make(options.max_width)


def to_terminal(table: Table) -> "PlainTable":
    """As wide as what is in it; a heading takes several lines rather than a wider column."""
    shown = table.shown(details=False)
    drawn = plain_table(table.title, table.names)
    drawn.wide = frozenset(number for number, column in enumerate(shown.columns) if column.wide)
    cells = [
        [_text(row.cells[i], table.heat) for row in shown.rows if not row.heads] for i in range(len(shown.columns))
    ]
    for number, column in enumerate(shown.columns):
        heading = "\n".join(heading_lines(column.heading, widest(shown, number)))
        header = Text(heading, style=STYLES.get(column.tone, ""))
        if column.align == "right":
            marks = [_marks(row.cells[number]) for row in shown.rows if not row.heads]
            cells[number] = ending_alike(cells[number], marks, max(map(len, heading.split("\n"))))
        drawn.add_column(header, justify=column.align)
    lines = iter(zip(*cells, strict=True))
    for row in shown.rows:
        if row.heads:
            drawn.add_row(_text(row.cells[0]))
        else:
            drawn.add_row(*next(lines), style=STYLES.get(row.tone, ""), end_section=row.ruled)
    notes = "\n".join(table.notes)
    if notes:
        drawn.caption = Text(notes, style="yellow" if table.warned else "italic")
    return drawn


STYLES: dict[Tone, str] = {
    "good": "green",
    "bad": "red",
    "warning": "yellow",
    "unsure": "yellow",
    "mark": "yellow",
    "quiet": "dim",
    "bold": "bold",
}


def plain_table(title: str, names: int = 1) -> PlainTable:
    """`names`: columns from the left that name the rows."""
    table = PlainTable(title=Text(title, style="bold"), box=box.SIMPLE_HEAD, padding=0)
    table.names = names
    return table


def ending_alike(texts: list[Text], marks: list[str], width: int) -> list[Text]:
    """The cells of a column, to the right, with a space where others have a mark: numbers stay below each other.

    `marks`: what each cell ends in; `width`: of the heading. Cells are padded here, since to the right spaces at the
    end would be dropped.
    """
    room = max(map(len, marks), default=0)
    if not room:
        return texts
    found = []
    for text, mark in zip(texts, marks, strict=True):
        padded = text.copy()
        padded.justify = "left"
        padded.append(" " * (room - len(mark)))
        found.append(padded)
    most = max(width, *map(len, found))
    for padded in found:
        padded.pad_left(most - len(padded))
    return found


def _text(cell: Cell, heat: bool = False) -> Text:
    if heat and cell.share is not None:
        red, green = round(200 * (1 - cell.share)), round(160 * cell.share)
        return Text(f" {cell.text} ", style=f"white on rgb({red},{green},40)")
    line = cell.line
    if len(line) == 1 and not STYLES.get(line[0].tone):
        return Text(line[0].text)
    return Text.assemble(*(Text(each.text, style=STYLES.get(each.tone, "")) for each in line))


def _marks(cell: Cell) -> str:
    """The marks that a cell ends in, or nothing."""
    ending = takewhile(lambda each: each.tone == "mark", reversed(cell.line))
    return "".join(each.text for each in ending)


def _width(column: Column) -> int:
    """Of the longest line in it."""
    return max(
        (cell_len(line) for each in (column.header, *column.cells) for line in str(each).splitlines()), default=0
    )
