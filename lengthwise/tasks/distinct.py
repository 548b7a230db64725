"""Different numbers, drawn for many examples at once."""

import numpy as np

MANY = 4096
CROWDED = 0.25
"""With a larger share of the numbers than this in one row they are shuffled instead of drawn until they differ."""


def distinct(count: int, number: int, choices: int, generator: np.random.Generator) -> np.ndarray:
    """(count, number): in each row different numbers below `choices`, all such rows equally likely."""
    if number > CROWDED * choices > CROWDED * MANY:  # one row after the other: all at once would take much memory
        return np.stack([generator.permutation(choices)[:number] for _ in range(count)])
    if number > CROWDED * choices:
        return generator.permuted(np.tile(np.arange(choices), (count, 1)), axis=1)[:, :number]
    drawn = generator.integers(choices, size=(count, number))
    while True:
        order = np.argsort(drawn, axis=1, kind="stable")
        ranked = np.take_along_axis(drawn, order, axis=1)
        again = np.zeros(drawn.shape, dtype=bool)
        np.put_along_axis(again, order[:, 1:], ranked[:, 1:] == ranked[:, :-1], axis=1)
        if not again.any():
            return drawn
        drawn[again] = generator.integers(choices, size=int(again.sum()))
