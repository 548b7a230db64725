"""Sort tasks: the prompt shows a list, the answer is the same list in ascending order; two variants.

Steps, selection by swapping: the smallest of the items still to be sorted changes places with the front one, and the
items behind the front are what remains.

    in M comp The minimum of the unsorted portion out E re [ M, F ] # in M comp ...
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from math import factorial
from string import ascii_letters, ascii_uppercase

import numpy as np

from lengthwise.data.examples import ABSENT, Column, Part
from lengthwise.data.scratchpad import Step, step_columns, with_steps
from lengthwise.data.vocabulary import TIE
from lengthwise.tasks.sequences import MOST_LISTED
from lengthwise.tasks.task import Span, Task

QUESTION = "Sort the following list ["
ANSWER = "The sorted list is ["
END = "]."
COMPUTATION = "The minimum of the unsorted portion"
"""The same in every step, as published."""


def same_items(k: int, length: int) -> float:
    """The probability that two lists of independent items, of k equally likely ones, hold the same items.

    Item i stands m_i times in both lists: (n!)^2 / k^2n times the sum of 1 / (m_1!)^2 .. (m_k!)^2.
    """
    sums = [Fraction(1)]  # coefficient n of the k-th power of the series with coefficients 1 / (m!)^2
    for n in range(1, length + 1):
        terms = (sums[n - m] * (k * m - (n - m)) / factorial(m) ** 2 for m in range(1, n + 1))
        sums.append(sum(terms, Fraction(0)) / n)
    return float(sums[length] * Fraction(factorial(length), k**length) ** 2)


class Sort(Task):
    """What both sort tasks share; a subclass says what its items are and how they are written."""

    train_lengths = Span(2, 8)
    test_lengths = Span(9, 16)
    length_means = "number of items"
    published_counts = (100_000, 14_996, 10_000)
    step_parts = (Part.INPUT, Part.COMPUTATION, Part.OUTPUT, Part.REMAINING)
    item: str
    """What an item looks like, as a regular expression."""

    def item_symbols(self) -> Iterable[str]:
        raise NotImplementedError

    @cached_property
    def spellings(self) -> np.ndarray:
        """(items, tokens): the ids of every item, in ascending order of the items, ABSENT where there is no token."""
        raise NotImplementedError

    def symbols(self) -> Iterable[str]:
        fixed = f"{QUESTION} {ANSWER} {COMPUTATION} ]".split()
        return [*with_steps([*fixed, TIE + ",", TIE + "."], self.step_parts), *self.item_symbols()]

    @cached_property
    def spellings_in_lists(self) -> np.ndarray:
        """(items, tokens + 1): every item with a comma behind it."""
        comma = np.full((len(self.spellings), 1), self.vocabulary.id(TIE + ","), dtype=np.int32)
        return np.concatenate([self.spellings, comma], axis=1)

    def written(self, items: np.ndarray) -> np.ndarray:
        """(examples, tokens) of the lists `items` (examples, items), commas between the items."""
        ids = self.spellings_in_lists[items]
        ids[:, -1:, -1] = ABSENT
        return ids.reshape(len(items), -1)

    def draw(self, length: int, count: int, generator: np.random.Generator) -> list[Column]:
        return self.columns(generator.integers(len(self.spellings), size=(count, length)))

    def every(self, length: int) -> list[Column] | None:
        number = len(self.spellings)
        if number**length > MOST_LISTED:
            return None
        return self.columns(np.indices((number,) * length).reshape(length, -1).T)

    def columns(self, items: np.ndarray) -> list[Column]:
        return [
            # The bracket is as constant as the words: if it were left, the prompt would still have an anchor.
            (Part.ANCHOR, self.fixed(QUESTION)),
            (Part.PROMPT, self.written(items)),
            (Part.PROMPT, self.fixed(END)),
            *step_columns(self.steps(items), self.vocabulary),
            (Part.ANSWER, self.fixed(ANSWER)),
            (Part.ANSWER, self.written(np.sort(items, axis=1))),
            (Part.ANSWER, self.fixed(END)),
        ]

    def steps(self, items: np.ndarray) -> list[Step]:
        steps = []
        everyone, rest = np.arange(len(items)), items
        while rest.shape[1]:
            front, place = rest[:, 0], rest.argmin(axis=1)  # of equal items the first
            smallest = rest[everyone, place]
            swapped = rest.copy()
            swapped[everyone, place] = front
            rest = swapped[:, 1:]
            parts = {
                Part.INPUT: self.spellings[front],
                Part.COMPUTATION: self.fixed(COMPUTATION),
                Part.OUTPUT: self.spellings[smallest],
                Part.REMAINING: self.bracketed(rest),
            }
            steps.append(Step(parts))
        return steps

    def bracketed(self, items: np.ndarray) -> np.ndarray:
        """As `written`, with brackets, so that an empty list is `[ ]`."""
        ids = self.written(items)
        left, right = (np.full((len(items), 1), self.vocabulary.id(bracket), dtype=np.int32) for bracket in "[]")
        return np.concatenate([left, ids, right], axis=1)

    def chance(self, length: int) -> float:
        """Exact match of a guesser who sorts a list of their own, drawn as the prompt's."""
        return same_items(len(self.spellings), length)

    def read_answer(self, text: str) -> str | None:
        """The items, joined by commas, the digits of a number without spaces between them."""
        form = rf"{re.escape(ANSWER)} ({self.item}(?:, {self.item})*) {re.escape(END)}"
        found = re.fullmatch(form, text)
        return found[1].replace(" ", "") if found else None


class Symbols(Sort):
    """n letters drawn independently; the answer has them in ascending order, A to Z before a to x.

    Examples:
        Sort the following list [ M, E, F ]. -> The sorted list is [ E, F, M ].
        Sort the following list [ a, B, a ]. -> The sorted list is [ B, a, a ].
    Length: number of items.
    """

    name = "sort.symbols"
    family = "order"
    published_split = "len_sngd"
    item = "[A-Za-z]"

    @dataclass(frozen=True)
    class Config:
        symbols: int = 50

        def __post_init__(self) -> None:
            if not 2 <= self.symbols <= len(ascii_letters):
                raise ValueError(f"symbols must be 2 to {len(ascii_letters)}, not {self.symbols}")

    config: Config

    def item_symbols(self) -> Iterable[str]:
        return sorted(ascii_letters)[: self.config.symbols]

    @cached_property
    def spellings(self) -> np.ndarray:
        return self.vocabulary.id(ascii_uppercase[0]) + np.arange(self.config.symbols, dtype=np.int32)[:, None]


class Numbers(Sort):
    """n numbers from 10 to 9999 drawn independently, written as digits; the answer has them in ascending order.

    Examples:
        Sort the following list [ 2 4 6 8, 8 8 1 ]. -> The sorted list is [ 8 8 1, 2 4 6 8 ].
    Length: number of items.
    """

    name = "sort.numbers"
    family = "order"
    published_split = "len_mltd"
    item = r"\d(?: \d)*"

    @dataclass(frozen=True)
    class Config:
        smallest: int = 10
        largest: int = 9999

        def __post_init__(self) -> None:
            if not 0 <= self.smallest < self.largest < 10**6:
                raise ValueError(f"numbers must be 0 <= smallest < largest < 10**6, not {self}")

    config: Config

    def item_symbols(self) -> Iterable[str]:
        return "0123456789"

    @cached_property
    def spellings(self) -> np.ndarray:
        numbers = np.arange(self.config.smallest, self.config.largest + 1)[:, None]
        places = 10 ** np.arange(len(str(self.config.largest)))[::-1]
        digits = self.vocabulary.id("0") + numbers // places % 10
        return np.where((numbers >= places) | (places == 1), digits, ABSENT).astype(np.int32)
