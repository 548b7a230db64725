"""The tokenizer of a Hugging Face checkpoint, as far as texts and passkey documents need it."""

from pathlib import Path
from typing import Any, Protocol

import numpy as np

from lengthwise import door
from lengthwise.data.tokenizer_file import load_tokenizer
from lengthwise.errors import UserError
from lengthwise.exported import is_of_a_task


class TextTokenizer(Protocol):
    """What reading documents needs; ours (`language.tokenizer`) has it too."""

    def encode(self, text: str) -> np.ndarray:
        """Without tokens of begin and end."""
        ...

    def decode(self, tokens: Any) -> str: ...


class ForeignTokenizer:
    def __init__(self, inner: Any) -> None:
        self._inner = inner
        inner.no_truncation()
        inner.no_padding()
        plain, framed = self._ids("go"), inner.encode("go", add_special_tokens=True).ids
        self.begins = np.array(framed[: len(framed) - len(plain)] if framed[-len(plain) :] == plain else [], np.int64)
        """What the tokenizer puts before every document; often one token, sometimes none."""
        self.adds_space = self._ids("go go") == 2 * plain
        """Whether a text gets a space before its first word (SentencePiece): then a piece that begins with one has it
        already."""

    @classmethod
    def load(cls, folder: Path) -> "ForeignTokenizer":
        file = folder / "tokenizer.json"
        if not file.exists():
            raise UserError(f"{folder} has no tokenizer.json; save the tokenizer there in its fast form")
        if is_of_a_task(folder):
            raise UserError(
                f"{folder} is a model of a task, which reads no text; `lengthwise evaluate` asks it questions"
            )
        inner = load_tokenizer(file)
        try:
            return cls(inner)
        except BaseException as error:  # the library raises nothing more special, and panics
            if isinstance(error, KeyboardInterrupt | SystemExit):
                raise
            raise UserError(f"{file} cannot be used: {door.visible(' '.join(str(error).split()))}") from None

    def encode(self, text: str) -> np.ndarray:
        return np.array(self._ids(text[1:] if self.adds_space and text.startswith(" ") else text), dtype=np.int64)

    def decode(self, tokens: Any) -> str:
        return self._inner.decode([int(token) for token in tokens], skip_special_tokens=True)

    def _ids(self, text: str) -> list[int]:
        return self._inner.encode(text, add_special_tokens=False).ids
