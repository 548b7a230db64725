"""The seam of placements: positions are data, drawn or computed before a model sees them. NumPy only.

Shape letters: E examples, W tokens of the widest.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from lengthwise.placements.counting import WHOLE, Counting


class Placement:
    """Gives every token of every example a position. This class counts from 0: the consecutive placement."""

    name: ClassVar[str]
    rises: ClassVar[bool] = True
    """Whether positions rise from token to token; checked by the tests."""
    counting: ClassVar[Counting] = WHOLE
    """What its numbers count. Encodings that do not take it are refused, see `Encoding.takes`."""

    @dataclass(frozen=True)
    class Config:
        """Settings of the placement."""

    config: Any

    def __init__(self, config: Any = None) -> None:
        self.config = self.Config() if config is None else config

    @property
    def tracks(self) -> tuple[str, ...]:
        """Names of what it needs to know of tokens: what the task says of them (see `Task.tracks`), or what their
        symbols do (see `symbol_tracks`)."""
        return ()

    def place(
        self, size_E: np.ndarray, tracks_EW: Mapping[str, np.ndarray], generators: "Generators"
    ) -> np.ndarray | None:
        """Positions (E, W), any numbers beyond an example's size; None for 0, 1, 2 and so on.

        `size_E`: tokens of each example. `tracks_EW`: what `tracks` names, 0 where nothing is said. Draws come from
        `generators`, one for each example, so that they depend on the example and the seed alone.
        """
        raise NotImplementedError

    def reach(self, longest: int) -> int:
        """One more than the largest position that a sequence of up to `longest` tokens may get."""
        return longest


class Generators:
    """A generator of its own for each example: what is drawn for one does not depend on its neighbours."""

    def __init__(self, seed: int, numbers_E: np.ndarray, training: bool = True) -> None:
        """`numbers_E`: of the examples, in the endless sequence of those that a run is shown.

        `training`: False for examples of validations and tests, for placements that are random in training alone.
        """
        self.seed, self.numbers_E, self.training = seed, numbers_E, training

    def up_to(self, largest_E: np.ndarray | int) -> np.ndarray:
        """A whole number for each example, any from 0 to `largest_E` as likely as any other: (E,)."""
        return np.floor(self.uniform(1)[:, 0] * (np.asarray(largest_E) + 1)).astype(np.int64)

    def uniform(self, count: int) -> np.ndarray:
        """`count` numbers in [0, 1) for each example: (E, count)."""
        with np.errstate(over="ignore"):
            key_E = _mix(
                self.numbers_E.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + np.uint64(self.seed % 2**63)
            )
            found = _mix(key_E[:, None] + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0xD1B54A32D192ED03))
        return (found >> np.uint64(11)) / 2**53


def _mix(x: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64: every input bit reaches every output bit."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
