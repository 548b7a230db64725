"""Addition of two whole numbers, and how the tasks of numbers write them: one symbol a digit."""

import re
from collections.abc import Iterable, Sequence
from typing import ClassVar

import numpy as np

from lengthwise.data.examples import ABSENT, STEP_PARTS, Column, Part
from lengthwise.data.scratchpad import Step, step_columns, with_steps
from lengthwise.data.vocabulary import TIE
from lengthwise.tasks.task import Span, Task

COMMA, STOP = TIE + ",", TIE + "."
DIGITS = tuple("0123456789")
TOTALS = tuple(str(total) for total in range(20))
"""What two digits and a carry can be together; in a computation of `addition` such a number is one word."""
ANSWER = "The answer is"
MOST_DIGITS = 99
"""A bucket's code has two decimal places for each operand."""


class Numbers(Task):
    """What the tasks of numbers share: digits as symbols, most significant first, and an answer sentence."""

    answer_form: ClassVar[str] = rf"{ANSWER} ([0-9](?: [0-9])*)\."

    def digits(self, values: np.ndarray) -> np.ndarray:
        """Ids of digits 0-9; of `addition` also of the numbers up to 19, each one symbol."""
        return self.vocabulary.id("0") + values.astype(np.int32)

    def number(self, places: np.ndarray) -> np.ndarray:
        """Ids of the digits from the first that is not 0; of 0 the last. No digits stay none."""
        begun = np.maximum.accumulate(places, axis=1) > 0
        begun[:, -1:] = True
        return np.where(begun, self.digits(places), ABSENT)

    def beside(self, *pieces: np.ndarray | str) -> np.ndarray:
        """Pieces in reading order as one array; a text stands in every example."""
        arrays = [self.fixed(piece) if isinstance(piece, str) else piece for piece in pieces]
        count = max(len(ids) for ids in arrays if ids.ndim == 2)
        return np.concatenate([np.broadcast_to(ids, (count, ids.shape[-1])) for ids in arrays], axis=1)

    def table(self, texts: Sequence[str]) -> np.ndarray:
        """A row of ids for each text, ABSENT before the shorter ones: index it with one choice per example."""
        rows = [self.fixed(text) for text in texts]
        width = max(len(row) for row in rows)
        return np.array([np.pad(row, (width - len(row), 0), constant_values=ABSENT) for row in rows])

    def answer(self, ids: np.ndarray) -> list[Column]:
        return [(Part.ANSWER, self.fixed(ANSWER)), (Part.ANSWER, ids), (Part.ANSWER, self.fixed(STOP))]

    def read_answer(self, text: str) -> str | None:
        found = re.fullmatch(self.answer_form, text)
        return found.group(1).replace(" ", "") if found else None


def spaced(value: int) -> str:
    """A whole number as text: `- 2 4`."""
    return " ".join(str(value))


def bounds(digits: int) -> tuple[int, int]:
    """The smallest and the greatest number of so many digits; 0 has one digit."""
    return (0 if digits <= 1 else 10 ** (digits - 1)), 10**digits - 1


def random_digits(digits: int, count: int, generator: np.random.Generator) -> np.ndarray:
    """The digits of numbers that are uniform among those with exactly so many."""
    drawn = generator.integers(10, size=(count, digits), dtype=np.int32)
    if digits > 1:
        drawn[:, 0] = generator.integers(1, 10, size=count, dtype=np.int32)
    return drawn


class Addition(Numbers):
    """The sum of two numbers; the first has exactly i digits, the second exactly j, uniform among those.

    Examples:
        Compute 5 3 7 + 1 9 ? -> The answer is 5 5 6.
        Compute 0 + 8 ? -> The answer is 8.
    Length: digits of the longer operand.

    A bucket is a pair of lengths, 100 * i + j: 64 of them in training, 192 in the published test.

    Steps go from the last digits to the first; a sum in a computation is one word, as published:

        in 7, 9 comp 7 + 9 + carry = 16 + 0 = 16 out 6 [ carry: 1 ] re 5 3 + 1
    """

    name = "addition"
    published_split = "addition"
    train_lengths = Span(1, 8)
    test_lengths = Span(9, 16)
    length_means = "digits of the longer operand"
    published_counts = (100_000, 14_944, 9_984)
    step_parts = STEP_PARTS

    def symbols(self) -> Iterable[str]:
        own = ["Compute", "+", "?", *TOTALS, *ANSWER.split(), STOP, COMMA, "=", "carry", "carry:"]
        return with_steps(own, self.step_parts)

    def buckets(self, span: Span) -> list[int]:
        operand = range(1, min(span.last, MOST_DIGITS) + 1)
        return [100 * i + j for i in operand for j in operand if max(i, j) >= span.first]

    def length_of(self, bucket: int) -> int:
        return max(divmod(bucket, 100))

    def draw(self, bucket: int, count: int, generator: np.random.Generator) -> list[Column]:
        i, j = divmod(bucket, 100)
        return self.columns(random_digits(i, count, generator), random_digits(j, count, generator))

    def every(self, bucket: int) -> list[Column] | None:
        if bucket != 101:  # the only one with too few examples (100) to keep splits apart
            return None
        a, b = np.divmod(np.arange(100), 10)
        return self.columns(a[:, None], b[:, None])

    def chance(self, bucket: int) -> float:
        """One of the sums that numbers of so many digits can have, from smallest to greatest."""
        (least_a, most_a), (least_b, most_b) = (bounds(digits) for digits in divmod(bucket, 100))
        return 1 / (most_a + most_b - least_a - least_b + 1)

    def columns(self, a: np.ndarray, b: np.ndarray) -> list[Column]:
        """From digits (examples, i) and (examples, j), as written; the sum is made digit by digit, so any is exact."""
        prompt = [
            (Part.ANCHOR, self.fixed("Compute")),
            (Part.PROMPT, self.beside(self.digits(a), "+", self.digits(b), "?")),
        ]
        places = max(a.shape[1], b.shape[1])
        a, b = (np.pad(digits, ((0, 0), (places - digits.shape[1], 0))) for digits in (a, b))
        ids_a, ids_b = self.digits(a), self.digits(b)
        carry = np.zeros(len(a), dtype=np.int32)
        steps, answer = [], []
        for place in reversed(range(places)):
            this_a, this_b = ids_a[:, place, None], ids_b[:, place, None]
            without = a[:, place] + b[:, place]
            total = without + carry
            sums = self.digits(without)[:, None], "+", self.digits(carry)[:, None], "=", self.digits(total)[:, None]
            computed = self.beside(this_a, "+", this_b, "+ carry =", *sums)
            carry, digit = np.divmod(total, 10)
            answer.insert(0, self.digits(digit)[:, None])
            parts = {
                Part.INPUT: self.beside(this_a, COMMA, this_b),
                Part.COMPUTATION: computed,
                Part.OUTPUT: answer[0],
                Part.VARIABLES: self.beside("carry:", self.digits(carry)[:, None]),
                # As published the padding is not shown here, and at the end the sign is left alone.
                Part.REMAINING: self.beside(self.number(a[:, :place]), "+", self.number(b[:, :place])),
            }
            steps.append(Step(parts))
        carried = carry == 1
        steps.append(self.final_carry(carried))
        first = np.where(carried, self.vocabulary.id("1"), ABSENT)[:, None]
        return [*prompt, *step_columns(steps, self.vocabulary), *self.answer(np.concatenate([first, *answer], axis=1))]

    def final_carry(self, carried: np.ndarray) -> Step:
        """A step as any other, on one more padding zero each; only where there is a carry to write."""
        texts = (f"0 {COMMA} 0", "0 + 0 + carry = 0 + 1 = 1", "1", "carry: 0", "+")
        return Step({part: self.fixed(text) for part, text in zip(STEP_PARTS, texts, strict=True)}, carried)
