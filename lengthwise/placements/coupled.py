"""Position coupling (Cho et al. 2024, 2405.20671): tokens that belong together get the same position.

In addition, digits of equal significance in both numbers and in the sum; which these are, the task says.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lengthwise.errors import UserError
from lengthwise.placements.placement import Generators, Placement


class Coupled(Placement):
    """A start plus the number that the task gives each token; tokens that belong together share a position.

    The start is random in training and 0 in tests; tokens without a number stand at the start. For `learned`.
    """

    name = "coupled"
    rises = False

    @dataclass(frozen=True)
    class Config:
        track: str = "significance"
        """What the task calls its numbers: `significance` of digits in addition, `index` of symbols that are copied."""
        range: int = 200
        """In training the start is drawn so that all positions lie below this: so more digits than in training are met.
        Published: as many as the longest test needs (202 for 200 digits)."""

        def __post_init__(self) -> None:
            if not self.track:
                raise ValueError("track must be the name of a track of the task, such as significance")
            if self.range < 1:
                raise ValueError(f"range must be 1 or more, not {self.range}")

    config: Config

    @property
    def tracks(self) -> tuple[str, ...]:
        return (self.config.track,)

    def place(self, size_E: np.ndarray, tracks_EW: Mapping[str, np.ndarray], generators: Generators) -> np.ndarray:
        numbers_EW = numbers_within(size_E, tracks_EW[self.config.track], self.config.track)
        if not generators.training:
            return numbers_EW
        room_E = self.config.range - 1 - numbers_EW.max(axis=1, initial=0)
        return numbers_EW + generators.up_to(np.maximum(room_E, 0))[:, None]

    def reach(self, longest: int) -> int:
        return max(longest, self.config.range)


def numbers_within(size_E: np.ndarray, track_EW: np.ndarray, name: str) -> np.ndarray:
    """The numbers of a track, from 0 to below the tokens of an example, so that a table of positions can be made for
    them; 0 behind the end of an example."""
    inside_EW = np.arange(track_EW.shape[1]) < size_E[:, None]
    numbers_EW = np.where(inside_EW, track_EW, 0).astype(np.int64)
    if (numbers_EW < 0).any() or (numbers_EW >= size_E[:, None]).any():
        raise UserError(
            f"the track {name!r} of the task has numbers that are no positions: an example of n tokens needs numbers "
            f"from 0 to below n, not {numbers_EW.min()} to {numbers_EW.max()}"
        )
    return numbers_EW
