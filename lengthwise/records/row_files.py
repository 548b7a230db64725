"""Files of rows, read quickly: parsed and checked in blocks, and kept in little room.

What a block does not say at once is asked line by line, so that an error names its line.
"""

import json
from collections import defaultdict
from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from lengthwise.door import blocks_of_lines
from lengthwise.errors import RunError
from lengthwise.records.files import REMEDY, iterate_rows, parse_row, refuse_missing
from lengthwise.records.row_table import Row, RowTable, as_columns
from lengthwise.records.schema import ROW, surely_rows

HELD = 20_000
"""Rows that wait to be packed, until their run is surely whole."""


def rows_by_run(path: Path) -> dict[str, Sequence[Row]]:
    """Fingerprint -> the rows of that run; all of them fit ROW."""
    refuse_missing(path)
    reader = _Reader(path)
    lines = 0
    for block in blocks_of_lines(path):
        if not block.endswith("\n"):
            raise RunError(f"{path} is cut off; {REMEDY}")
        found = _at_once(block)
        if found is None:
            found = [parse_row(line, f"{path}:{lines + i}", ROW) for i, line in enumerate(block.split("\n")[:-1], 1)]
        lines += len(found)
        reader.take(found)
    return reader.every()


class _Reader:
    def __init__(self, path: Path) -> None:
        self.path = path
        self.waiting: dict[str, list[Row]] = defaultdict(list)
        self.packed: dict[str, list[Sequence[Row]]] = defaultdict(list)
        self.checked = False
        """Whether every line was looked at by itself."""

    def take(self, rows: list[Row]) -> None:
        run = ""
        try:
            for run, of_run in groupby(rows, itemgetter("run")):
                self.waiting[run].extend(of_run)
        except (KeyError, TypeError):  # a row without a run, or no row
            self._check_lines()
            raise RunError(f"{self.path} holds what is no row; {REMEDY}") from None
        if sum(map(len, self.waiting.values())) > HELD:
            unfinished = self.waiting.pop(run)
            self._pack()
            self.waiting[run] = unfinished

    def every(self) -> dict[str, Sequence[Row]]:
        self._pack()
        return {
            run: parts[0] if len(parts) == 1 else packed([row for part in parts for row in part])
            for run, parts in self.packed.items()
        }

    def _pack(self) -> None:
        for run, rows in self.waiting.items():
            columns = as_columns(rows)
            if columns is None or not surely_rows(columns):
                self._check_lines()
            self.packed[run].append(rows if columns is None else RowTable(columns))
        self.waiting.clear()

    def _check_lines(self) -> None:
        if not self.checked:
            for _ in iterate_rows(self.path, schema=ROW):
                pass
            self.checked = True


def packed(rows: list[Row]) -> Sequence[Row]:
    columns = as_columns(rows)
    return rows if columns is None else RowTable(columns)


def _at_once(block: str) -> list[Row] | None:
    """The rows of whole lines, parsed as one list: twice as quick as line by line; None where that is not sure."""
    try:
        found = _DECODER.decode(f"[{block[:-1].replace(chr(10), ',')}]")
    except (ValueError, RecursionError):
        return None
    return found if len(found) == block.count("\n") else None


def _no_constant(word: str) -> float:
    raise ValueError(word)


_DECODER = json.JSONDecoder(parse_constant=_no_constant)
