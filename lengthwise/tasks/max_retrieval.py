"""Max retrieval (2410.01104): the class of the item with the largest priority; softmax disperses over many items."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from lengthwise.data.examples import Column
from lengthwise.tasks.copy import SEPARATOR
from lengthwise.tasks.separated import Separated
from lengthwise.tasks.task import Span
from lengthwise.tasks.words import words

MOST_PRIORITIES = 1000
MOST_CLASSES = 1000


class MaxRetrieval(Separated):
    """n items, each with a class and a priority; the target is the class of the item with the largest priority.

    Examples:
        Largest: cooling 17 station 90 cooling 4 [SEP] -> station
    Length: number of items.

    Priorities are whole numbers, one symbol each. The largest is uniform from 1 to 99 whatever the length, so that the
    length does not tell it; the others are uniform below it. Classes are independent. The paper trains on up to 16
    items and tests on up to 2 ** 14.
    """

    name = "max_retrieval"
    family = "recall"
    first_word = "Largest:"
    train_lengths = Span(2, 16)
    test_lengths = Span(17, 64)
    length_means = "number of items"

    @dataclass(frozen=True)
    class Config:
        classes: int = 10
        priorities: int = 100

        def __post_init__(self) -> None:
            if not 2 <= self.classes <= MOST_CLASSES:
                raise ValueError(f"classes must be 2 to {MOST_CLASSES}, not {self.classes}")
            if not 2 <= self.priorities <= MOST_PRIORITIES:
                raise ValueError(f"priorities must be 2 to {MOST_PRIORITIES}, not {self.priorities}")

    config: Config

    def symbols(self) -> Iterable[str]:
        numbers = map(str, range(self.config.priorities))
        return [self.first_word, SEPARATOR, *numbers, *words(self.config.classes)]

    def draw(self, length: int, count: int, generator: np.random.Generator) -> list[Column]:
        largest = generator.integers(1, self.config.priorities, size=(count, 1))
        priorities = np.floor(generator.random((count, length)) * largest).astype(np.int32)
        place = generator.integers(length, size=(count, 1))
        np.put_along_axis(priorities, place, largest, axis=1)
        classes = generator.integers(self.config.classes, size=(count, length), dtype=np.int32)
        written = self.vocabulary.id(words(1)[0]) + classes
        items = np.stack([written, self.vocabulary.id("0") + priorities], axis=2)
        return self.columns(items.reshape(count, -1), np.take_along_axis(written, place, axis=1))

    def chance(self, length: int) -> float:
        return 1 / self.config.classes
