"""Abacus (McLeish et al. 2024, 2405.17399): a digit's position is its place within its number.

Departure: the random offset is drawn for each example; published, for each batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lengthwise.placements.coupled import numbers_within
from lengthwise.placements.placement import Generators, Placement


class Abacus(Placement):
    """The place of each digit within its number, from 1, plus an offset; 0 for all that is no digit.

    The offset is random in training and 0 in tests. Made for `learned` and for numbers with their last digit first.
    """

    name = "abacus"
    rises = False

    @dataclass(frozen=True)
    class Config:
        largest: int = 99
        """The offset is uniform from 0 to this; published: 99 for tests of 100 digits after training on 20."""
        track: str = "run"
        """Where places come from: `run`, the place within a run of digits, as published; or a track of the task, such
        as `significance`, which also fits numbers with their first digit first."""

        def __post_init__(self) -> None:
            if self.largest < 0:
                raise ValueError(f"largest must be 0 or more, not {self.largest}")
            if not self.track:
                raise ValueError("track must be run, or the name of a track of the task")

    config: Config

    @property
    def tracks(self) -> tuple[str, ...]:
        return (self.config.track,)

    def place(self, size_E: np.ndarray, tracks_EW: Mapping[str, np.ndarray], generators: Generators) -> np.ndarray:
        places_EW = numbers_within(size_E, tracks_EW[self.config.track], self.config.track)
        if not generators.training:
            return places_EW
        return np.where(places_EW > 0, places_EW + generators.up_to(self.config.largest)[:, None], 0)

    def reach(self, longest: int) -> int:
        return longest + self.config.largest
