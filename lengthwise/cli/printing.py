"""Where commands print: results to stdout, what is said besides to stderr."""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from rich.console import Console, RenderableType

if TYPE_CHECKING:
    from lengthwise.report.model.table import Table

console = Console()
messages = Console(stderr=True)


def say(text: str) -> None:
    """A line of the result, unfolded, nothing in it markup."""
    console.print(text, highlight=False, markup=False, soft_wrap=True)


def warn(text: str) -> None:
    messages.print(text, style="yellow", highlight=False, markup=False, soft_wrap=True)


def plain(text: str) -> str:
    """Text in which nothing is markup."""
    return text.replace("[", "\\[")


def print_tables(tables: "Iterable[Table]", rows: Any, as_json: bool) -> None:
    """Tables for people, or the rows that they show for programs."""
    from lengthwise.report.terminal.table import to_terminal

    if as_json:
        console.print_json(json.dumps(rows))
        return
    for table in tables:
        console.print(to_terminal(table))
        console.print()


def print_each(*things: RenderableType) -> None:
    for thing in things:
        console.print(thing)
        console.print()
