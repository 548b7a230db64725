"""Tokens that are several to a word, as a tokenizer of Transformers: it looks words up in a file of spellings.

For the published pieces and for words of a template that take several tokens: rules that split any text into them are
not at hand, but the words of a task are few.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedTokenizer

from lengthwise.data.examples import Examples, Part
from lengthwise.data.published_tokens import SPACE
from lengthwise.data.tokens import PieceTokens, SymbolTokens, Tokens
from lengthwise.data.vocabulary import TIE, Vocabulary
from lengthwise.errors import UserError

FILE = "spellings.json"


class LengthwiseSpellingTokenizer(PreTrainedTokenizer):
    """Words of a closed vocabulary; one that is not in it is an error, which says the word."""

    vocab_files_names = {"spellings_file": FILE}  # noqa: RUF012
    model_input_names = ["input_ids", "attention_mask"]  # noqa: RUF012

    def __init__(
        self, spellings_file: str | None = None, spellings: Mapping[str, Any] | None = None, **named: Any
    ) -> None:
        """`spellings`: what `spellings_of` returns; by default that of the file."""
        if spellings is None:
            spellings = json.loads(Path(spellings_file or FILE).read_text(encoding="utf-8"))
        self._spellings: Mapping[str, Any] = spellings
        self._id = {piece: index for index, (piece, _) in enumerate(spellings["tokens"])}
        super().__init__(**named)

    @property
    def vocab_size(self) -> int:
        return len(self._id)

    def get_vocab(self) -> dict[str, int]:
        return dict(self._id)

    def _tokenize(self, text: str, **named: Any) -> list[str]:
        found = []
        for place, word in enumerate(text.split()):
            if word not in self._spellings["words"]:
                known = self._spellings["words"]
                few = ", ".join(map(repr, list(known)[:8]))
                raise ValueError(
                    f"not in the vocabulary: {word!r}; the model knows the {len(known)} words of its task, separated "
                    f"by spaces ({few} ...)"
                )
            found += self._spellings["words"][word][min(place, 1)]
        return [self._spellings["tokens"][index][0] for index in found]

    def _convert_token_to_id(self, token: str) -> int:
        return self._id[token]

    def _convert_id_to_token(self, index: int) -> str:
        return self._spellings["tokens"][index][0]

    def convert_tokens_to_string(self, tokens: Iterable[str]) -> str:
        return "".join(self._spellings["tokens"][self._id[token]][1] for token in tokens).strip()

    def save_vocabulary(self, save_directory: str, filename_prefix: str | None = None) -> tuple[str]:
        path = Path(save_directory) / (f"{filename_prefix}-{FILE}" if filename_prefix else FILE)
        path.write_text(json.dumps(self._spellings, ensure_ascii=False), encoding="utf-8")
        return (str(path),)


def spellings_of(tokens: SymbolTokens | PieceTokens) -> dict[str, Any]:
    """`tokens`: of each row of the embedding its name and what it adds to a text. `words`: of each word its ids where a
    text begins with it, and elsewhere."""
    words: dict[str, list[list[int]]] = {}
    for word in _words(tokens.vocabulary):
        with suppress(UserError):  # a symbol and an end that no text of the task has together
            symbols = tokens.vocabulary.encode(word)
            first = ids_of(tokens, symbols)
            words[word] = [first, ids_of(tokens, np.concatenate([symbols, symbols]))[len(first) :]]
    return {"tokens": [[tokens.piece(index), _added(tokens, index)] for index in range(tokens.rows)], "words": words}


def _words(vocabulary: Vocabulary) -> Iterable[str]:
    """Every symbol, and every symbol with one that is tied to it."""
    tied = [symbol.removeprefix(TIE) for symbol in vocabulary.symbols if symbol.startswith(TIE)]
    for symbol in vocabulary.symbols[2:]:
        if not symbol.startswith(TIE):
            yield from (symbol, *(symbol + end for end in tied))


def ids_of(tokens: Tokens, symbols: np.ndarray) -> list[int]:
    """Of a text that has these symbols."""
    parts = np.full(len(symbols), Part.PROMPT, dtype=np.uint8)
    one = Examples(symbols, parts, np.array([0, len(symbols)]), np.zeros(1, dtype=np.int64))
    return tokens.convert(one).tokens.tolist()


def _added(tokens: SymbolTokens | PieceTokens, index: int) -> str:
    """What a token adds to a text, a space before it too."""
    if isinstance(tokens, PieceTokens):
        return tokens.piece(index).replace(SPACE, " ")
    if index < len(tokens.vocabulary):
        symbol = tokens.vocabulary.symbol(index)
        return symbol.removeprefix(TIE) if symbol.startswith(TIE) else f" {symbol}"
    # The first token of a word stands for all of them.
    return "" if index < tokens.used else f" {tokens.piece(index)}"
