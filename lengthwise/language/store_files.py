"""Reading a folder of prepared tokens that somebody else may have made: nothing is believed that is not checked."""

from pathlib import Path
from typing import Any

import numpy as np

from lengthwise import door
from lengthwise.errors import RunError

MOST_BYTES = 2**50
"""Of a file that is mapped, not read."""
CHUNK = 2**26
"""Tokens that are looked at together."""

_COUNTS = door.Object({"documents": door.COUNT, "tokens": door.COUNT, "characters": door.COUNT})
_FILES = door.List(door.List())
MANIFEST = door.Object(
    {
        "version": door.Number(least=1, most=1, whole=True),
        "files": _FILES,
        "field": door.Text(),
        "vocabulary": door.Number(least=260, most=2**20, whole=True),
        "tokenizer_characters": door.COUNT,
        "corpus": door.Text(),
        "dtype": door.Text(choices=("uint16", "uint32")),
        "splits": door.Object({"train": _COUNTS, "validation": _COUNTS, "test": _COUNTS}, others=False),
        "empty_documents": door.COUNT,
    },
    {"hashes": door.ANY_OBJECT},
)


def read_manifest(file: Path) -> dict[str, Any]:
    found = door.read_json(file, MANIFEST)
    for name, content in found.get("hashes", {}).items():
        door.Text(most=64).checked(content, f"{file}: hashes: {door.visible(name, 60)}")
        if Path(name).name != name or name in ("", ".", "..") or "\0" in name:
            raise RunError(f"{file}: hashes names {door.visible(name, 60)!r}, which is no file of its folder")
    return found


def read_starts(file: Path, documents: int) -> np.ndarray:
    """Where documents start, and the last one ends. The header is checked before anything of its size is asked for."""
    door.refuse_unreadable(file, 8 * documents + 1024)
    problem = RunError(f"{file} is damaged: it must hold where {documents:,} documents start; prepare or copy it again")
    try:
        with file.open("rb") as content:
            if np.lib.format.read_magic(content) != (1, 0):
                raise problem
            shape, _, dtype = np.lib.format.read_array_header_1_0(content, max_header_size=1000)
            size = file.stat().st_size - content.tell()
        if shape != (documents + 1,) or dtype != np.int64 or size != 8 * (documents + 1):
            raise problem
        starts = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError, SyntaxError, TypeError):
        raise problem from None
    if starts[0] != 0 or starts[-1] > MOST_BYTES or (np.diff(starts) < 2).any():  # begin and end token at least
        raise problem
    return starts


def refuse_unknown_tokens(tokens: np.ndarray, rows: int, file: Path) -> None:
    if rows > np.iinfo(tokens.dtype).max:
        return
    for first in range(0, len(tokens), CHUNK):
        if (largest := int(tokens[first : first + CHUNK].max())) >= rows:
            raise RunError(f"{file} holds token {largest:,}, and its tokenizer has {rows:,}; prepare or copy it again")
