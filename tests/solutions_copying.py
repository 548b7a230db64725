"""Naive solutions of the copy and reverse tasks, from prompt to target."""

from collections.abc import Callable


def source(prompt: str) -> list[str]:
    return prompt.split()[1:-1]


def replace(prompt: str) -> str:
    words = prompt.split()
    start = words.index("in") + 1
    return " ".join([words[3]] * (len(words) - start - 1))


def backwards(prompt: str) -> str:
    return " ".join(reversed(source(prompt)))


def forwards(prompt: str) -> str:
    return " ".join(source(prompt))


SOLUTIONS: dict[str, Callable[[str], str]] = {
    "copy.repeat": forwards,
    "copy.repeat_twice": lambda prompt: " ".join(source(prompt) * 2),
    "copy.replace": replace,
    "copy.words": forwards,
    "copy.words_twice": lambda prompt: f"{forwards(prompt)} [NEXT] {forwards(prompt)}",
    "reverse.words": backwards,
    "reverse.words_twice": lambda prompt: f"{backwards(prompt)} [NEXT] {backwards(prompt)}",
    "reverse.and_back": lambda prompt: f"{backwards(prompt)} [NEXT] {forwards(prompt)}",
}
