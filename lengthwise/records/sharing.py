"""Equal parts of many descriptions, kept once: thousands of runs say the same of model, recipe and machine."""

import json
from typing import Any

SMALLEST = 40
"""Letters of JSON: less is not worth being looked up."""


class Shared:
    """Tables that were seen before stand in the place of equal ones. Nobody changes descriptions."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def of(self, table: dict[str, Any]) -> dict[str, Any]:
        """The table with its parts shared, not the whole, which names its run."""
        return {name: self._part(value) for name, value in table.items()}

    def _part(self, value: Any) -> Any:
        if isinstance(value, str):
            return self._known.setdefault(value, value)
        if not isinstance(value, dict | list):
            return value
        key = json.dumps(value)
        if len(key) < SMALLEST:
            return value
        if key not in self._known:
            whole = {name: self._part(each) for name, each in value.items()} if isinstance(value, dict) else value
            self._known[key] = whole
        return self._known[key]
