"""Tokens prepared once and carried along: a folder that stands for its corpus where there is no text."""

from collections.abc import Callable
from pathlib import Path

from lengthwise.errors import UserError
from lengthwise.language.corpus import Corpus
from lengthwise.language.settings import LanguageData
from lengthwise.language.store import TokenStore, prepare


def is_prepared(path: Path) -> bool:
    """Whether a folder holds tokens, not texts."""
    return (path / "manifest.json").exists() and (path / "train.tokens").exists()


def open_prepared(path: Path, data: LanguageData) -> TokenStore:
    """Refuses tokens that were made with other settings, and files that are not as they were written."""
    store = TokenStore(path)
    for name in ("vocabulary", "tokenizer_characters", "field"):
        was, wanted = store.manifest[name], getattr(data, name)
        if was != wanted:
            raise UserError(
                f"{path} was prepared with data.{name}={was}, not {wanted}; use --set data.{name}={was}, or prepare "
                "the texts again"
            )
    store.check()
    return store


def tokens_of(corpus: Path, data: LanguageData, folder: Path, note: Callable[[str], None]) -> TokenStore:
    """Of a prepared folder, as they are; of texts, made inside `folder` where they are not there yet."""
    if is_prepared(corpus):
        return open_prepared(corpus, data)
    return prepare(Corpus(corpus, data.field), data, folder, note)
