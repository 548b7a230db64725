"""Tasks by their names: from a name, or from a table of a name and settings, as studies have them."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from lengthwise import configuration, registry
from lengthwise.door import visible
from lengthwise.errors import UserError
from lengthwise.tasks.check import refuse_incomplete
from lengthwise.tasks.task import Task

MOST_OF_A_SETTING = 1_000_000
"""Symbols, keys, digits: whole numbers among the settings of a task."""


def make_task(choice: str | Mapping[str, Any]) -> Task:
    """A task from its name with or without settings, a table of both, or a file of examples (`mine.jsonl`)."""
    settings = _named(choice)
    if settings["name"].endswith(".jsonl"):
        settings = {**settings, "name": "file", "path": settings["name"]}
    cls = registry.tasks.get(settings.pop("name"))
    what = f"task {cls.name}"
    for name, value in settings.items():
        if isinstance(value, int) and value > MOST_OF_A_SETTING:
            raise UserError(f"{what}: {name} is at most {MOST_OF_A_SETTING:,}, not {value:,}")
    with registry.asking(what, cls, "Config"):
        config = configuration.read(cls.Config, settings, what)
    with registry.asking(what, cls, "__init__"):
        task = cls(config)
    refuse_incomplete(task)
    return task


def task_table(choice: str | Mapping[str, Any]) -> dict[str, Any]:
    """Name and all settings of a task, defaults included, but for those that results are older than."""
    task = make_task(choice)
    defaults = {each.name: each.default for each in fields(task.config)}
    settings = configuration.table(task.config).items()
    recorded = {key: value for key, value in settings if key not in task.later_settings or value != defaults[key]}
    return {"name": task.name, **recorded}


def _named(choice: Any) -> dict[str, Any]:
    if isinstance(choice, str):
        return configuration.named(choice, "task")
    if isinstance(choice, Mapping) and isinstance(choice.get("name"), str):
        return dict(choice)
    raise UserError(f"a task must be a name or a table with a name, not {visible(repr(choice), 60)}")
