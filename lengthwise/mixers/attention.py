"""Attention as the mixer of a block: queries, keys and values, and what the encoding contributes to them.

Shape letters: B batch, H query heads, G key-value heads, T queries, S keys, K head width, D model width, C width of
queries, keys and values together, X = 3 for these three, P tokens of the batch by their number.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import ClassVar

from torch import Tensor, nn

from lengthwise.encodings.contribution import Contribution
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.kernels import gates as gates_kernel
from lengthwise.kernels import short_convolution
from lengthwise.kernels.linear import Linear
from lengthwise.kernels.picking import pick_tokens
from lengthwise.kernels.running_sums import running_sums
from lengthwise.model import in_kernel
from lengthwise.model.attention import attend, placed
from lengthwise.model.backend import kernel_refuses, reads_projection
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
            layout = replace(layout, sums=running_sums, convolve=short_convolution.convolved)
        mixed_BTD = self._mix(x_BTD, layout, here)
        return self.output(mixed_BTD if here.chosen_P is None else pick_tokens(mixed_BTD, here.chosen_P))

    def _mix(self, x_BTD: Tensor, layout: AttentionLayout, here: LayerPass) -> Tensor:
        """The mixed values of all heads, side by side."""
        contribution = layout.contribution(here.encoding)
        joined_BTC = self.projection(x_BTD)
        own_values = partial(self._own_values, joined_BTC)
        asked = in_kernel.Asked(contribution, layout, self.config, here.ops)
        fused = here.backend == "kernel" and here.trace is None
        fused = fused and not kernel_refuses(contribution, layout, self.config, joined_BTC.dtype)
        mixed_BTHK = None
        if fused and reads_projection(contribution, self.config) and asked.whole(joined_BTC.dtype):
            mixed_BTHK = in_kernel.of_projection(joined_BTC.unflatten(-1, (3, -1, self.config.head_width)), asked)
        else:
            prepared = self._prepared(joined_BTC, contribution, layout, here.cache)
            if fused:
                mixed_BTHK = in_kernel.of_prepared(*prepared, asked)
            if mixed_BTHK is None:
                others = (here.encoding, layout, self.config.logit_scale, here.ops, here.trace, here.backend)
                mixed_BTHK = attend(*prepared, *others).transpose(1, 2)
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
