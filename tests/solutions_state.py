"""Second, naive solutions of flip_flop, state_tracking and regular: from a prompt's text to its target's."""

import re
from collections.abc import Callable


def flip_flop(prompt: str) -> str:
    """Goes back from the last read to the nearest write."""
    words = prompt.removeprefix("Flip-flop: ").split()
    assert words.pop() == "r"
    pairs = list(zip(words[::2], words[1::2], strict=True))
    return next(bit for instruction, bit in reversed(pairs) if instruction == "w")


def flip_flop_all_reads(prompt: str) -> str:
    words = prompt.removeprefix("Flip-flop: ").removesuffix(" [SEP]").split()
    memory, found = "", []
    while words:
        instruction = words.pop(0)
        if instruction == "r":
            found.append(memory)
        elif instruction == "w":
            memory = words.pop(0)
        else:
            words.pop(0)
    return " ".join(found)


def states(prompt: str) -> list[str]:
    """Follows every point through the permutations of the word."""
    word = prompt.removeprefix("Track: ").removesuffix(" [SEP]").split()
    where = {point: point for point in sorted(word[0])}
    found = []
    for element in word:
        where = {point: element[int(now) - 1] for point, now in where.items()}
        found.append("".join(where.values()))
    return found


def accepted(word: str) -> str:
    """By Python's own regular expressions."""
    return "Yes" if re.fullmatch("(ab|bbaa)*", word) else "No"


def word_of(prompt: str) -> str:
    return prompt.removeprefix("Accept: ").removesuffix(" [SEP]").replace(" ", "")


def regular_prefixes(prompt: str) -> str:
    word = word_of(prompt)
    return " ".join(accepted(word[:end]) for end in range(1, len(word) + 1))


SOLUTIONS: dict[str, Callable[[str], str]] = {
    "flip_flop": flip_flop,
    "flip_flop.all_reads": flip_flop_all_reads,
    "state_tracking": lambda prompt: states(prompt)[-1],
    "state_tracking.prefixes": lambda prompt: " ".join(states(prompt)),
    "regular": lambda prompt: accepted(word_of(prompt)),
    "regular.prefixes": regular_prefixes,
}
