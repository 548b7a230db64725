"""Delay copy: symbols are recalled after a delay, in a context of one size; only the distance is another."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from lengthwise.data.examples import Column
from lengthwise.tasks.copy import SEPARATOR
from lengthwise.tasks.separated import Separated
from lengthwise.tasks.task import Span
from lengthwise.tasks.words import MOST, words

LONGEST = 100_000


class DelayCopy(Separated):
    """Four symbols in brackets, then n others; the target is what stands in the brackets. All prompts are equally long.

    Examples:
        Delay: little picnic [ station cooling cooling station ] stuck [SEP] -> station cooling cooling station
    Length: distance, the number of symbols between the closing bracket and the end of the prompt.

    There are `context` symbols around the brackets, n behind them and the rest before them: a model that fails at an
    unseen distance does not fail because the prompt is long. All symbols are drawn independently from the same ones.
    After 2609.11913, whose idea this is; its exact format is not known to us.
    """

    name = "delay_copy"
    family = "copying"
    first_word = "Delay:"
    train_lengths = Span(1, 32)
    test_lengths = Span(33, 64)
    length_means = "symbols between the source and its recall"
    titled = ("context", "content")

    @dataclass(frozen=True)
    class Config:
        context: int = 64
        content: int = 4
        symbols: int = 16

        def __post_init__(self) -> None:
            if not 1 <= self.context <= LONGEST:
                raise ValueError(
                    f"context is how many symbols stand around the source, 1 to {LONGEST:,}, not {self.context}"
                )
            if not 1 <= self.content <= 1000:
                raise ValueError(f"content is how many symbols are copied, 1 to 1000, not {self.content}")
            if not 2 <= self.symbols <= MOST:
                raise ValueError(f"symbols must be 2 to {MOST}, not {self.symbols}")

    config: Config

    def symbols(self) -> Iterable[str]:
        return [self.first_word, SEPARATOR, "[", "]", *words(self.config.symbols)]

    def buckets(self, span: Span) -> list[int]:
        """No distance is larger than the context."""
        return list(range(span.first, min(span.last, self.config.context) + 1))

    def draw(self, distance: int, count: int, generator: np.random.Generator) -> list[Column]:
        size = self.config.content
        drawn = generator.integers(self.config.symbols, size=(count, self.config.context + size), dtype=np.int32)
        symbols = self.vocabulary.id(words(1)[0]) + drawn
        before, source, after = np.split(
            symbols, [self.config.context - distance, self.config.context - distance + size], 1
        )
        left, right = (np.full((count, 1), self.vocabulary.id(bracket), dtype=np.int32) for bracket in "[]")
        return self.columns(np.concatenate([before, left, source, right, after], axis=1), source)

    def chance(self, distance: int) -> float:
        return float(self.config.symbols) ** -self.config.content
