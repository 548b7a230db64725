"""Selective copying: a few symbols among many blanks are copied, the blanks are not."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from lengthwise.data.examples import Column
from lengthwise.tasks.copy import SEPARATOR
from lengthwise.tasks.separated import Separated
from lengthwise.tasks.task import Span
from lengthwise.tasks.words import MOST, words

BLANK = "_"
MOST_CONTENT = 1000


class SelectiveCopy(Separated):
    """n places, all blank but for eight symbols at random ones; the target has the symbols in their order.

    Examples:
        Select: _ station _ _ cooling cooling _ [SEP] -> station cooling cooling
    Length: number of places, blanks included.

    Symbols are drawn independently; every choice of their places is equally likely.
    """

    name = "selective_copy"
    family = "copying"
    first_word = "Select:"
    train_lengths = Span(12, 32)
    test_lengths = Span(33, 64)
    length_means = "number of places, blanks included"
    titled = ("content",)

    @dataclass(frozen=True)
    class Config:
        symbols: int = 16
        content: int = 8

        def __post_init__(self) -> None:
            if not 2 <= self.symbols <= MOST:
                raise ValueError(f"symbols must be 2 to {MOST}, not {self.symbols}")
            if not 1 <= self.content <= MOST_CONTENT:
                raise ValueError(f"content is how many symbols are copied, 1 to {MOST_CONTENT}, not {self.content}")

    config: Config

    def symbols(self) -> Iterable[str]:
        return [self.first_word, SEPARATOR, BLANK, *words(self.config.symbols)]

    def buckets(self, span: Span) -> list[int]:
        return [length for length in span if length >= self.config.content]

    def draw(self, length: int, count: int, generator: np.random.Generator) -> list[Column]:
        size = (count, self.config.content)
        content = self.vocabulary.id(words(1)[0]) + generator.integers(self.config.symbols, size=size, dtype=np.int32)
        chosen = np.argpartition(generator.random((count, length)), self.config.content - 1, axis=1)
        places = np.sort(chosen[:, : self.config.content], axis=1)
        written = np.full((count, length), self.vocabulary.id(BLANK), dtype=np.int32)
        np.put_along_axis(written, places, content, axis=1)
        return self.columns(written, content)

    def chance(self, length: int) -> float:
        return float(self.config.symbols) ** -self.config.content
