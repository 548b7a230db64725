"""A byte-level byte-pair tokenizer, trained on the corpus: every text has tokens, and tokens give the text back."""

import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from lengthwise.data.tokenizer_file import load_tokenizer
from lengthwise.errors import RunError, UserError

PADDING, BEGIN, END = "<|padding|>", "<|begin|>", "<|end|>"
"""Of a document. Text that spells them out is text: it never becomes one of them."""


class Tokenizer:
    """Digits are split one by one, so that a number has as many tokens as digits, the same ten everywhere."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        # Not part of the saved file.
        inner.encode_special_tokens = True
        self.padding, self.begin, self.end = (inner.token_to_id(token) for token in (PADDING, BEGIN, END))
        self.digits = np.array([inner.token_to_id(digit) for digit in "0123456789"])
        """The tokens of 0 to 9."""

    @classmethod
    def train(cls, texts: Iterable[str], vocabulary: int) -> "Tokenizer":
        """With at most `vocabulary` tokens: fewer where the texts have no more pairs to join."""
        library = _library()
        inner = library.Tokenizer(library.models.BPE())
        inner.pre_tokenizer = library.pre_tokenizers.Sequence(
            [
                library.pre_tokenizers.Digits(individual_digits=True),
                library.pre_tokenizers.ByteLevel(add_prefix_space=False),
            ]
        )
        inner.decoder = library.decoders.ByteLevel()
        trainer = library.trainers.BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=[PADDING, BEGIN, END],
            initial_alphabet=sorted(library.pre_tokenizers.ByteLevel.alphabet()),
            show_progress=False,
        )
        inner.train_from_iterator(texts, trainer)
        return cls(inner)

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        if not path.exists():
            raise UserError(f"no tokenizer at {path}")
        inner = load_tokenizer(path)
        rows = inner.get_vocab_size()
        special = [inner.token_to_id(token) for token in (PADDING, BEGIN, END)]
        if None in special:
            raise RunError(f"{path} has no tokens {PADDING}, {BEGIN}, {END}: it was made by another program")
        digits = [inner.token_to_id(digit) for digit in "0123456789"]
        if None in digits or max(inner.get_vocab(with_added_tokens=True).values()) >= rows:
            raise RunError(f"{path} is damaged: it lacks digits, or has numbers of tokens beyond the {rows:,} it has")
        return cls(inner)

    def text(self) -> str:
        """The content of its file."""
        return self._inner.to_str(pretty=True)

    @property
    def rows(self) -> int:
        """Tokens that there are."""
        return self._inner.get_vocab_size()

    def encode(self, text: str) -> np.ndarray:
        """Without the tokens of a document's begin and end."""
        return self.encode_many([text])[0]

    def encode_many(self, texts: Sequence[str]) -> list[np.ndarray]:
        """On all cores."""
        found = self._inner.encode_batch_fast(list(texts), add_special_tokens=False)
        return [np.array(each.ids, dtype=np.int64) for each in found]

    def decode(self, tokens: Iterable[int]) -> str:
        """The inverse of `encode`; what is special is left out."""
        return self._inner.decode([int(token) for token in tokens], skip_special_tokens=True)


def _library() -> ModuleType:
    try:
        return importlib.import_module("tokenizers")
    except ImportError:
        raise UserError("language models need a library that is missing: pip install tokenizers") from None
