"""Points of a grid: which value each varied setting has in a run, and how that is written."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

STUDY = "study"
"""The axis of results that come from several studies."""

TAKEN = ("task", "encoding", "seed", "run", "length", STUDY)
"""Names that an axis cannot have for short: tables have columns of these names."""

Point = tuple[tuple[str, str], ...]
"""Axis and value, as they are written, of every axis."""


def written(value: Any) -> str:
    """A value of a setting as people write it; different values of a setting are written differently."""
    if isinstance(value, str):
        return value
    if isinstance(value, float):
        return repr(value).removesuffix(".0")
    return json.dumps(list(value) if isinstance(value, tuple) else value)


def point_of(description: Mapping[str, Any]) -> Point:
    """Where the run of a description stands; empty for a run without a grid."""
    study = ((STUDY, description[STUDY]),) if STUDY in description else ()
    return (*study, *((axis, written(value)) for axis, value in description.get("grid", {}).items()))


def axis_columns(grid: Mapping[str, Any]) -> dict[str, str | int | float | bool]:
    """Axis -> value as rows have it: what is no text or number is written out."""
    return {axis: value if isinstance(value, str | int | float) else written(value) for axis, value in grid.items()}


def short_names(axes: Iterable[str]) -> dict[str, str]:
    """Axis -> what headings call it: `layers` for `model.layers`, unless that could be taken for something else."""
    axes = list(axes)
    last = {axis: axis.rpartition(".")[2] for axis in axes}
    shared = Counter(last.values())
    return {axis: axis if shared[name] > 1 or (name in TAKEN and axis != name) else name for axis, name in last.items()}


def point_words(point: Point, between: str = ", ") -> str:
    """`layers=4, learning_rate=0.001`: as it can also be asked for with `--only`."""
    short = short_names(axis for axis, _ in point)
    return between.join(f"{short[axis]}={value}" for axis, value in point)


def grid_words(grid: Mapping[str, Any]) -> str:
    """The same of the settings of a run, in one word: a part of its name."""
    return point_words(point_of({"grid": grid}), ",")
