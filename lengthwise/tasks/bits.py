"""What tasks of bits share: n of them, drawn independently; all strings of a length are listed where they are few."""

import numpy as np

from lengthwise.data.examples import Column
from lengthwise.tasks.task import Task

LISTED = 12
"""Up to this length all strings are listed: 4,096."""


def all_bits(length: int) -> np.ndarray:
    """Every string of so many bits, in order."""
    return np.arange(2**length)[:, None] >> np.arange(length - 1, -1, -1) & 1


class Bits(Task):
    """Says of bits what its examples are."""

    def columns(self, bits: np.ndarray) -> list[Column]:
        """Of some strings of equal length: (examples, length)."""
        raise NotImplementedError

    def draw(self, length: int, count: int, generator: np.random.Generator) -> list[Column]:
        return self.columns(generator.integers(2, size=(count, length), dtype=np.int32))

    def every(self, length: int) -> list[Column] | None:
        return self.columns(all_bits(length)) if length <= LISTED else None
