"""Many examples as flat arrays: every token knows which part of the example it belongs to.

A task writes each example once, with all its scratchpad parts; a format is then nothing but a choice of parts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np


class Part(IntEnum):
    """What a token is for, in the order in which the parts stand in an example."""

    ANCHOR = 0
    """The constant first words of a prompt (`Copy:`); without position encoding a model needs them to count from."""
    PROMPT = 1
    FRAME = 2
    """The words around the steps of a scratchpad; kept whenever any step is."""
    INPUT = 3
    COMPUTATION = 4
    OUTPUT = 5
    VARIABLES = 6
    REMAINING = 7
    ANSWER = 8


STEP_PARTS = (Part.INPUT, Part.COMPUTATION, Part.OUTPUT, Part.VARIABLES, Part.REMAINING)
ABSENT = -1
"""Marks a cell of a column array that holds no token."""

Column = tuple[Part, np.ndarray]
"""A part and its token ids: (examples, tokens), ABSENT where there is no token; or (tokens,), the same for all."""


@dataclass(frozen=True)
class Examples:
    """`tokens[starts[i]:starts[i + 1]]` is example i; `parts` runs beside `tokens`; `buckets` says its length."""

    tokens: np.ndarray
    parts: np.ndarray
    starts: np.ndarray
    buckets: np.ndarray
    """The task's bucket of each example: its length, or a code of several lengths (see `Task.buckets`)."""

    def __len__(self) -> int:
        return len(self.buckets)

    @property
    def sizes(self) -> np.ndarray:
        """Tokens of each example."""
        return np.diff(self.starts)

    def select(self, indices: np.ndarray) -> "Examples":
        sizes = self.sizes[indices]
        starts = offsets(sizes)
        flat = np.repeat(self.starts[:-1][indices] - starts[:-1], sizes) + np.arange(starts[-1])
        return Examples(self.tokens[flat], self.parts[flat], starts, self.buckets[indices])

    def keep(self, parts: Sequence[Part]) -> "Examples":
        """Only the tokens of `parts`."""
        wanted = np.zeros(len(Part), dtype=bool)
        wanted[list(parts)] = True
        kept = wanted[self.parts]
        starts = offsets(self.count(kept))
        return Examples(self.tokens[kept], self.parts[kept], starts, self.buckets)

    def count(self, among: np.ndarray) -> np.ndarray:
        """How many tokens of each example are true in `among`."""
        found = np.zeros(len(self), dtype=np.int64)
        filled = self.sizes > 0  # reduceat takes an empty range for its first element
        if filled.any():
            found[filled] = np.add.reduceat(among, self.starts[:-1][filled], dtype=np.int32)
        return found

    def fingerprints(self) -> np.ndarray:
        """A 64-bit number for each example that depends on its prompt alone; equal prompts have equal numbers."""
        prompt = self.keep((Part.ANCHOR, Part.PROMPT))
        place = np.arange(len(prompt.tokens)) - np.repeat(prompt.starts[:-1], prompt.sizes)
        mixed = _mix(prompt.tokens.astype(np.uint64) + (place.astype(np.uint64) << np.uint64(32)))
        sums = np.concatenate([[np.uint64(0)], np.cumsum(mixed, dtype=np.uint64)])  # wraps modulo 2**64, as intended
        return _mix(sums[prompt.starts[1:]] - sums[prompt.starts[:-1]])


def assemble(bucket: int, count: int, columns: Sequence[Column]) -> Examples:
    """`count` examples of one bucket, their columns side by side, ABSENT cells left out."""
    blocks = [np.broadcast_to(np.asarray(ids, dtype=np.int32), (count, ids.shape[-1])) for _, ids in columns]
    grid = np.concatenate(blocks, axis=1)
    parts = np.concatenate([np.full(ids.shape[-1], part, dtype=np.uint8) for part, ids in columns])
    present = grid != ABSENT
    starts = offsets(present.sum(axis=1))
    buckets = np.full(count, bucket, dtype=np.int32)
    return Examples(grid[present], np.broadcast_to(parts, grid.shape)[present], starts, buckets)


def concatenate(batches: Sequence[Examples]) -> Examples:
    return Examples(
        np.concatenate([batch.tokens for batch in batches]),
        np.concatenate([batch.parts for batch in batches]),
        offsets(np.concatenate([batch.sizes for batch in batches])),
        np.concatenate([batch.buckets for batch in batches]),
    )


def offsets(sizes: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _mix(x: np.ndarray) -> np.ndarray:
    """The finaliser of splitmix64: every input bit reaches every output bit."""
    x = x + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))
