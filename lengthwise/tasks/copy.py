"""Copy tasks: the prompt shows symbols, the target shows them again; five variants.

`copy.repeat` and `copy.replace` ask only for counting, `copy.words` also for content.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lengthwise.data.examples import Column, Examples, Part
from lengthwise.tasks.distinct import distinct
from lengthwise.tasks.sequences import all_sequences
from lengthwise.tasks.task import Span, Task
from lengthwise.tasks.words import MOST, words

SEPARATOR = "[SEP]"
NEXT = "[NEXT]"

FEW_SEQUENCES = 399
"""From 400 sequences of words on, drawing keeps the splits apart; below, it may leave one of them without any."""


def place_within(examples: Examples, chosen: np.ndarray) -> np.ndarray:
    """How many chosen symbols of the same example stand before each symbol."""
    before = np.cumsum(chosen) - chosen
    return before - np.repeat(before[examples.starts[:-1]], examples.sizes)


class Copy(Task):
    """What all copy and reverse tasks share: `FIRST_WORD t1 .. tn [SEP]`, then symbols."""

    first_word = "Copy:"
    named_before: ClassVar[int] = 0
    """Symbols that the prompt names before the source."""
    train_lengths = Span(2, 20)
    test_lengths = Span(21, 40)
    length_means = "number of source symbols"
    published_counts = (100_000, 14_988, 10_000)

    @dataclass(frozen=True)
    class Config:
        symbols: int = 100

        def __post_init__(self) -> None:
            if not 2 <= self.symbols <= MOST:
                raise ValueError(f"symbols must be 2 to {MOST}, not {self.symbols}")

    config: Config

    def symbols(self) -> Iterable[str]:
        return [self.first_word, SEPARATOR, NEXT, *words(self.config.symbols)]

    @property
    def first_symbol(self) -> int:
        """Id of the first content symbol; the others follow."""
        return self.vocabulary.id(words(1)[0])

    def columns(self, source: np.ndarray, *target: np.ndarray) -> list[Column]:
        return [
            (Part.ANCHOR, self.fixed(self.first_word)),
            (Part.PROMPT, source),
            (Part.PROMPT, self.fixed(SEPARATOR)),
            *((Part.ANSWER, piece) for piece in target),
        ]

    def tracks(self, examples: Examples) -> dict[str, np.ndarray]:
        """`index`: 1, 2 and so on for the source symbols, for each target symbol that of the one it copies, else 0."""
        content = examples.tokens >= self.first_symbol
        source, target = content & (examples.parts == Part.PROMPT), content & (examples.parts > Part.PROMPT)
        shown = np.maximum(1 + place_within(examples, source) - self.named_before, 0)
        size = np.repeat(examples.buckets, examples.sizes)
        copied = self.copied_index(place_within(examples, target), size)
        return {"index": np.where(source, shown, np.where(target, copied, 0))}

    def copied_index(self, place: np.ndarray, size: np.ndarray) -> np.ndarray:
        """Which source symbol, from 1, a target symbol shows. `place`: in the target, from 0; `size`: of the source."""
        return 1 + place % size

    def random_words(self, length: int, count: int, generator: np.random.Generator) -> np.ndarray:
        return self.first_symbol + generator.integers(self.config.symbols, size=(count, length), dtype=np.int32)

    def all_words(self, length: int) -> np.ndarray | None:
        """Every sequence of words, where they are few; else None."""
        listed = all_sequences(self.config.symbols, length, FEW_SEQUENCES)
        return None if listed is None else self.first_symbol + listed

    def chance(self, length: int) -> float:
        return float(self.config.symbols) ** -length


class Repeat(Copy):
    """One symbol n times; the target is the same n symbols.

    Examples:
        Copy: station station station [SEP] -> station station station
    Length: number of source symbols.

    The published set has each of about 6,052 symbols once per length.
    """

    name = "copy.repeat"
    family = "copying"
    published_split = "rsc"
    times = 1

    @dataclass(frozen=True)
    class Config(Copy.Config):
        symbols: int = 6052

    def draw(self, length: int, count: int, generator: np.random.Generator) -> list[Column]:
        return self.repeated(length, generator.integers(self.config.symbols, size=count))

    def every(self, length: int) -> list[Column]:
        return self.repeated(length, np.arange(self.config.symbols))

    def repeated(self, length: int, choice: np.ndarray) -> list[Column]:
        symbol = (self.first_symbol + choice)[:, None]
        return self.columns(np.repeat(symbol, length, axis=1), np.repeat(symbol, self.times * length, axis=1))

    def chance(self, length: int) -> float:
        return 1 / self.config.symbols


class RepeatTwice(Repeat):
    """One symbol n times; the target is 2n of it.

    Examples:
        Copy: station station station [SEP] -> station station station station station station
    Length: number of source symbols.
    """

    name = "copy.repeat_twice"
    family = "copying"
    published_split = "rsc2x"
    times = 2


class Replace(Copy):
    """One symbol n times; the target is another one, named in the prompt, n times.

    Examples:
        Replace station with cooling in station station station [SEP] -> cooling cooling cooling
    Length: number of source symbols.
    """

    name = "copy.replace"
    family = "copying"
    published_split = "rdc"
    named_before = 2
    published_counts = (100_000, 14_114, 10_000)

    @dataclass(frozen=True)
    class Config(Copy.Config):
        symbols: int = 78

    def symbols(self) -> Iterable[str]:
        return ["Replace", "with", "in", SEPARATOR, *words(self.config.symbols)]

    def draw(self, length: int, count: int, generator: np.random.Generator) -> list[Column]:
        return self.replaced(length, generator.integers(self.config.symbols * (self.config.symbols - 1), size=count))

    def every(self, length: int) -> list[Column]:
        return self.replaced(length, np.arange(self.config.symbols * (self.config.symbols - 1)))

    def replaced(self, length: int, pair: np.ndarray) -> list[Column]:
        old, other = np.divmod(pair, self.config.symbols - 1)
        new = other + (other >= old)  # every symbol but the old one
        old, new = (self.first_symbol + old)[:, None], (self.first_symbol + new)[:, None]
        return [
            (Part.ANCHOR, self.fixed("Replace")),
            (Part.PROMPT, old),
            (Part.PROMPT, self.fixed("with")),
            (Part.PROMPT, new),
            (Part.PROMPT, self.fixed("in")),
            (Part.PROMPT, np.repeat(old, length, axis=1)),
            (Part.PROMPT, self.fixed(SEPARATOR)),
            (Part.ANSWER, np.repeat(new, length, axis=1)),
        ]

    def chance(self, length: int) -> float:
        return 1 / self.config.symbols


class Words(Copy):
    """n symbols drawn independently; the target is the same sequence.

    Examples:
        Copy: station cooling station [SEP] -> station cooling station
    Length: number of source symbols.

    With `distinct` no symbol comes twice: what follows a symbol is found by the symbol alone (unique copying).
    """

    name = "copy.words"
    family = "copying"
    published_split = "cmc"
    titled = later_settings = ("distinct",)

    @dataclass(frozen=True)
    class Config(Copy.Config):
        distinct: bool = False

    config: Config

    def buckets(self, span: Span) -> list[int]:
        return [length for length in span if not self.config.distinct or length <= self.config.symbols]

    def draw(self, length: int, count: int, generator: np.random.Generator) -> list[Column]:
        if self.config.distinct:
            chosen = distinct(count, length, self.config.symbols, generator)
            source = (self.first_symbol + chosen).astype(np.int32)
        else:
            source = self.random_words(length, count, generator)
        return self.columns(source, source)

    def every(self, length: int) -> list[Column] | None:
        source = self.all_words(length)
        if source is None:
            return None
        if self.config.distinct:
            ordered = np.sort(source, axis=1)
            source = source[(ordered[:, 1:] > ordered[:, :-1]).all(axis=1)]
        return self.columns(source, source)

    def chance(self, length: int) -> float:
        if not self.config.distinct:
            return super().chance(length)
        return 1 / math.perm(self.config.symbols, length)


class WordsTwice(Copy):
    """n symbols drawn independently; the target is the sequence, `[NEXT]`, the sequence again.

    Examples:
        Copy: station cooling [SEP] -> station cooling [NEXT] station cooling
    Length: number of source symbols.
    """

    name = "copy.words_twice"
    family = "copying"
    published_split = "cmc2x"

    def draw(self, length: int, count: int, generator: np.random.Generator) -> list[Column]:
        return self.twice(self.random_words(length, count, generator))

    def every(self, length: int) -> list[Column] | None:
        source = self.all_words(length)
        return None if source is None else self.twice(source)

    def twice(self, source: np.ndarray) -> list[Column]:
        return self.columns(source, source, self.fixed(NEXT), source)
