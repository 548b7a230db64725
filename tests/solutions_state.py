"""Second, naive solutions of flip_flop and state_tracking: from the text of a prompt to the text of its target."""

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


SOLUTIONS: dict[str, Callable[[str], str]] = {
    "flip_flop": flip_flop,
    "flip_flop.all_reads": flip_flop_all_reads,
    "state_tracking": lambda prompt: states(prompt)[-1],
    "state_tracking.prefixes": lambda prompt: " ".join(states(prompt)),
}
