"""Attention as the mixer of a block: queries, keys and values, and what the encoding contributes to them.

Shape letters: B batch, H query heads, G key-value heads, T queries, S keys, K head width, D model width, C width of
queries, keys and values together, X = 3 for these three, P tokens of the batch by their number.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lengthwise.encodings.contribution import Contribution, Normalizer
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.kernels import attention as kernel
from lengthwise.kernels import gates as gates_kernel
from lengthwise.kernels.linear import Linear
from lengthwise.kernels.ops import Ops
from lengthwise.kernels.picking import pick_tokens
from lengthwise.kernels.running_sums import running_sums
from lengthwise.model.attention import attend, placed, scale_of
from lengthwise.model.backend import common_width, kernel_program, kernel_refuses, reads_projection
from lengthwise.model.cache import Cache
from lengthwise.model.config import ModelConfig
from lengthwise.model.layer import LayerPass


class Attention(nn.Module):
    """Queries, keys and values from one product; mixed values through another."""

    name: ClassVar[str] = "attention"
    dropout_places: ClassVar[int] = 1
    """Its weights."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        inner, shared = config.heads * config.head_width, config.groups * config.head_width
        self.sizes = {"query": inner, "key": shared, "value": shared}
        # One product instead of three: small models spend their time on starting kernels.
        self.projection = Linear(config.width, sum(self.sizes.values()))
        self.output = Linear(inner, config.width)

    def forward(self, x_BTD: Tensor, here: LayerPass) -> Tensor:
        """What is added to the stream (B, T, D), or (P, D) of it where only some tokens are asked for."""
        numbers = _token_numbers(x_BTD, here)
        if numbers is not None and here.cache is not None:
            numbers = here.cache.extend_numbers(here.number, numbers)
        layout = here.layout.at_layer(here.number, x_BTD, numbers)
        if here.backend == "kernel":
            layout = replace(layout, sums=running_sums)
        mixed_BTD = self._mix(x_BTD, layout, here)
        return self.output(mixed_BTD if here.chosen_P is None else pick_tokens(mixed_BTD, here.chosen_P))

    def _mix(self, x_BTD: Tensor, layout: AttentionLayout, here: LayerPass) -> Tensor:
        """The mixed values of all heads, side by side."""
        contribution = layout.contribution(here.encoding)
        joined_BTC = self.projection(x_BTD)
        own_values = partial(self._own_values, joined_BTC)
        in_kernel = here.backend == "kernel" and here.trace is None
        in_kernel = in_kernel and not kernel_refuses(contribution, layout, self.config, joined_BTC.dtype)
        if in_kernel and reads_projection(contribution, self.config):
            # Nothing happens between projection and kernel: it reads what the product wrote, and rotates it itself.
            joined_BTXHK = joined_BTC.unflatten(-1, (3, -1, self.config.head_width))
            scale = scale_of(contribution, self.config.logit_scale)
            assert not isinstance(scale, Tensor)
            mixed_BTHK = _kernel(joined_BTXHK, scale, contribution, layout, here.ops, rotates=True)
        else:
            q_BHTK, k_BHSK, v_BHSK = self._prepared(joined_BTC, contribution, layout, here.cache)
            width = common_width(q_BHTK.shape[-1], v_BHSK.shape[-1])
            program = kernel_program(contribution)
            if in_kernel and width and kernel.normalizes(program, q_BHTK.shape[2], width, q_BHTK.dtype):
                scale = scale_of(contribution, self.config.logit_scale)
                if isinstance(scale, Tensor):
                    q_BHTK, scale = (q_BHTK.float() * scale).to(q_BHTK.dtype), 1.0
                # Entries of zeros: the kernel knows one width for all three.
                parts = [F.pad(x, (0, width - x.shape[-1])).transpose(1, 2) for x in (q_BHTK, k_BHSK, v_BHSK)]
                mixed_BTHK = _kernel(torch.stack(parts, dim=2), scale, contribution, layout, here.ops, rotates=False)
                mixed_BTHK = mixed_BTHK[..., : v_BHSK.shape[-1]]
            else:
                parts = (q_BHTK, k_BHSK, v_BHSK, here.encoding, layout, self.config.logit_scale, here.ops)
                mixed_BTHK = attend(*parts, here.trace, here.backend).transpose(1, 2)
        if contribution.output is not None:
            known = replace(layout, own_values=own_values)
            mixed_BTHK = contribution.output(mixed_BTHK.transpose(1, 2), known).transpose(1, 2)
        return mixed_BTHK.flatten(-2)

    def _own_values(self, joined_BTC: Tensor) -> Tensor:
        """(B, H, T, K)."""
        values_BTC = joined_BTC[..., -self.sizes["value"] :]
        values_BGTK = values_BTC.unflatten(-1, (-1, self.config.head_width)).transpose(1, 2)
        return values_BGTK.repeat_interleave(self.config.heads // self.config.groups, dim=1)

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
        q_BHTK, k_BGSK = placed(q_BHTK, k_BGSK, contribution, positions_BT, positions_BT)
        if cache is not None:
            assert layout.layer is not None
            k_BGSK, v_BGSK = cache.extend(layout.layer, k_BGSK, v_BGSK)
        shared = self.config.heads // self.config.groups
        if shared > 1:
            k_BGSK, v_BGSK = k_BGSK.repeat_interleave(shared, dim=1), v_BGSK.repeat_interleave(shared, dim=1)
        return q_BHTK, k_BGSK, v_BGSK


def _token_numbers(x_BTD: Tensor, here: LayerPass) -> Tensor | None:
    """Those of the layer's encoding, by the kernel where they are gates that it knows."""
    gates = here.encoding.gates() if here.backend == "kernel" else None
    if gates is None or not gates_kernel.supports(x_BTD, gates.weight_CD, gates.bias_C):
        return here.encoding.token_numbers(x_BTD)
    arrays = (x_BTD.flatten(0, -2), gates.weight_CD, gates.bias_C)
    numbers_NMC = gates_kernel.log_sigmoid_gates(*(each[None] for each in arrays))
    return numbers_NMC.view(*x_BTD.shape[:-1], -1)


def _kernel(
    joined_BTXHK: Tensor,
    scale: float,
    contribution: Contribution,
    layout: AttentionLayout,
    ops: Ops,
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
        table_HT = layout.once(contribution, "bias", lambda: bias(torch.arange(length, device=device)).contiguous())
    if rotation is not None:

        def cosine_and_sine() -> Tensor:
            angles_BTP = rotation.angles(layout.query_positions_BT)
            return torch.stack([angles_BTP.cos(), angles_BTP.sin()], dim=-1)

        turns_BTPC = layout.once(contribution, "rotation", cosine_and_sine)
    rows_BHT = columns_BHT = windows_H = None
    normalizer, program = contribution.normalizer, kernel_program(contribution)
    sinks_H = normalizer.logit_H if isinstance(normalizer, Normalizer) else None
    if (both := contribution.row_column_bias) is not None:
        shape = (len(joined_BTXHK), joined_BTXHK.shape[3], length)
        own = both.column_BHS is None and kernel.notices_nothing(program, sinks_H is not None)
        rows_BHT = both.row_BHT.expand(shape)
        columns_BHT = None if own else both.of_keys_BHS.expand(shape)
    if contribution.window is not None:
        windows_H = _windows(contribution.window, joined_BTXHK.shape[3], device)
    segments_BT = layout.segments_BT
    if (chunk := contribution.chunk) is not None:
        # A chunk of a sequence is a sequence of its own: its tokens see each other and no others.
        number_BT = layout.query_positions_BT.div(chunk, rounding_mode="floor")
        segments_BT = segments_BT.long() * 2**32 + number_BT
    arrays = (table_HT, turns_BTPC, ops.next_key(), rows_BHT, columns_BHT, windows_H, sinks_H)
    table, turns, key, rows, columns, windows, sinks = (None if each is None else each[None] for each in arrays)
    parts = joined_BTXHK[None], segments_BT[None]
    others = (table, turns, key, ops.rate, scale, rows, columns, windows, sinks, program)
    return kernel.fused_attention(*parts, *others).squeeze(0)


@lru_cache(maxsize=64)
def _windows(window: int | tuple[int, ...], heads: int, device: torch.device) -> Tensor:
    """(H,). Kept: while a step is captured nothing may be copied from the host."""
    return torch.tensor(window, dtype=torch.int32, device=device).expand(heads).contiguous()
