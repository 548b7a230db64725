"""The form that most of our own tasks have: a first word, a source, `[SEP]`, a target."""

from itertools import product
from typing import ClassVar

import numpy as np

from lengthwise.data.examples import Column, Part
from lengthwise.tasks.copy import SEPARATOR
from lengthwise.tasks.task import Task

MOST_LISTED = 499
"""A longer list of all examples is not needed: from 500 on the splits can be kept apart without one."""


class Separated(Task):
    """What these tasks share: `FIRST_WORD source [SEP]`, then the target."""

    first_word: ClassVar[str]

    def columns(self, source: np.ndarray, *target: np.ndarray) -> list[Column]:
        """From ids (examples, tokens), or (tokens,) where they are the same in all examples."""
        return [
            (Part.ANCHOR, self.fixed(self.first_word)),
            (Part.PROMPT, source),
            (Part.PROMPT, self.fixed(SEPARATOR)),
            *((Part.ANSWER, piece) for piece in target),
        ]


def all_sequences(choices: int, length: int) -> np.ndarray | None:
    """Every sequence of so many numbers below `choices`, in order, where they are few enough to list; else None."""
    if (choices > 1 and length > MOST_LISTED.bit_length()) or choices**length > MOST_LISTED:
        return None
    listed = list(product(range(choices), repeat=length))
    return np.array(listed, dtype=np.int32).reshape(len(listed), length)
