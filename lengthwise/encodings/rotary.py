"""Rotary positions (Su et al. 2021): pairs of query and key entries are rotated by angles that grow with position."""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from lengthwise.encodings.card import Card
from lengthwise.encodings.contribution import Rotation
from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding, Geometry


class Rotary(Encoding):
    """Rotates pairs of query and key entries by angles that grow with the position (RoPE)."""

    name = "rotary"
    card = Card(
        kind="rotation",
        equation='z = (R_i q) · (R_j k), R_i "rotates pair" m "by" i θ_m, θ_m = 10000^(-2m/r)',
        source="Su et al. 2021",
        arxiv="2104.09864",
    )
    takes = ("whole", "fractions")

    @dataclass(frozen=True)
    class Config:
        fraction: float = 0.25
        """Share of each head that is rotated; the rest carries no position. Published: a quarter."""
        base: float = 10000.0
        pairs: Literal["interleaved", "halves"] = "interleaved"
        """Entry 2i with 2i+1 (published, GPT-J), or entry i with i + half (Llama, GPT-NeoX)."""
        exponent: Literal["rotated", "head"] = "rotated"
        """Frequencies spread over the rotated width, or over the whole head width."""

        def __post_init__(self) -> None:
            if not 0 < self.fraction <= 1:
                raise ValueError(f"fraction must be above 0 and at most 1, not {self.fraction}")
            if self.base <= 1:
                raise ValueError(f"base must be above 1, not {self.base}")

    config: Config

    def __init__(self, config: Config, geometry: Geometry) -> None:
        super().__init__(config, geometry)
        self.rotated = int(geometry.head_width * config.fraction)
        if self.rotated < 2 or self.rotated % 2:
            raise ValueError(
                f"rotary rotates pairs: fraction {config.fraction} of head width {geometry.head_width} is "
                f"{geometry.head_width * config.fraction:g}, which is no even number of entries"
            )

    def frequencies(self, device: torch.device | None = None) -> Tensor:
        """Radians per token of each pair, fastest first."""
        spread = self.rotated if self.config.exponent == "rotated" else self.geometry.head_width
        return self.config.base ** (-torch.arange(0, self.rotated, 2, device=device, dtype=torch.float32) / spread)

    def contribute(self, layout: AttentionLayout) -> Contribution:
        return Contribution(rotation=Rotation(self.angles, pairs=self.config.pairs))

    def angles(self, positions_BT: Tensor) -> Tensor:
        return self.geometry.in_tokens(positions_BT)[..., None] * self.frequencies(positions_BT.device)

    def resolved(self) -> dict[str, Any]:
        return {
            "rotated_entries": self.rotated,
            "head_width": self.geometry.head_width,
            "slowest_wavelength": 2 * math.pi / float(self.frequencies()[-1]),
        }
