"""Encodings as a study names them: one for all layers, several in one layer, a schedule over the layers.

    "rotary"                              one encoding in every layer
    { name = "rotary", fraction = 0.5 }   with settings
    "rotary(fraction=0.5)"                the same
    ["rotary", "none"]                    a schedule, cycled over the layers
    [["rotary", "window", "ssmax"]]       several methods in each layer
    { layers = [...], label = "mine" }    any of these, with the name that results carry
    "smollm3"                             a published choice of encodings: see `presets`

Where a layer would have an encoding, a mixer may be named (`gated-recurrence`): it replaces attention.

Imports no torch, so that a study can be read without waiting for it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lengthwise import configuration, registry
from lengthwise.encodings.card import card_of
from lengthwise.errors import UserError
from lengthwise.presets import PRESETS
from lengthwise.records.names import refuse_unfit
from lengthwise.words import spelled

Methods = dict[str, Any]
"""Of one layer: the table of an encoding (`name` and settings), or `methods`, a list of such tables."""


@dataclass(frozen=True)
class EncodingChoice:
    """What every layer has, cycled over the layers, and what tables call it."""

    label: str
    layers: tuple[Methods, ...]

    def plus(self, *others: "EncodingChoice") -> "EncodingChoice":
        """The same choice with more methods in every layer."""
        if not others:
            return self
        if mixers := [layer["name"] for layer in self.layers if is_mixer(layer)]:
            raise UserError(f"{mixers[0]} takes the place of attention; no other method can act in its layer")
        added = [table for other in others for table in tables_of(other.layers[0])]
        layers = tuple({"methods": [*tables_of(layer), *added]} for layer in self.layers)
        label = f"({self.label})" if len(self.layers) > 1 else self.label
        return EncodingChoice("+".join([label, *(other.label for other in others)]), layers)

    def resolved(self) -> "EncodingChoice":
        """The same choice with all settings, defaults included. Imports the encodings, and so torch."""
        return EncodingChoice(self.label, tuple(_with_tables(layer, _resolved) for layer in self.layers))

    def names(self) -> list[str]:
        """The names of all encodings in it."""
        return list(dict.fromkeys(table["name"] for layer in self.layers for table in tables_of(layer)))


def tables_of(layer: Methods) -> list[dict[str, Any]]:
    """The tables of a layer's methods."""
    return layer.get("methods", [layer])


def words_of(layers: Sequence[Methods]) -> str:
    """`rotary+ssmax,none`: what a schedule is called where nobody gave it a name."""
    return ",".join("+".join(table["name"] for table in tables_of(layer)) for layer in layers)


def kinds_of(layers: Sequence[Methods]) -> list[str]:
    """What a choice changes, as cards say it; `schedule` first where layers differ, `none` where nothing is changed.

    Of a method without a card, what it goes with: `position` says no more than that it has to do with positions. Of
    one that is not found here nothing is known.
    """
    found = ["schedule"] if any(layer != layers[0] for layer in layers) else []
    for layer in layers:
        for table in tables_of(layer):
            components = registry.mixers if is_mixer(table) else registry.encodings
            entry = components.entries.get(table["name"])
            if entry is not None:
                card = card_of(entry)
                found.append(card.kind if card else "mixer" if is_mixer(table) else entry.kind)
    distinct = list(dict.fromkeys(found))
    return [kind for kind in distinct if kind != "none"] or distinct


def read_encoding(choice: Any) -> EncodingChoice:
    """What a study or a setting says, in any of the ways above; the encodings in it exist."""
    if isinstance(choice, str) and choice not in registry.encodings.entries and (preset := spelled(choice, PRESETS)):
        return EncodingChoice(preset, read_encoding(PRESETS[preset].layers).layers)
    if isinstance(choice, Mapping) and "layers" in choice:
        return _labelled(choice)
    if isinstance(choice, list | tuple):
        if not choice:
            raise UserError("an encoding schedule must name at least one encoding")
        parts = [_layer(part) for part in choice]
        found = EncodingChoice(",".join(part.label for part in parts), tuple(part.layers[0] for part in parts))
    else:
        found = _one(choice)
    for layer in found.layers:
        _refuse_unknown(layer)
    return found


def is_mixer(layer: Mapping[str, Any]) -> bool:
    """Whether a layer has something in place of attention, and so of an encoding."""
    return layer.get("name") in registry.mixers.entries


def _refuse_unknown(layer: Methods) -> None:
    for table in tables_of(layer):
        if not is_mixer(table):
            registry.encodings.entry(table["name"], also=_also())
        elif "methods" in layer:
            raise UserError(f"{table['name']} takes the place of attention; no other method can act in its layer")


def _also() -> dict[str, str]:
    """What may stand where an encoding does: name -> what it is."""
    presets = {name: registry.first_sentence(preset.summary) for name, preset in PRESETS.items()}
    return {**presets, **{name: registry.mixers.about(name) for name in registry.mixers.entries}}


def read_method(choice: Any, kind: str) -> EncodingChoice:
    """A method of a kind (`scale`, `normalizer`) that is added to encodings."""
    found = read_encoding(choice)
    if len(found.layers) > 1:
        raise UserError(f"a {kind} is the same in every layer, not a schedule as {found.label}")
    for name in found.names():
        if is_mixer({"name": name}):
            raise UserError(f"{name} takes the place of attention; name it among the encodings")
        if (is_kind := registry.encodings.entry(name).kind) != kind:
            raise UserError(f"{name} is no {kind} but of the kind {is_kind}; name it among the encodings")
    return found


def _labelled(choice: Mapping[str, Any]) -> EncodingChoice:
    if unknown := set(choice) - {"layers", "label"}:
        raise UserError(f"an encoding's table with layers has no {sorted(unknown)[0]!r}, only layers and label")
    found = read_encoding(choice["layers"])
    return EncodingChoice(_checked_label(choice.get("label", found.label)), found.layers)


def _layer(part: Any) -> EncodingChoice:
    """What one layer of a schedule has."""
    if not isinstance(part, list | tuple):
        return _one(part)
    if not part or any(isinstance(each, list | tuple) for each in part):
        raise UserError(f"the methods of a layer are a flat list of encodings, not {list(part)}")
    first, *others = (_one(each) for each in part)
    return first.plus(*others)


def _one(choice: Any) -> EncodingChoice:
    if isinstance(choice, str):
        settings = configuration.named(choice, "encoding")
    elif isinstance(choice, Mapping) and isinstance(choice.get("name"), str):
        settings = dict(choice)
    else:
        raise UserError(f"an encoding must be a name or a table with a name, not {choice!r}")
    settings = configuration.in_full(settings, "encoding")
    settings["name"] = _canonical(settings["name"])
    label = settings.pop("label", None)
    if label is None:
        extra = ",".join(f"{key}={value}" for key, value in settings.items() if key != "name")
        label = settings["name"] + (f"({extra})" if extra else "")
    return EncodingChoice(_checked_label(label), (settings,))


def _canonical(name: str) -> str:
    mixer = registry.mixers.canonical(name)
    return mixer if mixer in registry.mixers.entries else registry.encodings.canonical(name)


def _checked_label(label: Any) -> str:
    return refuse_unfit(label, "an encoding's label")


def _with_tables(layer: Methods, change: Any) -> Methods:
    return {"methods": [change(table) for table in layer["methods"]]} if "methods" in layer else change(layer)


def _resolved(table: Mapping[str, Any]) -> dict[str, Any]:
    components = registry.mixers if is_mixer(table) else registry.encodings
    cls = components.get(table["name"])
    what = f"{components.kind} {cls.name}"
    given = {key: value for key, value in table.items() if key != "name"}
    with registry.asking(what, cls, "Config"):
        config = configuration.read(cls.Config, given, what)
    return {"name": cls.name, **configuration.table(config)}
