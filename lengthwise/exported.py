"""What `lengthwise export` leaves beside a model's weights: where the model comes from. Imports nothing heavy."""

from pathlib import Path
from typing import Any

from lengthwise import door

ORIGIN = "lengthwise.json"


def is_of_a_task(folder: Path) -> bool:
    """Whether its model was trained on a task, and reads no other text."""
    return _origin(folder).get("kind") == "task model"


def task_of(folder: Path) -> dict[str, Any] | None:
    """Name and settings of the task that its model was trained on; None where nothing says so."""
    settings = _origin(folder).get("settings")
    task = settings.get("task") if isinstance(settings, dict) else None
    return task if isinstance(task, dict) and isinstance(task.get("name"), str) else None


def _origin(folder: Path) -> dict[str, Any]:
    file = folder / ORIGIN
    return door.read_json(file, most=door.SMALL) if file.exists() else {}
