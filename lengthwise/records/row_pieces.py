"""The rows of a run, cut at their commas: each different `"field": value` is parsed and checked once, not once a row.

Rows are written by a program, a line each, with the same fields in the same order: most of what they say was said
before. Where a text is not of this form, or anything in it is not surely good, nothing is said of it here.
"""

import json
from collections.abc import Sequence
from operator import add
from typing import Any

from lengthwise.records.row_table import RowTable
from lengthwise.records.schema import ERROR_KINDS, ROW_FIELDS, surely_value

OF_THE_RUN = frozenset(("run", "task", "encoding", "seed"))
"""Fields that every row of a run repeats."""
MOST_KNOWN = 100_000
"""Pieces of a field that are remembered."""


class Unsure(Exception):
    """To be asked row by row."""


class _Values(dict[str, Any]):
    """Piece of a line -> its value, for the pieces of one field."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name

    def __missing__(self, piece: str) -> Any:
        try:
            found = DECODER.decode(f"{{{piece}}}")
        except (ValueError, RecursionError):
            raise Unsure from None
        if found.keys() != {self.name} or not surely_value(self.name, value := found[self.name]):
            raise Unsure
        if len(self) >= MOST_KNOWN:
            self.clear()
        self[piece] = value
        return value


class Pieces:
    """What was found in the runs before: their values, and the last column of each field."""

    def __init__(self) -> None:
        self._values: dict[str, _Values] = {}
        self._last: dict[str, tuple[list[str], tuple[Any, ...]]] = {}

    def table(self, text: str) -> RowTable | None:
        """The rows of one run, from its lines; None where they are not surely rows that fit ROW.

        Every piece is JSON of one field by itself, and in its place, so the line is JSON of these fields.
        """
        lines = text[:-1].split("\n")
        try:
            row = DECODER.decode(lines[0])
        except (ValueError, RecursionError):
            return None
        if type(row) is not dict or not ROW_FIELDS.keys() <= row.keys():
            return None
        names = list(row)
        same = next((i for i, name in enumerate(names) if name not in OF_THE_RUN), 0)
        beginning = json.dumps({name: row[name] for name in names[:same]})[:-1] + ", "
        if not same or not all([line.startswith(beginning) and line.endswith("}") for line in lines]):
            return None
        pieces = ", ".join([line[len(beginning) : -1] for line in lines]).split(", ")
        width, height = len(names) - same, len(lines)
        if len(pieces) != width * height or not all(surely_value(name, row[name]) for name in names[:same]):
            return None
        try:
            columns = {name: self._column(name, pieces[i::width]) for i, name in enumerate(names[same:])}
        except Unsure:
            return None
        constants = {name: row[name] for name in names[:same]}
        judged = [columns.get(name) or (constants[name],) * height for name in ("correct", *ERROR_KINDS, "n")]
        if not _adds_up(*judged):
            return None
        return RowTable.of_parts(names, height, constants, columns)

    def _column(self, name: str, pieces: list[str]) -> tuple[Any, ...]:
        """That of the run before, where it says the same: both then share one."""
        last = self._last.get(name)
        if last is not None and last[0] == pieces:
            return last[1]
        if (values := self._values.get(name)) is None:
            values = self._values[name] = _Values(name)
        found = tuple(map(values.__getitem__, pieces))
        self._last[name] = pieces, found
        return found


def _adds_up(correct: Sequence[int], first: Sequence[int], second: Sequence[int], third: Sequence[int], n: Any) -> bool:
    return tuple(map(add, map(add, correct, first), map(add, second, third))) == n


def _no_constant(word: str) -> float:
    raise ValueError(word)


DECODER = json.JSONDecoder(parse_constant=_no_constant)
"""Without NaN and infinity."""
