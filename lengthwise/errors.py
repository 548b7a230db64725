"""Errors that a person can act on: one clear line, no traceback."""

import difflib
import re
from collections.abc import Callable, Iterable

from lengthwise.words import meant


class UserError(Exception):
    """Something the user asked for cannot be done; the message says what to change.

    The command line prints the message alone and exits with `exit_code`.
    """

    exit_code = 2


class RunError(UserError):
    """Work had begun and could not continue (disk full, damaged checkpoint); nothing already written is lost."""

    exit_code = 1


def first_line(error: BaseException) -> str:
    """The kind of an error and the first line of what it says."""
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"[:200]


ALIKE = 0.61
"""Share of letters, of both names together, that must agree: `beta` and `beta_slow` do, `wave` and `ape` do not."""


def similar(name: str, known: Iterable[str]) -> list[str]:
    """At most three known names that an unknown one may have been meant as, the closest first."""
    return difflib.get_close_matches(name[:100], sorted(known), n=3, cutoff=ALIKE)


MOST_GUESSES = 5
"""Names that a hint has at most."""


def guesses(name: str, known: Iterable[str]) -> list[str]:
    """What an unknown name may have been meant as: by its meaning, else by its letters, or as a part of a name."""
    known = sorted(known)
    if by_meaning := [each for each in meant(name) if each in known]:
        return by_meaning[:MOST_GUESSES]
    parts = [each for each in known if name.lower() in re.split(r"[-_.+(]", each.lower())] if name else []
    return list(dict.fromkeys([*similar(name, known), *parts]))[:MOST_GUESSES]


def nearest(name: str, known: Iterable[str], about: Callable[[str], str] | None = None) -> str:
    """A hint for an unknown name: the closest known ones, or all of them. `about`: what a known one is, in words."""
    known = sorted(known)
    if close := guesses(name, known):
        return f"did you mean {' or '.join(_explained(each, about) for each in close)}?"
    return f"known: {', '.join(known)}" if known else "none are known"


def _explained(name: str, about: Callable[[str], str] | None) -> str:
    said = about(name) if about else ""
    return f"{name!r} ({said})" if said else repr(name)
