"""FIRE (Li et al. 2024): a small network reads distances as a share of how far a query could look back.

Shape letters: B batch, H heads, T queries, S keys.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lengthwise.encodings.card import Card
from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding, Geometry, distances
from lengthwise.encodings.linear import linear


class Fire(Encoding):
    """A bias f(ln(c d + 1) / ln(c max(L, i) + 1)) for the distance d from a query at position i."""

    name = "fire"
    card = Card(
        kind="bias",
        equation="b_h(i, d) = f_h(ln(1 + c d) / ln(1 + c max(L, i)))",
        source="Li et al. 2024",
        arxiv="2310.04418",
    )
    shift_invariant = False
    per_layer = True

    @dataclass(frozen=True)
    class Config:
        width: int = 32
        """Of the network f, which has one hidden layer."""
        threshold: int = 512
        """L before training: before this position a distance means the same everywhere."""

    config: Config

    def __init__(self, config: Config, geometry: Geometry) -> None:
        super().__init__(config, geometry)
        self.c = nn.Parameter(torch.tensor(0.1))
        self.threshold = nn.Parameter(torch.tensor(1.0))
        self.inner = nn.Linear(1, config.width)
        self.outer = nn.Linear(config.width, geometry.heads)

    def contribute(self, layout: AttentionLayout) -> Contribution:
        return Contribution(position_bias=self.bias)

    def bias(self, query_BT: Tensor, key_BS: Tensor) -> Tensor:
        threshold = self.config.threshold * self.threshold.float().abs()
        farthest_BT = torch.maximum(query_BT.float(), threshold)
        share_BTS = self.logarithm(distances(query_BT, key_BS).float()) / (
            self.logarithm(farthest_BT)[..., None] + 1e-6
        )
        hidden = linear(share_BTS[..., None], self.inner.weight, self.inner.bias).relu()
        return linear(hidden, self.outer.weight, self.outer.bias).permute(0, 3, 1, 2)

    def logarithm(self, distance: Tensor) -> Tensor:
        return (self.c.float().abs() * distance).log1p()
