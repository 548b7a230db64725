"""What a tracker is: it is given the curves of runs, each once and in order.

A tracker is one file of this folder, named after it: a class with a `name`, `begin`, `is_complete` and `where`. A run
is complete in it, or is written anew from its beginning: so nothing is there twice, whenever somebody was killed.
"""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

from lengthwise import registry
from lengthwise.errors import UserError


@dataclass(frozen=True)
class TrackedRun:
    """A run as a tracker shows it."""

    identity: str
    """Of the run's settings and of the moment when it was begun: a run that was trained again is another one."""
    name: str
    settings: Mapping[str, Any]
    """Nested tables."""

    def flat(self) -> dict[str, str | int | float | bool]:
        """`model.layers` -> 4; lists as text."""
        return _flat(self.settings)


class Curves:
    """Where one run is written."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Values at a step of training; steps come in order, each once."""
        raise NotImplementedError

    def finish(self, step: int, summary: Mapping[str, float], by_length: Mapping[int, float]) -> None:
        """The run is finished after `step`: single numbers, and accuracy by length. Afterwards it is complete."""
        raise NotImplementedError

    def pause(self) -> None:
        """Nobody follows it any longer, though it is not finished; what was logged can be seen."""
        raise NotImplementedError


class Tracker:
    """Where runs are shown."""

    name: ClassVar[str]

    def __init__(self, folder: Path, project: str) -> None:
        """`folder`: where it writes, if it writes files of its own. `project`: the name that the runs share."""
        self.folder, self.project = folder, project

    def is_complete(self, run: TrackedRun) -> bool:
        """Whether it holds all of the run."""
        raise NotImplementedError

    def begin(self, run: TrackedRun) -> Curves:
        """Begins the run; what it holds of an incomplete one of the same identity goes first."""
        raise NotImplementedError

    def where(self) -> str:
        """For the user: how to look at it."""
        raise NotImplementedError


def make_tracker(name: str, folder: Path, project: str) -> Tracker:
    return registry.trackers.get(name)(folder, project)


def package(name: str, extra: str) -> ModuleType:
    """A tracker's own package, or what to install."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != name.partition(".")[0]:
            raise UserError(f"{name} lacks the package {error.name}: pip install 'lengthwise[{extra}]'") from None
        raise UserError(f"{name} is not installed: pip install 'lengthwise[{extra}]'") from None


def _flat(table: Mapping[str, Any], prefix: str = "") -> dict[str, str | int | float | bool]:
    found: dict[str, str | int | float | bool] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[prefix + key] = value if isinstance(value, str | int | float | bool) else str(value)
    return found
