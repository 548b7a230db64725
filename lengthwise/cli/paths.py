"""Paths as words of the command line."""

from pathlib import Path

from lengthwise.door import is_odd
from lengthwise.errors import UserError


def named_path(text: str) -> Path:
    """Of `--out` and `--to`: nothing is no path, though Python takes it for the current folder."""
    if not text.strip() or any(map(is_odd, text)):
        raise UserError(f"{text!r} names no folder or file; write . for the current folder")
    return Path(text)
