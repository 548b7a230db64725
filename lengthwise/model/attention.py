"""Attention with what an encoding contributes: eager, or by PyTorch's fused program where that computes the same.

Shape letters: B batch, H heads, T queries, S keys, K head width, Q queries that are asked for.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from lengthwise.encodings.contribution import Contribution, Scores
from lengthwise.encodings.encoding import Encoding
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.kernels.ops import Ops
from lengthwise.model.backend import Backend, sdpa_refuses
from lengthwise.model.trace import LayerTrace, Trace

LARGEST_LOGITS = 2**28
"""Logits in memory at a time, where attention is eager and no gradient asks for them again."""


def attend(
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    v_BHSK: Tensor,
    encoding: Encoding,
    layout: AttentionLayout,
    logit_scale: float,
    ops: Ops,
    trace: Trace | None = None,
    backend: Backend = "fused",
) -> Tensor:
    """Mixed values (B, H, T, K): by PyTorch's kernel where it computes the same thing, else eagerly."""
    contribution = layout.contribution(encoding)
    plain = trace is None and not ops.drops
    fused = plain and backend == "fused" and not sdpa_refuses(contribution, q_BHTK)
    parts = {"window", "chunk", "distance_bias", "position_bias", "row_column_bias"}.intersection(contribution.names)
    needs_mask = bool(parts) or layout.hide is not None
    if plain and _too_many(q_BHTK, k_BHSK, layout) and not (fused and not needs_mask):
        return _in_blocks(q_BHTK, k_BHSK, v_BHSK, encoding, layout, logit_scale, ops, backend)
    if fused:
        return _sdpa(q_BHTK, k_BHSK, v_BHSK, contribution, layout, logit_scale)
    content, logits, weights = attention_weights(q_BHTK, k_BHSK, contribution, layout, logit_scale)
    if trace is not None:
        trace.record_layer(LayerTrace(content, logits, weights))
    return torch.einsum("bhts,bhsk->bhtk", ops.drop(weights).to(v_BHSK.dtype), v_BHSK)


def placed(
    q_BHTK: Tensor, k_BGSK: Tensor, contribution: Contribution, query_BT: Tensor, key_BS: Tensor
) -> tuple[Tensor, Tensor]:
    """Queries and keys as they are multiplied: rotated for their positions, or changed otherwise."""
    if contribution.rotation is not None:
        q_BHTK = contribution.rotation.of_queries(q_BHTK, query_BT)
        k_BGSK = contribution.rotation.of_keys(k_BGSK, key_BS)
    if contribution.token_rotation is not None:
        q_BHTK, k_BGSK = (contribution.token_rotation.rotated(each) for each in (q_BHTK, k_BGSK))
    if contribution.queries is not None:
        q_BHTK = contribution.queries(q_BHTK, query_BT)
    if contribution.keys is not None:
        k_BGSK = contribution.keys(k_BGSK, key_BS)
    return q_BHTK, k_BGSK


def attention_weights(
    q_BHTK: Tensor, k_BHSK: Tensor, contribution: Contribution, layout: AttentionLayout, logit_scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Scaled products, logits (-inf where a key may not be seen) and weights, (B, H, T, S) each: eager attention."""
    content = torch.einsum("bhtk,bhsk->bhts", q_BHTK, k_BHSK).float()
    scale = scale_of(contribution, logit_scale)
    if isinstance(scale, Tensor) or scale != 1:
        content = content * scale
    bias = contribution.bias(layout)
    logits = content if bias is None else content + bias
    if contribution.score is not None:
        within = layout.within(contribution.window, contribution.chunk)
        logits = contribution.score(Scores(logits, q_BHTK, k_BHSK, within, scale, bias))
    hidden = hidden_keys(contribution, layout)
    if hidden is not None:
        # Added, not filled in: adding is free in the backward pass, and one head's mask serves all.
        logits = logits + torch.zeros(hidden.shape, device=hidden.device).masked_fill(hidden, float("-inf"))
    normalizer = contribution.normalizer
    weights = torch.softmax(logits, dim=-1) if normalizer is None else normalizer(logits, layout)
    return content, logits, weights


@dataclass(frozen=True)
class Attended:
    """What a layer is about to attend to; layers are passed first one first."""

    layer: int
    q_BHTK: Tensor
    k_BHSK: Tensor
    """As they are multiplied, a key for each query head."""
    encoding: Encoding
    layout: AttentionLayout
    logit_scale: float

    def weights(self, asked_Q: Tensor) -> Tensor:
        """Of some queries, by their index: (B, H, Q, S). Asks the encoding anew, which may have changed meanwhile."""
        some = self.layout.queries(asked_Q)
        inputs = self.q_BHTK[:, :, asked_Q], self.k_BHSK, some.contribution(self.encoding), some, self.logit_scale
        return attention_weights(*inputs)[2]


Look = Callable[[Attended], None]


def scale_of(contribution: Contribution, logit_scale: float) -> float | Tensor:
    """What products are multiplied by."""
    return logit_scale if contribution.scale is None else logit_scale * contribution.scale


def hidden_keys(contribution: Contribution, layout: AttentionLayout) -> Tensor | None:
    """True where a key may not be seen; broadcasts to (B, H, T, S). None where all may be."""
    found = None
    if layout.hidden_BTS is not None:
        found = layout.hidden_BTS[:, None]
    elif layout.causal:
        size = layout.key_positions_BS.shape[1]
        found = torch.ones(size, size, dtype=torch.bool, device=layout.key_positions_BS.device).triu(1)
    for more in (contribution.hidden_by_window(layout), contribution.hidden_by_chunk(layout)):
        if more is not None:
            found = more if found is None else found | more
    return found


def _too_many(q_BHTK: Tensor, k_BHSK: Tensor, layout: AttentionLayout) -> bool:
    """Logits to be in memory together, where a few queries can be taken at a time."""
    logits = q_BHTK.shape[:3].numel() * k_BHSK.shape[2]
    return logits > LARGEST_LOGITS and layout.in_parts and not torch.is_grad_enabled()


def _in_blocks(
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    v_BHSK: Tensor,
    encoding: Encoding,
    layout: AttentionLayout,
    logit_scale: float,
    ops: Ops,
    backend: Backend,
) -> Tensor:
    """A few queries at a time, each block with the keys that it may see."""
    batch, heads, length, _ = q_BHTK.shape
    size = max(1, LARGEST_LOGITS // (batch * heads * length))
    mixed = []
    for first in range(0, length, size):
        end = min(first + size, length)
        last, here = layout.keys_before(end), layout.block(first, end)
        seen = k_BHSK[:, :, :last], v_BHSK[:, :, :last]
        mixed.append(attend(q_BHTK[:, :, first:end], *seen, encoding, here, logit_scale, ops, None, backend))
    return torch.cat(mixed, dim=2)


def _sdpa(
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    v_BHSK: Tensor,
    contribution: Contribution,
    layout: AttentionLayout,
    logit_scale: float,
) -> Tensor:
    """PyTorch's fused attention."""
    scale, bias = scale_of(contribution, logit_scale), contribution.bias(layout)
    if isinstance(scale, Tensor):
        q_BHTK, scale = (q_BHTK.float() * scale).to(q_BHTK.dtype), 1.0
    if bias is None and layout.hidden_BTS is None and contribution.window is None and contribution.chunk is None:
        return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, is_causal=layout.causal, scale=scale)
    hidden = hidden_keys(contribution, layout)
    if bias is None:
        assert hidden is not None
        mask = ~hidden
    else:
        mask = bias if hidden is None else bias.masked_fill(hidden, float("-inf"))
    return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, attn_mask=mask, scale=scale)
