"""Multiplication of two whole numbers of the same number of digits; not in the papers."""

from collections.abc import Iterable

import numpy as np

from lengthwise.data.examples import STEP_PARTS, Column, Part
from lengthwise.data.scratchpad import Step, step_columns, with_steps
from lengthwise.tasks.addition import ANSWER, DIGITS, STOP, Numbers, bounds, random_digits
from lengthwise.tasks.task import Span


class Multiplication(Numbers):
    """The product of two numbers with exactly n digits each, uniform among those; 0 has one digit.

    Examples:
        Multiply 1 2 * 3 4 ? -> The answer is 4 0 8.
        Multiply 0 * 7 ? -> The answer is 0.
    Length: digits of each factor.

    A step multiplies the first factor by one digit of the second, from the last digit to the first:

        in 4 comp 1 2 * 4 out 4 8 [ sum: 4 8 ] re 3 # in 3 comp 1 2 * 3 out 3 6 0 [ sum: 4 0 8 ] re
    """

    name = "multiplication"
    family = "arithmetic"
    train_lengths = Span(1, 4)
    test_lengths = Span(5, 8)
    length_means = "digits of each factor"
    step_parts = STEP_PARTS

    def symbols(self) -> Iterable[str]:
        return with_steps(["Multiply", "*", "?", *DIGITS, *ANSWER.split(), STOP, "sum:"], self.step_parts)

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
        """From digits (examples, n), as written; products are made digit by digit, so any n is exact."""
        count, length = a.shape
        total = np.zeros((count, 2 * length), dtype=np.int64)  # most significant first
        ids_a, ids_b = self.digits(a), self.digits(b)
        steps = []
        for place in reversed(range(length)):
            product = np.zeros_like(total)
            product[:, place + 1 : place + 1 + length] = a * b[:, place, None]
            total = carried(total + product)
            this = ids_b[:, place, None]
            parts = {
                Part.INPUT: this,
                Part.COMPUTATION: self.beside(ids_a, "*", this),
                Part.OUTPUT: self.number(carried(product)),  # with the zeros of its place, as one adds it
                Part.VARIABLES: self.beside("sum:", self.number(total)),
                Part.REMAINING: ids_b[:, :place],
            }
            steps.append(Step(parts))
        return [
            (Part.ANCHOR, self.fixed("Multiply")),
            (Part.PROMPT, self.beside(ids_a, "*", ids_b, "?")),
            *step_columns(steps, self.vocabulary),
            *self.answer(self.number(total)),
        ]


def carried(places: np.ndarray) -> np.ndarray:
    """Places (examples, n), most significant first, with what is above 9 carried to the left."""
    places = places.copy()
    for place in reversed(range(1, places.shape[1])):
        carry, places[:, place] = np.divmod(places[:, place], 10)
        places[:, place - 1] += carry
    return places
