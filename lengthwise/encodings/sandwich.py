"""Sandwich (Chi et al. 2023): the products of sinusoidal positions alone, as a bias; nothing is learned."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lengthwise.encodings.card import Card
from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding


class Sandwich(Encoding):
    """A bias of sums of cosines of the distance, each head with a compression of its own."""

    name = "sandwich"
    card = Card(
        kind="bias",
        equation="b_h(d) = H/(8h) Σ_(m=1)^64 cos(d 10000^(-2m/128))",
        source="Chi et al. 2023",
        arxiv="2212.10356",
    )

    @dataclass(frozen=True)
    class Config:
        width: int = 128
        """Of the sinusoidal positions whose products these are."""
        base: float = 10000.0

        def __post_init__(self) -> None:
            if self.width < 2 or self.width % 2:
                raise ValueError(f"width must be even and 2 or more, not {self.width}")

    config: Config

    def contribute(self, layout: AttentionLayout) -> Contribution:
        return Contribution(distance_bias=self.cosines)

    def cosines(self, distance: Tensor) -> Tensor:
        heads = self.geometry.heads
        pairs = torch.arange(1, self.config.width // 2 + 1, device=distance.device)
        frequencies = self.config.base ** (-2 * pairs.float() / self.config.width)
        sums = (distance.float()[..., None] * frequencies).cos().sum(-1)
        ratios_H = 8 * torch.arange(1, heads + 1, device=distance.device).float() / heads
        return sums / ratios_H.view(-1, *[1] * distance.ndim)
