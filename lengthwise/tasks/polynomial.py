"""Evaluation of a polynomial modulo ten."""

from collections.abc import Iterable
from functools import cached_property
from itertools import product

import numpy as np

from lengthwise.data.examples import STEP_PARTS, Column, Part
from lengthwise.data.scratchpad import Step, step_columns, with_steps
from lengthwise.tasks.addition import ANSWER, DIGITS, STOP, Numbers, spaced
from lengthwise.tasks.task import Span

COEFFICIENTS = range(-3, 4)
DEGREES = range(4)
POINTS = range(-2, 3)
TERMS = list(product(COEFFICIENTS, DEGREES))
TERMS_AT = list(product(COEFFICIENTS, DEGREES, POINTS))
"""All there are; a term is a place in TERMS, a term with its x a place in TERMS_AT."""


class Polynomial(Numbers):
    """The value modulo ten, 0 to 9, of a sum of n terms at x; coefficients, degrees and x uniform, 0 ** 0 is 1.

    Examples:
        Evaluate at x = - 2 in 3 * x ** 0 + - 1 * x ** 2 ? -> The answer is 9.
    Length: number of terms.

    The coefficients are -3 to 3, the degrees 0 to 3 (and may repeat), x is -2 to 2.

    Steps go from the first term to the last, each with the running sum modulo ten:

        in - 1 * x ** 2 comp - 1 * - 2 ** 2 = - 1 * 4 out - 4 [ sum: 3 + - 4 = 9 ] re
    """

    name = "polynomial"
    family = "arithmetic"
    published_split = "poly"
    train_lengths = Span(1, 8)
    test_lengths = Span(9, 16)
    length_means = "number of terms"
    step_parts = STEP_PARTS

    def symbols(self) -> Iterable[str]:
        operators = ("=", "-", "in", "*", "**", "+", "?")
        own = ["Evaluate", "at", "x", *operators, *DIGITS, *ANSWER.split(), STOP, "sum:"]
        return with_steps(own, self.step_parts)

    def draw(self, length: int, count: int, generator: np.random.Generator) -> list[Column]:
        term = generator.integers(len(TERMS), size=(count, length), dtype=np.int32)
        return self.columns(term, generator.integers(len(POINTS), size=count, dtype=np.int32))

    def every(self, length: int) -> list[Column] | None:
        if length > 1:  # 140 examples are too few to keep splits apart
            return None
        term, point = np.divmod(np.arange(len(TERMS_AT)), len(POINTS))
        return self.columns(term[:, None], point)

    def chance(self, length: int) -> float:
        """The ten values as if they were equally likely; 0 is more so where terms are few."""
        return 0.1

    @cached_property
    def points(self) -> np.ndarray:
        return self.table([spaced(x) for x in POINTS])

    @cached_property
    def terms(self) -> np.ndarray:
        return self.table([f"{spaced(c)} * x ** {degree}" for c, degree in TERMS])

    @cached_property
    def computations(self) -> np.ndarray:
        """The term with x substituted, then with the power evaluated: `3 * - 2 ** 3 = 3 * - 8`.

        As published there are no parentheses around a negative x, but the power is that of x with its minus.
        """
        return self.table(
            [f"{spaced(c)} * {spaced(x)} ** {degree} = {spaced(c)} * {spaced(x**degree)}" for c, degree, x in TERMS_AT]
        )

    @cached_property
    def outputs(self) -> np.ndarray:
        return self.table([spaced(c * x**degree) for c, degree, x in TERMS_AT])

    def columns(self, term: np.ndarray, point: np.ndarray) -> list[Column]:
        """From a place in TERMS for each term and one in POINTS for each example."""
        count, length = term.shape
        term_at = term * len(POINTS) + point[:, None]
        values = np.array([c * x**degree for c, degree, x in TERMS_AT])[term_at]
        sums = self.digits(np.pad(np.cumsum(values, axis=1) % 10, ((0, 0), (1, 0))))  # the first is that of no terms
        width = 1 + self.terms.shape[1]
        joined = np.full((count, length, width), self.vocabulary.id("+"), dtype=np.int32)
        joined[:, :, 1:] = self.terms[term]
        joined = joined.reshape(count, length * width)  # `+` before every term, the first one's never shown
        steps = []
        for i in range(length):
            product = self.outputs[term_at[:, i]]
            parts = {
                Part.INPUT: self.terms[term[:, i]],
                Part.COMPUTATION: self.computations[term_at[:, i]],
                Part.OUTPUT: product,
                Part.VARIABLES: self.beside("sum:", sums[:, [i]], "+", product, "=", sums[:, [i + 1]]),
                Part.REMAINING: joined[:, (i + 1) * width + 1 :],
            }
            steps.append(Step(parts))
        return [
            (Part.ANCHOR, self.fixed("Evaluate at x =")),
            (Part.PROMPT, self.beside(self.points[point], "in", joined[:, 1:], "?")),
            *step_columns(steps, self.vocabulary),
            *self.answer(sums[:, -1:]),
        ]
