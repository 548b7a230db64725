"""Bilevel positions (He et al. 2024, 2401.16421): the number of a token's segment, and its index within the segment."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from lengthwise.data.symbol_tracks import SYMBOL
from lengthwise.placements.counting import UNIT, Counting
from lengthwise.placements.placement import Generators, Placement


class Bilevel(Placement):
    """Two levels in one number: the segments before the token's own, and its index within it.

    A segment ends with a separator, which belongs to it. For the encoding `bilevel`.
    """

    name = "bilevel"
    rises = False  # the index stands still at the end of a very long segment
    counting = Counting("levels", UNIT)

    @dataclass(frozen=True)
    class Config:
        separator: str = "."
        """The symbol that ends a segment; published: full stop and new line."""

        def __post_init__(self) -> None:
            if not self.separator:
                raise ValueError("separator must be a symbol of the task")

    config: Config

    @property
    def tracks(self) -> tuple[str, ...]:
        return (SYMBOL + self.config.separator,)

    def place(self, size_E: np.ndarray, tracks_EW: Mapping[str, np.ndarray], generators: Generators) -> np.ndarray:
        ends_EW = tracks_EW[self.tracks[0]] > 0
        begins_EW = np.pad(ends_EW[:, :-1], ((0, 0), (1, 0)))
        index = np.arange(ends_EW.shape[1])
        segment_EW = begins_EW.cumsum(axis=1)
        first_EW = np.maximum.accumulate(np.where(begins_EW, index, 0), axis=1)
        return segment_EW * UNIT + np.minimum(index - first_EW, UNIT - 1)

    def reach(self, longest: int) -> int:
        return longest * UNIT
