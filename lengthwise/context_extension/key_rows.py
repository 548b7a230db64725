"""The sequences of a fit: windows of text, and passkey documents among them as among the rows of training.

Shape letters: R rows, T tokens.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from lengthwise.context_extension.fitting_rows import TrainingWindows
from lengthwise.context_extension.passkey import KeyDocuments
from lengthwise.errors import UserError
from lengthwise.language.passkey_rows import FILLER, SHORT, draw_key
from lengthwise.seeding import stream

MILLION = 1_000_000


@dataclass(frozen=True)
class KeyPart:
    """Sequences of a step that are read in the same way."""

    tokens_RT: np.ndarray
    targets_RT: np.ndarray
    """The token that follows in the document."""
    segments_RT: np.ndarray | None = None
    """Which document of its row a token belongs to, from 1; None where a row is one text."""


class KeyRows:
    """Rows that are full of passkey documents: every other row of short ones, which ask more often and nearer."""

    def __init__(self, documents: KeyDocuments, ends: np.ndarray, length: int, seed: int) -> None:
        """`ends`: tokens that every document ends with."""
        self.documents, self.ends, self.length, self.seed = documents, ends, length, seed
        # Tokens that are read of the shortest document, whatever its key; the last one of a document is only predicted.
        self.shortest = max(documents.shortest(f"{digit}" * 5) for digit in range(10)) + len(ends) - 1
        if length < self.shortest:
            raise UserError(f"{length:,} tokens are too few for passkey documents ({self.shortest} or more)")

    def part(self, numbers: list[int]) -> KeyPart:
        tokens_RT, targets_RT, segments_RT = (np.zeros((len(numbers), self.length), dtype=np.int64) for _ in range(3))
        for row, number in enumerate(numbers):
            first = 0
            for segment, document in enumerate(self._row(number), start=1):
                place = (row, slice(first, first + len(document) - 1))
                tokens_RT[place], targets_RT[place], segments_RT[place] = document[:-1], document[1:], segment
                first += len(document) - 1
        return KeyPart(tokens_RT, targets_RT, segments_RT)

    def _row(self, number: int) -> Iterator[np.ndarray]:
        generator, left = stream(self.seed, "passkeys of fits", number), self.length
        longest = left if number % 2 else min(left, SHORT * self.shortest)
        while left:
            size = int(generator.integers(self.shortest, min(left, longest) + 1))
            size = left if left - size < self.shortest else size
            depth, first = float(generator.random()), int(generator.integers(len(FILLER)))
            key = draw_key(generator, held_out=False)
            made = self.documents.document(size + 1 - len(self.ends), depth, key, first)
            yield np.concatenate([made.prompt, made.answer, self.ends]).astype(np.int64)
            left -= size


class FitSequences:
    """The endless sequence of what a fit reads."""

    def __init__(self, windows: TrainingWindows, keys: KeyRows | None = None, share: float = 0.0) -> None:
        """`share`: of the sequences that are rows of passkey documents."""
        self.windows, self.keys = windows, keys
        self.share = round(share * MILLION) if keys else 0

    def parts(self, first: int, count: int) -> list[KeyPart]:
        """Sequences number `first` and those after it: the texts, then the rows of passkey documents."""
        numbers = np.arange(first, first + count)
        made_before = numbers * self.share // MILLION
        is_made = (numbers + 1) * self.share // MILLION > made_before
        texts, found = (numbers - made_before)[~is_made], []
        if len(texts):
            rows_RT = self.windows.rows(int(texts[0]), len(texts))  # they follow one another
            found.append(KeyPart(rows_RT[:, :-1], rows_RT[:, 1:]))
        if self.keys is not None and is_made.any():
            found.append(self.keys.part(made_before[is_made].tolist()))
        return found
