"""State tracking: products of elements of a finite group, as words over S3, A5, S5 or Z_m; two variants."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import permutations

import numpy as np

from lengthwise.data.examples import Column
from lengthwise.door import visible
from lengthwise.tasks.copy import SEPARATOR
from lengthwise.tasks.separated import Separated
from lengthwise.tasks.sequences import all_sequences
from lengthwise.tasks.task import Span

OF_PERMUTATIONS = ("S3", "S4", "S5", "A4", "A5")
LARGEST_CYCLE = 60
CYCLES = tuple(f"Z{order}" for order in range(2, LARGEST_CYCLE + 1))


def elements_of(group: str) -> list[tuple[int, ...]]:
    """The permutations of S3 to S5 or A4, A5 in order; those of Z_m are rotations of m points."""
    points = range(int(group[1:]))
    if group[0] == "Z":
        return [tuple((point + turn) % len(points) for point in points) for turn in points]
    return [each for each in permutations(points) if group[0] == "S" or _is_even(each)]


def _is_even(permutation: tuple[int, ...]) -> bool:
    pairs = ((i, j) for j in range(len(permutation)) for i in range(j))
    return sum(permutation[i] > permutation[j] for i, j in pairs) % 2 == 0


class StateTracking(Separated):
    """n elements of a group, drawn independently; the target is their product, the first element applied first.

    Examples:
        Track: 213 132 [SEP] -> 312
        Track: 231 231 231 [SEP] -> 123
    Length: number of elements.

    The `group` is one of S3, S4, S5 (all permutations), A4, A5 (even ones) or Z2 to Z60 (numbers, added modulo m). A
    permutation is one symbol: `231` takes 1 to 2, 2 to 3 and 3 to 1.
    """

    name = "state_tracking"
    family = "state tracking"
    first_word = "Track:"
    train_lengths = Span(2, 20)
    test_lengths = Span(21, 40)
    length_means = "number of elements"
    titled = ("group",)

    @dataclass(frozen=True)
    class Config:
        group: str = "S3"

        def __post_init__(self) -> None:
            if self.group not in (*OF_PERMUTATIONS, *CYCLES):
                known = ", ".join(OF_PERMUTATIONS)
                raise ValueError(
                    f"group must be one of {known} or Z2 to Z{LARGEST_CYCLE}, not {visible(self.group, 40)!r}"
                )

    config: Config

    @cached_property
    def elements(self) -> list[tuple[int, ...]]:
        return elements_of(self.config.group)

    @cached_property
    def products(self) -> np.ndarray:
        """(elements, elements): the number of the product, the row's element applied first."""
        number = {element: i for i, element in enumerate(self.elements)}
        rows = [[number[tuple(then[point] for point in first)] for then in self.elements] for first in self.elements]
        return np.array(rows, dtype=np.int32)

    @property
    def written(self) -> list[str]:
        """Each element as a symbol."""
        if self.config.group[0] == "Z":
            return [str(number) for number in range(len(self.elements))]
        return ["".join(str(1 + point) for point in element) for element in self.elements]

    def symbols(self) -> Iterable[str]:
        return [self.first_word, SEPARATOR, *self.written]

    def draw(self, length: int, count: int, generator: np.random.Generator) -> list[Column]:
        return self.tracked(generator.integers(len(self.elements), size=(count, length), dtype=np.int32))

    def every(self, length: int) -> list[Column] | None:
        listed = all_sequences(len(self.elements), length)
        return None if listed is None else self.tracked(listed)

    def tracked(self, word: np.ndarray) -> list[Column]:
        """`word`: numbers of elements (examples, elements)."""
        states = word.copy()
        for i in range(1, word.shape[1]):
            states[:, i] = self.products[states[:, i - 1], word[:, i]]
        first = self.vocabulary.id(self.written[0])
        return self.columns(first + word, first + self.target(states))

    def target(self, states: np.ndarray) -> np.ndarray:
        return states[:, -1:]

    def chance(self, length: int) -> float:
        return 1 / len(self.elements)


class Prefixes(StateTracking):
    """n elements of a group, drawn independently; the target has the products of the first 1, 2 and so on up to n.

    Examples:
        Track: 213 132 213 [SEP] -> 213 312 321
    Length: number of elements.

    As `state_tracking`, with every state on the way.
    """

    name = "state_tracking.prefixes"
    family = "state tracking"

    def target(self, states: np.ndarray) -> np.ndarray:
        return states

    def chance(self, length: int) -> float:
        return float(len(self.elements)) ** -length
