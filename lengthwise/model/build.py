"""Building a decoder from settings."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from lengthwise import configuration, registry
from lengthwise.encodings.check import check
from lengthwise.encodings.choice import is_mixer
from lengthwise.encodings.composition import Composition
from lengthwise.encodings.encoding import Encoding, Geometry
from lengthwise.errors import UserError
from lengthwise.mixers.check import check_mixer
from lengthwise.mixers.mixer import Mixer
from lengthwise.model.config import ModelConfig
from lengthwise.model.decoder import Decoder
from lengthwise.model.foresight import check_foresight
from lengthwise.placements.counting import WHOLE, Counting


@dataclass(frozen=True)
class Lengths:
    """The longest sequences, in tokens, that a model is trained on and that it will meet."""

    trained: int
    met: int


def build(
    config: ModelConfig,
    vocabulary_rows: int,
    layers: Sequence[Mapping[str, Any]],
    lengths: Lengths,
    counting: Counting = WHOLE,
) -> Decoder:
    """A decoder without initial weights. `layers`: encoding tables (`name` and settings, or `methods`), cycled.

    `counting`: what the positions that it will be given count.

    Layers with the same table share one encoding, unless the encoding wants an instance for each layer.
    """
    if not layers:
        raise ValueError("a model needs at least one encoding; NoPE is the encoding 'none'")
    geometry = Geometry(
        width=config.width,
        heads=config.heads,
        head_width=config.head_width,
        layers=config.layers,
        context=lengths.met,
        trained_context=lengths.trained,
        logit_scale=config.logit_scale,
        embedding_deviation=config.embedding_deviation,
        groups=config.groups,
        counting=counting,
    )
    for table in layers:
        _check(json.dumps(dict(table)), geometry)
    shared: dict[str, Encoding] = {}
    chosen, mixers = [], []
    for layer in range(config.layers):
        table = layers[layer % len(layers)]
        mixer = make_mixer(table, geometry) if is_mixer(table) else None
        table = table if mixer is None else {"name": "none"}  # a mixer needs no encoding
        key = repr(sorted(table.items()))
        if key not in shared or shared[key].per_layer:
            shared[key] = make_encoding(table, geometry)
            _refuse_counting(shared[key], counting)
        chosen.append(shared[key])
        mixers.append(mixer)
    return Decoder(config, vocabulary_rows, chosen, mixers)


def _refuse_counting(encoding: Encoding, counting: Counting) -> None:
    if counting.kind in encoding.takes:
        return
    others = [name for name in registry.encodings.names() if counting.kind in registry.encodings.get(name).takes]
    words = {
        "whole": "whole numbers",
        "fractions": "fractions, for which it has no value",
        "levels": "the number of a segment and an index within it",
    }
    raise UserError(
        f"encoding {encoding.name}: positions of this placement are {words[counting.kind]}; encodings that take them "
        f"are {', '.join(others)}"
    )


def make_encoding(table: Mapping[str, Any], geometry: Geometry) -> Encoding:
    """One encoding from its name and settings, or from the tables of several methods."""
    if "methods" in table:
        return Composition([make_encoding(each, geometry) for each in table["methods"]])
    return _made(registry.encodings, table, geometry)


def make_mixer(table: Mapping[str, Any], geometry: Geometry) -> Mixer:
    """What a layer has in place of attention, from its name and settings."""
    return _made(registry.mixers, table, geometry)


def _made(components: registry.Registry, table: Mapping[str, Any], geometry: Geometry) -> Any:
    settings = dict(table)
    name = settings.pop("name")
    cls = components.get(name)
    what = f"{components.kind} {name}"
    with registry.asking(what, cls, "Config"):
        config = configuration.read(cls.Config, settings, what)
    with registry.asking(what, cls, "__init__", but=ValueError):  # with which it refuses settings
        return cls(config, geometry)


@lru_cache(maxsize=1024)
def _check(table: str, geometry: Geometry) -> None:
    """`table`: as JSON. Not on the device that a model is built for: there it may have no numbers."""
    read = json.loads(table)
    with torch.device("cpu"):
        if is_mixer(read):
            check_mixer(make_mixer(read, geometry))
        else:
            encoding = make_encoding(read, geometry)
            check(encoding)
            check_foresight(encoding)
