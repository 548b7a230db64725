"""The training examples of every step, as a function of the step alone: nothing to save, nothing to lose.

Shape letters: N models of a fleet, B examples, T tokens, P predicted tokens.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from lengthwise import splits
from lengthwise.engine.recipe import DataConfig
from lengthwise.scratchpad import Scratchpad
from lengthwise.seeding import stream
from lengthwise.sequences import Sequences, join, render
from lengthwise.splits import Split
from lengthwise.tasks.task import Task

CHUNK = 16_384
"""Endless data is drawn this many examples at a time, whatever the batch size, so that the order never depends on it."""


class TrainingData:
    """The endless sequence of training examples of one run: epochs of a finite set, or ever new ones."""

    def __init__(self, task: Task, config: DataConfig, seed: int) -> None:
        self.task, self.config, self.seed = task, config, seed
        self.lengths = list(config.spans(task)[0])
        self.period = config.examples or CHUNK
        self._drawn = lru_cache(maxsize=2)(self._draw)
        self._order = lru_cache(maxsize=2)(self._permutation)

    def _draw(self, chunk: int) -> Sequences:
        examples = splits.draw(self.task, Split.TRAIN, self.lengths, self.period, self.seed, chunk)
        return render(self.task, examples, Scratchpad(self.config.scratchpad), self.config.anchor)

    def _permutation(self, epoch: int) -> np.ndarray:
        return stream(self.seed, "order", self.task.name, epoch).permutation(self.period)

    def slice(self, first: int, count: int) -> Sequences:
        """Examples number `first` to `first + count` of the sequence."""
        parts = []
        while count > 0:
            period, offset = divmod(first, self.period)
            taken = min(count, self.period - offset)
            if self.config.examples:
                parts.append(self._drawn(0).select(self._order(period)[offset : offset + taken]))
            else:
                parts.append(self._drawn(period).select(slice(offset, offset + taken)))
            first, count = first + taken, count - taken
        return parts[0] if len(parts) == 1 else join(parts, self.task.vocabulary.pad)


@dataclass(frozen=True)
class Batch:
    """One step of a whole fleet. Only the states that predict a target token go through the output layer."""

    tokens_NBT: np.ndarray
    predicting_NP: np.ndarray
    """Flat index (into B x T) of each state that predicts a target token."""
    targets_NP: np.ndarray
    weights_NP: np.ndarray
    """1 for a real entry, 0 for one that fills up the row."""


def collate(rows: list[Sequences], pad: int) -> Batch:
    """One batch per model, at a common width."""
    width = max(row.tokens.shape[1] for row in rows)
    count = max(int((row.size - row.prompt).sum()) for row in rows)
    tokens = np.full((len(rows), len(rows[0]), width), pad, dtype=np.int64)
    predicting = np.zeros((len(rows), count), dtype=np.int64)
    targets = np.full((len(rows), count), pad, dtype=np.int64)
    weights = np.zeros((len(rows), count), dtype=np.float32)
    for i, row in enumerate(rows):
        tokens[i, :, : row.tokens.shape[1]] = row.tokens
        column = np.arange(width)
        is_target = (column >= row.prompt[:, None]) & (column < row.size[:, None])
        flat = np.flatnonzero(is_target)
        predicting[i, : len(flat)] = flat - 1  # the state one place before
        targets[i, : len(flat)] = tokens[i].ravel()[flat]
        weights[i, : len(flat)] = 1
    return Batch(tokens, predicting, targets, weights)
