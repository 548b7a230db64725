"""The tokens of a corpus, made once: a memory-mapped file for each split, with an index of where documents start.

tokens/KEY/                 KEY: a hash of all that decides what is in it; or a folder of any name (see `prepared`)
  tokenizer.json
  train.tokens              documents end to end, uint16 or uint32, each from its begin token to its end token
  train.starts.npy          where each begins, and at last where the last one ends
  validation.*, test.*
  manifest.json             sources and their hashes, counts, hashes of the files above
"""

import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from lengthwise import door
from lengthwise.errors import RunError, UserError
from lengthwise.language.corpus import SPLITS, Corpus, Document, content_hash
from lengthwise.language.settings import LanguageData
from lengthwise.language.store_files import MOST_BYTES, read_manifest, read_starts, refuse_unknown_tokens
from lengthwise.language.tokenizer import Tokenizer
from lengthwise.leftovers import clear_leftovers_of, partial_of, remove_empty
from lengthwise.records.directory import make_folder
from lengthwise.records.files import storage_error, write_json

VERSION = 1
DECIDING = ("version", "files", "field", "vocabulary", "tokenizer_characters")
"""What a manifest says of all that decides which tokens there are."""
PIECE = 65_536
"""Characters of a long document that one core encodes at a time."""
TOGETHER = 4_000_000
"""Characters that all cores encode at a time."""
BETWEEN_WORDS = re.compile(r"(?<=[^\W\d_])(?= [^\W\d_])")
"""Where a text can be cut without changing its tokens: none reaches over a space between two letters."""

LONGEST_WORD = 1000
"""Characters; training a tokenizer takes time that grows with the square of a word's length."""
ENDLESS_WORD = re.compile(rf"\S{{{LONGEST_WORD}}}|\s{{{LONGEST_WORD}}}")


@dataclass(frozen=True)
class Documents:
    """The documents of a split, end to end."""

    tokens: np.ndarray
    starts: np.ndarray
    """Of each document, and the end of the last: one more than there are documents."""

    def __len__(self) -> int:
        return len(self.starts) - 1

    def __getitem__(self, number: int) -> np.ndarray:
        """A document with its begin and its end token."""
        if not 0 <= number < len(self):
            raise IndexError(number)
        return self.tokens[self.starts[number] : self.starts[number + 1]]

    @property
    def longest(self) -> int:
        """Tokens of the longest document."""
        return int(np.diff(self.starts).max())


class TokenStore:
    """What `prepare` has written."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not (folder / "manifest.json").exists():
            raise UserError(f"no tokens at {folder}")
        self.manifest = read_manifest(folder / "manifest.json")
        self._documents: dict[str, Documents] = {}

    @property
    def key(self) -> str:
        """The same on every machine, in a folder of any name."""
        return _key({name: self.manifest[name] for name in DECIDING})

    def check(self) -> None:
        """Refuses files that are not those that were written, e.g. after a copy that broke off."""
        for name, expected in self.manifest.get("hashes", {}).items():
            path = self.folder / name
            try:
                door.refuse_unreadable(path, MOST_BYTES)
            except door.MissingFile:
                raise RunError(f"{path} is missing; prepare or copy it again") from None
            if content_hash(path) != expected:
                raise RunError(f"{path} is damaged; prepare or copy it again")

    @cached_property
    def tokenizer(self) -> Tokenizer:
        found = Tokenizer.load(self.folder / "tokenizer.json")
        if found.rows > self.manifest["vocabulary"]:
            raise RunError(f"{self.folder}/tokenizer.json has {found.rows:,} tokens, more than its manifest allows")
        return found

    def documents(self, split: str) -> Documents:
        if split not in self.manifest["splits"]:
            raise UserError(f"unknown split {split!r}; there are {', '.join(self.manifest['splits'])}")
        counts = self.manifest["splits"][split]
        if not counts["documents"]:
            raise UserError(
                f"the corpus {self.manifest['corpus']} has no {split} documents; give it a folder {split} (and train)"
                " or more documents"
            )
        if split not in self._documents:
            path, dtype = self.folder / f"{split}.tokens", np.dtype(self.manifest["dtype"])
            starts = read_starts(self.folder / f"{split}.starts.npy", counts["documents"])
            door.refuse_unreadable(path, MOST_BYTES)
            if path.stat().st_size != starts[-1] * dtype.itemsize:
                raise RunError(f"{path} is damaged (its size is wrong); delete {self.folder} to make it again")
            tokens = np.memmap(path, dtype, mode="r")
            refuse_unknown_tokens(tokens, self.tokenizer.rows, path)
            self._documents[split] = Documents(tokens, starts)
        return self._documents[split]


def prepare(corpus: Corpus, data: LanguageData, folder: Path, note: Callable[[str], None]) -> TokenStore:
    """The tokens of a corpus in a folder of their own inside `folder`; made only where they are not there yet."""
    decides = _decides(corpus, data)
    return _made(corpus, data, folder / _key(decides), decides, note)


def prepare_at(corpus: Corpus, data: LanguageData, place: Path, note: Callable[[str], None]) -> TokenStore:
    """The tokens of a corpus in the folder `place` itself; refuses to put them where something else is."""
    decides = _decides(corpus, data)
    if (place / "manifest.json").exists():
        if TokenStore(place).key != _key(decides):
            raise UserError(f"{place} holds the tokens of another corpus or of other settings; choose another folder")
    elif place.exists() and (not place.is_dir() or any(place.iterdir())):
        raise UserError(f"{place} is not empty; choose another folder")
    return _made(corpus, data, place, decides, note)


def find_store(key: str, folders: Iterable[Path]) -> TokenStore | None:
    """The first with this key, in one of the folders or being one of them."""
    if not re.fullmatch(r"[0-9a-f]{16}", key):
        raise RunError(f"{door.visible(key, 40)!r} is no key of tokens; restore the run, or train it again")
    for folder in folders:
        for place in (folder / key, folder):
            if (place / "manifest.json").exists():
                store = TokenStore(place)
                if store.key == key:
                    return store
    return None


def _decides(corpus: Corpus, data: LanguageData) -> dict[str, Any]:
    return {
        "version": VERSION,
        "files": corpus.hashes(),
        "field": corpus.field,
        "vocabulary": data.vocabulary,
        "tokenizer_characters": data.tokenizer_characters,
    }


def _key(decides: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(decides, sort_keys=True).encode()).hexdigest()[:16]


def _made(
    corpus: Corpus, data: LanguageData, place: Path, decides: dict[str, Any], note: Callable[[str], None]
) -> TokenStore:
    clear_leftovers_of(place)
    if not (place / "manifest.json").exists():
        above = next(each for each in (place, *place.parents) if each.exists())
        make_folder(place.parent)
        partial = partial_of(place)
        try:
            partial.mkdir()
            _write(corpus, data, partial, decides, note)
            try:
                partial.rename(place)
            except OSError:
                if not (place / "manifest.json").exists():  # else another process was faster: its tokens are the same
                    raise
        except OSError as error:
            raise storage_error(error, place) from error
        finally:
            shutil.rmtree(partial, ignore_errors=True)
            remove_empty(place.parent, above)  # where nothing came of it
    return TokenStore(place)


def _write(
    corpus: Corpus, data: LanguageData, folder: Path, decides: dict[str, Any], note: Callable[[str], None]
) -> None:
    note(f"training a tokenizer on {corpus.path}")
    texts = (document.text for document in corpus.documents(["train"]))
    tokenizer = Tokenizer.train(_first(texts, data.tokenizer_characters), data.vocabulary)
    (folder / "tokenizer.json").write_text(tokenizer.text())
    dtype = np.dtype(np.uint16 if tokenizer.rows <= 2**16 else np.uint32)
    note(f"encoding {corpus.path} with {tokenizer.rows:,} tokens")
    writers = {split: _Writer(folder, split, dtype) for split in SPLITS}
    empty = 0

    def counted(documents: Iterable[Document]) -> Iterator[Document]:
        nonlocal empty
        for document in documents:
            if document.text.strip():
                yield document
            else:
                empty += 1

    for pieces in _groups(chain.from_iterable(map(_pieces, counted(corpus.documents())))):
        for piece, tokens in zip(pieces, tokenizer.encode_many([piece.text for piece in pieces]), strict=True):
            ends = ((piece.first, tokenizer.begin), (piece.last, tokenizer.end))
            around = [np.full(int(is_there), token) for is_there, token in ends]
            writers[piece.split].add(np.concatenate([around[0], tokens, around[1]]), len(piece.text), piece.last)
    counts = {split: writer.close() for split, writer in writers.items()}
    for split in ("train", "validation"):
        if not counts[split]["documents"]:
            others = ", ".join(f"{each['documents']} {name}" for name, each in counts.items())
            raise UserError(
                f"{corpus.path} has no {split} documents with text in them ({others}; {empty} empty); put documents"
                " into the folders train and validation, or give it more of them"
            )
    hashes = {file.name: content_hash(file) for file in sorted(folder.iterdir())}
    facts = {"corpus": str(corpus.path), "dtype": dtype.name, "splits": counts, "empty_documents": empty}
    write_json(folder / "manifest.json", {**facts, **decides, "hashes": hashes})


def _first(texts: Iterable[str], characters: int) -> Iterator[str]:
    """So many characters of the texts; a text with an endless word comes in small pieces."""
    for text in texts:
        if characters <= 0:
            return
        text = text[:characters]
        characters -= len(text)
        size = LONGEST_WORD if ENDLESS_WORD.search(text) else max(1, len(text))
        yield from (text[start : start + size] for start in range(0, len(text), size))


@dataclass(frozen=True)
class _Piece:
    """Of a document."""

    text: str
    split: str
    first: bool
    last: bool


def _pieces(document: Document) -> Iterator[_Piece]:
    text, start = document.text, 0
    while start < len(text):
        cut = BETWEEN_WORDS.search(text, start + PIECE)
        end = cut.start() if cut else len(text)
        yield _Piece(text[start:end], document.split, start == 0, end == len(text))
        start = end


def _groups(pieces: Iterable[_Piece]) -> Iterator[list[_Piece]]:
    group: list[_Piece] = []
    characters = 0
    for piece in pieces:
        group.append(piece)
        characters += len(piece.text)
        if characters >= TOGETHER:
            yield group
            group, characters = [], 0
    if group:
        yield group


class _Writer:
    """Of the documents of a split."""

    def __init__(self, folder: Path, split: str, dtype: np.dtype) -> None:
        self.folder, self.split, self.dtype = folder, split, dtype
        self.file: BinaryIO = (folder / f"{split}.tokens").open("wb")
        self.starts = [0]
        self.tokens = self.characters = 0

    def add(self, tokens: np.ndarray, characters: int, ends: bool) -> None:
        self.file.write(tokens.astype(self.dtype).tobytes())
        self.tokens += len(tokens)
        self.characters += characters
        if ends:
            self.starts.append(self.tokens)

    def close(self) -> dict[str, int]:
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        np.save(self.folder / f"{self.split}.starts.npy", np.array(self.starts, dtype=np.int64))
        return {"documents": len(self.starts) - 1, "tokens": self.tokens, "characters": self.characters}
