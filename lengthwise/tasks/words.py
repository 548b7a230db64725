"""Ordinary words: the symbols of tasks whose content does not matter.

Each is one piece of T5's tokenizer, as the symbols of the published copy and reverse tasks are, so that a task has as
many tokens with the published tokens as with one token for each symbol.
"""

from functools import cache
from pathlib import Path

LIST = Path(__file__).parent / "data/words.txt"
MOST = 6400


def words(count: int) -> list[str]:
    """`count` distinct words, always the same ones in the same order."""
    if not 1 <= count <= MOST:
        raise ValueError(f"there are 1 to {MOST} words, not {count}")
    return _all()[:count]


@cache
def _all() -> list[str]:
    return LIST.read_text(encoding="ascii").split()
