"""A second solution of the task that a mixture is tested on, from the prompt's text to the target's."""

from collections.abc import Callable

from solutions_numbers import joined


def mixture(prompt: str) -> str:
    """Its first task by default: addition, the last digits first, all places written."""
    a, b = prompt.removeprefix("Compute ").removesuffix(" ?").split(" + ")
    total = str(joined(a.split()[::-1]) + joined(b.split()[::-1])).zfill(len(a.split()) + 1)
    return f"The answer is {' '.join(reversed(total))}."


SOLUTIONS: dict[str, Callable[[str], str]] = {"mixture": mixture}
