"""A second, naive solution of every task of numbers, from the prompt's text to the target's, in plain Python."""

from collections.abc import Callable


def spaced(number: int) -> str:
    return " ".join(str(number))


def joined(words: list[str]) -> int:
    return int("".join(words))


def addition(prompt: str) -> str:
    a, b = prompt.removeprefix("Compute ").removesuffix(" ?").split(" + ")
    return f"The answer is {spaced(joined(a.split()) + joined(b.split()))}."


def summation(prompt: str) -> str:
    terms = prompt.removeprefix("Compute: ").removesuffix(" .[SEP]").split(" + ")
    return f"The answer is {sum(map(int, terms)) % 10} ."


def parity(prompt: str) -> str:
    bits = prompt[prompt.index("[") + 1 : prompt.index("]")]
    return f"The answer is {'Yes' if bits.count('1') % 2 == 0 else 'No'}."


def polynomial(prompt: str) -> str:
    point, terms = prompt.removeprefix("Evaluate at x = ").removesuffix(" ?").split(" in ")
    x = joined(point.split())
    value = 0
    for term in terms.split(" + "):
        coefficient, power = term.split(" * x ** ")
        value += joined(coefficient.split()) * x ** int(power)
    return f"The answer is {value % 10}."


def multiplication(prompt: str) -> str:
    a, b = prompt.removeprefix("Multiply ").removesuffix(" ?").split(" * ")
    return f"The answer is {spaced(joined(a.split()) * joined(b.split()))}."


def majority(prompt: str) -> str:
    bits = prompt.removeprefix("Majority: ").removesuffix(" [SEP]").split()
    return "1" if bits.count("1") > bits.count("0") else "0"


SOLUTIONS: dict[str, Callable[[str], str]] = {
    "addition": addition,
    "summation": summation,
    "parity": parity,
    "polynomial": polynomial,
    "multiplication": multiplication,
    "majority": majority,
}
