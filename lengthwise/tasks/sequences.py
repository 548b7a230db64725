"""All sequences of a length, where they are few enough to list."""

from itertools import product

import numpy as np

MOST_LISTED = 499
"""A longer list of all examples is not needed: from 500 on the splits can be kept apart without one."""


def all_sequences(choices: int, length: int, most: int = MOST_LISTED) -> np.ndarray | None:
    """Every sequence of so many numbers below `choices`, in order, where there are no more than `most`; else None."""
    if (choices > 1 and length > most.bit_length()) or choices**length > most:
        return None
    listed = list(product(range(choices), repeat=length))
    return np.array(listed, dtype=np.int32).reshape(len(listed), length)
