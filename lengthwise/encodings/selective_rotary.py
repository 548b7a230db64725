"""Selective RoPE (2511.17388): tokens say by how much they rotate everything after them.

Shape letters: B batch, H heads, G heads of keys, S tokens, K head width, P pairs of a head, C = G P numbers of a token.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lengthwise.encodings.card import Card
from lengthwise.encodings.contribution import TokenRotation
from lengthwise.encodings.convolution import convolved, first_taps
from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding, Geometry
from lengthwise.encodings.linear import linear


class SelectiveRotary(Encoding):
    """Rotary positions whose angles are running sums of what tokens say, not of ones."""

    name = "selective-rotary"
    card = Card(
        kind="rotation",
        equation='z = (R_i q) · (R_j k), R_i "rotates pair" m "by" θ_m Σ_(l=0)^i φ_m(x_l)',
        source="Movahedi et al. 2025",
        arxiv="2511.17388",
    )
    per_layer = True
    reads_layer = True

    @dataclass(frozen=True)
    class Config:
        rank: int = 32
        """Of the map from what the layer reads to angles."""
        taps: int = 4
        """Of the causal convolution over them."""
        base: float = 500_000.0
        """Of the factors of the pairs, which are those of rotary positions."""

        def __post_init__(self) -> None:
            for name in ("rank", "taps"):
                if getattr(self, name) < 1:
                    raise ValueError(f"{name} must be 1 or more, not {getattr(self, name)}")
            if self.base <= 1:
                raise ValueError(f"base must be above 1, not {self.base}")

    config: Config

    def __init__(self, config: Config, geometry: Geometry) -> None:
        super().__init__(config, geometry)
        if geometry.head_width % 2:
            raise ValueError(f"selective-rotary rotates pairs: a head width of {geometry.head_width} is odd")
        self.pairs = geometry.head_width // 2
        angles = geometry.key_value_heads * self.pairs
        self.down = nn.Linear(geometry.width, config.rank, bias=False)
        self.up = nn.Linear(config.rank, angles, bias=False)
        self.taps = nn.Parameter(torch.zeros(angles, config.taps))

    def initial(self, name: str, generator: torch.Generator) -> Tensor | None:
        return first_taps(self.taps, generator) if name == "taps" else None

    def token_numbers(self, layer_input_BTD: Tensor) -> Tensor:
        """Before the convolution, so that what is cached is of one token alone."""
        slices = layer_input_BTD.float().unflatten(-1, (self.geometry.heads, -1))
        x = F.normalize(slices, dim=-1).flatten(-2)
        return linear(linear(x, self.down.weight), self.up.weight)

    def contribute(self, layout: AttentionLayout) -> Contribution:
        assert layout.token_numbers_BSC is not None
        sums_BSC = layout.running_sums(convolved(layout.token_numbers_BSC, self.taps.float(), layout))
        pair_P = torch.arange(self.pairs, device=sums_BSC.device).float()
        angles_BSGP = sums_BSC.unflatten(-1, (-1, self.pairs)) * self.config.base ** (-pair_P / self.pairs)
        # Keys that are cached have been rotated.
        own_BGTP = layout.of_queries(angles_BSGP.permute(0, 2, 3, 1)).mT
        return Contribution(token_rotation=TokenRotation(own_BGTP, "halves"))
