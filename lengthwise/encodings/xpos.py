"""Extrapolatable positions, xPos (Sun et al. 2023): products of queries and keys shrink with their distance.

Shape letters: B batch, T tokens, P pairs.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lengthwise.encodings.card import Card
from lengthwise.encodings.contribution import Rotation
from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding


class Xpos(Encoding):
    """Rotary positions whose products shrink with the distance, least in the pairs that rotate slowest."""

    name = "xpos"
    card = Card(
        kind="rotation",
        equation='z_m ζ_m^(d/512) "of each rotated pair," ζ_m = (2m + 0.4 K)/(1.4 K)',
        source="Sun et al. 2023",
        arxiv="2212.10554",
    )
    last_position = 20_000
    """Beyond it magnitudes leave fp32: the fastest pair has 0.286^(position / 512)."""

    @dataclass(frozen=True)
    class Config:
        base: float = 10000.0
        scale: int = 512
        """Distance at which the product of the fastest pair is 0.286 of what it was."""

    config: Config

    def contribute(self, layout: AttentionLayout) -> Contribution:
        return Contribution(
            rotation=Rotation(
                self.angles,
                query_magnitude=self.magnitudes,
                key_magnitude=lambda positions_BT: self.magnitudes(-positions_BT),
            )
        )

    def entries(self, device: torch.device) -> Tensor:
        """0, 2, 4, ...: the first entry of each pair."""
        return torch.arange(0, self.geometry.head_width, 2, device=device, dtype=torch.float32)

    def angles(self, positions_BT: Tensor) -> Tensor:
        frequencies_P = self.config.base ** (-self.entries(positions_BT.device) / self.geometry.head_width)
        return positions_BT[..., None].float() * frequencies_P

    def magnitudes(self, positions_BT: Tensor) -> Tensor:
        width = self.geometry.head_width
        decay_P = (self.entries(positions_BT.device) + 0.4 * width) / (1.4 * width)
        return decay_P ** (positions_BT[..., None].float() / self.config.scale)
