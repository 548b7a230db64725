"""A model of Transformers as one of ours to extend: which encoding each of its layers has, found by asking it.

Shape letters: B batch, T queries, S keys, H heads, K head width, P rotated pairs.
"""

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from lengthwise.encodings.contribution import Contribution, Pairs, Rotation, Scores
from lengthwise.encodings.encoding import AttentionLayout, Encoding, Geometry
from lengthwise.errors import UserError
from lengthwise.extensions.dynamic_ntk import DynamicNtk
from lengthwise.extensions.extension import ExtendedEncoding, Extension, extensions_of
from lengthwise.extensions.longrope import LongRope
from lengthwise.hub.attention import Look, Running, attention_modules, body_of, running, supports_interface
from lengthwise.hub.masks import make_mask
from lengthwise.hub.rotations import (
    Key,
    RotaryTable,
    answering,
    arrangements,
    identity,
    read_table,
    rotary_modules,
    true_answer,
)

PROBE = "lengthwise-probe"
PROBED = 8
"""Tokens that are read to find out how layers rotate."""
CHECKED = 48
"""Tokens over which the model's own logits are compared with ours."""
TOLERANCE = {torch.float32: 1e-5, torch.float64: 1e-9}
"""Of that comparison, relative to the largest logit; of other dtypes `LOW`."""
LOW = 0.03
STATEFUL = ("dynamic", "longrope")
"""Rope scalings that follow the length of what is read; those of Transformers change their tables as they go."""


@dataclass(frozen=True)
class LayerFacts:
    """What was seen of a layer."""

    table: Key | None
    rotation: tuple[RotaryTable, Pairs] | None
    logit_scale: float
    heads: int
    groups: int
    head_width: int
    soft_cap: float | None
    sinks_H: Tensor | None
    """The model's own parameter."""

    def __deepcopy__(self, memo: dict[int, Any]) -> "LayerFacts":
        """Itself: a copy of an encoding is of the same layer."""
        return self


@dataclass(frozen=True)
class OwnScaling:
    """What a model's config does to rotations by the length of a sequence, in our form of it."""

    extension: Extension
    trained: int
    """Tokens up to which nothing changes."""


@dataclass(frozen=True)
class Examined:
    """A model whose layers are known."""

    model: PreTrainedModel
    layers: list[LayerFacts]
    answers: dict[Key, Any]
    """What rotary modules answer for a few positions: its form."""
    output: type[Any]
    """What the model without its head returns."""

    def running(self, encodings: Sequence[Encoding], look: Look | None = None) -> AbstractContextManager[Running]:
        """The model within attends as these encodings say."""
        return running(self.model, encodings, partial(_identity_tables, self), look, partial(outdated, encodings))


class ForeignEncoding(Encoding):
    """What a layer of a model of Transformers has of its own: rotations, a soft cap, sinks."""

    @dataclass(frozen=True)
    class Config:
        called: str = "none"
        """`rotary`, `learned` or `none`."""

    def __init__(
        self,
        config: Config,
        geometry: Geometry,
        facts: LayerFacts,
        last_position: int | None = None,
        scaling: OwnScaling | None = None,
    ) -> None:
        super().__init__(config, geometry)
        self.facts, self.scaling = facts, scaling
        self._last_position = last_position

    @property
    def name(self) -> str:  # pyrefly: ignore
        return self.config.called

    @property
    def last_position(self) -> int | None:
        return self._last_position

    def embed(self, x_BTD: Tensor, positions_BT: Tensor) -> Tensor:
        """Nobody calls it to embed, since the model does that: it says whether positions are added there."""
        return x_BTD if self._last_position is None else x_BTD + 1

    def contribute(self, layout: AttentionLayout) -> Contribution:
        rotation: Rotation | None = None
        if self.facts.rotation is not None:
            table, pairs = self.facts.rotation
            rotation = table.rotation(pairs)
        capped = self.facts.soft_cap is not None
        found = Contribution(
            rotation=rotation,
            score=self.capped if capped else None,
            normalizer=None if self.facts.sinks_H is None else self.with_sinks,
        )
        if self.scaling is None or rotation is None:
            return found
        before = dataclasses.replace(self.geometry, trained_context=self.scaling.trained)
        return self.scaling.extension.extend(found, layout, before)

    def capped(self, scores: Scores) -> Tensor:
        most = self.facts.soft_cap
        assert most is not None
        return torch.tanh(scores.logits_BHTS / most) * most

    def with_sinks(self, logits_BHTS: Tensor, layout: AttentionLayout) -> Tensor:
        assert self.facts.sinks_H is not None
        sinks_BHT1 = self.facts.sinks_H.float()[:, None, None].expand(*logits_BHTS.shape[:3], 1)
        return torch.cat([logits_BHTS, sinks_BHT1], dim=-1).softmax(-1)[..., :-1]

    def resolved(self) -> dict[str, Any]:
        if self.facts.rotation is None:
            return {}
        table, pairs = self.facts.rotation
        facts = {"rotated": 2 * len(table.frequencies_P), "of": self.facts.head_width, "pairs": pairs}
        return facts | ({} if table.kind == "default" else {"scaling": table.kind})


@contextmanager
def _identity_tables(examined: Examined, state: Running) -> Iterator[None]:
    def answer(module: nn.Module, key: Key, like: Tensor, positions_BT: Tensor) -> Any:
        if positions_BT.ndim != 2:
            raise UserError("positions of more than one axis are not known here")
        state.now.positions_BT = positions_BT
        true = examined.answers[key]
        parts = (true,) if isinstance(true, Tensor) else true
        dtype = like.dtype if like.is_floating_point() and not parts[0].is_complex() else parts[0].dtype
        return identity(tuple(part.to(dtype) for part in parts) if len(parts) > 1 else true, positions_BT)

    with answering(examined.model, answer):
        yield


def examine(model: PreTrainedModel, name: str) -> Examined:
    """Finds out what each layer does, and that nothing was overlooked: else a UserError that says what."""
    if not supports_interface(model):
        raise UserError(
            f"{name} is a {type(model).__name__}, whose attention does not go through the attention interface of "
            "Transformers; of such models nothing can be extended"
        )
    was_training = model.training
    model.eval()
    try:
        with torch.no_grad():
            found = _looked_through(model, name)
    finally:
        model.train(was_training)
    return found


def _looked_through(model: PreTrainedModel, name: str) -> Examined:
    modules = attention_modules(model)
    calls: dict[nn.Module, tuple[Any, Any]] = {}
    answers: dict[Key, Any] = {}
    ours: dict[int, tuple[Any, Any]] = {}
    """What a table answered that rotates nothing, by its number, and parts of it: the key, the true answer."""
    kept: list[Any] = []

    def answer(module: nn.Module, key: Key, like: Tensor, positions_BT: Tensor) -> Any:
        true = true_answer(module, key, like, positions_BT)
        nothing = identity(true, positions_BT)
        answers[key] = true
        kept.append(nothing)
        pairs = [(nothing, true)] if isinstance(true, Tensor) else [(nothing, true), *zip(nothing, true, strict=True)]
        ours.update({id(mine): (key, theirs) for mine, theirs in pairs})
        return nothing

    def remember(module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        calls[module] = arguments, named

    probed: list[dict[str, Any]] = []

    def probe(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *_: Any, **named: Any) -> Any:
        probed.append({"query": query, "key": key, "value": value, **named})
        return value.new_zeros(query.shape[0], query.shape[2], query.shape[1], value.shape[-1]), None

    tokens_BT = some_tokens(model, PROBED)
    hooks = [module.register_forward_pre_hook(remember, with_kwargs=True) for module in modules]
    before = model.config._attn_implementation
    try:
        with attending_by(model, PROBE, probe), answering(model, answer):
            model(tokens_BT, use_cache=False)
            if len(probed) != len(modules) or len(calls) != len(modules):
                raise UserError(f"{name}: {len(probed)} of its {len(modules)} layers attend by Transformers' interface")
            without, facts = list(probed), []
            tables = {key: read_table(rotary_modules(model)[key[0]], key) for key in answers}
            for number, module in enumerate(modules):
                probed.clear()
                arguments, named = calls[module]
                module.forward(*_with_truth(arguments, ours), **_with_truth(named, ours))
                keys = {ours[id(each)][0] for each in _parts((arguments, named)) if id(each) in ours}
                facts.append(_facts(without[number], probed[0], sorted(keys), tables, f"{name}, layer {number + 1}"))
    finally:
        for hook in hooks:
            hook.remove()
        model.set_attn_implementation(str(before))
    return Examined(model, facts, answers, type(body_of(model)(tokens_BT, use_cache=False)))


def _facts(
    without: dict[str, Any], true: dict[str, Any], keys: Sequence[Key], tables: dict[Key, RotaryTable | None], name: str
) -> LayerFacts:
    q_BHTK, scaling = without["query"], without.get("scaling")
    if without.get("position_bias") is not None:
        raise UserError(f"{name} adds a bias of its own to the logits, which is not known here")
    table, rotation = None, None
    if not torch.equal(q_BHTK, true["query"]):
        found = [(key, way) for key in keys for way in _ways(tables[key], without, true)]
        if not found:
            raise UserError(f"{name} changes queries by position in a way that is not known here")
        table, rotation = found[0]
    cap = without.get("softcap")
    return LayerFacts(
        table,
        rotation,
        q_BHTK.shape[-1] ** -0.5 if scaling is None else float(scaling),
        q_BHTK.shape[1],
        without["key"].shape[1],
        q_BHTK.shape[-1],
        None if cap is None else float(cap),
        without.get("s_aux"),
    )


def _ways(
    table: RotaryTable | None, without: dict[str, Any], true: dict[str, Any]
) -> Iterator[tuple[RotaryTable, Pairs]]:
    """Ways in which the table makes the true queries and keys of those that are not rotated."""
    if table is None:
        return
    q_BHTK, k_BGTK = without["query"], without["key"]
    positions_BT = torch.arange(q_BHTK.shape[2], device=q_BHTK.device)[None]
    close = 1e-5 if q_BHTK.dtype == torch.float32 else 2e-2
    for arranged, pairs in arrangements(table):
        if 2 * len(arranged.frequencies_P) > q_BHTK.shape[-1]:
            continue
        rotation = arranged.rotation(pairs)
        both = (
            (rotation.of_queries(q_BHTK, positions_BT), true["query"]),
            (
                rotation.of_keys(k_BGTK, positions_BT),
                true["key"],
            ),
        )
        if all(_near(ours, theirs, close) for ours, theirs in both):
            yield arranged, pairs


def _near(ours: Tensor, theirs: Tensor, close: float) -> bool:
    return float((ours.float() - theirs.float()).abs().max()) <= close * max(1.0, float(theirs.float().abs().max()))


def _parts(value: Any) -> Iterator[Any]:
    """What is within tuples, lists and tables, and these themselves."""
    yield value
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, tuple | list):
        for each in value:
            yield from _parts(each)


def _with_truth(value: Any, ours: dict[int, tuple[Any, Any]]) -> Any:
    """The same with true cosines and sines in the place of those that rotate nothing."""
    if id(value) in ours:
        return ours[id(value)][1]
    if isinstance(value, dict):
        return {name: _with_truth(each, ours) for name, each in value.items()}
    if isinstance(value, tuple | list):
        return type(value)(_with_truth(each, ours) for each in value)
    return value


@contextmanager
def attending_by(model: PreTrainedModel, name: str, function: Callable[..., Any]) -> Iterator[None]:
    """The model within asks `function` for its attention, and attends causally."""
    from transformers import AttentionMaskInterface

    before = model.config._attn_implementation
    AttentionInterface.register(name, function)
    AttentionMaskInterface.register(name, make_mask)
    model.set_attn_implementation(name)
    try:
        yield
    finally:
        model.set_attn_implementation(str(before))


def some_tokens(model: PreTrainedModel, count: int) -> Tensor:
    """Different ones, as far as there are."""
    embedding: Any = model.get_input_embeddings()
    rows = embedding.weight.shape[0]
    return ((torch.arange(count) * 7 + 1) % rows)[None].to(model.device)


def encodings_of(examined: Examined, trained: int, last_position: int | None) -> list[Encoding]:
    """Of all layers, first layer first. `last_position`: where a table of learned positions ends."""
    config = examined.model.config.get_text_config()
    called_without = "none" if last_position is None else "learned"
    modules, scalings = rotary_modules(examined.model), {}
    found: list[Encoding] = []
    for facts in examined.layers:
        if facts.table is not None and facts.table not in scalings:
            scalings[facts.table] = _scaling(modules[facts.table[0]], facts)
        geometry = Geometry(
            int(config.hidden_size), facts.heads, facts.head_width, len(examined.layers), trained, trained,
            logit_scale=facts.logit_scale, groups=facts.groups,
        )  # fmt: skip
        called = ForeignEncoding.Config("rotary" if facts.rotation is not None else called_without)
        scaling = None if facts.table is None else scalings[facts.table]
        found.append(ForeignEncoding(called, geometry, facts, last_position, scaling))
    return found


def _scaling(module: nn.Module, facts: LayerFacts) -> OwnScaling | None:
    """None where the whole scaling is in the table itself."""
    assert facts.rotation is not None
    table = facts.rotation[0]
    config: Any = module.config
    if table.kind not in STATEFUL:
        return None
    parameters = dict(config.rope_parameters)
    if table.kind == "dynamic":
        factor = float(parameters["factor"])
        return OwnScaling(DynamicNtk(DynamicNtk.Config(factor=factor)), int(config.max_position_embeddings))
    # The table is that of short sequences: what is left to do is to go from one set of factors to the other.
    ratio = [long / short for long, short in zip(parameters["long_factor"], parameters["short_factor"], strict=True)]
    ones = (1.0,) * len(ratio)
    longer = LongRope(LongRope.Config(factor=1.0, long=tuple(ratio), short=ones, attention_factor=1.0))
    return OwnScaling(longer, int(parameters["original_max_position_embeddings"]))


def follows_length(encoding: Encoding) -> bool:
    """Whether the model's own config changes rotations by the length of a sequence."""
    return _own_scaling(encoding) is not None


def outdated(encodings: Sequence[Encoding], cached: int, length: int) -> bool:
    """Whether what a cache holds of the first tokens is not what a sequence of `length` tokens needs of them."""
    for encoding in dict.fromkeys(encodings):
        trained = encoding.geometry.trained_context
        if any(extension.outdates(cached, length, trained) for extension in extensions_of(encoding)):
            return True
        scaling = _own_scaling(encoding)
        if scaling is not None and scaling.extension.outdates(cached, length, scaling.trained):
            return True
    return False


def _own_scaling(encoding: Encoding) -> OwnScaling | None:
    while isinstance(encoding, ExtendedEncoding):
        encoding = encoding.encoding
    return encoding.scaling if isinstance(encoding, ForeignEncoding) else None


def _refuse_unknown_positions(
    model: PreTrainedModel, tokens_BT: Tensor, own_BTV: Tensor, close: float, name: str
) -> None:
    """A model that seems to have no positions may add them where nobody looks: then it reads other ones otherwise."""
    if "position_ids" not in inspect.signature(model.forward).parameters:
        return
    later_BT = torch.arange(3, 3 + tokens_BT.shape[1], device=tokens_BT.device)[None]
    found_BTV = model(tokens_BT, position_ids=later_BT, use_cache=False).logits.float()
    if not float((found_BTV - own_BTV).abs().max()) <= close:
        raise UserError(f"{name} changes with positions, by what is neither a rotation nor a table known here")


@torch.no_grad()
def check(examined: Examined, encodings: Sequence[Encoding], name: str, last_position: int | None) -> float:
    """The largest difference of logits with our attention from the model's own, on some tokens; refuses a large one."""
    model = examined.model
    count = CHECKED if last_position is None else min(CHECKED, last_position + 1)
    tokens_BT = some_tokens(model, count)
    own = model(tokens_BT, use_cache=False).logits.float()
    close = TOLERANCE.get(model.dtype, LOW) * max(1.0, float(own.abs().max()))
    if not any(follows_length(encoding) for encoding in encodings):
        shorter = model(tokens_BT[:, : count // 2], use_cache=False).logits.float()
        if not float((shorter - own[:, : count // 2]).abs().max()) <= close:
            raise UserError(f"{name} is no causal model: later tokens change what it says of earlier ones")
    if last_position is None and all(facts.rotation is None for facts in examined.layers):
        _refuse_unknown_positions(model, tokens_BT, own, close, name)
    with examined.running(encodings):
        ours = model(tokens_BT, use_cache=False).logits.float()
    difference = float((ours - own).abs().max())
    if not difference <= close:
        raise UserError(
            f"{name} has logits of its own that differ by up to {difference:.2g} from those that its layers, as they "
            "are known here, would have: something in its attention is not known"
        )
    return difference
