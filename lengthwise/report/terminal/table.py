"""Tables for the terminal that fit its width: what does not fit side by side goes on below, and nothing is cut off."""

from collections.abc import Callable, Iterator

from rich import box
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Column, Table
from rich.text import Text


class PlainTable(Table):
    """A table whose columns are as wide as what is in them.

    Where that is more than the console has, the table is printed in several parts, each with the columns that name its
    rows: names and numbers stay in one piece.
    """

    names = 1
    """Columns from the left that name the rows."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Title and caption have the width of the console, not that of the table; without rows they are all."""
        if self.title:
            yield self.title
        for part in self._parts(console, options) if self.rows else ():
            above_and_below = [] if part.show_edge else [Text()]
            yield from above_and_below
            yield from Table.__rich_console__(part, console, options)
            yield from above_and_below
        if self.caption:
            yield self.caption if isinstance(self.caption, Text) else Text(self.caption, style="italic")

    def _parts(self, console: Console, options: ConsoleOptions) -> Iterator["PlainTable"]:
        """With as many columns as fit, one at least."""
        widths = [_width(console, options, column) + 1 for column in self.columns]  # and a space between columns
        if options.max_width - 1 <= sum(widths) - 1 <= options.max_width:
            yield self._part(list(range(len(widths))), margins=False)  # one part is worth more than its margins
            return
        named = range(min(self.names, len(widths)))
        # Names that take more than half of the console are folded: the numbers beside them matter as much.
        room = options.max_width - 1 - min(sum(widths[i] for i in named), options.max_width // 2)
        chosen: list[int] = []
        for number in range(len(named), len(widths)):
            if chosen and sum(widths[i] for i in (*chosen, number)) > room:
                yield self._part([*named, *chosen])
                chosen = []
            chosen.append(number)
        yield self._part([*named, *chosen])

    def _part(self, chosen: list[int], margins: bool = True) -> "PlainTable":
        part = plain_table("")
        part.show_edge = margins
        for number in chosen:
            column = self.columns[number]
            part.add_column(column.header, header_style=column.header_style, justify=column.justify, overflow="fold")
        for number, row in enumerate(self.rows):
            part.add_row(*(list(self.columns[i].cells)[number] for i in chosen), end_section=row.end_section)
        return part


class ForWidth:
    """Something that is made for the width of the console that prints it."""

    def __init__(self, make: Callable[[int], RenderableType]) -> None:
        self.make = make

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self.make(options.max_width)


def plain_table(title: str, names: int = 1) -> PlainTable:
    """`names`: columns from the left that name the rows."""
    table = PlainTable(title=Text(title, style="bold"), box=box.SIMPLE_HEAD, padding=0)
    table.names = names
    return table


def ending_alike(texts: list[Text], mark: str, width: int) -> list[Text]:
    """The cells of a column, to the right, with a space where others have the mark: numbers stay below each other.

    `width`: of the heading. Cells are padded here, since to the right spaces at the end would be dropped.
    """
    marked = any(text.plain.endswith(mark) for text in texts)
    found = []
    for text in texts:
        padded = text.copy()
        padded.justify = "left"
        padded.append("" if text.plain.endswith(mark) or not marked else " " * len(mark))
        found.append(padded)
    widest = max(width, *map(len, found))
    for padded in found:
        padded.pad_left(widest - len(padded))
    return found


def stacked(heading: str) -> str:
    """A word a line, so that a heading is no wider than its column."""
    return "\n".join(heading.split())


def _width(console: Console, options: ConsoleOptions, column: Column) -> int:
    return max(
        Measurement.get(console, options.update(width=10_000), each).maximum for each in (column.header, *column.cells)
    )
