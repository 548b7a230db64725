"""Multiplication of two whole numbers of the same number of digits; not in the papers."""

from collections.abc import Iterable

import numpy as np

from lengthwise.examples import ABSENT, Column, Part
from lengthwise.tasks.addition import ANSWER, DIGITS, STOP, Numbers, bounds, random_digits
from lengthwise.tasks.task import Span


class Multiplication(Numbers):
    """The product of two numbers with exactly n digits each, uniform among those; 0 has one digit.

    Examples:
        Multiply 1 2 * 3 4 ? -> The answer is 4 0 8.
        Multiply 0 * 7 ? -> The answer is 0.
    Length: digits of each factor.
    """

    name = "multiplication"
    train_lengths = Span(1, 4)
    test_lengths = Span(5, 8)
    length_means = "digits of each factor"

    def symbols(self) -> Iterable[str]:
        return ["Multiply", "*", "?", *DIGITS, *ANSWER.split(), STOP]

    def draw(self, length: int, count: int, generator: np.random.Generator) -> list[Column]:
        return self.columns(random_digits(length, count, generator), random_digits(length, count, generator))

    def every(self, length: int) -> list[Column] | None:
        if length > 1:  # 100 examples are too few to keep splits apart
            return None
        a, b = np.divmod(np.arange(100), 10)
        return self.columns(a[:, None], b[:, None])

    def chance(self, length: int) -> float:
        """One of the numbers from the smallest product to the greatest."""
        least, most = bounds(length)
        return 1 / (most**2 - least**2 + 1)

    def columns(self, a: np.ndarray, b: np.ndarray) -> list[Column]:
        """From digits (examples, n), as written; the product is made digit by digit, so any n is exact."""
        count, length = a.shape
        places = np.zeros((count, 2 * length), dtype=np.int64)  # most significant first
        for i in range(length):
            places[:, i + 1 : i + 1 + length] += a[:, i : i + 1] * b
        for place in reversed(range(1, 2 * length)):
            carry, places[:, place] = np.divmod(places[:, place], 10)
            places[:, place - 1] += carry
        ids = self.digits(places)
        ids[places[:, 0] == 0, 0] = ABSENT  # the product has 2n digits or one less
        return [
            (Part.ANCHOR, self.fixed("Multiply")),
            (Part.PROMPT, self.beside(self.digits(a), "*", self.digits(b), "?")),
            *self.answer(ids),
        ]
