"""How long the sequences of a run are, in tokens: measured once for all runs that read the same data."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from lengthwise.data.scratchpad import Scratchpad
from lengthwise.evaluation.generate import MARGIN
from lengthwise.evaluation.test_set import test_set
from lengthwise.model.build import Lengths
from lengthwise.study import Run
from lengthwise.tasks.choosing import make_task
from lengthwise.training.batches import TrainingData, best_row_width
from lengthwise.training.recipe import DataConfig

MEASURED = 4096
"""Training examples whose sizes are measured."""


def sequence_lengths(run: Run) -> Lengths:
    """The longest sequences of a run, in tokens."""
    return sizes_of(json.dumps(run.task), run.data).lengths


def row_width_of(run: Run, device: str) -> int:
    """Tokens in a row of packed training examples."""
    return best_row_width(sizes_of(json.dumps(run.task), run.data).trained, run.training.batch, device)


@dataclass(frozen=True)
class Sizes:
    """Of sequences, in tokens."""

    trained: np.ndarray
    prompts: np.ndarray
    """Of the same examples, the part that is not predicted."""
    tested: int
    longest: int
    """That a model may meet, where positions may be apart."""

    @property
    def lengths(self) -> Lengths:
        return Lengths(trained=int(self.trained.max()), met=self.longest)


def measured_sizes(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Tokens of some training examples, and of their prompts."""
    found = sizes_of(json.dumps(run.task), run.data)
    return found.trained, found.prompts


def longest_sequence(runs: Sequence[Run]) -> int:
    """Tokens of the longest test sequence of any run; positions may be further apart."""
    return max(sizes_of(json.dumps(run.task), run.data).tested for run in runs)


@lru_cache(maxsize=256)
def sizes_of(task_table: str, data: DataConfig) -> Sizes:
    """Measured on the test set, which has every length, and on many training examples of another seed.

    Where the length of an example does not settle its size (pcfg), a rare one may still be longer.
    """
    task = make_task(json.loads(task_table))
    test = test_set(task, data)
    some = TrainingData(task, data, seed=0).slice(0, MEASURED)
    trained = some.size
    placement = data.make_placement()
    longest = -(-placement.reach(max(int(test.size.max()), int(trained.max()))) // placement.counting.unit)
    # A model that writes for itself may go on a little longer than the gold text.
    room = MARGIN if Scratchpad(data.scratchpad).steps else 0
    return Sizes(trained, some.prompt, int(test.size.max()), longest + room)
