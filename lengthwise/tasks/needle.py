"""Needle in a haystack: a key of digits somewhere among symbols that do not matter."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from lengthwise.data.examples import Column, Part
from lengthwise.tasks.copy import SEPARATOR
from lengthwise.tasks.task import Span, Task
from lengthwise.tasks.words import MOST, words

MARK = "KEY"


class Needle(Task):
    """n filler symbols with a key of five digits at any depth among them; the target is the key.

    Examples:
        Find: station cooling KEY 4 0 7 7 1 little [SEP] -> 4 0 7 7 1
    Length: number of filler symbols, before and after the key.

    Filler symbols and digits are drawn independently; all n + 1 places of the key are equally likely.
    """

    name = "needle"
    family = "recall"
    train_lengths = Span(8, 32)
    test_lengths = Span(33, 64)
    length_means = "number of filler symbols"

    @dataclass(frozen=True)
    class Config:
        symbols: int = 50
        digits: int = 5

        def __post_init__(self) -> None:
            if not 1 <= self.symbols <= MOST:
                raise ValueError(f"symbols must be 1 to {MOST}, not {self.symbols}")
            if self.digits < 1:
                raise ValueError(f"digits must be 1 or more, not {self.digits}")

    config: Config

    def symbols(self) -> Iterable[str]:
        return ["Find:", MARK, SEPARATOR, *"0123456789", *words(self.config.symbols)]

    def draw(self, length: int, count: int, generator: np.random.Generator) -> list[Column]:
        first_filler = self.vocabulary.id(words(1)[0])
        filler = first_filler + generator.integers(self.config.symbols, size=(count, length), dtype=np.int32)
        digits = generator.integers(10, size=(count, self.config.digits), dtype=np.int32) + self.vocabulary.id("0")
        mark = np.full((count, 1), self.vocabulary.id(MARK), dtype=np.int32)
        depth = generator.integers(length + 1, size=(count, 1))  # filler symbols before the key
        size = 1 + self.config.digits
        place = np.arange(length + size)
        # The column of `filler`, `mark`, `digits` side by side that stands at each place of the prompt.
        source = np.where(place < depth, place, np.where(place < depth + size, length + place - depth, place - size))
        haystack = np.take_along_axis(np.concatenate([filler, mark, digits], axis=1), source, axis=1)
        return [
            (Part.ANCHOR, self.fixed("Find:")),
            (Part.PROMPT, haystack),
            (Part.PROMPT, self.fixed(SEPARATOR)),
            (Part.ANSWER, digits),
        ]

    def chance(self, length: int) -> float:
        return 10.0**-self.config.digits
