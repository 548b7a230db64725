"""A part of a study or of results: `task=addition,encoding=none,model.layers=4` chooses runs by what they are."""

import re
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from lengthwise import words
from lengthwise.configuration import whole_name
from lengthwise.errors import UserError, nearest
from lengthwise.records.points import short_names, written

T = TypeVar("T")

USUAL = ("task", "encoding", "seed")
"""What every run can be chosen by."""
ALIASES = {"task": words.TASKS, "encoding": {**words.MIXERS, **words.ENCODINGS}}


def choose(items: Sequence[T], only: str, coordinates: Callable[[T], Mapping[str, Any]]) -> list[T]:
    """The items that `only` names; a key that comes several times means any of its values. Empty: all.

    `coordinates`: of an item, each of USUAL and of the axes of its grid, with its value.
    """
    if not only.strip():
        return list(items)
    places = [{key: written(value) for key, value in coordinates(item).items()} for item in items]
    wanted = named_values(only, places)
    return [
        item
        for item, place in zip(items, places, strict=True)
        if all(place.get(key) in values for key, values in wanted.items())
    ]


def named_values(only: str, places: Sequence[Mapping[str, str]]) -> dict[str, set[str]]:
    """Key -> the values that `only` names, as they are written; `places`: what there is to be chosen from."""
    wanted: dict[str, set[str]] = {}
    keys = list(dict.fromkeys((*USUAL, *(key for place in places for key in place))))
    # A comma within a value is inside parentheses, as in t5(initial=0,rate=0.01), or followed by something that is no
    # assignment, as in the name of a schedule.
    for part in re.split(r",(?![^()]*\))(?=[^,()]*=)", only):
        said, equals, value = (text.strip() for text in part.partition("="))
        key = _key(said, keys)
        if not equals or not value:
            raise UserError(f"--only {part!r} must look like task=addition or encoding=none")
        known = list(dict.fromkeys(place[key] for place in places if key in place))
        found = next((each for each in (value, _as_written(value), named(value, key, known)) if each in known), None)
        if found is None:
            raise UserError(f"--only: the study has no {key} {value!r}; {nearest(value, known)}")
        wanted.setdefault(key, set()).add(found)
    return wanted


def named(value: str, key: str, known: Iterable[str]) -> str:
    """What results call it: `encoding=RoPE` is the encoding `rotary`. `known`: what there is, which comes first."""
    known = list(known)
    if value in known:
        return value
    aliases = {words.plain(alias): name for alias, name in ALIASES.get(key, {}).items()}
    return words.spelled(value, known) or aliases.get(words.plain(value), value)


def _key(said: str, known: list[str]) -> str:
    """An axis may be named for short: `layers` for `model.layers`, `lr` for `training.learning_rate`."""
    section, dot, name = said.rpartition(".")
    said = section + dot + whole_name(name)
    by_short = {short: axis for axis, short in short_names(key for key in known if key not in USUAL).items()}
    if said in known or said in by_short:
        return said if said in known else by_short[said]
    raise UserError(f"--only cannot choose by {said!r}; {nearest(said, known)}")


def _as_written(text: str) -> str:
    """The same value as results write it: 1e-3 is 0.001."""
    try:
        return written(tomllib.loads(f"value = {text}")["value"])
    except (ValueError, TypeError, RecursionError):  # no TOML, or a date
        return text
