"""Rows packed with gzip: a collection of hundreds of runs is a twentieth of its size."""

import gzip
import json
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lengthwise.errors import RunError
from lengthwise.records.files import read_rows, replace, write_text

ENDING = ".gz"
LARGEST_PLAIN = 2**20
"""Bytes: fewer are left readable."""


def write_packed(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """To `path`, which ends in .gz. No time of writing: the same rows are the same bytes."""
    content = gzip.compress("".join(json.dumps(row) + "\n" for row in rows).encode(), mtime=0)
    replace(path, lambda partial: partial.write_bytes(content))


def read_packed(path: Path) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
    except (OSError, EOFError, ValueError, zlib.error):
        raise RunError(f"{path} is damaged; restore it, or collect the results again") from None


def write_fitting(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Plain rows to `path` where they are few, else packed ones beside it; of an earlier file nothing stays."""
    text = "".join(json.dumps(row) + "\n" for row in rows)
    packed = path.with_name(path.name + ENDING)
    if len(text.encode()) <= LARGEST_PLAIN:
        write_text(path, text)
        packed.unlink(missing_ok=True)
        return
    content = gzip.compress(text.encode(), mtime=0)
    replace(packed, lambda partial: partial.write_bytes(content))
    path.unlink(missing_ok=True)


def read_fitting(path: Path) -> list[dict[str, Any]]:
    """What `write_fitting` wrote."""
    packed = path.with_name(path.name + ENDING)
    if path.exists() and packed.exists():
        raise RunError(f"{path} is there plain and packed ({packed.name}); delete the older one")
    return read_packed(packed) if packed.exists() else read_rows(path, grows=False)


def is_there(path: Path) -> bool:
    """Whether `path` is there, plain or packed."""
    return path.exists() or path.with_name(path.name + ENDING).exists()
