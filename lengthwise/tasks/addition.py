"""Addition of whole numbers in several formats, and how the tasks of numbers write them: one symbol a digit."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from lengthwise.data.examples import ABSENT, STEP_PARTS, Column, Examples, Part
from lengthwise.data.scratchpad import Step, step_columns, with_steps
from lengthwise.data.vocabulary import TIE
from lengthwise.records.operand_pairs import bucket_of, digits_of
from lengthwise.tasks.task import Span, Task
from lengthwise.tasks.words import MOST, words

COMMA, STOP = TIE + ",", TIE + "."
DIGITS = tuple("0123456789")
TOTALS = tuple(str(total) for total in range(20))
"""What two digits and a carry can be together; in a computation of `addition` such a number is one word."""
ANSWER = "The answer is"
MOST_DIGITS = 200
MOST_OPERANDS = 10
"""The sum of as many numbers has at most one digit more than the longest."""
FIRST_WORD = {"sum": "Compute", "digits": "Digits", "carries": "Carries"}


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
    """The sum of two numbers; the first has exactly i digits, the second exactly j, uniform among those. Or of more.

    Examples:
        Compute 5 3 7 + 1 9 ? -> The answer is 5 5 6.
        Compute 0 + 8 ? -> The answer is 8.
    Length: digits of the longer operand.

    A bucket is a pair of lengths, 100 * i + j: 64 of them in training, 192 in the published test.

    Steps go from the last digits to the first; a sum in a computation is one word, as published:

        in 7, 9 comp 7 + 9 + carry = 16 + 0 = 16 out 6 [ carry: 1 ] re 5 3 + 1

    Other formats, in any combination, have no steps. `reversed` writes the least significant digit first. `padded`
    gives all operands as many digits as the longest, and the sum one more. `hints = k` puts one of k words before each
    digit, the same for the same significance, a random block of neighbours in every example. `sentence = false` leaves
    out the words of the answer. `computes = "digits"` asks for each place's sum modulo 10, without carries, `"carries"`
    for what is carried into each place; their first words are `Digits` and `Carries`. The first four with k = 4:

        Compute station 7 cooling 3 little 5 + station 9 cooling 1 little 0 =   station 6 cooling 5 little 5 picnic 0

    With `operands` above 2 each has 1 to n digits and at least one has n, all equally likely; a bucket is n. The track
    `significance` is 1 for the last digit of a number, 2 for the one before it, and 0 for what is no digit.
    """

    name = "addition"
    family = "arithmetic"
    published_split = "addition"
    train_lengths = Span(1, 8)
    test_lengths = Span(9, 16)
    length_means = "digits of the longer operand"
    published_counts = (100_000, 14_944, 9_984)
    step_parts = STEP_PARTS
    titled = later_settings = ("reversed", "padded", "hints", "operands", "sentence", "computes")

    @dataclass(frozen=True)
    class Config:
        reversed: bool = False
        padded: bool = False
        hints: int = 0
        operands: int = 2
        sentence: bool = True
        computes: Literal["sum", "digits", "carries"] = "sum"

        def __post_init__(self) -> None:
            if not (self.hints == 0 or 3 <= self.hints <= MOST):
                raise ValueError(
                    f"hints is 0, or how many hint symbols there are: two more than digits at least, 3 to {MOST}, "
                    f"not {self.hints}"
                )
            if not 2 <= self.operands <= MOST_OPERANDS:
                raise ValueError(f"operands must be 2 to {MOST_OPERANDS}, not {self.operands}")
            if self.computes != "sum" and not self.padded:
                raise ValueError(f"computes = {self.computes!r} has a result for each place: it needs padded = true")

    config: Config

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        self.published_format = self.config == self.Config()
        if not self.published_format:
            self.step_parts = ()  # type: ignore[misc]

    def symbols(self) -> Iterable[str]:
        own = ["Compute", "+", "?", *TOTALS, *ANSWER.split(), STOP, COMMA, "=", "carry", "carry:"]
        hints = words(self.config.hints) if self.config.hints else []
        first = [FIRST_WORD[self.config.computes]] if self.config.computes != "sum" else []
        return [*with_steps(own, STEP_PARTS), *first, *hints]

    def buckets(self, span: Span) -> list[int]:
        most = min(span.last, MOST_DIGITS, *([self.config.hints - 1] if self.config.hints else []))
        if self.config.operands > 2:
            return list(range(span.first, most + 1))
        operand = range(1, most + 1)
        return [bucket_of(i, j) for i in operand for j in operand if max(i, j) >= span.first]

    def length_of(self, bucket: int) -> int:
        return bucket if self.config.operands > 2 else max(digits_of(bucket))

    def draw(self, bucket: int, count: int, generator: np.random.Generator) -> list[Column]:
        if self.config.operands > 2:
            numbers, sizes = self.several(bucket, count, generator)
        else:
            i, j = digits_of(bucket)
            a, b = random_digits(i, count, generator), random_digits(j, count, generator)
            if self.published_format:
                return self.columns(a, b)
            places = max(i, j)
            padded = [np.pad(digits, ((0, 0), (places - digits.shape[1], 0))) for digits in (a, b)]
            numbers, sizes = np.stack(padded, axis=1), np.broadcast_to([i, j], (count, 2))
        return self.in_format(numbers, sizes, self.blocks(numbers.shape[2], count, generator))

    def several(self, places: int, count: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Digits (examples, operands, places), 0 before the first digit, and how many digits each operand has."""
        shape = (count, self.config.operands)
        sizes = generator.integers(1, places + 1, size=shape)
        sizes[np.arange(count), generator.integers(self.config.operands, size=count)] = places
        numbers = generator.integers(10, size=(*shape, places), dtype=np.int32)
        first = (places - sizes)[..., None]
        leading = generator.integers(1, 10, size=(*shape, 1), dtype=np.int32)
        column = np.arange(places)
        numbers = np.where((column == first) & (sizes > 1)[..., None], leading, numbers)
        return np.where(column < first, 0, numbers), sizes

    def blocks(self, places: int, count: int, generator: np.random.Generator) -> np.ndarray | None:
        """The number of the first hint of each example; None without hints."""
        if not self.config.hints:
            return None
        return generator.integers(self.config.hints - places, size=(count, 1))

    def every(self, bucket: int) -> list[Column] | None:
        if bucket != 101 or self.config.operands > 2 or self.config.hints:
            return None  # the only one with too few examples (100) to keep splits apart
        a, b = np.divmod(np.arange(100), 10)
        if self.published_format:
            return self.columns(a[:, None], b[:, None])
        return self.in_format(np.stack([a, b], axis=1)[..., None], np.ones((100, 2), dtype=np.int64), None)

    def chance(self, bucket: int) -> float:
        """One of the sums that numbers of so many digits can have, from smallest to greatest."""
        if self.config.computes != "sum":
            choices = 10 if self.config.computes == "digits" else min(self.config.operands, 10)
            return float(choices) ** -self.length_of(bucket)
        others = [(0, 10**bucket - 1)] * (self.config.operands - 1)
        ranges = [bounds(bucket), *others] if others[1:] else [bounds(digits) for digits in digits_of(bucket)]
        return 1 / (sum(most for _, most in ranges) - sum(least for least, _ in ranges) + 1)

    def in_format(self, numbers: np.ndarray, sizes: np.ndarray, blocks: np.ndarray | None) -> list[Column]:
        """From digits (examples, operands, places), how many of them are written, and the first hint, if there are any.

        The sum is made digit by digit, so any is exact.
        """
        count, operands, places = numbers.shape
        total, carried = np.zeros((2, count, places + 1), dtype=np.int32)
        for place in reversed(range(places)):
            carried[:, place], total[:, place + 1] = np.divmod(
                numbers[:, :, place].sum(axis=1) + carried[:, place + 1], 10
            )
        total[:, 0] = carried[:, 0]
        if self.config.computes == "carries":
            total = carried
        elif self.config.computes == "digits":
            total = np.pad(numbers.sum(axis=1, dtype=np.int32) % 10, ((0, 0), (1, 0)))
        if self.config.padded:
            sizes, size = np.full_like(sizes, places), np.full(count, places + 1)
        else:
            size = places + 1 - np.minimum((np.cumsum(total, axis=1) == 0).sum(axis=1), places)
        written = [self.digits_in_format(numbers[:, i], sizes[:, i], places, blocks) for i in range(operands)]
        sides = [piece for ids in written for piece in (ids, "+")]
        result = self.digits_in_format(total, size, places, blocks)
        sentence = self.config.sentence
        return [
            (Part.ANCHOR, self.fixed(FIRST_WORD[self.config.computes])),
            (Part.PROMPT, self.beside(*sides[:-1], "?" if sentence else "=")),
            *(self.answer(result) if sentence else [(Part.ANSWER, result)]),
        ]

    def digits_in_format(
        self, digits: np.ndarray, size: np.ndarray, places: int, blocks: np.ndarray | None
    ) -> np.ndarray:
        """Ids of the last `size` digits of each row, each with its hint; hints follow each other in reading order."""
        significance = np.arange(digits.shape[1])[::-1]
        present = significance < size[:, None]
        ids = np.where(present, self.digits(digits), ABSENT)[..., None]
        if blocks is not None:
            order = significance if self.config.reversed else places - significance
            hints = np.where(present, self.vocabulary.id(words(1)[0]) + blocks + order, ABSENT)
            ids = np.concatenate([hints[..., None], ids], axis=2)
        if self.config.reversed:
            ids = ids[:, ::-1]
        return ids.reshape(len(ids), -1)

    def tracks(self, examples: Examples) -> dict[str, np.ndarray]:
        """`significance` of each digit and of its hint, counted from 1 in its number; 0 for all else."""
        zero = self.vocabulary.id("0")
        is_digit = (examples.tokens >= zero) & (examples.tokens < zero + 10)
        is_part = is_digit | (examples.tokens >= self.vocabulary.id(words(1)[0]) if self.config.hints else False)
        follows = np.concatenate([[False], is_part[:-1]])
        # Without the anchor a prompt begins with a digit, and the answer before it may end with one.
        follows[examples.starts[:-1]] = False
        begins = np.flatnonzero(is_part & ~follows)
        if not len(begins):
            return {"significance": np.zeros(len(examples.tokens), dtype=np.int64)}
        number = np.maximum(np.searchsorted(begins, np.arange(len(is_part)), side="right") - 1, 0)
        before = np.cumsum(is_digit) - is_digit
        index = before - before[begins][number]  # among the digits of a number
        size = np.add.reduceat(is_digit, begins, dtype=np.int64)[number]
        return {"significance": np.where(is_part, index + 1 if self.config.reversed else size - index, 0)}

    def read_answer(self, text: str) -> str | None:
        """The digits as they are written, without spaces and hints."""
        if self.config.sentence and not self.config.hints:
            return super().read_answer(text)
        hint = r"[a-z]+ " if self.config.hints else ""
        form = rf"{hint}[0-9](?: {hint}[0-9])*"
        found = re.fullmatch(rf"{ANSWER} ({form})\." if self.config.sentence else f"({form})", text)
        return "".join(re.findall(r"[0-9]", found.group(1))) if found else None

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
