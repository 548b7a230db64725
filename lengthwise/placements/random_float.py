"""Random float sampling (Shimizu et al. 2026, 2602.14050): positions are sorted random numbers, not whole ones.

Only the abstract was at hand: that they are uniform, that tests draw as training does, and the range are our reading.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lengthwise.placements.counting import EXACT, UNIT, Counting
from lengthwise.placements.placement import Generators, Placement


class RandomFloat(Placement):
    """As many random numbers of a range as an example has tokens, in ascending order; not whole ones.

    In training and in tests alike. For encodings that take fractions of positions: sinusoidal, rotary, alibi.
    """

    name = "random-float"
    counting = Counting("fractions", UNIT)

    @dataclass(frozen=True)
    class Config:
        range: int = 2048
        """Positions are uniform from 0 to this, in steps of 1/1024; those of longer sequences lie closer together."""

        def __post_init__(self) -> None:
            if not 1 <= self.range <= EXACT:
                raise ValueError(f"range must be 1 to {EXACT:,}, not {self.range:,}")

    config: Config

    def place(self, size_E: np.ndarray, tracks_EW: Mapping[str, np.ndarray], generators: Generators) -> np.ndarray:
        width, steps = int(size_E.max(initial=0)), self.config.range * UNIT
        # Of the steps that are left when each token takes one: so no two tokens share a position.
        left_E1 = np.maximum(steps - size_E, 0)[:, None] + 1
        drawn_EW = np.floor(generators.uniform(width) * left_E1).astype(np.int64)
        drawn_EW[np.arange(width) >= size_E[:, None]] = steps  # behind the end, to be sorted last
        return np.sort(drawn_EW, axis=1) + np.arange(width)

    def reach(self, longest: int) -> int:
        return max(self.config.range * UNIT, longest)
