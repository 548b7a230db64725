"""The table of words and their T5 pieces, made from the tokenizer itself: `python tests/t5_pieces.py` writes it."""

import lzma
from collections.abc import Iterator
from pathlib import Path

from tokenizers import Tokenizer

from lengthwise import registry
from lengthwise.data.published_tokens import TABLE
from lengthwise.data.vocabulary import TIE
from lengthwise.tasks.choosing import make_task
from lengthwise.tasks.task import Task
from lengthwise.tasks.words import MOST, words

UNKNOWN = 2
T5 = Path(__file__).parent / "data/t5-tokenizer.json.xz"


def tokenizer() -> Tokenizer:
    return Tokenizer.from_str(lzma.decompress(T5.read_bytes()).decode())


def tasks() -> Iterator[Task]:
    for name in registry.tasks.names():
        if name != "file":
            yield make_task(name)
    yield make_task({"name": "sort.symbols", "symbols": 52})
    yield make_task({"name": "dyck", "kinds": 4})
    for group in ("S4", "S5", "Z60"):
        yield make_task({"name": "state_tracking", "group": group})


def every_word() -> list[str]:
    """Every symbol of every task, alone and with each symbol that can be tied to it; and all words there are."""
    found = dict.fromkeys(words(MOST))
    for task in tasks():
        symbols = task.vocabulary.symbols[2:]
        tied = [symbol.removeprefix(TIE) for symbol in symbols if symbol.startswith(TIE)]
        for symbol in symbols:
            found[symbol.removeprefix(TIE)] = None
            if not symbol.startswith(TIE):
                found |= dict.fromkeys(symbol + end for end in tied)
    return list(found)


def lines() -> Iterator[str]:
    t5 = tokenizer()
    for word in every_word():
        encoded = t5.encode(word, add_special_tokens=False)
        if UNKNOWN in encoded.ids:  # brackets of `dyck` that T5 does not know: text could not be read back from them
            continue
        yield f"{word}\t{' '.join(map(str, encoded.ids))}\t{' '.join(encoded.tokens)}\n"


if __name__ == "__main__":
    TABLE.write_text("".join(lines()), encoding="utf-8")
