"""Writing files so that a reader sees the old content or the new, never half of it."""

import contextlib
import errno
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lengthwise.door import MissingFile as MissingFile
from lengthwise.door import Schema, blocks_of_lines, parse_json, read_text, refuse_deep
from lengthwise.errors import RunError
from lengthwise.leftovers import clear_leftovers_of, partial_of


def replace(path: Path, write: Callable[[Path], object]) -> None:
    """Calls `write` with a temporary path beside `path`, then puts the finished file in place."""
    partial = partial_of(path)
    try:
        clear_leftovers_of(path)
        write(partial)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        partial.replace(path)
    except BaseException as error:
        with contextlib.suppress(OSError):  # what went wrong first is what is told
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


def read_rows(path: Path, grows: bool = True, schema: Schema | None = None) -> list[dict[str, Any]]:
    """The rows of a file. `grows`: rows are appended to it, so a last line without its end is one that was being
    written, and is not read; a file that is written whole was cut off.

    With a schema every row must fit it. Without one, numbers may be NaN: the losses of runs that diverged are.
    """
    return list(iterate_rows(path, grows, schema))


def iterate_rows(path: Path, grows: bool = False, schema: Schema | None = None) -> Iterator[dict[str, Any]]:
    """The same one by one, also of a file that is packed: all of them need not be held at once."""
    refuse_missing(path)
    number = 0
    for block in blocks_of_lines(path):
        *whole, rest = block.split("\n")
        if rest and not grows:
            raise RunError(f"{path} is cut off; {REMEDY}")
        for line in whole:
            number += 1
            yield parse_row(line, f"{path}:{number}", schema)


def parse_row(line: str, where: str, schema: Schema | None = None) -> dict[str, Any]:
    """One line; `where`: of which file."""
    if schema is not None:
        return schema.checked(parse_json(line, where), where)
    return _parsed(line, where, "is not a row of JSON")


def read_json(path: Path, schema: Schema | None = None) -> dict[str, Any]:
    """A table. With a schema it must fit that, and no number may be NaN."""
    text = read_present(path)
    if schema is not None:
        return schema.checked(parse_json(text, str(path)), str(path))
    return _parsed(text, str(path), "is damaged")


def _parsed(text: str, where: str, otherwise: str) -> dict[str, Any]:
    """A table that no schema is there for; `otherwise`: what is said of a text that is none."""
    refuse_deep(text, where)
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise RunError(f"{where} {otherwise}; {REMEDY}")
    return found


def read_present(path: Path) -> str:
    """The text of a file that should be there."""
    try:
        return read_text(path)
    except RunError:
        refuse_missing(path)  # which is asked only now: files are read by the ten thousand
        raise


REMEDY = "restore it, or delete its folder and run or collect again"


def refuse_missing(path: Path) -> None:
    """Tells a file that is not there from one that may not be looked at."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise MissingFile(f"{path} is missing; {REMEDY}") from None
    except OSError as error:
        raise reading_error(error, path) from None
    except ValueError:
        raise RunError(f"{str(path)!r} is no name of a file") from None


STORAGE = {
    errno.EROFS: "the file system is read-only; choose another folder with --out",
    errno.EFBIG: "it is larger than the file system or a limit (ulimit -f) allows; choose another folder, or raise it",
    errno.EIO: "the disk reports an error; nothing already written is lost, but look after the disk first",
    errno.EACCES: "it is not allowed; ask for the right to write there, or choose another folder with --out",
    errno.EPERM: "it is not allowed; ask for the right to write there, or choose another folder with --out",
}
"""What a disk says, and what to do."""


def storage_error(error: Exception, path: Path) -> Exception:
    """A clear error for what a disk can do to us; other errors as they are."""
    number = error.errno if isinstance(error, OSError) else None
    # safetensors wraps the operating system's error in its own and keeps only the text.
    if number is None and (said := re.search(r"os error (\d+)", str(error))):
        number = int(said[1])
    if number in (errno.ENOSPC, errno.EDQUOT) or "no space left" in str(error).lower():
        what = "your share of the disk is used up" if number == errno.EDQUOT else "the disk is full"
        return RunError(
            f"{what}: {path} could not be written. Nothing already written is lost; "
            "free some space and run the same command again to continue"
        )
    if number in STORAGE:
        return RunError(f"cannot write {path}: {STORAGE[number]}")
    if isinstance(error, OSError):
        return RunError(f"cannot write {path}: {error.strerror or error}")
    return error


def remove(path: Path) -> None:
    """Of a file that need not be there."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise storage_error(error, path) from error


def reading_error(error: OSError, path: Path) -> RunError:
    """Tells what may not be read from what is not there."""
    where = error.filename or path
    if error.errno in (errno.EACCES, errno.EPERM):
        return RunError(f"not allowed to read {where}; ask its owner for the right to")
    return RunError(f"cannot read {where}: {error.strerror or error}")
