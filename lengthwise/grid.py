"""The grid of a study: settings of model, data and training that it varies beside tasks, encodings and seeds."""

import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from lengthwise import configuration
from lengthwise.door import visible
from lengthwise.errors import UserError, nearest
from lengthwise.model.config import SIZES, ModelConfig, with_size
from lengthwise.placements.choosing import placement_words
from lengthwise.records.points import grid_words, written
from lengthwise.training.recipe import DataConfig, TrainingConfig

GRID = "grid"
SECTIONS = {"model": ModelConfig, "data": DataConfig, "training": TrainingConfig}
AXES = {name: f"{name}s" for name in ("task", "encoding", "seed", "scale", "normalizer")}
"""What a study varies anyhow, and the list that says so."""
SIZE = "model.size"

Axes = dict[str, tuple[Any, ...]]
"""Setting, such as `model.layers` -> its values."""


@dataclass(frozen=True)
class GridPoint:
    """One value of every axis, and the settings that come of it."""

    values: dict[str, Any]
    model: ModelConfig
    data: DataConfig
    training: TrainingConfig


def read_grid(table: Any) -> Axes:
    """The axes of the table `[grid]`, their values as settings have them; refuses what is no axis."""
    found: Axes = {}
    known = settings()
    for name, values in flat(table).items():
        where = f"{GRID}.{visible(name, 60)}"
        if name not in known:
            raise UserError(_unknown(name, known))
        if not isinstance(values, list | tuple):
            raise UserError(f"{where} must be a list of values, such as [2, 4], not {visible(json.dumps(values), 60)}")
        if not values:
            raise UserError(f"{where} is empty; give it values, or leave it out")
        found[name] = tuple(_value(name, value) for value in values)
        shown = [written(value) for value in found[name]]
        if twice := [value for i, value in enumerate(shown) if value in shown[:i]]:
            raise UserError(f"{where} names {visible(twice[0], 60)} twice; leave one out")
    return found


def settings() -> list[str]:
    """Every setting that can be an axis."""
    own = ("tokens_sha256",)  # filled in by itself
    fields = {section: dataclasses.fields(config) for section, config in SECTIONS.items()}
    return [f"{section}.{each.name}" for section, every in fields.items() for each in every if each.name not in own]


def flat(table: Any) -> dict[str, Any]:
    """Setting -> what the table has for it: `"model.layers" = [2, 4]`, or the same in a table `[grid.model]`."""
    if table is None:
        return {}
    if not isinstance(table, Mapping):
        raise UserError(f'{GRID} must be a table of settings and lists of values, such as "model.layers" = [2, 4]')
    found: dict[str, Any] = {}
    for name, values in _flat(table):
        if name in found:
            raise UserError(f"{GRID} names {visible(name, 60)} twice; leave one out")
        found[name] = values
    return found


def _flat(table: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for key, values in table.items():
        path, dot, last = f"{before}{key}".rpartition(".")
        name = path + dot + configuration.whole_name(last)
        if isinstance(values, Mapping):
            yield from _flat(values, f"{name}.")
        else:
            yield name, values


def nested(table: Any) -> dict[str, dict[str, Any]]:
    """The table as `--set grid.model.layers=[2,4]` writes it, so that this can replace what a file says."""
    found: dict[str, Any] = {}
    for name, values in flat(table).items():
        section, dot, setting = name.partition(".")
        if dot:
            found.setdefault(section, {})[setting] = values
        else:
            found[section] = values
    return found


def without_axes(section: str, table: Mapping[str, Any], axes: Axes) -> dict[str, Any]:
    """A section's settings less those that the grid decides; a size decides what it gives."""
    decided = {name.partition(".")[2] for name in axes if name.startswith(f"{section}.")}
    if section == "model":
        decided |= _given(axes)
    if section == "data" and "tokens" in decided:
        decided.add("tokens_sha256")
    return {name: value for name, value in table.items() if name not in decided}


def at_first_point(table: Mapping[str, Any], axes: Axes) -> dict[str, Any]:
    """A study's table with the first value of every axis in its sections."""
    result = dict(table)
    if isinstance(result.get("model"), Mapping):
        for name in sorted(_given(axes) & result["model"].keys()):
            if f"model.{name}" not in axes:
                raise UserError(f"the grid varies {SIZE}, which decides model.{name}; leave model.{name} out")
    for axis, values in axes.items():
        section, _, name = axis.partition(".")
        own = result.get(section, {})
        if isinstance(own, Mapping):  # anything else is refused by who reads it
            result[section] = {**configuration.in_full(own, section), name: values[0]}
    return result


def _given(axes: Axes) -> set[str]:
    """Settings of the model that the sizes of an axis give."""
    return {name for size in axes.get(SIZE, ()) for name in SIZES.get(size, {})}


def points(axes: Axes, model: ModelConfig, data: DataConfig, training: TrainingConfig) -> tuple[GridPoint, ...]:
    """Every combination, the last axis first; one without values where there are no axes."""
    if not axes:
        return (GridPoint({}, model, data, training),)
    given = {"model": model, "data": data, "training": training}
    base = {name: without_axes(name, configuration.table(config), axes) for name, config in given.items()}
    known: dict[tuple[str, str], Any] = {}
    found = []
    for values in itertools.product(*axes.values()):
        own = dict(zip(axes, values, strict=True))
        made = {}
        for section, config in SECTIONS.items():
            changes = {name.partition(".")[2]: value for name, value in own.items() if name.startswith(f"{section}.")}
            key = section, json.dumps(changes)
            if key not in known:
                known[key] = _read(section, config, {**base[section], **changes}, own)
            made[section] = known[key]
        found.append(GridPoint(own, **made))
    return tuple(found)


def _read(section: str, config: Any, table: dict[str, Any], own: Mapping[str, Any]) -> Any:
    try:
        return configuration.read(config, with_size(table) if section == "model" else table, section)
    except UserError as error:
        raise UserError(f"{error} (at {grid_words(own)} of the grid)") from error


def _value(name: str, value: Any) -> Any:
    section, _, setting = name.partition(".")
    if name == "data.placement":
        return placement_words(value)
    return configuration.read_value(SECTIONS[section], setting, value, f"a value of {GRID}.{name}")


def _unknown(name: str, known: list[str]) -> str:
    first, shown = name.partition(".")[0], visible(name, 60)
    listed = AXES.get(first, first)
    if listed in AXES.values():
        return f"{GRID} cannot vary {shown}: list all {listed} in `{listed} = [...]`; the grid is combined with each"
    meant = [setting for setting in known if setting.partition(".")[2] == name]
    hint = f"did you mean {' or '.join(map(repr, meant))}?" if meant else nearest(name, known)
    return f"{GRID} cannot vary {shown!r}; {hint}"
