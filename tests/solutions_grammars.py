"""Second, naive solutions of the grammar tasks: from the text of a prompt to the text of its target."""

import re
from collections.abc import Callable

MOVES = {"walk": "Walk", "look": "Look", "run": "Run", "jump": "Jump", "turn": ""}


def solve_scan(prompt: str) -> str:
    """Rewrites the command until only actions are left."""
    text = re.fullmatch(r"Solve: (.*)\[SEP\]", prompt)[1]  # type: ignore[index]
    text = re.sub(r"^(.*) after (.*)$", r"\2 and \1", text)
    for side in ("left", "right"):
        turn = side.capitalize()
        for word, move in MOVES.items():
            text = text.replace(f"{word} around {side}", "(" + f"{turn} {move} " * 4 + ")")
            text = text.replace(f"{word} opposite {side}", f"({turn} {turn} {move})")
            text = text.replace(f"{word} {side}", f"({turn} {move})")
    for word, move in MOVES.items():
        text = re.sub(rf"\b{word}\b", f"({move})", text)
    text = re.sub(r"\(([^)]*)\) twice", r"\1 \1", text)
    text = re.sub(r"\(([^)]*)\) thrice", r"\1 \1 \1", text)
    return " ".join(re.sub(r"[()]|\band\b", " ", text).split())


def solve_pcfg(prompt: str) -> str:
    """Reads an expression recursively and builds every sequence in between."""
    assert prompt.startswith("Solve: ") and prompt.endswith("[SEP]")
    words = prompt[len("Solve: ") : -len("[SEP]")].split(" ")

    def value() -> list[str]:
        if re.fullmatch("[A-Z][0-9]+", words[0]):
            symbols = []
            while words and words[0] != ",":
                symbols.append(words.pop(0))
            return symbols
        name = words.pop(0)
        x = value()
        if name in ("append", "prepend", "remove_first", "remove_second"):
            assert words.pop(0) == ","
            y = value()
            return {"append": [*x, *y], "prepend": [*y, *x], "remove_first": y, "remove_second": x}[name]
        if name == "reverse":
            x.reverse()
        elif name == "shift":
            x.append(x.pop(0))
        elif name == "echo":
            x.append(x[-1])
        elif name == "swap_first_last":
            x[0], x[-1] = x[-1], x[0]
        elif name == "repeat":
            x.extend(list(x))
        else:
            assert name == "copy"
        return x

    result = value()
    assert not words
    return " ".join(result)


SOLUTIONS: dict[str, Callable[[str], str]] = {"scan": solve_scan, "pcfg": solve_pcfg}
