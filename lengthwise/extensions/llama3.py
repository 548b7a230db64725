"""The rescaling of Llama 3.1 (Grattafiori et al. 2024): long waves interpolated, short ones left alone.

Shape letters: P rotated pairs.
"""

import math
from dataclasses import dataclass

from torch import Tensor

from lengthwise.encodings.encoding import Geometry
from lengthwise.extensions.rescaling import Rescaling


class Llama3(Rescaling):
    """Divides low frequencies by the factor, keeps high ones and blends in between, as in Llama 3.1."""

    name = "llama3"

    @dataclass(frozen=True)
    class Config:
        factor: float
        """By how much slower the slow pairs rotate. Published: 8."""
        low: float = 1.0
        """Pairs with fewer rotations than this within the trained length are slower by the whole factor."""
        high: float = 4.0
        """Pairs with more rotations than this stay as they are."""

        def __post_init__(self) -> None:
            if self.factor < 1:
                raise ValueError(f"factor must be 1 or more, not {self.factor}")
            if not 0 < self.low < self.high:
                raise ValueError(f"low must be above 0 and below high, not {self.low} and {self.high}")

    config: Config

    def reach(self, trained_context: int) -> int:
        return int(self.config.factor * trained_context)

    def frequencies(self, trained_P: Tensor, positions_BT: Tensor, geometry: Geometry) -> Tensor:
        rotations_P = geometry.trained_context * trained_P / (2 * math.pi)
        kept_P = ((rotations_P - self.config.low) / (self.config.high - self.config.low)).clamp(0, 1)
        return trained_P * (1 - (1 - kept_P) * (1 - 1 / self.config.factor))
