"""Attention of ours in a model of Transformers, for the time of a `with`: its encodings are what we say they are.

The model's rotary tables are set to the identity, so that queries and keys arrive, and are cached, as no position has
changed them yet. What positions do is declared by an `Encoding` for each layer, like in our own decoder: any extension
acts on it unchanged, and a cache is right whatever a longer sequence changes about its first tokens.
Shape letters: B batch, H query heads, G key-value heads, T queries, S keys, K head width.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel

from lengthwise.encodings.encoding import Encoding
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.errors import RunError, UserError
from lengthwise.hub.masks import NAME, Mask
from lengthwise.kernels.ops import Ops
from lengthwise.model.attention import Attended, Look, attend, placed

HERE = "_lengthwise"
"""The attribute of an attention module that says what its layer does."""


@dataclass
class Pass:
    """What is known of the forward pass that is under way."""

    positions_BT: Tensor | None = None
    """Of the tokens that are read; None where no rotary table was asked."""
    layouts: dict[tuple[int, int, int], tuple[Any, AttentionLayout]] = field(default_factory=dict)
    """By the mask that a layer was given, and the sizes of its attention."""
    layers: int = 0
    """That have attended."""


@dataclass
class Running:
    """A model while its attention is ours."""

    encodings: Sequence[Encoding]
    look: Look | None = None
    outdated: Callable[[int, int], bool] = lambda cached, length: False
    """Whether a sequence of so many tokens needs its first, cached ones to have been read otherwise."""
    now: Pass = field(default_factory=Pass)
    passes: int = 0

    def begin(self, *_: Any) -> None:
        self.now = Pass()
        self.passes += 1

    def end(self, *_: Any) -> None:
        """A patch that an upgrade has made silently inactive must not go unnoticed."""
        if self.now.layers < len(self.encodings):
            raise RunError(
                f"only {self.now.layers} of {len(self.encodings)} layers have attended through the attention interface "
                "of Transformers: this version does not call it as it did"
            )


@dataclass(frozen=True)
class Layer:
    """What an attention module carries."""

    running: Running
    number: int


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Mask | Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    position_ids: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """What Transformers calls in every layer; the names are its own. Soft caps and sinks are part of the encodings."""
    here: Layer = getattr(module, HERE)
    running, now = here.running, here.running.now
    if dropout and module.training:
        raise UserError("attention that drops weights is not ours to change; call model.eval() first")
    if query.shape[2] < key.shape[2]:
        length = attention_mask.first_key + attention_mask.keys if isinstance(attention_mask, Mask) else key.shape[2]
        if running.outdated(length - query.shape[2], length):
            raise UserError(
                f"rotations depend on the length of a sequence here, and a cache of {length - query.shape[2]:,} tokens "
                f"was made for shorter ones than {length:,}: read whole sequences instead (use_cache=False)"
            )
    positions_BT = now.positions_BT if now.positions_BT is not None else position_ids
    key_of = id(attention_mask), query.shape[2], key.shape[2]
    if key_of not in now.layouts:
        # The mask is kept with it: its number must stay its own.
        now.layouts[key_of] = attention_mask, layout_of(attention_mask, positions_BT, query.shape[2], key.shape[2])
    layout, encoding = now.layouts[key_of][1], running.encodings[here.number]
    layout = replace(layout, layer=here.number)
    contribution = layout.contribution(encoding)
    groups = query.shape[1] // key.shape[1]
    q_BHTK, k_BGSK = placed(query, key, contribution, layout.query_positions_BT, layout.key_positions_BS)
    if groups > 1:
        k_BGSK, value = k_BGSK.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    logit_scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    if running.look is not None:
        running.look(Attended(here.number, q_BHTK, k_BGSK, encoding, layout, logit_scale))
    mixed_BHTK = attend(q_BHTK, k_BGSK, value, encoding, layout, logit_scale, Ops())
    now.layers += 1
    return mixed_BHTK.transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, attention)


def layout_of(mask: Mask | Tensor | None, positions_BT: Tensor | None, queries: int, keys: int) -> AttentionLayout:
    """Where queries and keys stand, and what they see. Positions that nobody gives count tokens, not padding."""
    if isinstance(mask, Mask):
        query_BT, key_BS = _positions(mask, positions_BT)
        if mask.is_causal and queries == keys:
            return AttentionLayout(query_BT, key_BS)
        if mask.is_causal and queries == 1 and mask.first_query - mask.first_key == keys - 1:
            return AttentionLayout(query_BT, key_BS, causal=False)
        every_T = torch.arange(queries, device=mask.device)
        last = mask.first_query - mask.first_key + queries == keys
        segments_BS = _sequences(query_BT) if queries == keys and mask.real_BS is None else None
        return AttentionLayout(
            query_BT,
            key_BS,
            hide=lambda: mask.hidden_rows(every_T),
            hide_rows=mask.hidden_rows,
            key_segments_BS=segments_BS,
            chosen_T=None if last else mask.own_key_T,
            key_places_BS=mask.places_BS if segments_BS is None else None,
        )
    if positions_BT is None or queries != keys:
        if queries != keys and positions_BT is not None:
            raise UserError("a mask of four dimensions beside a cache does not say where the cached tokens stand")
        device = None if mask is None else mask.device
        positions_BT = torch.arange(keys, device=device)[None, keys - queries :]
    key_BS = positions_BT if queries == keys else torch.arange(keys, device=positions_BT.device)[None]
    if mask is None:
        return AttentionLayout(positions_BT, key_BS, causal=queries > 1)
    seen_BTS = mask[:, 0, :, :keys]
    hidden_BTS = ~seen_BTS if seen_BTS.dtype == torch.bool else seen_BTS < 0
    return AttentionLayout(positions_BT, key_BS, hide=lambda: hidden_BTS)


def _positions(mask: Mask, positions_BT: Tensor | None) -> tuple[Tensor, Tensor]:
    """Of the queries and of the keys, cached ones too, whose positions nobody has kept."""
    own_T, index_S = mask.own_key_T, torch.arange(mask.keys, device=mask.device)[None]
    counted_BS = mask.places_BS
    if positions_BT is None:
        return counted_BS[:, own_T], counted_BS
    if mask.queries == mask.keys and mask.first_key == mask.first_query:
        return positions_BT, positions_BT
    real_BT = None if mask.real_BS is None else mask.real_BS[:, own_T]
    for key_BS in (index_S + mask.first_key, counted_BS):
        differ_BT = key_BS[:, own_T] != positions_BT
        if not bool((differ_BT if real_BT is None else differ_BT & real_BT).any()):
            return positions_BT, key_BS
    raise UserError(
        "position_ids beside a cache must count all tokens, or those that are no padding: where the cached ones stand "
        "is not known otherwise"
    )


def _sequences(positions_BT: Tensor) -> Tensor | None:
    """Which sequence of its row a token belongs to, where positions begin anew: so Transformers packs several."""
    segments_BT = F.pad(positions_BT.diff(dim=1) != 1, (1, 0)).cumsum(1)
    return segments_BT if bool(segments_BT.any()) else None


def attention_modules(model: PreTrainedModel) -> list[nn.Module]:
    """Those that ask the interface, first layer first."""
    found = {
        getattr(module, "layer_idx", None): module
        for module in model.modules()
        if hasattr(module, "layer_idx") and type(module).__name__.endswith(("Attention", "SelfAttention"))
    }
    return [module for _, module in sorted(found.items())]


def body_of(model: PreTrainedModel) -> Any:
    """What the model is without its head."""
    body = model.base_model
    if body is model:  # whose class names another attribute than the one that it has
        body = getattr(model, "model", model)
    if body is model:
        raise UserError(f"where the head of a {type(model).__name__} begins is not known here")
    return body


def supports_interface(model: PreTrainedModel) -> bool:
    return bool(getattr(model, "_supports_attention_backend", False)) and bool(attention_modules(model))


@contextmanager
def running(
    model: PreTrainedModel,
    encodings: Sequence[Encoding],
    patched: Callable[[Running], Any],
    look: Look | None = None,
    outdated: Callable[[int, int], bool] = lambda cached, length: False,
) -> Iterator[Running]:
    """The model within; afterwards it is as it was, to the bit.

    `patched`: a context manager under which rotary tables are the identity and say which positions they were asked.
    `outdated`: see `Running`.
    """
    modules, before = attention_modules(model), model.config._attn_implementation
    if any(hasattr(module, HERE) for module in modules):
        raise UserError("this model is extended already; leave that `with` before another one is entered")
    state = Running(encodings, look, outdated)
    base = body_of(model)
    hooks = [base.register_forward_pre_hook(state.begin), base.register_forward_hook(state.end)]
    for number, module in enumerate(modules):
        setattr(module, HERE, Layer(state, number))
    try:
        model.set_attn_implementation(NAME)
        with patched(state):
            yield state
    finally:
        model.set_attn_implementation(str(before))
        for hook in hooks:
            hook.remove()
        for module in modules:
            delattr(module, HERE)
