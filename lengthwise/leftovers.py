"""What a killed process leaves behind: the half of a file or folder that it was writing, under a name of its own."""

import os
import re
import shutil
from pathlib import Path

NAME = re.compile(r"\..+\.(\d+)\.partial", re.DOTALL)
"""Of what process `\\1` has not written to the end yet; see `records.files.replace`."""


def partial_of(place: Path) -> Path:
    """Where this process writes what is to be put in `place` when it is whole."""
    return place.with_name(f".{place.name}.{os.getpid()}.partial")


def clear_leftovers(folder: Path) -> None:
    """Removes from a folder what processes that are gone were writing; folders inside it are not looked into.

    Somebody on another machine, who writes into the same folder at this very moment, is told so in a line and loses
    nothing: where that may happen often, it is called under the folder's lock.
    """
    for found in folder.glob(".*.partial"):
        _remove(found)


def clear_leftovers_of(place: Path) -> None:
    """The same for one file or folder, whatever else is written beside it."""
    for found in place.parent.glob(".*.partial"):
        if found.name.startswith(f".{place.name}."):
            _remove(found)


def remove_empty(folder: Path, above: Path) -> None:
    """Removes a folder and those it lies in, up to `above`, as far as there is nothing in them."""
    while folder != above and above in folder.parents:
        try:
            folder.rmdir()
        except OSError:  # it is not empty, or not there
            return
        folder = folder.parent


def _remove(found: Path) -> None:
    match = NAME.fullmatch(found.name)
    if match is None or _is_alive(int(match[1])):
        return
    if found.is_dir() and not found.is_symlink():
        shutil.rmtree(found, ignore_errors=True)
    else:
        found.unlink(missing_ok=True)


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # of another user
        return True
    return process != 0
