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


ALIKE = 0.61
"""Share of letters, of both names together, that must agree: `beta` and `beta_slow` do, `wave` and `ape` do not."""


def similar(name: str, known: Iterable[str]) -> list[str]:
    """At most three known names that an unknown one may have been meant as, the closest first."""
    return difflib.get_close_matches(name[:100], sorted(known), n=3, cutoff=ALIKE)


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint for an unknown name: the closest known ones, or all of them."""
    known = sorted(known)
    if close := similar(name, known):
        return f"did you mean {' or '.join(repr(k) for k in close)}?"
    return f"known: {', '.join(known)}" if known else "none are known"
