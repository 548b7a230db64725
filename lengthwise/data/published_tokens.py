"""The tokens of the published runs: what T5's tokenizer makes of every word that a task can write.

The table in `t5_pieces.tsv` has a line for each word: the word, the ids of its pieces, the pieces. A test rebuilds it
from the tokenizer itself.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path

from lengthwise.errors import UserError

TABLE = Path(__file__).parent / "t5_pieces.tsv"
ROWS = 32_100
"""Pieces of T5's tokenizer, and embedding rows of the published models."""
PAD, END = 0, 1
SPACE = "\u2581"
"""Begins a piece before which there is a space."""


class PublishedSpeller:
    """T5's pieces, from the table."""

    size, pad, end = ROWS, PAD, END

    def spell(self, word: str, first: bool) -> list[int] | None:
        return _table()[0].get(word)

    def piece(self, index: int) -> str:
        return _table()[1].get(index, f"<piece {index}>")

    def text(self, pieces: Sequence[int]) -> str:
        return "".join(map(self.piece, pieces)).replace(SPACE, " ").strip()

    def unknown(self, word: str) -> UserError:
        return UserError(
            'data.tokens = "published" has the words of the tasks that come with the package, as they are by default '
            f'and as far as T5 knows them, and {word!r} is none of them; use "symbols", or name a tokenizer\'s file: '
            'data.tokens = "path/to/tokenizer.json"'
        )


@cache
def _table() -> tuple[dict[str, list[int]], dict[int, str]]:
    """Word -> ids of its pieces, id -> piece."""
    words: dict[str, list[int]] = {}
    pieces: dict[int, str] = {PAD: "<pad>", END: "</s>"}
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        word, ids, spelled = line.split("\t")
        words[word] = [int(index) for index in ids.split()]
        pieces.update(zip(words[word], spelled.split(), strict=True))
    return words, pieces
