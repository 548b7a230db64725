"""Second, naive solutions of the Chomsky hierarchy tasks: from the text of a prompt to the text of its target."""

import math
from collections.abc import Callable


def source(prompt: str) -> list[str]:
    return prompt.removesuffix(" [SEP]").split()[1:]


def even_pairs(prompt: str) -> str:
    bits = "".join(source(prompt))
    changes = sum(bits[i : i + 2] in ("01", "10") for i in range(len(bits)))
    return "Yes" if changes % 2 == 0 else "No"


def cycle_navigation(prompt: str) -> str:
    place = 0
    for move in source(prompt):
        place = {"left": place - 1, "stay": place, "right": place + 1}[move] % 5
    return str(place)


def arithmetic(prompt: str) -> str:
    """By Python's own arithmetic."""
    return str(eval("".join(source(prompt))) % 5)


def solve_equation(prompt: str) -> str:
    """Tries every digit."""
    left, right = "".join(source(prompt)).split("=")
    (found,) = [digit for digit in "01234" if eval(left.replace("x", digit)) % 5 == int(right)]
    return found


def stack_manipulation(prompt: str) -> str:
    stack: list[str] = []
    for word in source(prompt):
        if word == "pop":
            stack = stack[:-1]
        else:
            stack.append(word.removeprefix("push-"))
    return " ".join([*reversed(stack), "#"])


def missing_duplicate(prompt: str) -> str:
    symbols = source(prompt)
    place, half = symbols.index("_"), len(symbols) // 2
    return symbols[(place + half) % len(symbols)]


def odds_first(prompt: str) -> str:
    symbols = list(enumerate(source(prompt), start=1))
    odd, even = ([symbol for place, symbol in symbols if place % 2 == rest] for rest in (1, 0))
    return " ".join([*odd, *even])


def number(bits: str) -> int:
    return int("".join(reversed(bits.split())), 2)


def written(value: int) -> str:
    return " ".join(reversed(f"{value:b}"))


def binary_addition(prompt: str) -> str:
    a, b = " ".join(source(prompt)).split(" + ")
    return written(number(a) + number(b))


def binary_multiplication(prompt: str) -> str:
    a, b = " ".join(source(prompt)).split(" * ")
    return written(number(a) * number(b))


def square_root(prompt: str) -> str:
    bits = source(prompt)
    return " ".join(f"{math.isqrt(int(''.join(bits), 2)):0{(len(bits) + 1) // 2}b}")


SOLUTIONS: dict[str, Callable[[str], str]] = {
    "chomsky.even_pairs": even_pairs,
    "chomsky.cycle_navigation": cycle_navigation,
    "chomsky.modular_arithmetic": arithmetic,
    "chomsky.modular_arithmetic_brackets": arithmetic,
    "chomsky.solve_equation": solve_equation,
    "chomsky.stack_manipulation": stack_manipulation,
    "chomsky.missing_duplicate": missing_duplicate,
    "chomsky.odds_first": odds_first,
    "chomsky.bucket_sort": lambda prompt: " ".join(sorted(source(prompt))),
    "chomsky.duplicate": lambda prompt: " ".join(source(prompt) * 2),
    "chomsky.square_root": square_root,
    "chomsky.binary_addition": binary_addition,
    "chomsky.binary_multiplication": binary_multiplication,
}
