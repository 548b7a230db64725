"""Attention with what an encoding contributes: eager, or in one fused program where that computes the same.

Shape letters: B batch, H query heads, G key-value heads, T queries, S keys, K head width, D model width, C width of
queries, keys and values together, X = 3 for these three.
"""

from collections.abc import Sequence
from functools import lru_cache

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lengthwise.encodings.contribution import Contribution, Scores
from lengthwise.encodings.encoding import Encoding
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.model import kernel
from lengthwise.model.backend import Backend, kernel_refuses, reads_projection, sdpa_refuses
from lengthwise.model.cache import Cache
from lengthwise.model.config import ModelConfig
from lengthwise.model.dropout import Dropout
from lengthwise.model.linear import Linear
from lengthwise.model.picking import pick_tokens
from lengthwise.model.trace import LayerTrace, Trace

LARGEST_LOGITS = 2**28
"""Logits in memory at a time, where attention is eager and no gradient asks for them again."""


class Attention(nn.Module):
    """Queries, keys and values from one product; mixed values through another."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        inner, shared = config.heads * config.head_width, config.groups * config.head_width
        self.sizes = {"query": inner, "key": shared, "value": shared}
        # One product instead of three: small models spend their time on starting kernels.
        self.projection = Linear(config.width, sum(self.sizes.values()))
        self.output = Linear(inner, config.width)

    def forward(
        self,
        x_BTD: Tensor,
        encoding: Encoding,
        layout: AttentionLayout,
        dropout: Dropout,
        layer: int = 0,
        cache: Cache | None = None,
        trace: Trace | None = None,
        backend: Backend = "fused",
        chosen_P: Tensor | None = None,
    ) -> Tensor:
        """What is added to the stream (B, T, D), or (P, D) of it: the chosen tokens, by their number in the batch."""
        numbers = encoding.token_numbers(x_BTD)
        if numbers is not None and cache is not None:
            numbers = cache.extend_numbers(layer, numbers)
        here = layout.at_layer(layer, x_BTD, numbers)
        mixed_BTD = self._mix(x_BTD, encoding, here, dropout, cache, trace, backend)
        return self.output(mixed_BTD if chosen_P is None else pick_tokens(mixed_BTD, chosen_P))

    def _mix(
        self,
        x_BTD: Tensor,
        encoding: Encoding,
        layout: AttentionLayout,
        dropout: Dropout,
        cache: Cache | None,
        trace: Trace | None,
        backend: Backend,
    ) -> Tensor:
        """The mixed values of all heads, side by side."""
        contribution = layout.contribution(encoding)
        joined_BTC = self.projection(x_BTD)
        in_kernel = backend == "kernel" and trace is None and not kernel_refuses(contribution, layout, self.config)
        if in_kernel and reads_projection(contribution, self.config):
            # Nothing happens between projection and kernel: it reads what the product wrote, and rotates it itself.
            joined_BTXHK = joined_BTC.unflatten(-1, (3, -1, self.config.head_width))
            scale = scale_of(contribution, self.config.logit_scale)
            assert not isinstance(scale, Tensor)
            mixed_BTHK = _kernel(joined_BTXHK, scale, contribution, layout, dropout, rotates=True)
        else:
            q_BHTK, k_BHSK, v_BHSK = self._prepared(joined_BTC, contribution, layout, cache)
            if in_kernel and q_BHTK.shape[-1] == v_BHSK.shape[-1]:
                scale = scale_of(contribution, self.config.logit_scale)
                if isinstance(scale, Tensor):
                    q_BHTK, scale = (q_BHTK.float() * scale).to(q_BHTK.dtype), 1.0
                joined_BTXHK = torch.stack([x.transpose(1, 2) for x in (q_BHTK, k_BHSK, v_BHSK)], dim=2)
                mixed_BTHK = _kernel(joined_BTXHK, scale, contribution, layout, dropout, rotates=False)
            else:
                parts = (q_BHTK, k_BHSK, v_BHSK, encoding, layout, self.config.logit_scale, dropout)
                mixed_BTHK = attend(*parts, trace, backend).transpose(1, 2)
        if contribution.output is not None:
            mixed_BTHK = contribution.output(mixed_BTHK.transpose(1, 2), layout).transpose(1, 2)
        return mixed_BTHK.flatten(-2)

    def queries_and_keys(self, x_BTD: Tensor, contribution: Contribution, layout: AttentionLayout) -> Sequence[Tensor]:
        """As they are multiplied: (B, H, T, K) each."""
        return self._prepared(self.projection(x_BTD), contribution, layout, None)[:2]

    def _prepared(
        self, joined_BTC: Tensor, contribution: Contribution, layout: AttentionLayout, cache: Cache | None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values: rotated, or changed otherwise, with those of the cache, one key for each query."""
        parts = joined_BTC.split(list(self.sizes.values()), dim=-1)
        q_BHTK, k_BGSK, v_BGSK = (part.unflatten(-1, (-1, self.config.head_width)).transpose(1, 2) for part in parts)
        positions_BT = layout.query_positions_BT
        if contribution.rotation is not None:
            q_BHTK = contribution.rotation.of_queries(q_BHTK, positions_BT)
            k_BGSK = contribution.rotation.of_keys(k_BGSK, positions_BT)
        if contribution.queries is not None:
            q_BHTK = contribution.queries(q_BHTK, positions_BT)
        if contribution.keys is not None:
            k_BGSK = contribution.keys(k_BGSK, positions_BT)
        if cache is not None:
            assert layout.layer is not None
            k_BGSK, v_BGSK = cache.extend(layout.layer, k_BGSK, v_BGSK)
        shared = self.config.heads // self.config.groups
        if shared > 1:
            k_BGSK, v_BGSK = k_BGSK.repeat_interleave(shared, dim=1), v_BGSK.repeat_interleave(shared, dim=1)
        return q_BHTK, k_BGSK, v_BGSK


def attend(
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    v_BHSK: Tensor,
    encoding: Encoding,
    layout: AttentionLayout,
    logit_scale: float,
    dropout: Dropout,
    trace: Trace | None = None,
    backend: Backend = "fused",
) -> Tensor:
    """Mixed values (B, H, T, K): by PyTorch's kernel where it computes the same thing, else eagerly."""
    contribution = layout.contribution(encoding)
    plain = trace is None and not dropout.active
    fused = plain and backend == "fused" and not sdpa_refuses(contribution, q_BHTK)
    needs_mask = {"window", "distance_bias", "row_column_bias"}.intersection(contribution.names)
    if plain and _too_many(q_BHTK, k_BHSK, layout) and not (fused and not needs_mask):
        return _in_blocks(q_BHTK, k_BHSK, v_BHSK, encoding, layout, logit_scale, dropout, backend)
    if fused:
        return _sdpa(q_BHTK, k_BHSK, v_BHSK, contribution, layout, logit_scale)
    content, logits, weights = attention_weights(q_BHTK, k_BHSK, contribution, layout, logit_scale)
    if trace is not None:
        trace.record_layer(LayerTrace(content, logits, weights))
    return torch.einsum("bhts,bhsk->bhtk", dropout.drop(weights).to(v_BHSK.dtype), v_BHSK)


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
        logits = contribution.score(Scores(logits, q_BHTK, k_BHSK, layout, scale, bias))
    hidden = hidden_keys(contribution, layout)
    if hidden is not None:
        # Added, not filled in: adding is free in the backward pass, and one head's mask serves all.
        logits = logits + torch.zeros(hidden.shape, device=hidden.device).masked_fill(hidden, float("-inf"))
    normalizer = contribution.normalizer
    weights = torch.softmax(logits, dim=-1) if normalizer is None else normalizer(logits, layout)
    return content, logits, weights


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
    by_window = contribution.hidden_by_window(layout)
    if by_window is None or found is None:
        return by_window if found is None else found
    return found | by_window


def _too_many(q_BHTK: Tensor, k_BHSK: Tensor, layout: AttentionLayout) -> bool:
    """Logits to be in memory together; a lone causal sequence can be read a few queries at a time."""
    logits = q_BHTK.shape[:3].numel() * k_BHSK.shape[2]
    return logits > LARGEST_LOGITS and layout.hide is None and layout.causal and not torch.is_grad_enabled()


def _in_blocks(
    q_BHTK: Tensor,
    k_BHSK: Tensor,
    v_BHSK: Tensor,
    encoding: Encoding,
    layout: AttentionLayout,
    logit_scale: float,
    dropout: Dropout,
    backend: Backend,
) -> Tensor:
    """A few queries at a time, each block with the keys that it may see."""
    batch, heads, length, _ = q_BHTK.shape
    size = max(1, LARGEST_LOGITS // (batch * heads * length))
    mixed = []
    for first in range(0, length, size):
        end = min(first + size, length)
        seen = k_BHSK[:, :, :end], v_BHSK[:, :, :end]
        here = layout.block(first, end)
        mixed.append(attend(q_BHTK[:, :, first:end], *seen, encoding, here, logit_scale, dropout, None, backend))
    return torch.cat(mixed, dim=2)


def _kernel(
    joined_BTXHK: Tensor,
    scale: float,
    contribution: Contribution,
    layout: AttentionLayout,
    dropout: Dropout,
    rotates: bool,
) -> Tensor:
    """Mixed values (B, T, H, K). The kernel is written for stacked models: this is one.

    `rotates`: whether it is left to the kernel to rotate queries and keys.
    """
    assert layout.segments_BT is not None
    length, device = layout.query_positions_BT.shape[1], layout.query_positions_BT.device
    bias, rotation = contribution.distance_bias, contribution.rotation if rotates else None
    table_HT = turns_BTPC = None
    if bias is not None:
        table_HT = layout.once(contribution, "bias", lambda: bias(torch.arange(length, device=device)))
    if rotation is not None:

        def cosine_and_sine() -> Tensor:
            angles_BTP = rotation.angles(layout.query_positions_BT)
            return torch.stack([angles_BTP.cos(), angles_BTP.sin()], dim=-1)

        turns_BTPC = layout.once(contribution, "rotation", cosine_and_sine)
    rows_BHT = columns_BHT = windows_H = None
    if (both := contribution.row_column_bias) is not None:
        shape = (len(joined_BTXHK), joined_BTXHK.shape[3], length)
        rows_BHT, columns_BHT = both.row_BHT.expand(shape), both.column_BHS.expand(shape)
    if contribution.window is not None:
        windows_H = _windows(contribution.window, joined_BTXHK.shape[3], device)
    arrays = (table_HT, turns_BTPC, dropout.next_key(), rows_BHT, columns_BHT, windows_H)
    table, turns, key, rows, columns, windows = (None if each is None else each[None] for each in arrays)
    parts = joined_BTXHK[None], layout.segments_BT[None]
    mixed_NBTHK = kernel.fused_attention(*parts, table, turns, key, dropout.rate, scale, rows, columns, windows)
    return mixed_NBTHK.squeeze(0)


@lru_cache(maxsize=64)
def _windows(window: int | tuple[int, ...], heads: int, device: torch.device) -> Tensor:
    """(H,). Kept: while a step is captured nothing may be copied from the host."""
    return torch.tensor(window, dtype=torch.int32, device=device).expand(heads).contiguous()


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
    if bias is None and layout.hidden_BTS is None and contribution.window is None:
        return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, is_causal=layout.causal, scale=scale)
    hidden = hidden_keys(contribution, layout)
    if bias is None:
        assert hidden is not None
        mask = ~hidden
    else:
        mask = bias if hidden is None else bias.masked_fill(hidden, float("-inf"))
    return F.scaled_dot_product_attention(q_BHTK, k_BHSK, v_BHSK, attn_mask=mask, scale=scale)
