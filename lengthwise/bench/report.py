"""The rows of a benchmark: a table for people, JSON for programs, written anew with every row."""

import importlib.metadata
import shlex
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any

from rich.console import Console

from lengthwise.errors import UserError
from lengthwise.records.files import write_json
from lengthwise.records.provenance import provenance
from lengthwise.report.model.table import Column, Table, TableRow, number_cell
from lengthwise.report.terminal.table import to_terminal

Columns = Mapping[str, str]
"""Name of a field -> heading; `%` in a heading shows a share, `TFLOP/s` divides by 10^12."""

COMPARED = ("transformers", "accelerate", "triton")
"""Packages that matter here beside those that every result names."""
WIDEST = 120
"""Characters of a line in a file at most; a table that is wider goes on below."""

NAMES = (
    *("method", "size", "encoding", "fleet", "grows", "value", "kernel", "cache"),
    *("context", "rows", "attention", "loss", "mode"),
)
"""Fields that say which row it is, where they are the first ones."""


class Report:
    """Sections of rows, in the order in which they come."""

    def __init__(self, console: Console, messages: Console, out: Path | None = None, device: str = "CPU") -> None:
        """`messages`: where each row is told as it comes. `device`: its name."""
        if out is not None and not out.parent.is_dir():
            raise UserError(f"the folder of --out {out} does not exist")  # now, not after minutes
        self.console, self.messages, self.out = console, messages, out
        self.head: dict[str, Any] = {"command": command(), **provenance(device)}
        self.head["versions"] |= {name: version for name in COMPARED if (version := _version(name))}
        self.sections: dict[str, list[dict[str, Any]]] = {}

    def note(self, **facts: Any) -> None:
        """Facts that belong to all rows."""
        self.head |= facts
        self._write()

    def add(self, section: str, row: Mapping[str, Any], told: str = "") -> None:
        self.sections.setdefault(section, []).append(dict(row))
        if told:
            self.messages.print(told, highlight=False, markup=False)
        self._write()

    def show(self, section: str, columns: Columns, title: str = "") -> None:
        """Prints the rows of a section."""
        self.show_rows(self.sections.get(section, []), columns, title)

    def show_rows(self, rows: Sequence[Mapping[str, Any]], columns: Columns, title: str = "") -> None:
        if rows:
            table = to_terminal(table_of(rows, columns, title))
            console = self.console
            if not console.is_terminal:  # a file has room for more than the 80 that a console takes without one
                console = Console(file=console.file, quiet=console.quiet, width=WIDEST)
            console.print(table)
            console.print()

    def _write(self) -> None:
        if self.out is not None:
            write_json(self.out, {**self.head, **self.sections})


def table_of(rows: Sequence[Mapping[str, Any]], columns: Columns, title: str = "") -> Table:
    shown = {key: heading for key, heading in columns.items() if any(row.get(key) not in (None, "") for row in rows)}
    headings = tuple(
        Column(heading, "left" if any(isinstance(row.get(key), str) for row in rows) else "right")
        for key, heading in shown.items()
    )
    found = (
        TableRow(tuple(number_cell(cell(row.get(key), heading), row.get(key)) for key, heading in shown.items()))
        for row in rows
    )
    names = max(1, len(list(takewhile(NAMES.__contains__, shown))))
    return Table("", title, headings, tuple(found), names=names)


def cell(value: Any, heading: str) -> str:
    """As people read it: about three digits that count."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    if "%" in heading:
        return f"{100 * value:.1f}"
    if heading == "TFLOP/s":
        value = value / 1e12
    if isinstance(value, int) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.3f}"


def command() -> str:
    """As it was typed, but with the mere name of an output file: folders tell of the machine, not of the numbers."""
    words = [Path(word).name if before == "--out" else word for before, word in pairwise(sys.argv)]
    return shlex.join(["lengthwise", *words])


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
