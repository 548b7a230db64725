"""Sinusoidal absolute positions (Vaswani et al. 2017), added to the token embedding."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lengthwise.encodings.card import Card
from lengthwise.encodings.encoding import Encoding


class Sinusoidal(Encoding):
    """Sines and cosines of the position, added to the token embedding."""

    name = "sinusoidal"
    card = Card(
        kind="embedding",
        equation="x_i + [sin(i θ), cos(i θ)], θ_m = 10000^(-2m/D)",
        source="Vaswani et al. 2017",
        arxiv="1706.03762",
    )
    takes = ("whole", "fractions")
    shift_invariant = False

    @dataclass(frozen=True)
    class Config:
        base: float = 10000.0

        def __post_init__(self) -> None:
            if self.base <= 1:
                raise ValueError(f"base must be above 1, not {self.base}")

    config: Config

    def embed(self, x_BTD: Tensor, positions_BT: Tensor) -> Tensor:
        half = torch.arange(0, x_BTD.shape[-1], 2, device=x_BTD.device, dtype=torch.float32)
        frequencies = self.config.base ** (-half / x_BTD.shape[-1])
        phases = self.geometry.in_tokens(positions_BT)[..., None] * frequencies
        # The published code has all sines, then all cosines, not alternating ones.
        waves = torch.cat([phases.sin(), phases.cos()], dim=-1)[..., : x_BTD.shape[-1]]
        return x_BTD + waves.to(x_BTD.dtype)

    def resolved(self) -> dict[str, Any]:
        width = self.geometry.width
        return {"slowest_wavelength": 2 * torch.pi * self.config.base ** ((width - 2) / width)}
