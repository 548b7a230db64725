"""NAPE (Vasylenko et al. 2025): half of the heads without positions, half with ALiBi's penalty."""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from lengthwise.encodings.card import Card
from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding


class Nape(Encoding):
    """The first half of the heads has no positions, the second a penalty linear in the distance."""

    name = "nape"
    card = Card(
        kind="bias",
        equation='b_h(d) = 0 "for half of the heads," -d/h "for the others"',
        source="Vasylenko et al. 2025",
        arxiv="2506.16640",
    )

    @dataclass(frozen=True)
    class Config:
        slopes: Literal["linear", "exponential"] = "linear"
        """1, 1/2, 1/3, ... or 1/2, 1/4, 1/8, ..."""

    config: Config

    def slopes(self, device: torch.device | None = None) -> Tensor:
        """Of every head, 0 for one without positions."""
        with_penalty = self.geometry.heads // 2
        number = torch.arange(1, with_penalty + 1, device=device).float()
        slopes = 1 / number if self.config.slopes == "linear" else torch.exp2(-number)
        return torch.cat([torch.zeros(self.geometry.heads - with_penalty, device=device), slopes])

    def contribute(self, layout: AttentionLayout) -> Contribution:
        return Contribution(distance_bias=self.penalty)

    def penalty(self, distance: Tensor) -> Tensor:
        return -self.slopes(distance.device).view(-1, *[1] * distance.ndim) * distance.float()

    def resolved(self) -> dict[str, Any]:
        return {"slopes": self.slopes().tolist()}
