"""Equal parts of many descriptions, checked and kept once: thousands of runs say the same of model, recipe, machine."""

from pathlib import Path
from typing import Any

from lengthwise.door import Schema, Table, parse_json
from lengthwise.records.files import read_present

SMALLEST = 40
"""Letters as Python shows it: less is not worth being looked up."""


class Shared:
    """Tables that were seen before stand in the place of equal ones. Nobody changes descriptions."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, str], Any] = {}
        self._words: dict[str, str] = {}

    def read(self, path: Path, schema: Table) -> dict[str, Any]:
        """A file of JSON, so checked."""
        return self.checked(parse_json(read_present(path), str(path)), schema, str(path))

    def checked(self, table: Any, schema: Table, where: str) -> dict[str, Any]:
        """The table, if it fits the schema, with its parts shared; those that were found to fit are not asked again.

        Not the whole is shared, which names its run.
        """
        if not isinstance(table, dict) or not schema.needed.keys() <= table.keys():
            schema.checked(table, where)  # which says what is wrong
        found = {name: self._part(value, _of(schema, name), where, name) for name, value in table.items()}
        if not schema.others:
            schema.checked(table, where)
        return found

    def _part(self, value: Any, schema: Schema, where: str, name: str) -> Any:
        if isinstance(value, str):
            schema.checked(value, f"{where}: {name}")
            return self._words.setdefault(value, value)
        if not isinstance(value, dict | list):
            return schema.checked(value, f"{where}: {name}")
        # Python shows different values of JSON differently: 1, 1.0, true and "1" among them.
        key = id(schema), repr(value)
        if len(key[1]) < SMALLEST:
            return schema.checked(value, f"{where}: {name}")
        if key not in self._known:
            inner = f"{where}: {name}"
            if isinstance(value, dict) and type(schema) is Table:
                self._known[key] = self.checked(value, schema, inner)
            else:
                schema.checked(value, inner)
                self._known[key] = value
        return self._known[key]


def _of(schema: Table, name: str) -> Schema:
    return schema.needed.get(name) or schema.allowed.get(name) or ANYTHING


ANYTHING = Schema()
