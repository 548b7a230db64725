"""Files of rows, read quickly: parsed and checked a run at a time, and kept in little room.

What a run does not say at once is asked line by line, so that an error names its line.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from lengthwise.door import MissingFile, blocks_of_lines
from lengthwise.errors import RunError
from lengthwise.records.files import REMEDY, parse_row, refuse_missing
from lengthwise.records.row_pieces import DECODER, Pieces
from lengthwise.records.row_table import Row, RowTable, as_columns
from lengthwise.records.schema import ROW, surely_rows

HELD = 2**22
"""Letters of a run that wait until it is surely whole."""


def rows_by_run(path: Path, pieces: Pieces | None = None) -> dict[str, Sequence[Row]]:
    """Fingerprint -> the rows of that run; all of them fit ROW. `pieces`: what was found in files before."""
    pieces = pieces or Pieces()
    found: dict[str, list[Sequence[Row]]] = defaultdict(list)
    try:
        for lines_before, text in _texts(path):
            for run, rows in _rows(text, path, lines_before, pieces):
                found[run].append(rows)
    except MissingFile:
        refuse_missing(path)
        raise
    return {run: parts[0] if len(parts) == 1 else _packed(parts) for run, parts in found.items()}


def _texts(path: Path) -> Iterator[tuple[int, str]]:
    """Lines of one run that follow each other, where a file is written as we write it, and how many lines precede."""
    lines, held = 0, ""
    for block in blocks_of_lines(path):
        if not block.endswith("\n"):
            raise RunError(f"{path} is cut off; {REMEDY}")
        *whole, held = _cut(held + block)
        if len(held) > HELD:
            whole, held = [*whole, held], ""
        for text in whole:
            yield lines, text
            lines += text.count("\n")
    if held:
        yield lines, held


def _cut(block: str) -> list[str]:
    """Whole lines, cut where they begin to name another run."""
    last = block.rfind("\n", 0, -1) + 1
    if _beginning(block[last:]) == _beginning(block):
        return [block]
    lines = block.split("\n")[:-1]
    return ["\n".join(of_run) + "\n" for _, of_run in groupby(lines, _beginning)]


def _beginning(line: str) -> str:
    """What names the run; nothing where that does not come first."""
    return line[: line.find(", ")] if line.startswith('{"run": ') else ""


def _rows(text: str, path: Path, before: int, pieces: Pieces) -> Iterator[tuple[str, Sequence[Row]]]:
    """Fingerprint and rows of the runs in whole lines; several may be of one run."""
    table = pieces.table(text)
    if table is not None:
        yield table.column("run")[0], table
        return
    found = _at_once(text)
    if found is None:
        found = [parse_row(line, f"{path}:{before + i}", ROW) for i, line in enumerate(text.split("\n")[:-1], 1)]
    by_run: dict[str, list[Row]] = defaultdict(list)
    for run, of_run in groupby(found, itemgetter("run")):
        by_run[run].extend(of_run)
    for run, rows in by_run.items():
        columns = as_columns(rows)
        yield run, rows if columns is None else RowTable(columns)


def _packed(parts: Sequence[Sequence[Row]]) -> Sequence[Row]:
    rows = [row for part in parts for row in part]
    columns = as_columns(rows)
    return rows if columns is None else RowTable(columns)


def _at_once(text: str) -> list[Row] | None:
    """The rows of whole lines, parsed as one list: twice as quick as line by line; None where they are not surely
    rows that fit ROW."""
    try:
        found = DECODER.decode(f"[{text[:-1].replace(chr(10), ',')}]")
    except (ValueError, RecursionError):
        return None
    columns = as_columns(found)
    return found if len(found) == text.count("\n") and columns is not None and surely_rows(columns) else None
