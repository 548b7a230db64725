"""The settings of a study's runs as they were used: defaults that follow from others are filled in."""

import math
from typing import Any

from lengthwise.records.results import Results

SECTIONS = ("model", "data", "training")


def resolved_settings(results: Results) -> dict[str, dict[str, Any]]:
    """Section -> setting -> value, of the first run; values that differ between runs are all listed."""
    every = [_resolved(run.description) for run in results.runs]
    return {
        section: {key: _one_or_all([each[section].get(key) for each in every]) for key in every[0][section]}
        for section in SECTIONS
    }


def _resolved(description: dict[str, Any]) -> dict[str, dict[str, Any]]:
    settings = {section: dict(description["settings"][section]) for section in SECTIONS}
    model, training = settings["model"], settings["training"]
    if model.get("key_value_heads") == 0:
        model["key_value_heads"] = model["heads"]
    if model.get("feed_forward") == 0:
        model["feed_forward"] = inner_width(model["style"], model["width"])
    if training.get("precision") == "auto":
        training["precision"] = description.get("precision", "auto")
    data = settings["data"]
    if data.get("examples") == 0:
        data["examples"] = "new ones in every batch"
    return settings


def inner_width(style: str, width: int) -> int:
    """Of feed-forward layers where it is not set: the rule of `ModelConfig`, which a report does not import."""
    return 4 * width if style == "t5" else math.ceil(8 * width / 3 / 32) * 32


def _one_or_all(values: list[Any]) -> Any:
    distinct = [value for i, value in enumerate(values) if value not in values[:i]]
    return distinct[0] if len(distinct) == 1 else " or ".join(map(str, distinct))
