"""Tasks of the Chomsky hierarchy (Deletang et al., 2207.02098): regular, context-free and context-sensitive ones.

Those that exist in another form are not here: their parity check is `parity`, their reverse string `reverse.words`.
Lengths count the symbols of the input, as there; published training has 1 to 40, the test 41 to 500.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from lengthwise.data.examples import ABSENT, Column
from lengthwise.tasks.binary_numbers import bits_of, nonzero_bits, values_of
from lengthwise.tasks.chomsky_expressions import SIGNS, Expressions, brackets, evaluated
from lengthwise.tasks.copy import SEPARATOR
from lengthwise.tasks.separated import Separated
from lengthwise.tasks.sequences import all_sequences
from lengthwise.tasks.sort import same_items
from lengthwise.tasks.task import Span

MOST_VALUES = 10


class Chomsky(Separated):
    """What these tasks share: inputs of n symbols. A subclass says which lengths it has and how it solves them."""

    train_lengths = Span(4, 40)
    test_lengths = Span(41, 80)
    length_means = "number of input symbols"
    shortest: ClassVar[int] = 2
    every_other: ClassVar[bool] = False
    """Whether inputs have the lengths `shortest`, `shortest` + 2 and so on only."""

    def buckets(self, span: Span) -> list[int]:
        step = 2 if self.every_other else 1
        return [n for n in span if n >= self.shortest and (n - self.shortest) % step == 0]


class OfNumbers(Chomsky):
    """Inputs of independent numbers below `kinds`; all are listed where they are few."""

    kinds: int = 2

    def symbols(self) -> Iterable[str]:
        return [self.first_word, SEPARATOR, *map(str, range(self.kinds))]

    def draw(self, length: int, count: int, generator: np.random.Generator) -> list[Column]:
        return self.solved(generator.integers(self.kinds, size=(count, length), dtype=np.int32))

    def every(self, length: int) -> list[Column] | None:
        listed = all_sequences(self.kinds, length)
        return None if listed is None else self.solved(listed)

    def ids(self, numbers: np.ndarray) -> np.ndarray:
        return self.vocabulary.id("0") + numbers

    def solved(self, numbers: np.ndarray) -> list[Column]:
        """`numbers`: (examples, symbols)."""
        return self.columns(self.ids(numbers), self.ids(self.target(numbers)))

    def target(self, numbers: np.ndarray) -> np.ndarray:
        raise NotImplementedError

    def chance(self, length: int) -> float:
        return float(self.kinds) ** -length


class EvenPairs(OfNumbers):
    """Whether `0 1` and `1 0` together come an even number of times in n bits; that is, the first and last are equal.

    Examples:
        Pairs: 0 1 1 0 [SEP] -> Yes
        Pairs: 0 1 0 0 1 [SEP] -> No
    Length: number of bits.
    """

    name = "chomsky.even_pairs"
    family = "formal languages"
    first_word = "Pairs:"

    def symbols(self) -> Iterable[str]:
        return [*super().symbols(), "No", "Yes"]

    def solved(self, numbers: np.ndarray) -> list[Column]:
        equal = (numbers[:, :1] == numbers[:, -1:]).astype(np.int32)
        return self.columns(self.ids(numbers), self.vocabulary.id("No") + equal)

    def chance(self, length: int) -> float:
        return 0.5


class CycleNavigation(OfNumbers):
    """n moves on a circle of five places, from place 0; the target is the last place.

    Examples:
        Walk: right left stay left left [SEP] -> 3
        Walk: right right right left [SEP] -> 2
    Length: number of moves.
    """

    name = "chomsky.cycle_navigation"
    family = "formal languages"
    first_word = "Walk:"
    titled = ("places",)
    kinds = 3

    @dataclass(frozen=True)
    class Config:
        places: int = 5

        def __post_init__(self) -> None:
            if not 2 <= self.places <= MOST_VALUES:
                raise ValueError(f"places must be 2 to {MOST_VALUES}, not {self.places}")

    config: Config

    def symbols(self) -> Iterable[str]:
        return [self.first_word, SEPARATOR, "left", "stay", "right", *map(str, range(self.config.places))]

    def solved(self, numbers: np.ndarray) -> list[Column]:
        place = (numbers - 1).sum(axis=1, keepdims=True) % self.config.places
        return self.columns(self.vocabulary.id("left") + numbers, self.ids(place))

    def chance(self, length: int) -> float:
        return 1 / self.config.places


class Arithmetic(Chomsky):
    """What the tasks of arithmetic share: numbers modulo m and signs."""

    titled = ("modulus",)

    @dataclass(frozen=True)
    class Config:
        modulus: int = 5

        def __post_init__(self) -> None:
            if not 2 <= self.modulus <= MOST_VALUES:
                raise ValueError(f"modulus must be 2 to {MOST_VALUES}, not {self.modulus}")

    config: Config

    def symbols(self) -> Iterable[str]:
        return [self.first_word, SEPARATOR, *map(str, range(self.config.modulus)), *SIGNS, "x", "="]

    def ids(self, numbers: np.ndarray) -> np.ndarray:
        """Of digits, and of signs from m on."""
        return self.vocabulary.id("0") + numbers

    def chance(self, length: int) -> float:
        """One of m numbers; where there is multiplication, 0 is right more often."""
        return 1 / self.config.modulus


class ModularArithmetic(Arithmetic):
    """Numbers with + - * between them; the target is the result modulo 5, products first.

    Examples:
        Compute: 1 + 2 * 3 [SEP] -> 2
        Compute: 0 * 1 + 4 * 3 - 2 [SEP] -> 0
    Length: number of symbols, always odd.
    """

    name = "chomsky.modular_arithmetic"
    family = "formal languages"
    first_word = "Compute:"
    train_lengths = Span(3, 39)
    test_lengths = Span(41, 79)
    shortest = 3
    every_other = True

    def draw(self, length: int, count: int, generator: np.random.Generator) -> list[Column]:
        numbers = generator.integers(self.config.modulus, size=(count, (length + 1) // 2), dtype=np.int32)
        return self.computed(numbers, generator.integers(3, size=(count, length // 2), dtype=np.int32))

    def every(self, length: int) -> list[Column] | None:
        numbers, operators = (length + 1) // 2, length // 2
        if length > 3 or self.config.modulus**numbers * 3**operators > 499:
            return None
        listed = np.indices((*(self.config.modulus,) * numbers, *(3,) * operators)).reshape(length, -1).T
        return self.computed(listed[:, :numbers], listed[:, numbers:])

    def computed(self, numbers: np.ndarray, operators: np.ndarray) -> list[Column]:
        """`operators`: of SIGNS, between the numbers."""
        modulus = self.config.modulus
        written = np.empty((len(numbers), numbers.shape[1] + operators.shape[1]), dtype=np.int32)
        written[:, ::2], written[:, 1::2] = numbers, modulus + operators
        return self.columns(self.ids(written), self.ids(evaluated(numbers, operators, modulus))[:, None])


class ModularArithmeticBrackets(Arithmetic):
    """An expression with brackets around every operation; the target is the result modulo 5.

    Examples:
        Compute: ( 1 - ( 2 + 4 ) ) [SEP] -> 0
        Compute: ( - 3 ) [SEP] -> 2
    Length: number of symbols, brackets included.

    Operations are + and -; with `multiplication = true` also *. The left part has any length that fits, equally likely.
    """

    name = "chomsky.modular_arithmetic_brackets"
    family = "formal languages"
    first_word = "Compute:"
    train_lengths = Span(6, 40)
    titled = ("modulus", "multiplication")
    shortest = 1

    @dataclass(frozen=True)
    class Config(Arithmetic.Config):
        multiplication: bool = False

    config: Config

    def drawn_expressions(self, length: int, count: int, generator: np.random.Generator) -> Expressions:
        operators = 3 if getattr(self.config, "multiplication", False) else 2
        return brackets(length, count, self.config.modulus, operators, generator)

    def draw(self, length: int, count: int, generator: np.random.Generator) -> list[Column]:
        drawn = self.drawn_expressions(length, count, generator)
        return self.columns(self.ids(drawn.symbols), self.ids(drawn.values)[:, None])


class SolveEquation(ModularArithmeticBrackets):
    """An equation modulo 5 with one digit replaced by x; the target is x.

    Examples:
        Solve: ( x - ( 2 + 4 ) ) = 0 [SEP] -> 1
        Solve: ( - x ) = 2 [SEP] -> 3
    Length: number of symbols, brackets and `=` included.

    As `chomsky.modular_arithmetic_brackets` with + and -, so there is one solution; any digit may be the unknown one.
    """

    name = "chomsky.solve_equation"
    family = "formal languages"
    first_word = "Solve:"
    train_lengths = Span(8, 40)
    titled = ("modulus",)
    shortest = 3

    @dataclass(frozen=True)
    class Config(Arithmetic.Config):
        pass

    config: Config

    def draw(self, length: int, count: int, generator: np.random.Generator) -> list[Column]:
        drawn = self.drawn_expressions(length - 2, count, generator)
        is_digit = drawn.symbols < self.config.modulus
        unknown = np.where(is_digit, generator.random(is_digit.shape), -1).argmax(axis=1)[:, None]
        written = self.ids(drawn.symbols)
        solution = np.take_along_axis(written, unknown, axis=1)
        np.put_along_axis(written, unknown, self.vocabulary.id("x"), axis=1)
        equals = np.full((count, 1), self.vocabulary.id("="), dtype=np.int32)
        return self.columns(np.concatenate([written, equals, self.ids(drawn.values)[:, None]], axis=1), solution)


class StackManipulation(Chomsky):
    """A stack of bits, its top last, then actions; the target is the stack that is left, its top first, then `#`.

    Examples:
        Stack: 0 1 1 0 push-1 pop pop [SEP] -> 1 1 0 #
        Stack: 1 0 pop pop pop [SEP] -> #
    Length: number of bits and actions.

    There are 1 to n - 1 bits, equally likely, then actions, equally likely. Popping an empty stack does nothing.
    """

    name = "chomsky.stack_manipulation"
    family = "formal languages"
    first_word = "Stack:"
    train_lengths = Span(8, 40)

    def symbols(self) -> Iterable[str]:
        return [self.first_word, SEPARATOR, "0", "1", "push-0", "push-1", "pop", "#"]

    def draw(self, length: int, count: int, generator: np.random.Generator) -> list[Column]:
        everyone = np.arange(count)
        bits = generator.integers(1, length, size=(count, 1))
        is_action = np.arange(length) >= bits
        drawn = np.where(is_action, generator.integers(2, 5, size=(count, length)), 0)
        written = np.where(is_action, drawn, generator.integers(2, size=(count, length)))
        stack, height = np.zeros((count, length + 1), dtype=np.int64), np.zeros(count, dtype=np.int64)
        for i in range(length):
            popped = written[:, i] == 4
            stack[everyone, height] = written[:, i] % 2  # bits are 0 and 1, pushing them 2 and 3
            height = np.where(popped, np.maximum(height - 1, 0), height + 1)
        place = height[:, None] - 1 - np.arange(length)  # from the top
        left = np.take_along_axis(stack, np.maximum(place, 0), axis=1)
        zero = self.vocabulary.id("0")
        return self.columns(zero + written, np.where(place >= 0, zero + left, ABSENT), self.fixed("#"))

    def chance(self, length: int) -> float:
        """Exact match of a guesser who works on a stack of their own, drawn as the prompt's."""
        heights = np.zeros(length + 2)
        for bits in range(1, length):  # a stack of so many bits joins in when its first action comes
            heights[bits] += 1 / (length - 1)
            popped = np.concatenate([[heights[0] + heights[1]], heights[2:], [0]])
            heights = popped / 3 + np.concatenate([[0], heights[:-1]]) * 2 / 3
        return float(np.sum(heights**2 * 0.5 ** np.arange(length + 2)))


class MissingDuplicate(Chomsky):
    """n / 2 bits, and the same again, with `_` for one of all bits; the target is that bit.

    Examples:
        Find: 0 1 1 0 0 _ 1 0 [SEP] -> 1
    Length: number of symbols, always even.
    """

    name = "chomsky.missing_duplicate"
    family = "formal languages"
    first_word = "Find:"
    train_lengths = Span(8, 40)
    every_other = True

    def symbols(self) -> Iterable[str]:
        return [self.first_word, SEPARATOR, "0", "1", "_"]

    def draw(self, length: int, count: int, generator: np.random.Generator) -> list[Column]:
        bits = generator.integers(2, size=(count, length // 2), dtype=np.int32)
        return self.hidden(bits, generator.integers(length, size=(count, 1)))

    def every(self, length: int) -> list[Column] | None:
        if length * 2 ** (length // 2) > 499:
            return None
        bits = np.repeat(np.array(all_sequences(2, length // 2)), length, axis=0)
        return self.hidden(bits, np.tile(np.arange(length), len(bits) // length)[:, None])

    def hidden(self, bits: np.ndarray, place: np.ndarray) -> list[Column]:
        written = self.vocabulary.id("0") + np.concatenate([bits, bits], axis=1)
        missing = np.take_along_axis(written, place, axis=1)
        np.put_along_axis(written, place, self.vocabulary.id("_"), axis=1)
        return self.columns(written, missing)

    def chance(self, length: int) -> float:
        return 0.5


class OddsFirst(OfNumbers):
    """n bits; the target has the first, the third and so on, then the second, the fourth and so on.

    Examples:
        Odds: 0 0 1 0 1 [SEP] -> 0 1 1 0 0
    Length: number of bits.
    """

    name = "chomsky.odds_first"
    family = "formal languages"
    first_word = "Odds:"

    def target(self, numbers: np.ndarray) -> np.ndarray:
        return np.concatenate([numbers[:, ::2], numbers[:, 1::2]], axis=1)


class BucketSort(OfNumbers):
    """n numbers of five kinds; the target has them in ascending order.

    Examples:
        Sort: 4 2 1 0 2 2 1 [SEP] -> 0 1 1 2 2 2 4
    Length: number of items.
    """

    name = "chomsky.bucket_sort"
    family = "formal languages"
    first_word = "Sort:"
    kinds = 5

    def target(self, numbers: np.ndarray) -> np.ndarray:
        return np.sort(numbers, axis=1)

    def chance(self, length: int) -> float:
        """Exact match of a guesser who sorts a list of their own, drawn as the prompt's."""
        return same_items(self.kinds, length)


class Duplicate(OfNumbers):
    """n bits; the target has them twice.

    Examples:
        Twice: 0 1 1 [SEP] -> 0 1 1 0 1 1
    Length: number of bits.
    """

    name = "chomsky.duplicate"
    family = "formal languages"
    first_word = "Twice:"

    def target(self, numbers: np.ndarray) -> np.ndarray:
        return np.concatenate([numbers, numbers], axis=1)


class SquareRoot(OfNumbers):
    """A number above 0 of n bits, the most significant first; the target is its square root, rounded down.

    Examples:
        Root: 1 0 0 1 0 1 [SEP] -> 1 1 0
        Root: 0 1 1 1 [SEP] -> 1 0
    Length: number of bits. The root has half as many, rounded up.
    """

    name = "chomsky.square_root"
    family = "formal languages"
    first_word = "Root:"

    def draw(self, length: int, count: int, generator: np.random.Generator) -> list[Column]:
        return self.solved(nonzero_bits(np.full((count, 1), length), length, generator))

    def every(self, length: int) -> list[Column] | None:
        listed = all_sequences(2, length)
        return None if listed is None else self.solved(listed[1:])

    def target(self, numbers: np.ndarray) -> np.ndarray:
        return bits_of(map(math.isqrt, values_of(numbers[:, ::-1])), (numbers.shape[1] + 1) // 2)[:, ::-1]

    def chance(self, length: int) -> float:
        return 0.5 ** ((length + 1) // 2)


class BinaryOperation(Chomsky):
    """What binary addition and multiplication share: two numbers with a sign between them, least significant bit first.

    The first number has any number of bits that fits, equally likely; numbers are above 0 and uniform among those of so
    many bits, zeros at the end included. The result has none.
    """

    sign: ClassVar[str]
    shortest = 4
    train_lengths = Span(8, 40)

    def symbols(self) -> Iterable[str]:
        return [self.first_word, SEPARATOR, "0", "1", self.sign]

    def draw(self, length: int, count: int, generator: np.random.Generator) -> list[Column]:
        zero, place = self.vocabulary.id("0"), np.arange(length)
        first = generator.integers(1, length - 1, size=(count, 1))
        a, b = nonzero_bits(first, length, generator), nonzero_bits(length - 1 - first, length, generator)
        shifted = np.take_along_axis(b, np.maximum(place - first - 1, 0), axis=1)
        written = np.where(place < first, zero + a, np.where(place == first, zero + 2, zero + shifted))
        result = self.result(a, b)
        ends = np.cumsum(result[:, ::-1], axis=1)[:, ::-1] > 0
        return self.columns(written, np.where(ends, zero + result, ABSENT))

    def result(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        raise NotImplementedError


class BinaryAddition(BinaryOperation):
    """The sum of two binary numbers, the least significant bit first.

    Examples:
        Add: 0 0 1 + 0 1 1 0 1 [SEP] -> 0 1 0 1 1
        Add: 1 + 1 [SEP] -> 0 1
    Length: number of symbols, the sign included.

    The first number has 1 to n - 2 bits, equally likely; numbers are above 0 and may end in zeros, the sum does not.
    """

    name = "chomsky.binary_addition"
    family = "formal languages"
    first_word = "Add:"
    sign = "+"

    def result(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        total = np.pad(a + b, ((0, 0), (0, 1)))
        for i in range(total.shape[1] - 1):
            total[:, i + 1] += total[:, i] // 2
            total[:, i] %= 2
        return total

    def chance(self, length: int) -> float:
        """One of the sums from the smallest to the greatest of numbers of so many bits; the mean over their sizes."""
        sizes = [2**bits - 1 + 2 ** (length - 1 - bits) - 1 for bits in range(1, length - 1)]
        return sum(1 / (most - 1) for most in sizes) / len(sizes)


class BinaryMultiplication(BinaryOperation):
    """The product of two binary numbers, the least significant bit first.

    Examples:
        Multiply: 0 0 1 * 0 1 1 0 1 [SEP] -> 0 0 0 1 1 0 1
        Multiply: 1 1 * 1 1 [SEP] -> 1 0 0 1
    Length: number of symbols, the sign included.

    The first number has 1 to n - 2 bits, equally likely; numbers are above 0 and may end in zeros, products do not.
    """

    name = "chomsky.binary_multiplication"
    family = "formal languages"
    first_word = "Multiply:"
    sign = "*"

    def result(self, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        products = (x * y for x, y in zip(values_of(a), values_of(b), strict=True))
        return bits_of(products, a.shape[1])

    def chance(self, length: int) -> float:
        """One of the numbers up to the greatest product of numbers of so many bits; the mean over their sizes."""
        sizes = [(2**bits - 1) * (2 ** (length - 1 - bits) - 1) for bits in range(1, length - 1)]
        return sum(1 / most for most in sizes) / len(sizes)
