"""The training examples of every step, as a function of the step alone: nothing to save, nothing to lose.

Shape letters: N models of a fleet, R rows, T tokens, P predicted tokens.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from lengthwise import splits
from lengthwise.engine.packing import pack, unpacked
from lengthwise.engine.recipe import DataConfig
from lengthwise.scratchpad import Scratchpad
from lengthwise.seeding import stream
from lengthwise.sequences import Sequences, join, render
from lengthwise.splits import Split
from lengthwise.tasks.task import Task

CHUNK = 16_384
"""Endless data is drawn this many examples at a time, whatever the batch size: the order never depends on it."""


class TrainingData:
    """The endless sequence of training examples of one run: epochs of a finite set, or ever new ones."""

    def __init__(self, task: Task, config: DataConfig, seed: int) -> None:
        self.task, self.config, self.seed = task, config, seed
        self.span = config.spans(task)[0]
        self._drawn = lru_cache(maxsize=2)(self._draw)
        self._order = lru_cache(maxsize=2)(self._permutation)

    def _draw(self, chunk: int) -> Sequences:
        count, endless = self.config.examples or CHUNK, not self.config.examples
        again = endless or self.task.repeats
        examples = splits.draw(self.task, Split.TRAIN, self.span, count, self.seed, chunk, again=again)
        return render(self.task, examples, Scratchpad(self.config.scratchpad), self.config.anchor)

    def _permutation(self, epoch: int) -> np.ndarray:
        return stream(self.seed, "order", self.task.name, epoch).permutation(self.period)

    @property
    def period(self) -> int:
        """Examples in an epoch, or in a chunk of endless data."""
        return len(self._drawn(0)) if self.config.examples else CHUNK

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

    tokens_NRT: np.ndarray
    segments_NRT: np.ndarray | None
    """Which example of its row a token belongs to, from 1; 0 for padding. None: every row is one example."""
    positions_NRT: np.ndarray | None
    predicting_NP: np.ndarray
    """Flat index (into R x T) of each state that predicts a target token, example by example."""
    targets_NP: np.ndarray
    weights_NP: np.ndarray
    """1 for a real entry, 0 for one that fills up the row."""


def collate(examples: list[Sequences], pad: int, row_width: int | None = None) -> Batch:
    """One batch of examples per model: one example a row, or packed into rows of `row_width` tokens."""
    if row_width is not None:  # a rare example may be longer than any that was measured
        row_width = max(row_width, *(int(each.size.max(initial=0)) for each in examples))
    packed = row_width is not None
    places = [pack(each.size, row_width) if row_width is not None else unpacked(each.size) for each in examples]
    rows = max(int(place.row_E.max(initial=0)) for place in places) + 1
    width = row_width or max(each.tokens.shape[1] for each in examples)
    predictions = max(int((each.size - each.prompt).sum()) for each in examples)
    models = len(examples)
    tokens = np.full((models, rows, width), pad, dtype=np.int64)
    segments = np.zeros_like(tokens)
    positions = np.zeros_like(tokens)
    predicting = np.zeros((models, predictions), dtype=np.int64)
    targets = np.full((models, predictions), pad, dtype=np.int64)
    weights = np.zeros((models, predictions), dtype=np.float32)
    for i, (each, place) in enumerate(zip(examples, places, strict=True)):
        column = np.arange(each.tokens.shape[1])
        real = column < each.size[:, None]
        flat = (place.row_E * width + place.offset_E)[:, None] + column
        tokens[i].ravel()[flat[real]] = each.tokens[real]
        if packed:
            segments[i].ravel()[flat[real]] = np.broadcast_to(place.segment_E[:, None], real.shape)[real]
            positions[i].ravel()[flat[real]] = np.broadcast_to(column, real.shape)[real]
        target = real & (column >= each.prompt[:, None])
        count = int(target.sum())
        predicting[i, :count] = flat[target] - 1  # the state one place before
        targets[i, :count] = each.tokens[target]
        weights[i, :count] = 1
    return Batch(tokens, segments if packed else None, positions if packed else None, predicting, targets, weights)
