"""Equal parts of many descriptions, checked and kept once: thousands of runs say the same of model, recipe, machine."""

from pathlib import Path
from typing import Any

from lengthwise.door import Object, Schema, parse_json
from lengthwise.records.files import read_present

FEW = 500
"""Letters of a file that is looked up as a whole."""


class Shared:
    """Tables that were seen before stand in the place of equal ones. Nobody changes descriptions."""

    def __init__(self) -> None:
        # By schema, which is there as long as the program: what fits one need not fit another.
        self._files: dict[tuple[int, str], dict[str, Any]] = {}
        self._parts: dict[tuple[int, str], Any] = {}
        self._values: dict[tuple[int, type, Any], Any] = {}
        self._fields: dict[int, dict[str, Schema]] = {}

    def read(self, path: Path, schema: Object) -> dict[str, Any]:
        """A file of JSON, so checked."""
        text = read_present(path)
        key = id(schema), text
        if (known := self._files.get(key)) is not None:
            return known
        found = self.checked(parse_json(text, str(path)), schema, str(path))
        if len(text) <= FEW:
            self._files[key] = found
        return found

    def checked(self, table: Any, schema: Object, where: str) -> dict[str, Any]:
        """The table, if it fits the schema, with its parts shared; those that were found to fit are not asked again.

        Not the whole is shared, which names its run.
        """
        if not isinstance(table, dict) or not schema.needed.keys() <= table.keys() or not schema.others:
            schema.checked(table, where)  # which says what is wrong
        fields = self._fields.get(id(schema))
        if fields is None:
            fields = self._fields[id(schema)] = {**schema.needed, **schema.allowed}
        found = {}
        for name, value in table.items():
            part, kind = fields.get(name, ANYTHING), type(value)
            if kind is dict or kind is list:
                found[name] = self._part(value, part, where, name)
                continue
            key = id(part), kind, value  # 1, 1.0 and true are equal, and not the same
            if key not in self._values:
                self._values[key] = part.checked(value, f"{where}: {name}")
            found[name] = self._values[key]
        return found

    def _part(self, value: Any, schema: Schema, where: str, name: str) -> Any:
        # Python shows different values of JSON differently: 1, 1.0, true and "1" among them.
        key = id(schema), repr(value)
        if key in self._parts:
            return self._parts[key]
        inner = f"{where}: {name}"
        if isinstance(value, dict) and type(schema) is Object:
            found = self.checked(value, schema, inner)
        else:
            found = schema.checked(value, inner)
        self._parts[key] = found
        return found


ANYTHING = Schema()
