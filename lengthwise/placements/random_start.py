"""Consecutive positions from a random first one (Kiyono et al. 2021, SHAPE): absolute encodings meet them all."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lengthwise.placements.placement import Generators, Placement


class RandomStart(Placement):
    """Positions count up by one from a first one that is drawn for each example.

    Encodings that know distances alone do not notice.
    """

    name = "random-start"

    @dataclass(frozen=True)
    class Config:
        largest: int = 100
        """The first position is uniform from 0 to this. Published shifts are up to 500."""

        def __post_init__(self) -> None:
            if self.largest < 0:
                raise ValueError(f"largest must be 0 or more, not {self.largest}")

    config: Config

    def place(self, size_E: np.ndarray, tracks_EW: Mapping[str, np.ndarray], generators: Generators) -> np.ndarray:
        start_E = generators.up_to(self.config.largest)
        return start_E[:, None] + np.arange(size_E.max(initial=0))

    def reach(self, longest: int) -> int:
        return longest + self.config.largest
