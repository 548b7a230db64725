"""Where the extensions of a model of Transformers go when they become part of it: into which weights, into its config.

Shape letters: H query heads.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from lengthwise.encodings.contribution import Contribution
from lengthwise.encodings.encoding import Encoding
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.errors import UserError
from lengthwise.extensions.extension import ExtendedEncoding, Extension, extensions_of
from lengthwise.hub.foreign import Examined, examine
from lengthwise.hub.rope_parameters import RopeParameters, Rotating, rope_parameters
from lengthwise.model.backend import probe

WHY = {
    "scale": "multiplies logits by a number that depends on the position, and weights are the same at every position",
    "score": "changes the logits of single pairs of tokens, for which no config of Transformers has a name",
    "normalizer": "changes the softmax, for which no config of Transformers has a name",
}
"""Why a part of attention that an extension changes can be neither in weights nor in a config."""


@dataclass(frozen=True)
class OpenedModel:
    """An extended model of Transformers, as it was opened: in fp32."""

    examined: Examined
    encodings: Sequence[Encoding]
    """Extended."""
    name: str
    trained: int
    """Tokens of the longest sequences of training."""
    last_position: int | None
    folder: Path | None = None
    """Where it comes from, if that is a folder of Transformers."""
    dtype: torch.dtype = torch.float32
    """Of its weights as they were saved, where there is no folder that says it."""
    reference: Callable[[Tensor], Tensor] | None = None
    """Other code that makes its logits (B, T, V); by default its own with extended attention."""

    @property
    def model(self) -> PreTrainedModel:
        return self.examined.model

    @property
    def extensions(self) -> list[Extension]:
        """Of any layer, each once."""
        return list(dict.fromkeys(each for encoding in self.encodings for each in extensions_of(encoding)))


@dataclass(frozen=True)
class Plan:
    scales_H: list[Tensor]
    """Of each layer, in fp32: what its queries are multiplied by."""
    scaling: list[str]
    """The extensions that this comes from."""
    rope: RopeParameters
    longest: int
    """Tokens that the config may promise; 0 where that is to stay."""

    @property
    def rotates(self) -> bool:
        return bool(self.rope.changed)

    def put(self, described: dict[str, Any]) -> None:
        """Into a config (of text), as read from its file."""
        self.rope.put(described)
        promised = described.get("max_position_embeddings")
        if promised is not None:
            described["max_position_embeddings"] = self.rope.trained or max(promised, self.longest)

    def told(self, carriers: Sequence[str]) -> Iterator[str]:
        """What goes where, in lines. `carriers`: modules whose weights have the scales."""
        if carriers:
            every = torch.cat([scale_H for scale_H in self.scales_H if bool((scale_H != 1).any())])
            low, high = float(every.min()), float(every.max())
            scales = f"a scale of {low:.4g}" if low == high else f"scales of heads from {low:.4g} to {high:.4g}"
            count = "1 layer" if len(carriers) == 1 else f"{len(carriers)} layers"
            kinds = ", ".join(dict.fromkeys(carrier.rpartition(".")[2] for carrier in carriers))
            yield f"{scales} in the weights of {kinds} of {count}"
        for name, parameters in self.rope.changed.items():
            words = ", ".join(f"{key} {_short(value)}" for key, value in parameters.items())
            yield f"rope_parameters{f' of {name}' if name else ''} in config.json: {words}"


def _short(value: Any) -> str:
    if isinstance(value, list):
        return f"{len(value)} numbers"
    return f"{value:g}" if isinstance(value, float) else str(value)


def plan_of(opened: OpenedModel, fitted: int = 0) -> Plan:
    """Refuses, with a UserError that names it, an extension that fits neither into weights nor into a config.

    `fitted`: tokens that something was fitted for.
    """
    true = examine(opened.model, opened.name)  # of a model that is to be read without its rotation, too
    effects = [_effects(encoding, layer) for layer, encoding in enumerate(opened.encodings)]
    rotating: list[Rotating] = []
    for layer, (facts, encoding) in enumerate(zip(true.layers, opened.encodings, strict=True)):
        if facts.rotation is not None and _contribution(encoding, layer).rotation is None:
            rotating.append("unrotated")
        else:
            rotating.append(next((each.extension for each in effects[layer] if each.rotates), None))
    config, geometry = opened.model.config.get_text_config(), opened.encodings[0].geometry
    rope = rope_parameters(config, true.layers, rotating, geometry, opened.name)
    scales_H, scaling = [], dict[str, None]()
    for facts, found in zip(true.layers, effects, strict=True):
        scale_H = torch.ones(facts.heads, dtype=torch.float64)
        for each in found:
            if each.extension not in rope.carried:
                scale_H = scale_H * each.factor
                scaling |= {} if isinstance(each.factor, float) and each.factor == 1 else {each.extension.name: None}
        scales_H.append(scale_H.float())
    reached = max((extension.reach(opened.trained) for extension in opened.extensions), default=0)
    longest = max(reached, fitted) if rope.may_reach and opened.last_position is None else 0
    return Plan(scales_H, list(scaling), rope, longest)


@dataclass(frozen=True)
class _Effect:
    """What an extension does in a layer."""

    extension: Extension
    rotates: bool
    """Whether it changes the rotation that is there."""
    factor: Tensor | float
    """Of logits: a number, or one of each head."""


def _effects(encoding: Encoding, layer: int) -> list[_Effect]:
    """Of all extensions of a layer, first one first."""
    if not isinstance(encoding, ExtendedEncoding):
        return []
    found, before = _effects(encoding.encoding, layer), _contribution(encoding.encoding, layer)
    for extension in encoding.extensions:
        after = extension.extend(before, _layout(encoding, layer), encoding.geometry)
        changed = {each.name for each in fields(after) if getattr(after, each.name) is not getattr(before, each.name)}
        for part in sorted(changed - {"scale", "rotation"}):
            other = f"changes the {part.replace('_', ' ')} of attention, which no config of Transformers does"
            raise UserError(f"{extension.name} cannot be merged: it {WHY.get(part, other)}")
        factor = _factor(extension, before, after) if "scale" in changed else 1.0
        found.append(_Effect(extension, "rotation" in changed, factor))
        before = after
    return found


def _layout(encoding: Encoding, layer: int) -> AttentionLayout:
    return replace(probe(encoding, encoding.geometry.width), layer=layer)


@torch.no_grad()
def _contribution(encoding: Encoding, layer: int) -> Contribution:
    return _layout(encoding, layer).contribution(encoding)


def _factor(extension: Extension, before: Contribution, after: Contribution) -> Tensor | float:
    """What an extension multiplies the logits of each head by; refuses one that depends on tokens."""
    several: list[Tensor | float] = []
    for scale in (after.scale, before.scale):
        if isinstance(scale, Tensor):
            of_heads = scale.ndim <= 1 or (scale.shape[-2:] == (1, 1) and scale.shape[:-3].numel() == 1)
            if scale.ndim == 1 or not of_heads:
                raise UserError(f"{extension.name} cannot be merged: it {WHY['scale']}")
            several.append(scale.detach().flatten().double().cpu())
        else:
            several.append(1.0 if scale is None else float(scale))
    return several[0] / several[1]
