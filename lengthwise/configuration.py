"""Tables (TOML, JSON) <-> frozen dataclasses: strict about names and types, clear about what is wrong.

A component's settings are a frozen dataclass beside the component; this file knows none of them.
"""

import dataclasses
import json
import math
import re
import tomllib
import types
import typing
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from lengthwise import door, words
from lengthwise.door import DEEPEST, visible
from lengthwise.errors import UserError, nearest

T = TypeVar("T")

LARGEST = 2**20
"""Bytes of a file of settings, letters of one setting."""
YOUNGER = "younger"
"""Among a field's metadata: the setting is younger than runs that people have. Tables leave it out where it is its
default, so that those runs keep their names and their folders can be gone on with."""


def read(cls: type[T], table: Mapping[str, Any], where: str) -> T:
    """An instance of the dataclass `cls` from `table`; `where` names the table in error messages."""
    if not isinstance(table, Mapping):
        raise UserError(f"{where} must be a table of settings, not {_show(table)}")
    hints = typing.get_type_hints(cls)
    fields = {field.name: field for field in dataclasses.fields(typing.cast(Any, cls))}
    table = in_full(table, where)
    for key in table:
        if key not in fields:
            hint = nearest(str(key), fields) if fields else "it has no settings"
            raise UserError(f"unknown setting {visible(_join(where, key), 100)!r}; {hint}")
    values = {key: _value(hints[key], value, _join(where, key)) for key, value in table.items()}
    for name, field in fields.items():
        missing = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        if missing and name not in values:
            raise UserError(f"missing setting {_join(where, name)!r}")
    try:
        return cls(**values)
    except ValueError as error:
        raise UserError(f"{where}: {error}" if where else str(error)) from error


def read_value(cls: type, name: str, value: Any, where: str) -> Any:
    """What the setting `name` of the dataclass `cls` would be; `where` names the value in error messages."""
    return _value(typing.get_type_hints(cls)[name], value, where)


def in_full(table: Mapping[str, Any], where: str = "") -> dict[str, Any]:
    """A table in which settings have their whole names: `lr` is `learning_rate`."""
    said: dict[str, str] = {}
    for key in table:
        if (other := said.setdefault(whole_name(key), key)) != key:
            raise UserError(f"{_join(where, other)} and {_join(where, key)} are the same setting; give one of them")
    return {whole_name(key): value for key, value in table.items()}


def whole_name(setting: str) -> str:
    """What people write for short, in any case, by its whole name; all else as it is."""
    return words.SETTINGS.get(setting.lower(), setting)


def table(instance: Any) -> dict[str, Any]:
    """The plain table of a dataclass instance: the inverse of `read`, ready for JSON."""
    return json.loads(json.dumps(_plain(instance)))


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value):
        fields = {field.name: (field, getattr(value, field.name)) for field in dataclasses.fields(value)}
        return {
            name: _plain(own)
            for name, (field, own) in fields.items()
            if own != field.default or YOUNGER not in field.metadata
        }
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value


def load(path: Path) -> dict[str, Any]:
    """A TOML file as a table."""
    return door.read_toml(path, most=LARGEST)


def override(settings: dict[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """`settings` with assignments such as `training.steps=2000` applied; values are read as TOML, else as text."""
    result = json.loads(json.dumps(settings))
    for assignment in assignments:
        path, equals, text = assignment.partition("=")
        keys = path.strip().split(".")
        shown = f"--set {visible(assignment, 60)!r}"
        if not equals or not all(keys):
            raise UserError(f"{shown} must look like name=value, for example training.steps=2000")
        if len(keys) > DEEPEST or len(text) > LARGEST:
            raise UserError(f"{shown} is too long")
        value = _read_assigned(text, shown)
        target = result
        for key in keys[:-1]:
            target = target.setdefault(key, {})
            if not isinstance(target, dict):
                raise UserError(f"{shown}: {visible(key, 60)!r} is not a table of settings")
        if (whole := whole_name(keys[-1])) != keys[-1]:
            target.pop(whole, None)  # which the file may have
        target[keys[-1]] = value
        door.refuse_odd({path: value}, "--set")
    return result


def with_changes_told(settings: dict[str, Any], assignments: Iterable[str]) -> dict[str, Any]:
    """The same, with a summary that says what was set: the file's own words may be wrong for that."""
    parts = [assignment.partition("=") for assignment in assignments]
    changed = {path.strip(): text.strip() for path, _, text in parts}
    if not changed or "summary" in changed or not isinstance(settings.get("summary"), str):
        return settings
    told = [path if text[:1] in "[{" else f"{path} = {text}" for path, text in changed.items()]
    return {**settings, "summary": f"{settings['summary']} Changed: {visible(', '.join(told), 300)}."}


def _read_assigned(text: str, shown: str) -> Any:
    """One value of TOML, or a text; what would be more than a value is refused, not dropped."""
    try:
        found = tomllib.loads(f"value = {text}")
    except RecursionError:
        raise UserError(f"{shown} is nested too deeply") from None
    except ValueError:  # no TOML, or a number that Python does not read
        _refuse_almost(text, shown)
        found = {"value": text}
    if found.keys() != {"value"} or "\n" in text.strip():
        raise UserError(f"{shown} must be one value; give each setting a --set of its own")
    return found["value"]


BARE_WORD = re.compile(r"(?<![\w'\".-])(?!true\b|false\b)[A-Za-z_][\w.-]*(?![\w'\"=.-]|\s*=)")


def _refuse_almost(text: str, shown: str) -> None:
    """A list or a table that TOML does not read: taken for a text it would be refused for what it is not."""
    text = text.strip()
    if not text.startswith(("[", "{")) or ("]" in text[:-1] and not text.endswith(("]", "}"))):
        return
    quoted = BARE_WORD.sub(lambda word: f"'{word[0]}'", text)
    try:
        tomllib.loads(f"value = {quoted}")
    except (ValueError, RecursionError):
        raise UserError(f"{shown} is no value of TOML, such as ['none', 'rotary'] or [2, 4]") from None
    raise UserError(f"{shown}: put words in quotes, {visible(quoted, 100)}")


def _value(kind: Any, value: Any, where: str) -> Any:
    origin = typing.get_origin(kind)
    if origin is typing.Literal:
        allowed = typing.get_args(kind)
        if value not in allowed or type(value) is bool:
            hint = nearest(value, allowed) if isinstance(value, str) else f"known: {', '.join(map(str, allowed))}"
            raise UserError(f"{where} cannot be {_show(value)}; {hint}")
        return value
    if origin in (types.UnionType, typing.Union):
        options = [option for option in typing.get_args(kind) if option is not type(None)]
        if value is None:
            return None
        return _value(options[0], value, where)
    if origin is tuple:
        if not isinstance(value, list | tuple):
            hint = f", such as {json.dumps([value])}" if isinstance(value, str) and len(value) <= 60 else ""
            raise UserError(f"{where} must be a list{hint}, not {_show(value)}")
        arguments = typing.get_args(kind)
        if arguments[-1] is not Ellipsis:
            if len(value) != len(arguments):
                raise UserError(f"{where} must have {len(arguments)} entries, not {_show(value)}")
            return tuple(_value(a, v, f"{where}[{i}]") for i, (a, v) in enumerate(zip(arguments, value, strict=True)))
        return tuple(_value(arguments[0], v, f"{where}[{i}]") for i, v in enumerate(value))
    if dataclasses.is_dataclass(kind):
        return read(typing.cast(type, kind), value, where)
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise UserError(f"{where} must be a finite number, not {value}")
        return float(value)
    if kind is Any or type(value) is kind:
        return value
    names = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
    hint = ""
    if isinstance(value, list) and value and where.startswith(("model.", "data.", "training.")):
        hint = f"; a grid of values is grid.{where}={visible(json.dumps(value), 60)}"
    raise UserError(f"{where} must be {names.get(kind, kind)}, not {_show(value)}{hint}")


EXAMPLES = {
    "task": "copy.words(symbols=20)",
    "encoding": "rotary(fraction=0.5)",
    "placement": "randomized(range=4096)",
}


def named(choice: str, kind: str) -> dict[str, Any]:
    """`name(setting=value)` as a table of `name` and settings; a name alone is one without settings."""
    found = re.fullmatch(r"([\w.-]+)\s*\((.*)\)", choice, re.DOTALL)
    if found is None:
        return {"name": choice}
    text = re.sub(r"\b(True|False)\b", lambda word: word[0].lower(), found[2])  # as labels write them
    try:
        (settings,) = tomllib.loads(f"settings = {{{text}}}").values()
    except (tomllib.TOMLDecodeError, ValueError, RecursionError):
        raise UserError(
            f"settings of a{'n' * (kind[0] in 'aeiou')} {kind} look like {EXAMPLES[kind]}, not {_show(choice)}"
        ) from None
    if "name" in settings:
        raise UserError(f"the name stands before the brackets, as in {EXAMPLES[kind]}, not {_show(choice)}")
    door.refuse_odd(settings, f"{kind} {found[1]}")
    return {"name": found[1], **settings}


def _join(where: str, key: str) -> str:
    return f"{where}.{key}" if where else key


def _show(value: Any) -> str:
    names = {str: "the text", bool: "the truth value", list: "the list", dict: "the table"}
    text = json.dumps(value, default=str)
    return f"{names.get(type(value), 'the number')} {text if len(text) <= 60 else text[:57] + '...'}"
