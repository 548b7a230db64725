"""Examples that went wrong, read only where somebody looks at them: most commands do not."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import overload

from lengthwise.records.files import iterate_rows
from lengthwise.records.packed import fitting, is_there
from lengthwise.records.row_table import Row
from lengthwise.records.schema import FAILURE


class FailureFile:
    """A file of failures of one run or of many, plain or packed; it need not be there."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @cached_property
    def by_run(self) -> dict[str, list[Row]]:
        found: dict[str, list[Row]] = defaultdict(list)
        for row in iterate_rows(fitting(self.path), schema=FAILURE) if is_there(self.path) else ():
            found[row["run"]].append(row)
        return dict(found)


class RunFailures(Sequence[Row]):
    """Those of one run."""

    def __init__(self, file: FailureFile, run: str) -> None:
        self._file, self._run = file, run

    @property
    def _rows(self) -> list[Row]:
        return self._file.by_run.get(self._run, [])

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Row]:
        return iter(self._rows)

    @overload
    def __getitem__(self, index: int) -> Row: ...
    @overload
    def __getitem__(self, index: slice) -> list[Row]: ...
    def __getitem__(self, index: int | slice) -> Row | list[Row]:
        return self._rows[index]

    def __eq__(self, other: object) -> bool:
        return self._rows == list(other) if isinstance(other, RunFailures | list | tuple) else NotImplemented

    __hash__ = None  # type: ignore[assignment]
