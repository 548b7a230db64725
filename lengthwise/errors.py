"""Errors that a person can act on: one clear line, no traceback."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Something the user asked for cannot be done; the message says what to change.

    The command line prints the message alone and exits with `exit_code`.
    """

    exit_code = 2


class RunError(UserError):
    """Work had begun and could not continue (disk full, damaged checkpoint); nothing already written is lost."""

    exit_code = 1


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for an unknown name: the closest known ones, or all of them."""
    known = sorted(known)
    close = difflib.get_close_matches(name[:100], known, n=3, cutoff=0.5)
    if close:
        return f"did you mean {' or '.join(repr(k) for k in close)}?"
    return f"known: {', '.join(known)}" if known else "none are known"
