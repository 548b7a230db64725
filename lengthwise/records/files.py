"""Writing files so that a reader sees the old content or the new, never half of it."""

import errno
import json
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from lengthwise.errors import RunError


class MissingFile(RunError):
    """A file that should be there is not."""


def replace(path: Path, write: Callable[[Path], object]) -> None:
    """Calls `write` with a temporary path beside `path`, then puts the finished file in place."""
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        write(partial)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException as error:
        partial.unlink(missing_ok=True)
        if isinstance(error, Exception):
            raise storage_error(error, path) from error
        raise


def write_text(path: Path, text: str) -> None:
    replace(path, lambda partial: partial.write_text(text))


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    write_text(path, json.dumps(value, indent=2) + "\n")


def write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    write_text(path, "".join(json.dumps(row) + "\n" for row in rows))


def append_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Appends whole lines, never to half of one: a row that a crash cut off is dropped, here as in `read_rows`."""
    try:
        if path.is_file():
            _end_last_line(path)
        with path.open("a") as file:
            file.write("".join(json.dumps(row) + "\n" for row in rows))
    except OSError as error:
        raise storage_error(error, path) from error


def _end_last_line(path: Path) -> None:
    """Drops the beginning of a row that was cut off; a whole row that only lacks the end of its line gets that."""
    with path.open("rb+", buffering=0) as file:
        size = file.seek(0, os.SEEK_END)
        if not size:
            return
        file.seek(size - 1)
        if file.read() == b"\n":  # all that is read of most files
            return
        file.seek(0)
        rest = file.read().rpartition(b"\n")[2]
        try:
            json.loads(rest)
        except ValueError:
            file.truncate(size - len(rest))
        else:
            file.write(b"\n")


def read_rows(path: Path, grows: bool = True) -> list[dict[str, Any]]:
    """The rows of a file. `grows`: rows are appended to it, so a last line without its end is one that was being
    written, and is not read; a file that is written whole was cut off."""
    rows = []
    *whole, rest = _text(path).split("\n")
    if rest and not grows:
        raise RunError(f"{path} is cut off; {_REMEDY}")
    for number, line in enumerate(whole, start=1):
        try:
            rows.append(json.loads(line))
        except json.JSONDecodeError:
            raise RunError(f"{path}:{number} is not a row of JSON; {_REMEDY}") from None
    return rows


def read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(_text(path))
    except json.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise RunError(f"{path} is damaged; {_REMEDY}")
    return found


_REMEDY = "restore it, or delete its folder and run or collect again"


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except FileNotFoundError:
        raise MissingFile(f"{path} is missing; {_REMEDY}") from None
    except UnicodeDecodeError:
        raise RunError(f"{path} is damaged; {_REMEDY}") from None
    except OSError as error:
        raise RunError(f"cannot read {path}: {error.strerror or error}") from error


def storage_error(error: Exception, path: Path) -> Exception:
    """A clear error for what a disk can do to us; other errors as they are."""
    message = str(error).lower()
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    # safetensors wraps the operating system's error in its own and keeps only the text.
    if full or "no space left" in message or "os error 28" in message:
        return RunError(
            f"the disk is full: {path} could not be written. Nothing already written is lost; "
            "free some space and run the same command again to continue"
        )
    if isinstance(error, OSError):
        return RunError(f"cannot write {path}: {error.strerror or error}")
    return error
