"""PoPE, polar positions (Gopalakrishnan et al. 2025): what an entry holds is its magnitude, where it stands its phase.

Shape letters: B batch, H heads, T tokens, K head width.
"""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lengthwise.encodings.card import Card
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
        def polar(x_BHTK: Tensor, positions_BT: Tensor) -> Tensor:
            return _wide(x_BHTK, *self.turns(layout, positions_BT))

        def polar_key(k_BGTK: Tensor, positions_BT: Tensor) -> Tensor:
            cosine, sine = self.turns(layout, positions_BT)
            offset_G1K = self.offset_GK.float().clamp(-2 * math.pi, 0)[:, None]
            along, across = offset_G1K.cos(), offset_G1K.sin()
            return _wide(k_BGTK, cosine * along - sine * across, sine * along + cosine * across)

        return Contribution(queries=polar, keys=polar_key)

    def turns(self, layout: AttentionLayout, positions_BT: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines of the phases of positions, (B, 1, T, K) each."""
        width = self.geometry.head_width

        def find() -> tuple[Tensor, Tensor]:
            frequencies_K = self.config.base ** (-torch.arange(width, device=positions_BT.device).float() / width)
            phases = (positions_BT[..., None].float() * frequencies_K)[:, None]
            return phases.cos(), phases.sin()

        if positions_BT is not layout.query_positions_BT:
            return find()
        # They are the same in all layers, which have an instance each.
        return layout.once(None, f"phases of pope, {self.config.base}, {width}", find)


def _wide(x_BHTK: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
    """Real and imaginary parts side by side: the product of two is the sum of products times the cosine between."""
    magnitude = F.softplus(x_BHTK.float())
    return torch.cat([magnitude * cosine, magnitude * sine], dim=-1).to(x_BHTK.dtype)
