"""The language of PCFG SET: its functions, its symbols, and an interpreter of expressions in prefix form."""

from collections.abc import Callable

from lengthwise.errors import nearest

Sequence = list[str]
UNARY: dict[str, Callable[[Sequence], Sequence]] = {
    "copy": lambda x: x,
    "reverse": lambda x: x[::-1],
    "shift": lambda x: x[1:] + x[:1],
    "echo": lambda x: x + x[-1:],
    "swap_first_last": lambda x: x[-1:] + x[1:-1] + x[:1] if len(x) > 1 else x,
    "repeat": lambda x: x + x,
}
BINARY: dict[str, Callable[[Sequence, Sequence], Sequence]] = {
    "append": lambda x, y: x + y,
    "prepend": lambda x, y: y + x,
    "remove_first": lambda x, y: y,
    "remove_second": lambda x, y: x,
}
FUNCTIONS = (*UNARY, *BINARY)
SYMBOLS = tuple(f"{letter}{number}" for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ" for number in range(1, 21))
COMMA = ","
_SYMBOL_SET = frozenset(SYMBOLS)


def evaluate(expression: str) -> str:
    """The result of an expression; ValueError, with the number of the word, where it is not well formed."""
    open_functions: list[tuple[str, int, list[Sequence]]] = []  # name, its place, the arguments it has so far
    leaf: Sequence = []

    def close(argument: Sequence) -> Sequence | None:
        """Hands an argument to the functions that wait for it; the result of all, or None if one wants another."""
        while open_functions:
            name, _, arguments = open_functions[-1]
            arguments.append(argument)
            if name in BINARY and len(arguments) == 1:
                return None
            argument = BINARY[name](*arguments) if name in BINARY else UNARY[name](*arguments)
            open_functions.pop()
        return argument

    place = 0
    for place, word in enumerate(expression.split(), start=1):
        if word in UNARY or word in BINARY:
            if leaf:
                raise ValueError(f"word {place}: {word!r} follows a symbol; a function begins an argument")
            open_functions.append((word, place, []))
        elif word == COMMA:
            if not leaf:
                raise ValueError(f"word {place}: ',' where symbols should be")
            if close(leaf) is not None:
                raise ValueError(f"word {place}: ',' but no function takes another argument")
            leaf = []
        elif word in _SYMBOL_SET:
            leaf.append(word)
        else:
            hint = f" ({nearest(word, FUNCTIONS)})" if word.islower() else ""
            raise ValueError(f"word {place}: {word!r} is neither a function nor a symbol A1 to Z20{hint}")
    if not leaf:
        raise ValueError(f"word {place + 1}: the expression ends where symbols should be")
    result = close(leaf)
    if result is None:
        name, begun, _ = open_functions[-1]
        raise ValueError(f"word {place + 1}: the expression ends before the second argument of {name!r} (word {begun})")
    return " ".join(result)
