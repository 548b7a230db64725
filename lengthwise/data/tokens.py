"""How what a task writes becomes token ids: one for each symbol, the published pieces, or those of any tokenizer.

A task writes symbols. A word is a symbol and the symbols tied to it: `6` and a tied `.` are the word `6.`. Pieces of a
word are looked up, each word once, and then copied for all examples at once: pieces never cross a space.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise
from typing import Protocol

import numpy as np

from lengthwise.data.examples import Examples, Part, concatenate, offsets
from lengthwise.data.vocabulary import TIE, Vocabulary
from lengthwise.errors import UserError

ROW_UNIT = 64
"""Embedding rows are rounded up to a multiple of this where a model needs no more than are in use, so that tasks of
like size have models of equal shape."""


CHUNK = 2**16
"""Symbols that are looked up in one go: what is made of them then stays in a processor's cache."""


class Tokens:
    """Ids of tokens, and back to text."""

    pad: int
    """Fills rows; no model is ever asked for it."""
    end: int
    rows: int
    """Embedding rows."""

    def convert(self, examples: Examples) -> Examples:
        """The same examples with ids of tokens instead of symbols; every token has the part of its word."""
        return self.convert_and_trace(examples)[0]

    def convert_and_trace(self, examples: Examples) -> tuple[Examples, np.ndarray]:
        """The same, and for each token the index of the symbol that its word begins with."""
        raise NotImplementedError

    def piece(self, index: int) -> str:
        """A token as it is shown to people."""
        raise NotImplementedError

    def text(self, ids: Sequence[int] | np.ndarray) -> str:
        """The text of tokens, the end left out: what the task wrote."""
        raise NotImplementedError

    def pieces(self, ids: Sequence[int] | np.ndarray) -> list[str]:
        return [self.piece(int(index)) for index in ids]


class SymbolTokens(Tokens):
    """One token for each symbol of a closed vocabulary; words of the template may have several."""

    def __init__(self, vocabulary: Vocabulary, several: dict[int, int] | None = None, rows: int = 0) -> None:
        """`several`: symbol -> its number of tokens, where that is not one. `rows`: of the embedding, at least."""
        self.vocabulary = vocabulary
        self.pad, self.end = vocabulary.pad, vocabulary.end
        self.several = several or {}
        self.count_V = np.ones(len(vocabulary), dtype=np.int64)
        self.more_V = np.zeros(len(vocabulary), dtype=np.int64)  # id of its second token; the others follow
        free = len(vocabulary)
        for symbol, count in self.several.items():
            self.count_V[symbol], self.more_V[symbol] = count, free
            free += count - 1
        self.rows = _rounded(max(free, rows))

    def convert_and_trace(self, examples: Examples) -> tuple[Examples, np.ndarray]:
        if not self.several:
            return examples, np.arange(len(examples.tokens))
        count, more = self.count_V[examples.tokens], self.more_V[examples.tokens]
        before = offsets(count)
        place = np.arange(before[-1]) - np.repeat(before[:-1], count)
        tokens = np.where(place == 0, np.repeat(examples.tokens, count), np.repeat(more, count) + place - 1)
        parts = np.repeat(examples.parts, count)
        source = np.repeat(np.arange(len(count)), count)
        return Examples(tokens.astype(np.int32), parts, before[examples.starts], examples.buckets), source

    def piece(self, index: int) -> str:
        for symbol, count in self.several.items():
            place = index - int(self.more_V[symbol]) + 2
            if index == symbol or 2 <= place <= count:
                return f"{self.vocabulary.symbol(symbol)}/{1 if index == symbol else place}"
        return self.vocabulary.symbol(index)

    def text(self, ids: Sequence[int] | np.ndarray) -> str:
        if self.several:  # the first token of a word stands for all of them
            ids = [index for index in ids if index < len(self.vocabulary) or index >= self.used]
        return self.vocabulary.decode(ids)

    @property
    def used(self) -> int:
        """Ids from here on are spare rows of the embedding."""
        return len(self.vocabulary) + sum(count - 1 for count in self.several.values())


class Speller(Protocol):
    """Knows the pieces of words."""

    size: int
    end: int
    pad: int

    def spell(self, word: str, first: bool) -> list[int] | None:
        """Ids of a word's pieces; None where it is not known. `first`: whether it begins a text."""
        ...

    def piece(self, index: int) -> str: ...

    def text(self, pieces: Sequence[int]) -> str:
        """The text that pieces make up."""
        ...

    def unknown(self, word: str) -> UserError:
        """What to tell whoever needs a word that is not known."""
        ...


@dataclass
class _Spellings:
    """Pieces of the words met so far; words are numbered as `PieceTokens` does."""

    known: np.ndarray
    count: np.ndarray
    offset: np.ndarray
    flat: np.ndarray = field(default_factory=lambda: np.zeros(0, dtype=np.int32))

    @classmethod
    def of(cls, size: int) -> "_Spellings":
        return cls(np.zeros(size, dtype=bool), np.zeros(size, dtype=np.int64), np.zeros(size, dtype=np.int64))

    def add(self, codes: Sequence[int], spelled: Sequence[Sequence[int]]) -> None:
        if not codes:
            return
        sizes = np.array([len(pieces) for pieces in spelled])
        self.known[codes], self.count[codes] = True, sizes
        self.offset[codes] = len(self.flat) + offsets(sizes)[:-1]
        self.flat = np.concatenate([self.flat, *(np.asarray(pieces, dtype=np.int32) for pieces in spelled)])


class PieceTokens(Tokens):
    """The pieces of each word."""

    def __init__(self, vocabulary: Vocabulary, speller: Speller, trimmed: bool, rows: int = 0) -> None:
        """`trimmed`: embedding rows only for pieces of words that the vocabulary can make, and at least `rows`; else
        for all there are."""
        self.vocabulary, self.speller, self.trimmed = vocabulary, speller, trimmed
        ties = [symbol for symbol in vocabulary.symbols if symbol.startswith(TIE)]
        self.ties = len(ties)
        self.tie_V = np.array([ties.index(s) + 1 if s in ties else 0 for s in vocabulary.symbols])
        """0 for a symbol that begins a word, else its number among those that are tied."""
        self._tied_symbols = [symbol.removeprefix(TIE) for symbol in ties]
        self._spellings: dict[int, _Spellings] = {}
        self.pad, self.end = (self._own(index) for index in (speller.pad, speller.end))
        self.rows = _rounded(max(len(self.used), rows)) if trimmed else speller.size

    @cached_property
    def used(self) -> list[int]:
        """Of a trimmed vocabulary: the pieces that have a row, in the order of their rows."""
        found = {
            piece
            for word in self._words()
            for first in (True, False)
            for piece in self.speller.spell(word, first) or ()
        }
        return [self.speller.pad, self.speller.end, *sorted(found - {self.speller.pad, self.speller.end})]

    def _words(self) -> Iterable[str]:
        """Every symbol, and every symbol with one that is tied to it."""
        for symbol in self.vocabulary.symbols[2:]:
            yield symbol.removeprefix(TIE)
            if not symbol.startswith(TIE):
                yield from (symbol + tied for tied in self._tied_symbols)

    @cached_property
    def _row_of(self) -> dict[int, int]:
        return {piece: row for row, piece in enumerate(self.used)}

    def _own(self, piece: int) -> int:
        return self._row_of[piece] if self.trimmed else piece

    def convert(self, examples: Examples) -> Examples:
        return concatenate([converted for converted, _, _ in self._chunks(examples)] or [examples])

    def convert_and_trace(self, examples: Examples) -> tuple[Examples, np.ndarray]:
        chunks = list(self._chunks(examples))
        sources = [np.repeat(start_W, count_W) for _, start_W, count_W in chunks]
        converted = concatenate([converted for converted, _, _ in chunks] or [examples])
        return converted, np.concatenate([*sources, np.zeros(0, dtype=np.int64)])

    def _chunks(self, examples: Examples) -> Iterator[tuple[Examples, np.ndarray, np.ndarray]]:
        """Converted some at a time, with the symbol that each word begins with and the word's number of tokens."""
        edges = np.searchsorted(examples.starts, np.arange(0, examples.starts[-1], CHUNK), side="right") - 1
        edges = np.unique(np.append(edges, len(examples)))
        for first, last in pairwise(edges.tolist()):
            converted, start_W, count_W = self._convert(_some(examples, first, last))
            yield converted, start_W + examples.starts[first], count_W

    def _convert(self, examples: Examples) -> tuple[Examples, np.ndarray, np.ndarray]:
        tie = self.tie_V[examples.tokens]
        first = np.zeros(len(tie), dtype=bool)
        first[examples.starts[:-1][examples.sizes > 0]] = True
        is_target = examples.parts > Part.PROMPT
        # A target is read without its prompt, so it begins with a new word whatever it begins with.
        begins = (tie == 0) | first
        begins[1:] |= is_target[1:] & ~is_target[:-1]
        start_W = np.flatnonzero(begins)
        symbols_W = np.diff(start_W, append=len(tie))
        most = int(symbols_W.max(initial=1)) - 1
        code_W = examples.tokens[start_W].astype(np.int64)
        for place in range(1, most + 1):
            at_W = np.minimum(start_W + place, len(tie) - 1)
            code_W = code_W * (self.ties + 1) + np.where(symbols_W > place, tie[at_W], 0)
        code_W = 2 * code_W + first[start_W]
        spellings = self._spelled(code_W, most)
        count_W = spellings.count[code_W]
        before = offsets(count_W)
        shift_W = (spellings.offset[code_W] - before[:-1]).astype(np.int32)  # a chunk is small
        where = np.repeat(shift_W, count_W) + np.arange(before[-1], dtype=np.int32)
        parts = np.repeat(examples.parts[start_W], count_W)
        starts = before[np.searchsorted(start_W, examples.starts)]
        return Examples(spellings.flat[where], parts, starts, examples.buckets), start_W, count_W

    def _spelled(self, code_W: np.ndarray, most: int) -> _Spellings:
        """The spellings of words of up to `most` tied symbols, those of `code_W` among them."""
        if most not in self._spellings:
            self._spellings[most] = _Spellings.of(2 * len(self.vocabulary) * (self.ties + 1) ** most)
        spellings = self._spellings[most]
        met = np.zeros(len(spellings.known), dtype=bool)
        met[code_W] = True
        new = np.flatnonzero(met & ~spellings.known).tolist()
        spellings.add(new, [self._spell(self._word(code // 2, most), first=bool(code % 2)) for code in new])
        return spellings

    def _spell(self, word: str, first: bool) -> list[int]:
        pieces = self.speller.spell(word, first)
        if pieces is None:
            raise self.speller.unknown(word)
        if self.trimmed and not self._row_of.keys() >= set(pieces):
            raise UserError(f"{word!r} has pieces that no embedding row was kept for; set data.trimmed = false")
        return [self._own(piece) for piece in pieces]

    def _word(self, code: int, most: int) -> str:
        tied = []
        for _ in range(most):
            code, number = divmod(code, self.ties + 1)
            tied.append(self._tied_symbols[number - 1] if number else "")
        return self.vocabulary.symbol(code).removeprefix(TIE) + "".join(reversed(tied))

    def _piece_of(self, index: int) -> int | None:
        """None for a spare row of a trimmed embedding."""
        if not self.trimmed:
            return index
        return self.used[index] if index < len(self.used) else None

    def piece(self, index: int) -> str:
        piece = self._piece_of(index)
        return f"<spare-{index}>" if piece is None else self.speller.piece(piece)

    def text(self, ids: Sequence[int] | np.ndarray) -> str:
        pieces = [self._piece_of(int(index)) for index in ids]
        if None in pieces:  # a model may predict a row that is no piece; no text has it
            return " ".join(self.pieces(ids))
        return self.speller.text([piece for piece in pieces if piece is not None])


def _some(examples: Examples, first: int, last: int) -> Examples:
    """Examples number `first` to `last`."""
    begin, end = examples.starts[first], examples.starts[last]
    starts = examples.starts[first : last + 1] - begin
    return Examples(examples.tokens[begin:end], examples.parts[begin:end], starts, examples.buckets[first:last])


def _rounded(rows: int) -> int:
    return -(-rows // ROW_UNIT) * ROW_UNIT
