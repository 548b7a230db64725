"""Variable tracking, as in RULER: assignments in a chain, somewhere among symbols that do not matter."""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from string import ascii_uppercase

import numpy as np

from lengthwise.data.examples import Column
from lengthwise.tasks.copy import SEPARATOR
from lengthwise.tasks.distinct import distinct
from lengthwise.tasks.separated import Separated
from lengthwise.tasks.task import Span
from lengthwise.tasks.words import MOST, words

VARIABLES = ascii_uppercase
IS, STOP, ASKED = "=", ";", "?"


class VariableTracking(Separated):
    """n filler symbols, among them a value that is given to a variable, and four times on to another one; the target
    has all variables with that value, in order.

    Examples:
        Track: cooling A = 4 0 7 7 1 ; station station B = A ; little C = B ; ? 4 0 7 7 1 [SEP] -> A B C
        Track: A = 1 ; D = 2 ; cooling C = A ; B = D ; ? 2 [SEP] -> D B
    Length: number of filler symbols, between and around the assignments.

    RULER has one chain of four hops. With `chains` above 1 there are others, with other values, their assignments in
    any order between each other. Variables are different letters. Every place of the assignments is equally likely.
    """

    name = "variable_tracking"
    family = "state tracking"
    first_word = "Track:"
    train_lengths = Span(8, 32)
    test_lengths = Span(33, 64)
    length_means = "number of filler symbols"
    titled = ("hops", "chains", "digits")

    @dataclass(frozen=True)
    class Config:
        hops: int = 4
        chains: int = 1
        digits: int = 5
        symbols: int = 50

        def __post_init__(self) -> None:
            if self.hops < 1 or self.chains < 1 or (self.hops + 1) * self.chains > len(VARIABLES):
                raise ValueError(
                    f"hops and chains must be 1 or more, with at most {len(VARIABLES)} variables, chains x (hops + 1), "
                    f"not {self.hops} hops and {self.chains} chains"
                )
            if not 2 <= self.digits <= 9:
                raise ValueError(f"digits must be 2 to 9, not {self.digits}")
            if not 1 <= self.symbols <= MOST:
                raise ValueError(f"symbols must be 1 to {MOST}, not {self.symbols}")

    config: Config

    def symbols(self) -> Iterable[str]:
        fixed = [self.first_word, SEPARATOR, IS, STOP, ASKED, *"0123456789", *VARIABLES]
        return [*fixed, *words(self.config.symbols)]

    def draw(self, length: int, count: int, generator: np.random.Generator) -> list[Column]:
        config, everyone = self.config, np.arange(count)[:, None]
        variables_each, number = config.hops + 1, (config.hops + 1) * config.chains
        letters = distinct(count, number, len(VARIABLES), generator).reshape(count, config.chains, variables_each)
        letters = self.vocabulary.id(VARIABLES[0]) + letters
        values = distinct(count, config.chains, 10**config.digits, generator)[..., None]
        digits = self.vocabulary.id("0") + values // 10 ** np.arange(config.digits)[::-1] % 10

        # Which chain each assignment belongs to, in any order, and which of its assignments it is.
        chain = generator.permuted(np.tile(np.repeat(np.arange(config.chains), variables_each), (count, 1)), axis=1)
        met = np.cumsum(chain[..., None] == np.arange(config.chains), axis=1) - 1
        hop = np.take_along_axis(met, chain[..., None], axis=2)[..., 0]

        is_value = hop == 0
        width = config.digits + 3  # X = value ;
        assigned = np.zeros((count, number, width), dtype=np.int64)
        assigned[..., 0], assigned[..., 1] = letters[everyone, chain, hop], self.vocabulary.id(IS)
        assigned[..., 2] = letters[everyone, chain, np.maximum(hop - 1, 0)]
        assigned[..., 3] = self.vocabulary.id(STOP)
        assigned[is_value, 2:-1] = digits[everyone, chain][is_value]
        assigned[is_value, -1] = self.vocabulary.id(STOP)

        end = length + config.chains * (width + 4 * config.hops)
        # A place is a filler symbol or an assignment; what a short assignment does not need goes behind the end.
        filler = generator.integers(config.symbols, size=(count, end + 1), dtype=np.int32)
        written = self.vocabulary.id(words(1)[0]) + filler
        places = np.sort(np.argsort(generator.random((count, length + number)), axis=1)[:, :number], axis=1)
        size = np.where(is_value, width, 4)
        begins = places + np.cumsum(size - 1, axis=1) - (size - 1)
        inside = np.arange(width) < size[..., None]
        cells = np.where(inside, begins[..., None] + np.arange(width), end)
        np.put_along_axis(written, cells.reshape(count, -1), assigned.reshape(count, -1), axis=1)

        asked = generator.integers(config.chains, size=(count, 1))
        question = np.concatenate(
            [np.full((count, 1), self.vocabulary.id(ASKED)), digits[everyone, asked][:, 0]], axis=1
        )
        source = np.concatenate([written[:, :end], question], axis=1)
        return self.columns(source, letters[everyone, asked][:, 0])

    def chance(self, length: int) -> float:
        """That many different letters, in any order."""
        return 1 / math.perm(len(VARIABLES), self.config.hops + 1)
