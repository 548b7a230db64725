"""Which tokens a task has in a study: settings become a `Tokens`."""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

import numpy as np

from lengthwise.data.examples import Examples, Part
from lengthwise.data.published_tokens import PublishedSpeller
from lengthwise.data.tokenizer_file import FileSpeller, TextTokens, is_word_by_word, load_tokenizer
from lengthwise.data.tokens import PieceTokens, SymbolTokens, Tokens
from lengthwise.data.vocabulary import TIE
from lengthwise.errors import UserError
from lengthwise.seeding import stream
from lengthwise.tasks.task import Span, Task

SYMBOLS = "symbols"
PUBLISHED = "published"
SEPARATOR = "[SEP]"
SAMPLED = 4
"""Examples of each length by which a tokenizer is judged: do its pieces cross spaces?"""


def make_tokens(
    task: Task,
    tokens: str = SYMBOLS,
    trimmed: bool = False,
    prefix_tokens: int = 0,
    separator_tokens: int = 0,
    rows: int = 0,
) -> Tokens:
    """Tokens of everything that `task` writes.

    `tokens`: `symbols`, `published`, or the file of a tokenizer. `trimmed`: embedding rows only for pieces in use.
    `prefix_tokens`, `separator_tokens`: how many tokens the first word and the separator take; 0 for as many as they
    have anyway. Other numbers than that are for tokens that are symbols. `rows`: embedding rows at least, where there
    are only those in use.
    """
    key = (type(task), repr(task.config), tokens, trimmed, prefix_tokens, separator_tokens, rows)
    changed = None if tokens in (SYMBOLS, PUBLISHED) else _changed(Path(tokens))
    found = _MADE.get((*key, changed))
    if found is None:
        found = _make(task, tokens, trimmed, prefix_tokens, separator_tokens, rows)
        while len(_MADE) >= KEPT:
            del _MADE[next(iter(_MADE))]
        _MADE[*key, changed] = found
    return found


KEPT = 64
_MADE: dict[tuple[object, ...], Tokens] = {}
"""Tokens know the spellings of the words they have met, so they are kept."""


def _make(task: Task, tokens: str, trimmed: bool, prefix_tokens: int, separator_tokens: int, rows: int) -> Tokens:
    vocabulary = task.vocabulary
    if tokens == SYMBOLS:
        return SymbolTokens(vocabulary, _several(task, prefix_tokens, separator_tokens), rows)
    if prefix_tokens or separator_tokens:
        raise UserError(
            f'data.prefix_tokens and data.separator_tokens are for data.tokens = "{SYMBOLS}", not "{tokens}"'
        )
    if tokens == PUBLISHED:
        return PieceTokens(vocabulary, PublishedSpeller(), trimmed, rows)
    path = Path(tokens)
    speller = _file_speller(str(path), _changed(path))
    by_words, by_texts = PieceTokens(vocabulary, speller, trimmed, rows), TextTokens(vocabulary, speller)
    if is_word_by_word(by_words, by_texts, _samples(task)):
        return by_words
    if trimmed:
        raise UserError(f"{path}: pieces cross spaces, so it is not known which are in use; set data.trimmed = false")
    return by_texts


def _several(task: Task, prefix_tokens: int, separator_tokens: int) -> dict[int, int]:
    """Symbol -> how many tokens it takes."""
    several = {}
    if prefix_tokens:
        several[_prefix(task)] = prefix_tokens
    if separator_tokens:
        found = separator_symbols(task)
        if not found:
            raise UserError(f"data.separator_tokens: {task.title} has no {SEPARATOR} in its prompts")
        several |= dict.fromkeys(found, separator_tokens)
    return {symbol: count for symbol, count in several.items() if count != 1}


def separator_symbols(task: Task) -> list[int]:
    """The symbols that are the separator, standing alone or tied to the word before it; none where a task has none."""
    found = [symbol for symbol in (SEPARATOR, TIE + SEPARATOR) if symbol in task.vocabulary.symbols]
    return [task.vocabulary.id(symbol) for symbol in found]


def _prefix(task: Task) -> int:
    """The symbol that all prompts begin with."""
    bucket = task.buckets(task.train_lengths)[0]
    anchors = {int(ids.ravel()[0]) for part, ids in task.draw(bucket, 2, stream(0)) if part is Part.ANCHOR and ids.size}
    words = sum(ids.shape[-1] for part, ids in task.draw(bucket, 2, stream(0)) if part is Part.ANCHOR)
    if len(anchors) != 1 or words != 1:
        raise UserError(f"data.prefix_tokens: prompts of {task.title} do not begin with one constant word")
    return anchors.pop()


def _samples(task: Task) -> Sequence[Examples]:
    spans = (task.train_lengths, task.test_lengths)
    buckets = [bucket for span in spans for bucket in _ends(task.buckets(Span(span.first, span.last)))]
    return [task.examples(bucket, SAMPLED, stream(0, "tokens", bucket)) for bucket in buckets]


def _ends(buckets: Sequence[int]) -> list[int]:
    """Some of them, the first and the last among them."""
    return sorted({buckets[i] for i in np.linspace(0, len(buckets) - 1, 8).astype(int)}) if buckets else []


def _changed(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError as error:
        raise UserError(f"data.tokens: cannot read {path}: {error.strerror}") from None


@lru_cache(maxsize=4)
def _file_speller(path: str, _changed: int) -> FileSpeller:
    return FileSpeller(load_tokenizer(Path(path)))
