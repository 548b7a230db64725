"""The rows of a run in little room: a thousandth of the objects that as many dictionaries are, and read like them."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

Row = dict[str, Any]
Columns = Mapping[str, tuple[Any, ...]]


class RowTable(Sequence[Row]):
    """Rows of the same fields. Each is made when it is asked for: changing one changes nothing."""

    __slots__ = ("_constants", "_lists", "_names", "_size")

    def __init__(self, columns: Columns) -> None:
        """Values that are the same in all rows are kept once."""
        self._names = tuple(map(sys.intern, columns))
        self._size = len(next(iter(columns.values()))) if columns else 0
        self._constants: Row = {}
        self._lists: dict[str, tuple[Any, ...]] = {}
        for name, column in zip(self._names, columns.values(), strict=True):
            kinds = set(map(type, column))
            if len(kinds) == 1 and column.count(column[0]) == self._size:
                self._constants[name] = sys.intern(column[0]) if kinds == {str} else column[0]
            else:
                self._lists[name] = tuple(map(sys.intern, column)) if kinds == {str} else column

    @classmethod
    def of_parts(
        cls, names: tuple[str, ...], size: int, constants: Row, lists: dict[str, tuple[Any, ...]]
    ) -> "RowTable":
        """Of `size` rows, from fields that are the same in all of them and from columns, which others may share."""
        table = cls.__new__(cls)
        table._names, table._size, table._constants, table._lists = names, size, constants, lists
        return table

    def column(self, name: str, default: Any = None) -> tuple[Any, ...]:
        """The values of a field, row by row; `default` where the rows have no such field."""
        found = self._lists.get(name)
        return (self._constants.get(name, default),) * self._size if found is None else found

    def distinct(self, name: str) -> set[Any]:
        return {self._constants[name]} if name in self._constants and self._size else set(self.column(name))

    def __contains__(self, value: object) -> bool:
        return value in list(self)

    def has(self, name: str) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[Row]:
        for values in zip(*map(self.column, self._names), strict=True):
            yield dict(zip(self._names, values, strict=True))

    def __len__(self) -> int:
        return self._size

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        return list(self)[index]

    def __eq__(self, other: object) -> bool:
        return list(self) == list(other) if isinstance(other, RowTable | list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]


def as_columns(rows: Sequence[Row]) -> dict[str, tuple[Any, ...]] | None:
    """Field -> its values; None where not all rows have the same fields in the same order."""
    if not rows or type(rows[0]) is not dict:
        return None
    names = tuple(rows[0])
    try:
        if list(map(tuple, rows)).count(names) != len(rows):
            return None
        return dict(zip(names, zip(*(row.values() for row in rows), strict=True), strict=True))
    except (TypeError, AttributeError):  # some of them are no rows
        return None


def column(rows: Sequence[Row], name: str, default: Any = None) -> Sequence[Any]:
    """The values of a field, of rows of either kind."""
    return rows.column(name, default) if isinstance(rows, RowTable) else [row.get(name, default) for row in rows]


def distinct(rows: Sequence[Row], name: str) -> set[Any]:
    """The different values of a field."""
    return rows.distinct(name) if isinstance(rows, RowTable) else {row.get(name) for row in rows}


def has_field(rows: Sequence[Row], name: str) -> bool:
    """Whether any of the rows has it."""
    return rows.has(name) if isinstance(rows, RowTable) else any(name in row for row in rows)
