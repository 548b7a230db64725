"""PoPE, polar positions (Gopalakrishnan et al. 2025): what an entry holds is its magnitude, where it stands its phase.

Shape letters: B batch, H heads, T tokens, K head width.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lengthwise.encodings.card import Card
from lengthwise.encodings.contribution import Polar
from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding, Geometry


class Pope(Encoding):
    """An entry x becomes a magnitude softplus(x) and a phase that grows with the position; keys learn an offset."""

    name = "pope"
    card = Card(
        kind="rotation",
        equation="z = Σ_m softplus(q_m) softplus(k_m) cos(d θ_m - δ_m)",
        source="Gopalakrishnan et al. 2025",
        arxiv="2509.10534",
    )
    per_layer = True

    @dataclass(frozen=True)
    class Config:
        base: float = 10000.0

        def __post_init__(self) -> None:
            if self.base <= 1:
                raise ValueError(f"base must be above 1, not {self.base}")

    config: Config

    def __init__(self, config: Config, geometry: Geometry) -> None:
        super().__init__(config, geometry)
        self.offset_GK = nn.Parameter(torch.zeros(geometry.key_value_heads, geometry.head_width))

    def contribute(self, layout: AttentionLayout) -> Contribution:
        offset_GK = self.offset_GK.float().clamp(-2 * math.pi, 0)
        return Contribution(queries=Polar(self.phases), keys=Polar(self.phases, offset_GK))

    def phases(self, positions_BT: Tensor) -> Tensor:
        width = self.geometry.head_width
        frequencies_K = self.config.base ** (-torch.arange(width, device=positions_BT.device).float() / width)
        return positions_BT[..., None].float() * frequencies_K
