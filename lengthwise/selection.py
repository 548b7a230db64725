"""A part of a study: `task=addition,encoding=none` chooses the runs to be done now."""

import re
from collections.abc import Sequence

from lengthwise.errors import UserError, nearest
from lengthwise.study import Run


def select(runs: Sequence[Run], only: str) -> list[Run]:
    """The runs that `only` names; a key that comes several times means any of its values. Empty: all."""
    wanted: dict[str, set[str]] = {}
    # A comma within a value is inside parentheses, as in t5(initial=0,rate=0.01), or followed by something that is no
    # assignment, as in the name of a schedule.
    for part in re.split(r",(?![^()]*\))(?=[^,()]*=)", only) if only.strip() else []:
        key, equals, value = (text.strip() for text in part.partition("="))
        known = _values(runs, key)
        if not equals or not value:
            raise UserError(f"--only {part!r} must look like task=addition or encoding=none")
        if value not in known:
            raise UserError(f"--only: the study has no {key} {value!r}; {nearest(value, known)}")
        wanted.setdefault(key, set()).add(value)
    return [run for run in runs if all(_value(run, key) in values for key, values in wanted.items())]


def _values(runs: Sequence[Run], key: str) -> list[str]:
    if key not in ("task", "encoding", "seed"):
        raise UserError(f"--only cannot choose by {key!r}; {nearest(key, ['task', 'encoding', 'seed'])}")
    return list(dict.fromkeys(_value(run, key) for run in runs))


def _value(run: Run, key: str) -> str:
    return {"task": run.title, "encoding": run.encoding.label, "seed": str(run.seed)}[key]
