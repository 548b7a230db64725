"""Tokens of any tokenizer of the `tokenizers` library, from its file.

Where pieces never cross a space the pieces of each word are looked up once (`FileSpeller`). Where they may, whole texts
are tokenised (`TextTokens`): slower, and right.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lengthwise import door
from lengthwise.data.examples import Examples, Part, concatenate, offsets
from lengthwise.data.tokens import Tokens
from lengthwise.data.vocabulary import Vocabulary
from lengthwise.errors import UserError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

ENDS = ("</s>", "<|endoftext|>", "<|end_of_text|>", "<eos>", "<|eot_id|>", "<|im_end|>", "[EOS]", "<end>")
"""What tokenizers call the end of a text; one without any gets a row more."""
LARGEST, MOST_ROWS = 2**28, 2**24
"""Bytes of a file, and rows of an embedding: ten times those of the largest vocabularies there are."""
PADS = ("<pad>", "[PAD]", "<|pad|>", "<|padding|>", "<|finetune_right_pad_id|>")


def load_tokenizer(path: Path) -> "Tokenizer":
    try:
        from tokenizers import Tokenizer
    except ImportError:
        raise UserError("tokens from a file need the tokenizers library: pip install 'lengthwise[language]'") from None
    # Read here, not by the library: it would wait for a pipe, and read a device without end.
    text = door.read_text(path, LARGEST, UserError)
    try:
        found = Tokenizer.from_str(text)
        vocabulary = found.get_vocab(with_added_tokens=True)
        found.encode("a 1", add_special_tokens=False)
    except BaseException as error:  # the library raises nothing more precise, and where it panics no Exception
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        words = door.visible(" ".join(str(error).split()))
        raise UserError(f"{path} is not the file of a tokenizer: {words}") from None
    if not vocabulary or max(vocabulary.values()) >= MOST_ROWS:
        raise UserError(f"{path} is not the file of a tokenizer: it has no tokens, or numbers beyond {MOST_ROWS:,}")
    return found


class FileSpeller:
    """Pieces of words by a tokenizer."""

    def __init__(self, tokenizer: "Tokenizer") -> None:
        self.tokenizer = tokenizer
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        taken = max(vocabulary.values()) + 1
        found = next((vocabulary[name] for name in ENDS if name in vocabulary), None)
        self.end = taken if found is None else found
        self.size = max(taken, self.end + 1)
        self.pad = next((vocabulary[name] for name in PADS if name in vocabulary), self.end)
        self.unknown_piece = _unknown_piece(tokenizer)
        # A word in the middle of a text is spelled behind this one, whose pieces are then taken away.
        self._before = tokenizer.encode("a", add_special_tokens=False).ids

    def spell(self, word: str, first: bool) -> list[int] | None:
        if first:
            pieces = self.tokenizer.encode(word, add_special_tokens=False).ids
        else:
            pieces = self.tokenizer.encode(f"a {word}", add_special_tokens=False).ids
            if pieces[: len(self._before)] != self._before:
                return None
            pieces = pieces[len(self._before) :]
        return None if self.unknown_piece in pieces else list(pieces)

    def piece(self, index: int) -> str:
        return self.tokenizer.id_to_token(index) or f"<piece {index}>"

    def text(self, pieces: Sequence[int]) -> str:
        return self.tokenizer.decode(list(pieces), skip_special_tokens=False).strip()

    def unknown(self, word: str) -> UserError:
        return UserError(f"the tokenizer has no pieces for {word!r}, which the task writes; choose another tokenizer")


class TextTokens(Tokens):
    """Whole texts by a tokenizer."""

    def __init__(self, vocabulary: Vocabulary, speller: FileSpeller) -> None:
        self.vocabulary, self.speller = vocabulary, speller
        self.pad, self.end, self.rows = speller.pad, speller.end, speller.size

    def convert_and_trace(self, examples: Examples) -> tuple[Examples, np.ndarray]:
        raise UserError("pieces of this tokenizer cross spaces, so it is not known which symbol each comes from")

    def convert(self, examples: Examples) -> Examples:
        texts, boundaries = [], []
        for i in range(len(examples)):
            one = slice(examples.starts[i], examples.starts[i + 1])
            tokens, is_target = examples.tokens[one], examples.parts[one] > Part.PROMPT
            prompt, target = self.vocabulary.decode(tokens[~is_target]), self.vocabulary.decode(tokens[is_target])
            texts.append(f"{prompt} {target}")
            boundaries.append(len(prompt))
        rows, parts = [], []
        for text, boundary, encoded in zip(texts, boundaries, self._encoded(texts), strict=True):
            ends = np.array([end for _, end in encoded.offsets])
            begins = np.array([begin for begin, _ in encoded.offsets])
            if ((begins < boundary) & (ends > boundary + 1)).any():
                raise UserError(f"the tokenizer has a piece that is part of prompt and answer in {text!r}")
            if self.speller.unknown_piece in encoded.ids:
                raise self.speller.unknown(text)
            rows.append(np.array(encoded.ids, dtype=np.int32))
            parts.append(np.where(ends > boundary, Part.ANSWER, Part.PROMPT).astype(np.uint8))
        starts = offsets(np.array([len(row) for row in rows], dtype=np.int64))
        return Examples(np.concatenate(rows), np.concatenate(parts), starts, examples.buckets)

    def _encoded(self, texts: list[str]) -> list[Any]:
        return self.speller.tokenizer.encode_batch(texts, add_special_tokens=False)

    def piece(self, index: int) -> str:
        return self.speller.piece(index)

    def text(self, ids: Sequence[int] | np.ndarray) -> str:
        return self.speller.text([int(index) for index in ids])


def is_word_by_word(by_words: Tokens, by_texts: TextTokens, samples: Sequence[Examples]) -> bool:
    """Whether looking words up gives what the tokenizer makes of whole texts."""
    tokenizer = by_texts.speller.tokenizer
    examples = concatenate(samples)
    for i in range(len(examples)):
        one = slice(examples.starts[i], examples.starts[i + 1])
        text = by_texts.vocabulary.decode(examples.tokens[one])
        # Pieces are found within what the tokenizer splits a text into first: no such part may go on behind a space.
        if tokenizer.pre_tokenizer is None or any(
            " " in text[begin:end].strip() for _, (begin, end) in tokenizer.pre_tokenizer.pre_tokenize_str(text)
        ):
            return False
    try:
        looked_up = by_words.convert(examples)
    except UserError:
        return False
    whole = by_texts.convert(examples)
    return np.array_equal(looked_up.tokens, whole.tokens) and np.array_equal(looked_up.starts, whole.starts)


def _unknown_piece(tokenizer: "Tokenizer") -> int | None:
    model: Any = tokenizer.model
    name = getattr(model, "unk_token", None)
    if isinstance(name, str):
        return tokenizer.token_to_id(name)
    index = getattr(model, "unk_id", None)
    return index if isinstance(index, int) else tokenizer.token_to_id("<unk>")
