"""Settings of a run in full: what results of earlier versions leave unsaid is what those versions did.

A setting that is added to `ModelConfig`, `DataConfig` or `TrainingConfig` is entered here with its default, which
records do not import; a test compares the two. Without it, no new run could stand beside earlier ones.
"""

from collections.abc import Mapping
from typing import Any

UNSAID: dict[str, dict[str, Any]] = {
    "model": {"loops": 1, "inject": False},
    "data": {
        **{"test_at": None, "watched": 500, "held_out": "by_length", "seed": None, "placement": "consecutive"},
        **{"tokens": "symbols", "tokens_sha256": "", "trimmed": False, "prefix_tokens": 0, "separator_tokens": 0},
        "rows": 0,
    },
    "training": {"decay_norms": True, "best": "earliest"},
}
"""Section -> settings that are younger than results that people have, and their defaults."""


def in_full(settings: Mapping[str, Any]) -> dict[str, Any]:
    """`settings` as a run's description holds them; sections that are absent stay absent."""
    unsaid = {**UNSAID, "training": unsaid_of_training(settings.get("numerics", 0))}
    return {
        section: {**unsaid[section], **value} if section in unsaid else value for section, value in settings.items()
    }


def unsaid_of_training(numerics: int) -> dict[str, Any]:
    """Before version 9 of the numerics, norms did not decay and `best` could not be chosen (`study.NUMERICS`)."""
    if numerics >= 9:
        return UNSAID["training"]
    return {"decay_norms": False, "best": "earliest" if numerics < 5 else "latest"}
