"""The training examples of every step, as a function of the step alone: nothing to save, nothing to lose.

Shape letters: K steps, N models of a fleet, R rows, T tokens, P predicted tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from lengthwise.data import splits
from lengthwise.data.examples import offsets
from lengthwise.data.packing import pack
from lengthwise.data.scratchpad import Scratchpad
from lengthwise.data.sequences import Sequences, join, placed, render
from lengthwise.data.splits import Split
from lengthwise.placements.placement import Generators
from lengthwise.seeding import derive, stream
from lengthwise.tasks.task import Task
from lengthwise.training.recipe import DataConfig

WINDOW = 64
"""Steps within which the batches of a run are put in order; see `TrainingData.batches`."""
CHUNK = 16_384
"""Endless data is drawn this many examples at a time, whatever the batch size: the order never depends on it."""


class TrainingData:
    """The endless sequence of training examples of one run: epochs of a finite set, or ever new ones."""

    def __init__(self, task: Task, config: DataConfig, seed: int) -> None:
        self.task, self.config, self.seed = task, config, seed
        self.span = config.spans(task)[0]
        self.finite = config.training_count(task)
        """Examples in the training set; 0 for endless data."""
        self.tokens = config.make_tokens(task)
        self.placement = config.make_placement()
        self._drawn = lru_cache(maxsize=2)(self._draw)
        self._order = lru_cache(maxsize=2)(self._permutation)
        self._ordered = lru_cache(maxsize=2)(self._window)

    def _draw(self, chunk: int) -> Sequences:
        config, task = self.config, self.task
        again = not self.finite or task.repeats
        count, seed = self.finite or CHUNK, self.seed if config.seed is None else config.seed
        division = config.division(task)
        examples = splits.draw(task, Split.TRAIN, self.span, count, seed, chunk, again=again, division=division)
        scratchpad = Scratchpad(config.scratchpad)
        return render(task, examples, scratchpad, config.anchor, self.tokens, self.placement.tracks)

    def _permutation(self, epoch: int) -> np.ndarray:
        return stream(self.seed, "order", self.task.name, epoch).permutation(self.period)

    @property
    def period(self) -> int:
        """Examples in an epoch, or in a chunk of endless data."""
        return len(self._drawn(0)) if self.finite else CHUNK

    def slice(self, first: int, count: int) -> Sequences:
        """Examples number `first` to `first + count` of the sequence."""
        parts = []
        while count > 0:
            period, offset = divmod(first, self.period)
            taken = min(count, self.period - offset)
            if self.finite:
                parts.append(self._drawn(0).select(self._order(period)[offset : offset + taken]))
            else:
                parts.append(self._drawn(period).select(slice(offset, offset + taken)))
            first, count = first + taken, count - taken
        return parts[0] if len(parts) == 1 else join(parts, self.tokens.pad)

    def batches(self, first: int, end: int, batch: int) -> Sequences:
        """The examples of steps `first` to `end`, `batch` of them each.

        Models side by side wait for the one with the largest batch. So in each window of steps all runs have their
        largest batch at the same step, and so on down to the smallest. Where in the window that is, is left to
        chance, the same for all runs: so for each run its batches come in a random order, as they would anyway.
        """
        parts = []
        for window in range(first // WINDOW, -(-end // WINDOW)):
            start = window * WINDOW
            examples, order_K = self._ordered(window, batch)
            chosen = order_K[max(first - start, 0) : end - start]
            numbers_E = (chosen[:, None] * batch + np.arange(batch)).ravel()
            # Positions depend on which example it is in the endless sequence, and on the run's seed.
            parts.append(self._placed(examples.select(numbers_E), numbers_E + start * batch))
        return parts[0] if len(parts) == 1 else join(parts, self.tokens.pad)

    def _placed(self, examples: Sequences, numbers_E: np.ndarray) -> Sequences:
        return placed(examples, self.placement, Generators(derive(self.seed, "placement"), numbers_E))

    def _window(self, window: int, batch: int) -> tuple[Sequences, np.ndarray]:
        """The examples of a window of steps, and which batch of them each step gets."""
        examples = self.slice(window * WINDOW * batch, WINDOW * batch)
        tokens_K = examples.size.reshape(WINDOW, batch).sum(axis=1)
        rank_K = stream(0, "ranks of batches", window).permutation(WINDOW)
        return examples, np.argsort(tokens_K, kind="stable")[rank_K]


@dataclass(frozen=True)
class Batches:
    """Several steps of a whole fleet, their examples packed into rows, ready to be read on a device.

    Only the states that predict a target token go through the output layer: `predicting` says which.
    """

    tokens_KNRT: np.ndarray
    segments_KNRT: np.ndarray
    """Which example of its row a token belongs to, from 1; 0 for padding."""
    positions_KNRT: np.ndarray
    predicting_KNP: np.ndarray
    """Flat index (into R x T) of each state that predicts a target token, example by example."""
    targets_KNP: np.ndarray
    """The token to be predicted; NO_TARGET for an entry that only fills up the array."""
    rows_K: np.ndarray
    """Rows that hold anything in any model."""
    predictions_K: np.ndarray
    tokens: int
    """Tokens that are no padding."""
    consecutive: bool
    """Whether positions count up by one within each example, wherever they begin."""
    from_zero: bool
    """Whether they also begin at 0."""


NO_TARGET = -1
ROW_UNIT = 64
"""Rows longer than this have a multiple of it, which suits the attention kernel."""


def collate(examples: Sequence[Sequences], pad: int, row_width: int, batch: int | None = None) -> Batches:
    """Examples of each model, `batch` of them a step (all in one by default), in rows of `row_width` tokens."""
    longest = max(int(each.size.max(initial=0)) for each in examples)
    # A rare example may be longer than any that was measured.
    width = row_width if longest <= row_width else -(-longest // ROW_UNIT) * ROW_UNIT
    batch = batch or max(map(len, examples))
    steps = -(-max(map(len, examples)) // batch)
    models, count = len(examples), steps * batch
    size_NE, predictions_NE = np.zeros((2, models, count), dtype=np.int64)
    for model, each in enumerate(examples):
        size_NE[model, : len(each)] = each.size
        predictions_NE[model, : len(each)] = each.size - each.prompt
    packing = pack(size_NE.reshape(-1, batch), width)
    rows_K = packing.rows_M.reshape(models, steps).max(axis=0)
    predictions_NK = predictions_NE.reshape(models, steps, batch).sum(axis=2)
    rows, predictions = int(rows_K.max()), int(predictions_NK.max())

    tokens = np.full((steps, models, rows, width), pad, dtype=np.int32)
    segments, positions = (np.zeros(tokens.shape, dtype=np.int32) for _ in range(2))
    predicting = np.zeros((steps, models, predictions), dtype=np.int32)
    targets = np.full_like(predicting, NO_TARGET)
    place_NE = (packing.row_ME * width + packing.offset_ME).reshape(models, count)
    segment_NE = packing.segment_ME.reshape(models, count)
    step_E = np.repeat(np.arange(steps), batch)
    consecutive = from_zero = True
    for model, each in enumerate(examples):
        real = slice(len(each))
        size_E, place_E, source = each.size, place_NE[model, real], each.tokens.ravel()
        line_E = np.arange(len(each)) * each.tokens.shape[1]
        # All tokens one after the other, those of an example side by side: where each is, and where it goes.
        column = _counted(size_E)
        cell = np.repeat((step_E[real] * models + model) * rows * width + place_E, size_E) + column
        tokens.ravel()[cell] = source[np.repeat(line_E, size_E) + column]
        segments.ravel()[cell] = np.repeat(segment_NE[model, real], size_E)
        position = column if each.positions is None else each.positions.ravel()[np.repeat(line_E, size_E) + column]
        positions.ravel()[cell] = position
        consecutive, from_zero = consecutive and each.consecutive, from_zero and each.from_zero
        # The same for targets, each of which is predicted by the state one place before.
        target_E = predictions_NE[model, real]
        column = _counted(target_E) + np.repeat(each.prompt, target_E)
        entry = _counted(predictions_NK[model])
        entry += np.repeat((np.arange(steps) * models + model) * predictions, predictions_NK[model])
        predicting.ravel()[entry] = np.repeat(place_E - 1, target_E) + column
        targets.ravel()[entry] = source[np.repeat(line_E, target_E) + column]
    return Batches(
        *(tokens, segments, positions, predicting, targets),
        *(rows_K, predictions_NK.max(axis=0), int(size_NE.sum()), consecutive, from_zero),
    )


def _counted(sizes: np.ndarray) -> np.ndarray:
    """0, 1, 2, ... for each of the sizes, one after the other."""
    first = offsets(sizes)
    return np.arange(first[-1]) - np.repeat(first[:-1], sizes)


def best_row_width(size_E: np.ndarray, batch: int, device: str) -> int:
    """The shortest rows that are nearly full when `batch` examples are packed into them, else the fullest."""
    steps = max(1, len(size_E) // batch)
    size_ME = np.resize(size_E, (steps, batch))
    fills = {}
    for width in _row_widths(int(size_ME.max()), device):
        fills[width] = size_ME.sum() / (pack(size_ME, width).rows_M.sum() * width)
        if fills[width] >= (FULL if width > ROW_UNIT else FULL_IF_SHORT):
            return width
    return max(fills, key=lambda width: fills[width])


def _row_widths(longest: int, device: str) -> list[int]:
    """Those that hold the longest example. There are few: runs of other rows cannot share a fleet."""
    first = -(-longest // ROW_UNIT) * ROW_UNIT
    short = (16, 24, 32, 48) if device == "cpu" else (16, 32)  # a GPU's must suit our attention kernel
    return [width for width in short if longest <= width] + [first + ROW_UNIT * i for i in range(5)]


FULL = 0.9
FULL_IF_SHORT = 0.85
"""Up to ROW_UNIT: they save in attention what a little more padding costs."""
