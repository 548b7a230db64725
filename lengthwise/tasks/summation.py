"""Summation modulo ten of single digits."""

from collections.abc import Iterable

import numpy as np

from lengthwise.data.examples import STEP_PARTS, Column, Part
from lengthwise.data.scratchpad import Step, step_columns, with_steps
from lengthwise.data.vocabulary import TIE
from lengthwise.tasks.addition import ANSWER, DIGITS, Numbers, spaced
from lengthwise.tasks.task import Span

SEPARATOR = TIE + "[SEP]"
"""As published, no space is before it."""


class Summation(Numbers):
    """The sum modulo ten of n digits, each uniform from 1 to 9.

    Examples:
        Compute: 3 + 4 + 9 .[SEP] -> The answer is 6 .
    Length: number of digits.

    The full stop is a word of its own here, as published. Steps go from the first digit to the last, each with the
    running sum modulo ten; a computation ends in the sign that the output follows:

        in 9 comp 9 + sum = 9 + 7 = out 1 6 [ sum: 1 6 = 6 ] re
    """

    name = "summation"
    family = "arithmetic"
    published_split = "summation"
    train_lengths = Span(2, 8)
    test_lengths = Span(9, 16)
    length_means = "number of digits"
    published_counts = (100_000, 14_996, 10_000)
    step_parts = STEP_PARTS
    answer_form = rf"{ANSWER} ([0-9](?: [0-9])*) \."

    def symbols(self) -> Iterable[str]:
        own = ["Compute:", "+", ".", SEPARATOR, *DIGITS, *ANSWER.split(), "sum", "=", "sum:"]
        return with_steps(own, self.step_parts)

    def draw(self, length: int, count: int, generator: np.random.Generator) -> list[Column]:
        return self.columns(generator.integers(1, 10, size=(count, length), dtype=np.int32))

    def every(self, length: int) -> list[Column] | None:
        if length > 2:  # 9 or 81 examples are too few to keep splits apart
            return None
        return self.columns(1 + np.arange(9**length)[:, None] // 9 ** np.arange(length) % 9)

    def chance(self, length: int) -> float:
        return 0.1

    def columns(self, digits: np.ndarray) -> list[Column]:
        count, length = digits.shape
        sums = np.cumsum(digits, axis=1) % 10
        before = np.pad(sums, ((0, 0), (1, 0)))[:, :-1]
        ids, ids_before, ids_sum = self.digits(digits), self.digits(before), self.digits(sums)
        terms = np.full((count, 2 * length - 1), self.vocabulary.id("+"), dtype=np.int32)
        terms[:, ::2] = ids
        totals = self.table([spaced(total) for total in range(19)])
        steps = []
        for i in range(length):
            this = slice(i, i + 1)
            total = totals[digits[:, i] + before[:, i]]
            parts = {
                Part.INPUT: ids[:, this],
                Part.COMPUTATION: self.beside(ids[:, this], "+ sum =", ids[:, this], "+", ids_before[:, this], "="),
                Part.OUTPUT: total,
                Part.VARIABLES: self.beside("sum:", total, "=", ids_sum[:, this]),
                Part.REMAINING: terms[:, 2 * i + 2 :],
            }
            steps.append(Step(parts))
        return [
            (Part.ANCHOR, self.fixed("Compute:")),
            (Part.PROMPT, self.beside(terms, ".", SEPARATOR)),
            *step_columns(steps, self.vocabulary),
            (Part.ANSWER, self.beside(ANSWER, ids_sum[:, -1:], ".")),
        ]
