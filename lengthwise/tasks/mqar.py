"""Associative recall: pairs of a key and a value, then a key; what is its value?"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from lengthwise.data.examples import Column, Part
from lengthwise.tasks.copy import SEPARATOR
from lengthwise.tasks.task import Span, Task
from lengthwise.tasks.words import MOST, words


class Mqar(Task):
    """n pairs of a key and a value; the target is the value of the key that is asked for at the end.

    Examples:
        Recall: station stuck cooling picnic ? cooling [SEP] -> picnic
    Length: number of pairs.

    Keys are distinct, values are drawn independently, no word is both. With `queries` above 1 (multi-query recall)
    that many different keys are asked for, and the target has their values in the order of the questions.
    """

    name = "mqar"
    family = "recall"
    train_lengths = Span(2, 16)
    test_lengths = Span(17, 32)
    length_means = "number of pairs"

    @dataclass(frozen=True)
    class Config:
        keys: int = 64
        values: int = 64
        queries: int = 1

        def __post_init__(self) -> None:
            if min(self.keys, self.values) < 2 or self.keys + self.values > MOST:
                raise ValueError(f"keys and values must be 2 or more and at most {MOST} together, not {self}")
            if not 1 <= self.queries <= self.keys:
                raise ValueError(f"queries must be 1 to the number of keys, not {self.queries}")

    config: Config

    def symbols(self) -> Iterable[str]:
        return ["Recall:", "?", SEPARATOR, *words(self.config.keys + self.config.values)]

    def buckets(self, span: Span) -> list[int]:
        """Keys are distinct, those that are asked for too."""
        return [length for length in span if self.config.queries <= length <= self.config.keys]

    def draw(self, length: int, count: int, generator: np.random.Generator) -> list[Column]:
        first_key = self.vocabulary.id(words(1)[0])
        all_keys = np.tile(np.arange(self.config.keys, dtype=np.int32), (count, 1))
        keys = first_key + generator.permuted(all_keys, axis=1)[:, :length]
        values = first_key + self.config.keys + generator.integers(self.config.values, size=(count, length))
        places = np.tile(np.arange(length), (count, 1))
        asked = generator.permuted(places, axis=1)[:, : self.config.queries]
        return [
            (Part.ANCHOR, self.fixed("Recall:")),
            (Part.PROMPT, np.stack([keys, values], axis=2).reshape(count, 2 * length)),
            (Part.PROMPT, self.fixed("?")),
            (Part.PROMPT, np.take_along_axis(keys, asked, axis=1)),
            (Part.PROMPT, self.fixed(SEPARATOR)),
            (Part.ANSWER, np.take_along_axis(values, asked, axis=1)),
        ]

    def chance(self, length: int) -> float:
        return float(self.config.values) ** -self.config.queries
