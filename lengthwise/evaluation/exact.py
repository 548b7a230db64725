"""Exact match without generating: greedy decoding reproduces a target if and only if the most likely token is right
at every place of it, the end included, when the model is shown the target itself. One forward pass says all.

Shape letters: P predicted tokens, E examples.
"""

from dataclasses import dataclass

import numpy as np

from lengthwise.data.examples import offsets
from lengthwise.data.sequences import Sequences


@dataclass(frozen=True)
class Outcomes:
    """What became of each example; exactly one of the first four is true for each."""

    correct_E: np.ndarray
    wrong_symbol_E: np.ndarray
    """The first error is a wrong symbol."""
    stopped_early_E: np.ndarray
    """The first error is an end where a symbol was due."""
    ran_on_E: np.ndarray
    """The first error is a symbol where the end was due."""
    tokens_E: np.ndarray
    """Target tokens, the end included."""
    right_tokens_E: np.ndarray
    first_error_E: np.ndarray
    """Place in the target of the first error; the number of target tokens where there is none."""
    buckets_E: np.ndarray

    def by_bucket(self) -> list[dict[str, int]]:
        """Counts for each bucket: the heart of a result row."""
        rows = []
        for bucket in np.unique(self.buckets_E):
            here = self.buckets_E == bucket
            rows.append(
                {
                    "bucket": int(bucket),
                    "n": int(here.sum()),
                    "correct": int(self.correct_E[here].sum()),
                    "wrong_symbol": int(self.wrong_symbol_E[here].sum()),
                    "stopped_early": int(self.stopped_early_E[here].sum()),
                    "ran_on": int(self.ran_on_E[here].sum()),
                    "tokens": int(self.tokens_E[here].sum()),
                    "right_tokens": int(self.right_tokens_E[here].sum()),
                }
            )
        return rows


def judge(predicted_P: np.ndarray, sequences: Sequences, end: int) -> Outcomes:
    """`predicted_P`: the most likely token at every target place of every sequence, in reading order."""
    column = np.arange(sequences.tokens.shape[1])
    is_target = (column >= sequences.prompt[:, None]) & (column < sequences.size[:, None])
    target_P = sequences.tokens[is_target]
    count_E = sequences.size - sequences.prompt
    starts = offsets(count_E)[:-1]
    place_P = np.arange(len(target_P)) - np.repeat(starts, count_E)
    wrong_P = predicted_P != target_P
    first_E = np.minimum.reduceat(np.where(wrong_P, place_P, np.repeat(count_E, count_E)), starts)
    correct_E = first_E == count_E
    at_first = starts + np.minimum(first_E, count_E - 1)
    early_E = ~correct_E & (predicted_P[at_first] == end)
    on_E = ~correct_E & (target_P[at_first] == end)
    return Outcomes(
        correct_E=correct_E,
        wrong_symbol_E=~correct_E & ~early_E & ~on_E,
        stopped_early_E=early_E,
        ran_on_E=on_E,
        tokens_E=count_E,
        right_tokens_E=np.add.reduceat(~wrong_P, starts, dtype=np.int64),
        first_error_E=first_E,
        buckets_E=sequences.buckets,
    )
