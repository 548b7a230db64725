"""YaRN (Peng et al. 2023): slow pairs interpolated, fast ones left alone, a ramp between; sharper attention.

Shape letters: P rotated pairs.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lengthwise.encodings.encoding import Geometry
from lengthwise.extensions.rescaling import Rescaling


class Yarn(Rescaling):
    """Interpolates low frequencies, keeps high ones, with a ramp in between, and sharpens attention (YaRN)."""

    name = "yarn"
    geometric = True

    @dataclass(frozen=True)
    class Config:
        factor: float
        """How many times the trained length is to be met."""
        beta_fast: float = 32.0
        """Pairs with this many rotations within the trained length, or more, stay as they are."""
        beta_slow: float = 1.0
        """Pairs with this many rotations, or fewer, are slower by the whole factor."""
        ramp: Literal["index", "rotations"] = "index"
        """Between them linear in a pair's index (the authors' code, transformers), or in its rotations (the paper)."""
        truncate: bool = True
        """The ends of a ramp by index are rounded outwards to whole indices, as in the authors' code."""
        attention_factor: float | None = None
        """Magnitude of queries and keys; by default 0.1 ln(factor) + 1. Logits are multiplied by its square."""
        magnitude_on: Literal["logits", "rotated"] = "logits"
        """On whole logits (the paper's formula), or on rotated entries alone (transformers).

        The same where whole heads are rotated.
        """

        def __post_init__(self) -> None:
            if self.factor < 1:
                raise ValueError(f"factor must be 1 or more, not {self.factor}")
            if not 0 < self.beta_slow < self.beta_fast:
                raise ValueError(
                    f"beta_slow must be above 0 and below beta_fast, not {self.beta_slow} and {self.beta_fast}"
                )
            if self.attention_factor is not None and self.attention_factor <= 0:
                raise ValueError(f"attention_factor must be above 0, not {self.attention_factor}")

    config: Config

    def reach(self, trained_context: int) -> int:
        return int(self.config.factor * trained_context)

    def magnitude(self, geometry: Geometry) -> float:
        given = self.config.attention_factor
        return 0.1 * math.log(self.config.factor) + 1 if given is None else given

    @property
    def magnitude_on(self) -> Literal["logits", "rotated"]:
        return self.config.magnitude_on

    def frequencies(self, trained_P: Tensor, positions_BT: Tensor, geometry: Geometry) -> Tensor:
        by_index = self.config.ramp == "index"
        share_P = (self._by_index if by_index else self._by_rotations)(trained_P, geometry.trained_context)
        return trained_P * (1 - share_P * (1 - 1 / self.config.factor))

    def _by_rotations(self, trained_P: Tensor, trained_context: int) -> Tensor:
        """How much of each pair is interpolated: 0 for the fast ones, 1 for the slow ones."""
        rotations_P = trained_context * trained_P / (2 * math.pi)
        slow, fast = self.config.beta_slow, self.config.beta_fast
        return 1 - ((rotations_P - slow) / (fast - slow)).clamp(0, 1)

    def _by_index(self, trained_P: Tensor, trained_context: int) -> Tensor:
        """The same, linear in the index. In fp64: rounding could carry an end of the ramp past a whole index."""
        logarithms_P = trained_P.double().log()
        pairs = len(trained_P)
        step = (logarithms_P[0] - logarithms_P[-1]) / (pairs - 1)

        def index_with(rotations: float) -> Tensor:
            return (logarithms_P[0] + math.log(trained_context / (2 * math.pi * rotations))) / step

        low, high = index_with(self.config.beta_fast), index_with(self.config.beta_slow)
        if self.config.truncate:
            low, high = low.floor(), high.ceil()
        # As published: the upper end is cut at the rotated entries, not at the pairs. A ramp of no width is a step.
        low = low.clamp(min=0)
        high = torch.maximum(high.clamp(max=2 * pairs - 1), low)
        width = torch.where(high == low, 0.001, high - low)
        index_P = torch.arange(pairs, device=trained_P.device)
        return ((index_P - low) / width).clamp(0, 1).float()
