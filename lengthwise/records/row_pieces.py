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
        if found.keys() != {self.name} or "\n" in piece or not surely_value(self.name, value := found[self.name]):
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
        self._names: dict[tuple[str, ...], tuple[str, ...]] = {}

    def table(self, text: str) -> RowTable | None:
        """The rows of one run, from its lines; None where they are not surely rows that fit ROW.

        Every line begins as the first does, with what names the run; every other piece is JSON of one field by itself,
        and in its place: so the line is JSON of these fields.
        """
        first = text[: text.index("\n")]
        try:
            row = DECODER.decode(first)
        except (ValueError, RecursionError):
            return None
        if type(row) is not dict or not ROW_FIELDS.keys() <= row.keys() or next(iter(row)) != "run":
            return None
        names = self._names.setdefault(tuple(row), tuple(row))
        same = next((i for i, name in enumerate(names) if name not in OF_THE_RUN), 0)
        constants = {name: row[name] for name in names[:same]}
        beginning = json.dumps(constants)[:-1]
        if not first.startswith(f"{beginning}, ") or not text.endswith("}\n"):
            return None
        columns = self._columns(text, beginning.split(", "), names[same:])
        if columns is None or not all(surely_value(name, value) for name, value in constants.items()):
            return None
        height = len(columns[names[-1]])
        judged = [columns.get(name) or (constants[name],) * height for name in ("correct", *ERROR_KINDS, "n")]
        return RowTable.of_parts(names, height, constants, columns) if _adds_up(*judged) else None

    def _columns(self, text: str, opening: list[str], names: tuple[str, ...]) -> dict[str, tuple[Any, ...]] | None:
        """Of the fields that follow the `opening` of each line."""
        pieces = text[:-2].split(", ")
        # The last piece of a line and the first of the next are one, with the end of the line between them.
        width, joint = len(opening) + len(names) - 1, "}\n" + opening[0]
        height, left = divmod(len(pieces), width)
        ends = pieces[width::width]
        if left != 1 or not all([end.endswith(joint) for end in ends[:-1]]):
            return None
        for place, piece in enumerate(opening[1:], start=1):
            if pieces[place::width].count(piece) != height:
                return None
        last = [*(end[: -len(joint)] for end in ends[:-1]), ends[-1]]
        try:
            found = {name: self._column(name, pieces[i::width]) for i, name in enumerate(names[:-1], len(opening))}
            found[names[-1]] = self._column(names[-1], last)
        except Unsure:
            return None
        return found

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
