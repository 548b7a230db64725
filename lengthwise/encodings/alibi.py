"""ALiBi (Press et al. 2022): a penalty that grows linearly with distance, at a fixed slope for each head."""

from typing import Any

import torch
from torch import Tensor

from lengthwise.encodings.card import Card
from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding


def slopes(heads: int, device: torch.device | None = None) -> Tensor:
    """The authors' slopes: a geometric series for a power of two, else interleaved from the next larger series."""
    power = 1 << (heads.bit_length() - 1)
    series = (torch.arange(power, device=device) + 1) / power
    finer = (2 * torch.arange(heads - power, device=device) + 1) / (2 * power)
    return torch.exp2(-8 * torch.cat([series, finer]))


class Alibi(Encoding):
    """A penalty on the logits that grows linearly with distance, at a fixed slope for each head."""

    name = "alibi"
    card = Card(
        kind="bias",
        equation="b_h(d) = -m_h d, m_h = 2^(-8h/H)",
        source="Press et al. 2022",
        arxiv="2108.12409",
    )
    takes = ("whole", "fractions")

    def contribute(self, layout: AttentionLayout) -> Contribution:
        return Contribution(distance_bias=self.penalty)

    def penalty(self, distance: Tensor) -> Tensor:
        slope = slopes(self.geometry.heads, distance.device)
        return -slope.view(-1, *[1] * distance.ndim) * self.geometry.in_tokens(distance)

    def resolved(self) -> dict[str, Any]:
        return {"slopes": slopes(self.geometry.heads).tolist()}
