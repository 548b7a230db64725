"""NTK-aware scaling (bloc97 2023): a larger base, so that the slowest pair rotates slower and the fastest does not.

Shape letters: P rotated pairs.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lengthwise.encodings.encoding import Geometry
from lengthwise.extensions.rescaling import Rescaling


def change_base(frequencies_P: Tensor, factor: Tensor | float) -> Tensor:
    """Frequencies of the base x factor^(d / (d - 2)), for d rotary dimensions: the lowest is divided by `factor`.

    As a power of the pair's index this needs no base: base'^(-2i/d) = base^(-2i/d) x factor^(-2i/(d-2)).
    """
    pairs = len(frequencies_P)
    exponents_P = torch.arange(pairs, device=frequencies_P.device, dtype=torch.float32) / (pairs - 1)
    return frequencies_P * factor**-exponents_P


class Ntk(Rescaling):
    """Enlarges the base of RoPE: the lowest frequency is divided by the factor, the highest stays (NTK-aware)."""

    name = "ntk"
    geometric = True

    @dataclass(frozen=True)
    class Config:
        factor: float
        """By how much slower the slowest pair rotates."""
        pairs: Literal["all", "complete", "incomplete"] = "all"
        """Which pairs it is for; the others are interpolated (slower by `factor`). Complete: those that complete a
        rotation within the trained length. Not published: for asking what becomes of pairs whose angles were never all
        met."""

        def __post_init__(self) -> None:
            if self.factor < 1:
                raise ValueError(f"factor must be 1 or more, not {self.factor}")

    config: Config

    def reach(self, trained_context: int) -> int:
        return int(self.config.factor * trained_context)

    def frequencies(self, trained_P: Tensor, positions_BT: Tensor, geometry: Geometry) -> Tensor:
        found_P = change_base(trained_P, self.config.factor)
        if self.config.pairs == "all":
            return found_P
        complete_P = trained_P * geometry.trained_context >= 2 * math.pi
        own_P = complete_P if self.config.pairs == "complete" else ~complete_P
        return torch.where(own_P, found_P, trained_P / self.config.factor)
