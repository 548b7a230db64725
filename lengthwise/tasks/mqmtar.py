"""Multi-query multi-token associative recall (2506.16640): keys and values of several symbols, among blanks."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from lengthwise.data.examples import Column
from lengthwise.tasks.copy import SEPARATOR
from lengthwise.tasks.distinct import distinct
from lengthwise.tasks.separated import Separated
from lengthwise.tasks.task import Span
from lengthwise.tasks.words import MOST, words

BLANK, IS, ASKED = "_", ":", "?"
MOST_SYMBOLS = 8
"""Of a key or a value."""
MOST_KEYS = 2**40


class Mqmtar(Separated):
    """Pairs of a key and a value, of two symbols each, among blanks; the target has the values of four keys.

    Examples:
        Recall: _ station stuck : cooling picnic _ _ stuck stuck : little stuck _ ? stuck stuck [SEP] -> little stuck
    Length: number of symbols before the first question, blanks and colons included.

    A pair and the blank behind it take the share `pairs` of the length, as many pairs as fit; the other blanks stand
    anywhere between them. Keys are distinct, values are drawn independently, both of the same 256 symbols. The keys
    that are asked for are different. The paper trains on lengths 32 to 64 and tests up to 65,536.
    """

    name = "mqmtar"
    family = "recall"
    first_word = "Recall:"
    train_lengths = Span(32, 64)
    test_lengths = Span(65, 128)
    length_means = "number of symbols before the questions"
    titled = ("pairs", "queries", "key_size", "value_size")

    @dataclass(frozen=True)
    class Config:
        symbols: int = 256
        pairs: float = 0.8
        queries: int = 4
        key_size: int = 2
        value_size: int = 2

        def __post_init__(self) -> None:
            if not 2 <= self.symbols <= MOST:
                raise ValueError(f"symbols must be 2 to {MOST}, not {self.symbols}")
            if not 0 < self.pairs <= 1:
                raise ValueError(f"pairs is the share of the length that pairs take, above 0 to 1, not {self.pairs}")
            if not 1 <= self.queries <= 64:
                raise ValueError(f"queries must be 1 to 64, not {self.queries}")
            if not (1 <= self.key_size <= MOST_SYMBOLS and 1 <= self.value_size <= MOST_SYMBOLS):
                raise ValueError(f"key_size and value_size must be 1 to {MOST_SYMBOLS}, not {self}")
            if self.symbols**self.key_size > MOST_KEYS:
                raise ValueError(
                    f"there would be more than {MOST_KEYS:,} keys; choose fewer symbols or a smaller key_size"
                )

    config: Config

    def symbols(self) -> Iterable[str]:
        return [self.first_word, SEPARATOR, BLANK, IS, ASKED, *words(self.config.symbols)]

    @property
    def size(self) -> int:
        """Symbols of a pair: a key, a colon, a value, a blank."""
        return self.config.key_size + self.config.value_size + 2

    def pairs_in(self, length: int) -> int:
        return int(length * self.config.pairs / self.size + 1e-9)

    def buckets(self, span: Span) -> list[int]:
        """There are as many pairs as questions, and no more than keys."""
        most = self.config.symbols**self.config.key_size
        return [length for length in span if self.config.queries <= self.pairs_in(length) <= most]

    def draw(self, length: int, count: int, generator: np.random.Generator) -> list[Column]:
        config, number = self.config, self.pairs_in(length)
        first = self.vocabulary.id(words(1)[0])
        keys = first + self.spelled(
            distinct(count, number, config.symbols**config.key_size, generator), config.key_size
        )
        values = first + generator.integers(config.symbols, size=(count, number, config.value_size), dtype=np.int32)
        colons = np.full((count, number, 1), self.vocabulary.id(IS), dtype=np.int32)
        # A place is a pair or a blank of its own; pairs stand in any `number` of the places.
        places = number + length - self.size * number
        chosen = np.sort(np.argsort(generator.random((count, places)), axis=1)[:, :number], axis=1)
        begins = chosen + (self.size - 1) * np.arange(number)
        written = np.full((count, length), self.vocabulary.id(BLANK), dtype=np.int32)
        cells = begins[..., None] + np.arange(self.size - 1)
        pairs = np.concatenate([keys, colons, values], axis=2)
        np.put_along_axis(written, cells.reshape(count, -1), pairs.reshape(count, -1), axis=1)
        asked = distinct(count, config.queries, number, generator)[..., None]
        marks = np.full((count, config.queries, 1), self.vocabulary.id(ASKED), dtype=np.int32)
        questions = np.concatenate([marks, np.take_along_axis(keys, asked, axis=1)], axis=2)
        source = np.concatenate([written, questions.reshape(count, -1)], axis=1)
        return self.columns(source, np.take_along_axis(values, asked, axis=1).reshape(count, -1))

    def spelled(self, numbers: np.ndarray, size: int) -> np.ndarray:
        """Numbers as `size` digits each, with as many kinds of digits as there are symbols."""
        return numbers[..., None] // self.config.symbols ** np.arange(size)[::-1] % self.config.symbols

    def chance(self, length: int) -> float:
        return float(self.config.symbols) ** -(self.config.value_size * self.config.queries)
