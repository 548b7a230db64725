"""Randomised positions (Ruoss et al. 2023): a random ascending subset of a long range."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lengthwise.errors import UserError
from lengthwise.placements.placement import Generators, Placement


class Randomized(Placement):
    """As many positions as an example has tokens, drawn without repetition from a long range, in ascending order.

    In training and in tests alike, as published; so all positions of long sequences are met in training.
    """

    name = "randomized"

    @dataclass(frozen=True)
    class Config:
        range: int = 2048
        """Positions are drawn from 0 to this, the end not included; published: 2,048 for tests of up to 500 tokens."""

        def __post_init__(self) -> None:
            if not 1 <= self.range <= MOST_POSITIONS:
                raise ValueError(f"range must be 1 to {MOST_POSITIONS:,}, not {self.range:,}")

    config: Config

    def place(self, size_E: np.ndarray, tracks_EW: Mapping[str, np.ndarray], generators: Generators) -> np.ndarray:
        width = int(size_E.max(initial=0))
        if width > self.config.range:
            raise UserError(
                f"a range of {self.config.range} has too few positions for sequences of {width} tokens; "
                "set the range of the placement randomized higher"
            )
        positions = np.zeros((len(size_E), width), dtype=np.int64)
        for first in range(0, len(size_E), ROWS_AT_ONCE):
            some = slice(first, first + ROWS_AT_ONCE)
            generator = Generators(generators.seed, generators.numbers_E[some])
            # The positions with the smallest of as many random numbers as there are positions: a random subset.
            order = np.argsort(generator.uniform(self.config.range), axis=1)[:, :width]
            order[np.arange(width) >= size_E[some, None]] = self.config.range  # behind the end, to be sorted last
            positions[some] = np.sort(order, axis=1)
        return positions

    def reach(self, longest: int) -> int:
        return max(longest, self.config.range)


MOST_POSITIONS = 100_000
"""A random number is drawn for each, for every example."""
ROWS_AT_ONCE = 1024
"""Examples whose positions are drawn together: a number for each position of the range is in memory."""
