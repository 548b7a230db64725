"""Where targets are predicted: the places of all examples in reading order, and which tokens of a batch they are.

Shape letters: E examples, B examples of a batch, T tokens, P predicted tokens.
"""

from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from lengthwise.analysis.inputs import ELEMENTS, InputBatch
from lengthwise.data.examples import offsets
from lengthwise.data.sequences import Sequences

LARGEST_LOGITS = 2**27
"""Next-token logits in memory at a time."""


class TargetPlaces:
    """A token is predicted from the one before it: the first of a target from the last of its prompt."""

    def __init__(self, sequences: Sequences) -> None:
        self.sequences = sequences

    @cached_property
    def starts_E(self) -> np.ndarray:
        """Number of the first place of each example, and behind the last one how many there are."""
        return offsets(self.sequences.size - self.sequences.prompt)

    def numbers(self, batch: InputBatch) -> np.ndarray:
        """Of the places of a batch among all places: (P,)."""
        return np.concatenate([np.arange(*self.starts_E[example : example + 2]) for example in batch.example_B])

    def predicting(self, batch: InputBatch) -> Tensor:
        """True at the tokens from which these are predicted: (B, T)."""
        column_T = torch.arange(batch.tokens_BT.shape[1])
        prompt_B = torch.from_numpy(self.sequences.prompt[batch.example_B])
        return (column_T >= prompt_B[:, None] - 1) & (column_T < len(column_T) - 1)

    def at_once(self, batch: InputBatch, vocabulary_rows: int) -> int:
        """How many copies of a batch may be read together."""
        logits = vocabulary_rows * int(self.predicting(batch).sum())
        examples, size = batch.tokens_BT.shape
        return max(1, min(LARGEST_LOGITS // logits, ELEMENTS // (examples * size**2)))

    def ends(self, predicted_P: np.ndarray, end: int) -> np.ndarray:
        """The first place in its target where each example is predicted to end; one behind the last where nowhere."""
        count_E = np.diff(self.starts_E)
        place_P = np.arange(len(predicted_P)) - np.repeat(self.starts_E[:-1], count_E)
        behind_P = np.repeat(count_E, count_E)
        return np.minimum.reduceat(np.where(predicted_P == end, place_P, behind_P), self.starts_E[:-1])
