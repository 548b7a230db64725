"""Building a decoder from settings, and its initial weights from a seed."""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, cast

import torch
from torch import Tensor

from lengthwise import configuration, registry
from lengthwise.encodings.check import check
from lengthwise.encodings.choice import is_mixer
from lengthwise.encodings.composition import Composition
from lengthwise.encodings.encoding import Encoding, Geometry
from lengthwise.errors import UserError
from lengthwise.kernels.linear import Linear
from lengthwise.mixers.attention import Attention
from lengthwise.mixers.check import check_mixer
from lengthwise.mixers.mixer import Mixer
from lengthwise.model.config import ModelConfig
from lengthwise.model.decoder import Decoder, Embedding
from lengthwise.model.foresight import check_foresight
from lengthwise.model.initial_values import initialize_component, reset
from lengthwise.model.norm import RMSNorm
from lengthwise.placements.counting import WHOLE, Counting
from lengthwise.seeding import derive


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


@torch.no_grad()
def initialize(model: Decoder, seed: int) -> None:
    """Fills the parameters. Each has a stream of its own: models that differ in their encoding share the rest."""
    for name, parameter, deviation in initial_deviations(model):
        if deviation is None:
            parameter.fill_(1.0)
        else:
            parameter.copy_(_normal(parameter.shape, deviation, _generator(seed, name)).to(parameter.device))
    for name, module in model.blocks.named_modules(prefix="blocks"):
        if not isinstance(module, Linear | RMSNorm):
            reset(module, name, seed)
    for index, encoding in enumerate(model.distinct_encodings()):
        initialize_component(encoding, f"encodings.{index}", seed)
    for layer, mixer in enumerate(model.mixers()):
        if mixer is not None:
            initialize_component(mixer, f"blocks.{layer}.{mixer.name}", seed)


def _is_ours(model: Decoder, name: str) -> bool:
    """Whether a parameter is of one of our own modules, whose initial values are the published ones."""
    if ".attention." in name:
        return True  # parts of its joined projection have no modules
    owner = model.get_submodule(name.rpartition(".")[0])
    return isinstance(owner, Linear | RMSNorm | Embedding)


def _generator(seed: int, name: str) -> torch.Generator:
    return torch.Generator().manual_seed(derive(seed, "initial", name))


def _normal(shape: torch.Size, deviation: float, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator) * deviation


def initial_deviations(model: Decoder) -> Iterator[tuple[str, Tensor, float | None]]:
    """Name, parameter and initial standard deviation; None for those that start at one.

    Encodings and mixers speak for themselves. A block's joined projection comes as its three parts, each with a name
    of its own.
    """
    config = model.config
    t5 = {
        "query": (config.width * config.head_width) ** -0.5,
        "key": config.width**-0.5,
        "value": config.width**-0.5,
        "attention.output": config.width**-0.5,
        "inner": config.width**-0.5,
        "feed_forward.output": config.inner_width**-0.5,
        "embedding": config.embedding_deviation,
    }
    # As in TinyLlama: what is added to the residual stream starts smaller the more layers add to it.
    residual = 0.02 / math.sqrt(2 * config.passes)
    llama = {"attention.output": residual, "feed_forward.output": residual}
    for name, parameter in _named_parts(model):
        path = name.split(".")
        if path[0] == "encodings" or not _is_ours(model, name):
            continue
        if parameter.ndim == 1:
            yield name, parameter, None
        elif config.style == "t5":
            yield name, parameter, t5[path[-2] if path[-2] != "output" else ".".join(path[-3:-1])]
        else:
            yield name, parameter, llama.get(".".join(path[-3:-1]), config.embedding_deviation)


def _named_parts(model: Decoder) -> Iterator[tuple[str, Tensor]]:
    for name, parameter in model.named_parameters():
        if name.endswith("attention.projection.weight"):
            attention = cast(Attention, model.get_submodule(name.removesuffix(".projection.weight")))
            parts = parameter.split(list(attention.sizes.values()), dim=1)
            for part, weight in zip(attention.sizes, parts, strict=True):
                yield name.replace("projection", part), weight
        else:
            yield name, parameter
