"""Rows packed with gzip: a collection of hundreds of runs is a twentieth of its size."""

import json
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lengthwise.door import Schema
from lengthwise.errors import RunError
from lengthwise.records.files import iterate_rows, remove, replace, write_text

ENDING = ".gz"
LARGEST_PLAIN = 2**20
"""Bytes: fewer are left readable."""


def write_packed(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """To `path`, which ends in .gz. No time of writing: the same rows are the same bytes."""
    _write_pieces(path, (json.dumps(row) + "\n" for row in rows))


def _write_pieces(path: Path, pieces: Iterable[str]) -> None:
    """One after the other, as `gzip.compress` packs them at once."""
    packer = zlib.compressobj(level=9, wbits=31)

    def write(partial: Path) -> None:
        with partial.open("wb") as file:
            for piece in pieces:
                file.write(packer.compress(piece.encode()))
            file.write(packer.flush())

    replace(path, write)


def read_packed(path: Path, schema: Schema | None = None) -> list[dict[str, Any]]:
    return list(iterate_rows(path, schema=schema))


def write_fitting(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Plain rows to `path` where they are few, else packed ones beside it; of an earlier file nothing stays."""
    pieces = (json.dumps(row) + "\n" for row in rows)
    begun, size = [], 0
    for piece in pieces:
        begun.append(piece)
        size += len(piece.encode())
        if size > LARGEST_PLAIN:
            break
    packed = packed_beside(path)
    if size <= LARGEST_PLAIN:
        write_text(path, "".join(begun))
        remove(packed)
        return

    def every() -> Iterator[str]:
        yield from begun
        yield from pieces

    _write_pieces(packed, every())
    remove(path)


def packed_beside(path: Path) -> Path:
    return path.with_name(path.name + ENDING)


def fitting(path: Path) -> Path:
    """The file that `write_fitting` wrote for `path`, plain or packed."""
    packed = packed_beside(path)
    if path.exists() and packed.exists():
        raise RunError(f"{path} is there plain and packed ({packed.name}); delete the older one")
    return packed if packed.exists() else path


def is_there(path: Path) -> bool:
    """Whether `path` is there, plain or packed."""
    return path.exists() or packed_beside(path).exists()
