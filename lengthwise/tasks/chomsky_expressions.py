"""Arithmetic modulo m, as in the Chomsky hierarchy tasks, for many examples at once; expressions with brackets:

of 1 symbol d, of 2 -d, of 3 (d), of 4 (-d), of more (left + right), where the left part has any length that fits
"""

from typing import NamedTuple

import numpy as np

PLUS, MINUS, TIMES, LEFT, RIGHT = range(5)
SIGNS = ("+", "-", "*", "(", ")")


class Expressions(NamedTuple):
    """Symbols (examples, length): 0 to m - 1 for digits, m + PLUS and so on for signs; and their values (examples,)."""

    symbols: np.ndarray
    values: np.ndarray


def evaluated(numbers: np.ndarray, operators: np.ndarray, modulus: int) -> np.ndarray:
    """The values (examples,) of numbers with operators between them and no brackets; products come first."""
    total, product = np.zeros(len(numbers), dtype=np.int64), numbers[:, 0].astype(np.int64)
    for i in range(operators.shape[1]):
        multiplied, number = operators[:, i] == TIMES, numbers[:, i + 1]
        total = np.where(multiplied, total, total + product) % modulus
        signed = np.where(operators[:, i] == MINUS, -number, number)
        product = np.where(multiplied, product * number, signed) % modulus
    return (total + product) % modulus


def brackets(length: int, count: int, modulus: int, operators: int, generator: np.random.Generator) -> Expressions:
    """Expressions of the first `operators` of + - *.

    What is still to be written waits on a stack: parts of a length above 0, and signs below 0. Each of `length` rounds
    takes one of them from every example's stack and writes one symbol; a second stack holds the values so far.
    """
    everyone = np.arange(count)
    waiting = np.zeros((count, length + 4), dtype=np.int64)
    waiting[:, 0] = length
    tall = np.ones(count, dtype=np.int64)
    values, held = np.zeros((count, length + 1), dtype=np.int64), np.zeros(count, dtype=np.int64)
    pending = np.zeros((count, length + 1), dtype=np.int64)  # operators between the parts of open brackets
    opened = np.zeros(count, dtype=np.int64)
    negative = np.zeros(count, dtype=bool)
    written = np.empty((count, length), dtype=np.int32)
    applying = -1 - (RIGHT + 1)  # a closing bracket behind two parts, which are then one

    def push(where: np.ndarray, item: np.ndarray | int) -> None:
        waiting[everyone[where], tall[where]] = item[where] if isinstance(item, np.ndarray) else item
        tall[where] += 1

    for i in range(length):
        tall -= 1
        item = waiting[everyone, tall]
        digit = generator.integers(modulus, size=count)
        operator = generator.integers(operators, size=count)
        left = 1 + np.floor(generator.random(count) * np.maximum(item - 4, 1)).astype(np.int64)

        large, small, single = item >= 5, (item == 3) | (item == 4), item == 1
        push(large, applying)
        push(large, item - left - 3)
        push(large, -1 - operator)
        push(large, left)
        push(small, -1 - RIGHT)
        push(small, item - 2)
        push(item == 2, 1)

        sign = np.where(item < 0, np.where(item == applying, RIGHT, -1 - item), np.where(item == 2, MINUS, LEFT))
        written[:, i] = np.where(single, digit, modulus + sign)

        values[everyone[single], held[single]] = np.where(negative, -digit, digit)[single]
        held += single
        negative = item == 2
        is_operator = (item < 0) & (-1 - item <= TIMES)
        pending[everyone[is_operator], opened[is_operator]] = (-1 - item)[is_operator]
        opened += is_operator
        done = item == applying
        opened -= done
        held -= done
        a, b = values[everyone, np.maximum(held - 1, 0)], values[everyone, held]
        chosen = pending[everyone, opened]
        result = np.where(chosen == PLUS, a + b, np.where(chosen == MINUS, a - b, a * b)) % modulus
        values[everyone[done], held[done] - 1] = result[done]
    return Expressions(written, values[:, 0] % modulus)
