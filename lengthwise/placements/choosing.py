"""A placement from its settings: `randomized`, `randomized(range=4096)`, or a table of a name and settings."""

import json
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from lengthwise import configuration, registry
from lengthwise.errors import UserError
from lengthwise.placements.check import check_placement
from lengthwise.placements.placement import Placement

CONSECUTIVE = "consecutive"
"""The one that a study has if it says nothing."""


def make_placement(choice: str | Mapping[str, Any]) -> Placement:
    """From its name with or without settings, or from a table."""
    settings = _settings(choice)
    cls = registry.placements.get(settings.pop("name"))
    what = f"placement {cls.name}"
    with registry.asking(what, cls, "Config"):
        config = configuration.read(cls.Config, settings, what)
    with registry.asking(what, cls, "__init__"):
        return cls(config)


def placement_words(choice: str | Mapping[str, Any]) -> str:
    """Its name and all its settings, defaults included, as one word: `randomized(range=2048)`."""
    placement = make_placement(choice)
    settings = configuration.table(placement.config)
    told = ",".join(f"{key}={json.dumps(value)}" for key, value in settings.items())
    words = placement.name + (f"({told})" if told else "")
    _check(words, type(placement))
    return words


@lru_cache(maxsize=256)
def _check(words: str, _written: type) -> None:
    check_placement(make_placement(words))


def _settings(choice: str | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(choice, Mapping) and isinstance(choice.get("name"), str):
        return dict(choice)
    if isinstance(choice, str) and re.fullmatch(r"\s*[\w-]+\s*(\(.*\))?\s*", choice):
        return configuration.named(choice.strip(), "placement")
    raise UserError(f"a placement is a name such as random-start or randomized(range=4096), not {choice!r}")
