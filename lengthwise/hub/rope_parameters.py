"""Rescalings of rotations as the configs of Transformers say them: what `rope_parameters` is to be."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from transformers import PretrainedConfig

from lengthwise.encodings.encoding import Geometry
from lengthwise.errors import UserError
from lengthwise.extensions.dynamic_ntk import DynamicNtk
from lengthwise.extensions.extension import Extension
from lengthwise.extensions.llama3 import Llama3
from lengthwise.extensions.longrope import LongRope
from lengthwise.extensions.ntk import Ntk
from lengthwise.extensions.position_interpolation import PositionInterpolation
from lengthwise.extensions.rescaling import Rescaling
from lengthwise.extensions.yarn import Yarn
from lengthwise.hub.foreign import LayerFacts

SCALING = {
    "rope_type", "type", "factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow",
    "mscale", "mscale_all_dim", "truncate", "low_freq_factor", "high_freq_factor", "short_factor", "long_factor",
}  # fmt: skip
"""What of `rope_parameters` belongs to one kind of scaling; the rest (base, share of a head) stays."""
NEVER = 2.0**100
"""Positions divided by it rotate nothing: in fp32 the cosine of their angles is exactly 1."""
MULTIPLYING = ("default", "linear")
"""Kinds of a model's own that multiply frequencies by a number, so that another one can be had on top of them."""


@dataclass(frozen=True)
class RopeParameters:
    """Those that a config is to have."""

    changed: Mapping[str, dict[str, Any]]
    """By the type of layers that they are for; by an empty name where all layers have the same."""
    trained: int | None
    """Tokens that `max_position_embeddings` must say, as rotations change beyond them; None where it may say more."""
    may_reach: bool
    """Whether nothing that is left in the config depends on `max_position_embeddings`."""
    carried: frozenset[Extension]
    """Those whose factor of logits is in the config too; that of others is for the weights."""

    def put(self, described: dict[str, Any]) -> None:
        """Into a config (of text), as read from its file."""
        for name, parameters in self.changed.items():
            if name:
                described["rope_parameters"][name] = parameters
            else:
                described["rope_parameters"] = parameters
            original = parameters.get("original_max_position_embeddings")
            if original is not None and "original_max_position_embeddings" in described:  # it comes first there
                described["original_max_position_embeddings"] = original
        if self.changed and described.get("head_dim", 0) is None:  # which scalings of Transformers take for a number
            described["head_dim"] = described["hidden_size"] // described["num_attention_heads"]


Rotating = Extension | Literal["unrotated"] | None
"""What changes the rotation of a layer: an extension, or that there is none any more; None for nothing."""


def rope_parameters(
    config: PretrainedConfig, layers: Sequence[LayerFacts], rotating: Sequence[Rotating], geometry: Geometry, name: str
) -> RopeParameters:
    """What makes the layers of a model rotate otherwise.

    `layers`: as Transformers computes them. Raises a UserError where no config says it.
    """
    own: dict[str, Any] = getattr(config, "rope_parameters", None) or {}
    wanted: dict[str, tuple[Rotating, int]] = {}
    for number, (facts, rotated) in enumerate(zip(layers, rotating, strict=True)):
        if facts.table is None:
            continue
        place = _place(facts, own, name)
        before = wanted.setdefault(place, (rotated, number))
        if before[0] != rotated:
            raise UserError(
                f"layers {before[1] + 1} and {number + 1} of {name} share a rotary table and are to be rotated "
                "otherwise, which no config says"
            )
    changed, carried = {}, set[Extension]()
    for place, (rotated, number) in wanted.items():
        parameters = own[place] if place else own
        if rotated is None:
            continue
        kept = {key: value for key, value in parameters.items() if key not in SCALING}
        if isinstance(rotated, str):
            changed[place] = {**kept, "rope_type": "linear", "factor": NEVER}
            continue
        facts = layers[number]
        kind = str(parameters.get("rope_type", parameters.get("type", "default")))
        changed[place] = {**kept, **_said(rotated, facts, geometry, parameters, kind, name)}
        if _in_config(rotated, facts):
            carried.add(rotated)
    extensions = [rotated for rotated, _ in wanted.values() if isinstance(rotated, Extension)]
    dynamic = any(isinstance(each, DynamicNtk) for each in extensions)
    left = [own[place] if place else own for place in wanted if place not in changed]
    plain = all(each.get("rope_type", "default") == "default" for each in left)
    return RopeParameters(
        changed, geometry.trained_context if dynamic else None, plain and not dynamic, frozenset(carried)
    )


def _place(facts: LayerFacts, own: Mapping[str, Any], name: str) -> str:
    """Where a config has the rotary table of a layer: under the type of layers that it was asked with, if any."""
    assert facts.table is not None
    nested = [str(each) for each in facts.table[1] if isinstance(own.get(str(each)), dict)]
    if nested:
        return nested[0]
    if "rope_theta" not in own:
        raise UserError(f"the config of {name} does not say how it rotates (rope_parameters)")
    return ""


def _whole(facts: LayerFacts) -> bool:
    """Whether all entries of a head are rotated: then a factor of rotated ones is one of logits."""
    assert facts.rotation is not None
    return 2 * len(facts.rotation[0].frequencies_P) == facts.head_width


def _in_config(extension: Extension, facts: LayerFacts) -> bool:
    """Whether its factor of logits can be that of rotated entries, which is what a config has."""
    return isinstance(extension, Yarn | LongRope) and (_whole(facts) or extension.magnitude_on == "rotated")


def _said(
    extension: Extension, facts: LayerFacts, geometry: Geometry, own: Mapping[str, Any], kind: str, name: str
) -> dict[str, Any]:
    """A rescaling as a config says it."""
    assert facts.rotation is not None
    config, trained = extension.config, geometry.trained_context
    on_top = isinstance(extension, PositionInterpolation | Ntk)
    if kind != "default" and not (on_top and kind in MULTIPLYING):
        raise UserError(
            f"{extension.name} cannot be merged: the config of {name} scales its rotations already (rope_type {kind}), "
            "and has no name for both"
        )
    here = {"rope_type": kind, **({"factor": own["factor"]} if kind == "linear" else {})}
    magnitude = 1.0
    if isinstance(extension, Rescaling) and _in_config(extension, facts):
        magnitude = float(extension.magnitude(geometry))
    if isinstance(extension, PositionInterpolation):
        return {"rope_type": "linear", "factor": float(config.factor) * float(here.get("factor", 1.0))}
    if isinstance(extension, Ntk):
        rotated = 2 * len(facts.rotation[0].frequencies_P)
        base = float(own["rope_theta"]) * float(config.factor) ** (rotated / (rotated - 2))
        return {**here, "rope_theta": base}
    if isinstance(extension, DynamicNtk):
        return {"rope_type": "dynamic", "factor": float(config.factor)}
    if isinstance(extension, Yarn):
        if config.ramp != "index":
            raise UserError(
                f"yarn with ramp={config.ramp} cannot be merged: the ramp of Transformers goes by a pair's index"
            )
        return {
            "rope_type": "yarn",
            "factor": float(config.factor),
            "original_max_position_embeddings": trained,
            "beta_fast": float(config.beta_fast),
            "beta_slow": float(config.beta_slow),
            "truncate": config.truncate,
            "attention_factor": magnitude,
        }
    if isinstance(extension, Llama3):
        return {
            "rope_type": "llama3",
            "factor": float(config.factor),
            "original_max_position_embeddings": trained,
            "low_freq_factor": float(config.low),
            "high_freq_factor": float(config.high),
        }
    if isinstance(extension, LongRope):
        return {
            "rope_type": "longrope",
            "factor": float(config.factor),
            "original_max_position_embeddings": trained,
            "short_factor": list(config.long if config.choice == "long" else config.short),
            "long_factor": list(config.long),
            "attention_factor": magnitude,
        }
    raise UserError(f"{extension.name} cannot be merged: no config of Transformers has a name for these rotations")
