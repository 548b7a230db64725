"""What can be said of the symbols of any task without asking it: tracks that placements may need.

run        1, 2 and so on within each run of digits, 0 for what is no digit
symbol:X   1 for the symbol X, 0 for all others
"""

from collections.abc import Sequence

import numpy as np

from lengthwise.data.examples import Examples
from lengthwise.data.vocabulary import TIE, Vocabulary
from lengthwise.errors import UserError, nearest

RUN = "run"
SYMBOL = "symbol:"


def symbol_tracks(vocabulary: Vocabulary, examples: Examples, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Those of `names` that are such tracks: numbers beside `examples.tokens`."""
    written = [symbol.removeprefix(TIE) for symbol in vocabulary.symbols]
    found = {}
    for name in names:
        if name == RUN:
            digits = np.array([len(symbol) == 1 and symbol in "0123456789" for symbol in written])
            found[name] = _within_runs(digits[examples.tokens], examples.starts)
        elif name.startswith(SYMBOL):
            symbol = name.removeprefix(SYMBOL)
            if symbol not in written:
                raise UserError(f"the placement asks for the symbol {symbol!r}; {nearest(symbol, written)}")
            found[name] = np.array([each == symbol for each in written])[examples.tokens].astype(np.int64)
    return found


def _within_runs(inside: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """1, 2 and so on within each stretch of `inside`; a stretch ends with its example."""
    index = np.arange(len(inside))
    goes_on = np.concatenate([[False], inside[:-1]])
    goes_on[starts[:-1][starts[:-1] < len(inside)]] = False
    began = np.maximum.accumulate(np.where(inside & ~goes_on, index, -1))
    return np.where(inside, index - began + 1, 0)
