"""A closed vocabulary: one symbol is one token, and every token is a symbol.

Text is symbols separated by spaces. A symbol that begins with a tie (`TIE + "."`) is written without a space before
it, so that text can look as published: `The answer is 5 5 6.`
"""

from collections.abc import Iterable, Sequence
from functools import cached_property

import numpy as np

TIE = "\u2040"
PAD = "<pad>"
END = "<end>"


class Vocabulary:
    """Symbols <-> ids. The two special symbols come first, then the task's own in their declared order."""

    def __init__(self, symbols: Iterable[str]) -> None:
        self.symbols: tuple[str, ...] = (PAD, END, *symbols)
        self._id = {symbol: i for i, symbol in enumerate(self.symbols)}
        if len(self._id) != len(self.symbols):
            repeated = sorted({s for s in self.symbols if self.symbols.count(s) > 1})
            raise ValueError(f"symbols declared twice: {repeated}")

    pad = 0
    end = 1

    def __len__(self) -> int:
        return len(self.symbols)

    @cached_property
    def rows(self) -> int:
        """Embedding rows: the size rounded up to 64, so that tasks of like size have models of equal shape.

        The spare rows are never a target; the published models carried 31,000 such rows.
        """
        return -(-len(self) // 64) * 64

    def id(self, symbol: str) -> int:
        return self._id[symbol]

    def symbol(self, index: int) -> str:
        """Of an id; a model may also predict a spare row of its embedding."""
        return self.symbols[index] if index < len(self.symbols) else f"<spare-{index}>"

    def ids(self, symbols: Iterable[str]) -> np.ndarray:
        return np.array([self._id[symbol] for symbol in symbols], dtype=np.int32)

    def encode(self, text: str) -> np.ndarray:
        """Ids of a text."""
        return self.ids([symbol for word in text.split() for symbol in self._symbols_of(word)])

    def decode(self, ids: Sequence[int] | np.ndarray) -> str:
        """The text of ids: the inverse of `encode`."""
        return " ".join(self.symbol(i) for i in ids).replace(f" {TIE}", "").removeprefix(TIE)

    def _symbols_of(self, word: str) -> list[str]:
        """One symbol, or one and the tied ones behind it; the longest first symbol wins."""
        if word in self._id:
            return [word]
        for end in range(len(word) - 1, 0, -1):
            if word[:end] in self._id and TIE + word[end:] in self._id:
                return [word[:end], TIE + word[end:]]
        raise ValueError(f"not in the vocabulary: {word!r}")
