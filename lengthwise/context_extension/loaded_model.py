"""A language model whose context is to be extended: one that was trained here, or one of Hugging Face."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lengthwise.context_extension.foreign_model import open_foreign
from lengthwise.context_extension.foreign_tokenizer import ForeignTokenizer, TextTokenizer
from lengthwise.context_extension.hugging_face import Positions, is_hugging_face
from lengthwise.context_extension.reader import DecoderReader, Reader
from lengthwise.errors import UserError
from lengthwise.extensions.extended import make_extension
from lengthwise.extensions.naming import AUTO
from lengthwise.language.corpus import SPLITS, Corpus
from lengthwise.language.description import read_description
from lengthwise.language.model import load_language_model
from lengthwise.language.prepared import is_prepared
from lengthwise.language.store import Documents, TokenStore, find_store
from lengthwise.language.tokenizer import Tokenizer
from lengthwise.training.state import checksum


@dataclass(frozen=True)
class LoadedModel:
    name: str
    model: Reader
    """As trained; nothing here changes its weights."""
    tokenizer: TextTokenizer
    begins: np.ndarray
    """Tokens that every document begins with."""
    ends: np.ndarray
    """Tokens that every document ends with; none in foreign models."""
    store: TokenStore | None
    """The tokens it was trained on, where they are still there."""
    checksum: int
    """Of its weights."""
    key_rows: float | None
    """Share of its training rows that held passkey documents; None where nobody knows."""
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def trained(self) -> int:
        """Tokens of the longest sequences of training."""
        return self.model.trained

    def described(self) -> str:
        """In a line: flags of layers have been read inverted too often not to show what came of them."""
        runs = [(name, len(list(group))) for name, group in groupby(self.model.names)]
        layers = ", ".join(name if count == 1 else f"{count} x {name}" for name, count in runs)
        return f"{self.name}: trained at {self.trained:,} tokens; layers: {layers}"

    def extended(self, tables: Sequence[dict[str, Any]], context: int) -> Reader:
        """The model under extensions, to read so many tokens; without any, as it was trained."""
        chosen = [make_extension(at_context(table, context, self.trained)) for table in tables]
        return self.model.extended(chosen, context)

    def documents(
        self,
        split: str,
        corpus: Path | None = None,
        tokens: int = 0,
        longer_than: int = 0,
        note: Callable[[str], None] = lambda text: None,
    ) -> Documents:
        """Documents of the corpus it was trained on, or of another.

        A few texts in one folder may have none of a split: a model that was not trained on them reads all of them then,
        and `note` is told. `tokens`: of another corpus, whole documents from the first on until there are so many
        tokens in those that have more than `longer_than`; 0 for all.
        """
        if corpus is None:
            if self.store is None:
                raise UserError(f"{self.name} comes without its tokens; say with --corpus what it is to read")
            return self.store.documents(split)
        if is_prepared(corpus):
            return self._prepared(corpus).documents(split)
        texts = Corpus(corpus, trains=False)
        found = self._read(texts, [split], tokens, longer_than)
        if not found and texts.is_flat and self.store is None:
            note(f"none of the documents of {corpus} is of the {split} split: all of them are read")
            found = self._read(texts, SPLITS, tokens, longer_than)
        if not found:
            raise UserError(f"{corpus} has no {split} documents; give it a folder {split} (and train)")
        return Documents(np.concatenate(found), np.cumsum([0, *map(len, found)]))

    def _read(self, corpus: Corpus, splits: Sequence[str], tokens: int, longer_than: int) -> list[np.ndarray]:
        found, total = [], 0
        for document in corpus.documents(splits):
            if document.text.strip():
                found.append(np.concatenate([self.begins, self._encoded(document.text), self.ends]))
                total += len(found[-1]) * (len(found[-1]) > longer_than)
                if tokens and total >= tokens:
                    break
        return found

    def _encoded(self, text: str) -> np.ndarray:
        tokens, rows = self.tokenizer.encode(text), self.model.rows
        if tokens.max(initial=0) >= rows:
            raise UserError(f"the tokenizer of {self.name} makes token {tokens.max()}, but the model has {rows:,} rows")
        return tokens

    def _prepared(self, folder: Path) -> TokenStore:
        """Tokens that this model's tokenizer made."""
        store = TokenStore(folder)
        if not isinstance(self.tokenizer, Tokenizer) or store.tokenizer.text() != self.tokenizer.text():
            raise UserError(f"{folder} holds tokens of another tokenizer than that of {self.name}; give it the texts")
        store.check()
        return store


def open_model(
    path: Path,
    device: torch.device,
    store: Path | None = None,
    positions: Positions = "auto",
    trained: int = 0,
    dtype: str = "auto",
) -> LoadedModel:
    """The model in the folder of a run of `lengthwise language train`, or of a Hugging Face checkpoint.

    `store`: the folder in which tokens of corpora are kept, or a prepared one; by default `tokens` beside the run, or
    where they were when it was trained.
    """
    if is_hugging_face(path):
        return _foreign(path, device, positions, trained, dtype)
    if positions != "auto" or trained or dtype != "auto":
        raise UserError(f"{path} is a run of ours, which knows its positions, its training length and its precision")
    return _ours(path, device, store)


def _ours(path: Path, device: torch.device, store: Path | None) -> LoadedModel:
    model, tokenizer, settings = load_language_model(path)
    model.requires_grad_(False)
    number = checksum_of(DecoderReader(model))
    description = read_description(path)
    known = [path.parent / "tokens", *(path / each for each in [description.get("tokens_folder")] if each)]
    tokens = find_store(str(description["tokens"]), known if store is None else [store])
    if store is not None and tokens is None:
        raise UserError(f"the tokens of {path} are not in {store}")
    return LoadedModel(
        path.name,
        DecoderReader(model.to(device).eval()),
        tokenizer,
        np.array([tokenizer.begin]),
        np.array([tokenizer.end]),
        tokens,
        number,
        settings.data.passkey_share,
        {"folder": str(path), "encodings": model.encoding_names(), "precision": description.get("precision")},
    )


def _foreign(path: Path, device: torch.device, positions: Positions, trained: int, dtype: str) -> LoadedModel:
    model = open_foreign(path, device, positions, trained, dtype)
    tokenizer = ForeignTokenizer.load(path)
    facts = {"folder": str(path), "encodings": list(model.names), "precision": str(model.dtype).removeprefix("torch.")}
    nothing = np.zeros(0, dtype=np.int64)
    number = checksum_of(model)
    return LoadedModel(path.name, model, tokenizer, tokenizer.begins, nothing, None, number, None, facts)


def checksum_of(model: Reader) -> int:
    return checksum({name: value.detach().cpu() for name, value in model.weights().items()})


def at_context(table: dict[str, Any], context: int, trained: int) -> dict[str, Any]:
    """An extension's table with `factor = "auto"` put in; never below 1."""
    if table.get("factor") != AUTO:
        return table
    return {**table, "factor": max(1.0, context / trained)}
