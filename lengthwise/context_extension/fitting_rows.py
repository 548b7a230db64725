"""Which tokens are read and which are scored: whole windows of documents, the same targets at every context.

Shape letters: R windows, T tokens of a window and one more.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lengthwise.errors import UserError
from lengthwise.language.store import Documents
from lengthwise.seeding import stream

SCORED = 256
"""Tokens at the end of a window that count; published."""


@dataclass(frozen=True)
class Targets:
    """Runs of `scored` tokens; each is predicted with whatever context is asked for, up to `longest`."""

    documents: Documents
    ends: np.ndarray
    """The place after the last target of each run."""
    scored: int
    longest: int
    """Tokens before the last target."""

    @property
    def tokens(self) -> int:
        """Targets that there are."""
        return len(self.ends) * self.scored

    def rows(self, context: int) -> np.ndarray:
        """(R, context + 1): what is read, and the last target, which is not."""
        assert self.scored <= context <= self.longest
        return _cut(self.documents, self.ends - context - 1, context)


def usual_scored(asked: int, shortest: int) -> int:
    """Tokens of a run: what was asked for, or the usual number, or all of the shortest context where that has fewer."""
    return asked or min(SCORED, shortest)


def choose_targets(documents: Documents, contexts: Sequence[int], count: int, scored: int = SCORED) -> Targets:
    """At most `count` runs of targets that have the longest context before them, spread evenly over all there are.

    Runs follow one another without a gap in every document (stride `scored`), so no token counts twice.
    """
    shortest, longest = min(contexts), max(contexts)
    if scored > shortest:
        raise UserError(f"a context of {shortest} tokens is shorter than the {scored} tokens scored; see --scored")
    found = [
        np.arange(start + longest + 1, end + 1, scored)
        for start, end in zip(documents.starts[:-1], documents.starts[1:], strict=True)
    ]
    ends = np.concatenate(found)
    if not len(ends):
        raise too_long(documents, longest)
    chosen = np.unique(np.linspace(0, len(ends) - 1, min(count, len(ends))).round().astype(np.int64))
    return Targets(documents, ends[chosen], scored, longest)


class TrainingWindows:
    """The windows of `length` tokens that documents can be cut into, epoch after epoch, each in a random order."""

    def __init__(self, documents: Documents, length: int, seed: int) -> None:
        self.documents, self.length, self.seed = documents, length, seed
        self.starts = np.concatenate(
            [
                np.arange(start, end - length, length)
                for start, end in zip(documents.starts[:-1], documents.starts[1:], strict=True)
            ]
        )
        if not len(self.starts):
            raise too_long(documents, length)

    def rows(self, first: int, count: int) -> np.ndarray:
        """Windows number `first` and those after it: (count, length + 1)."""
        numbers = np.arange(first, first + count)
        epochs, places = np.divmod(numbers, len(self.starts))
        chosen = np.empty(count, dtype=np.int64)
        for epoch in np.unique(epochs).tolist():
            # The name of the stream is part of every recorded number: it stays.
            order = stream(self.seed, "order of stretched windows", epoch).permutation(len(self.starts))
            chosen[epochs == epoch] = self.starts[order[places[epochs == epoch]]]
        return _cut(self.documents, chosen, self.length)


def too_long(documents: Documents, length: int) -> UserError:
    return UserError(
        f"a context of {length:,} tokens is longer than any document: the longest has {documents.longest:,}, of which "
        f"the first {documents.longest - 1:,} can be read; choose a shorter context or a corpus of longer documents"
    )


def _cut(documents: Documents, starts: np.ndarray, length: int) -> np.ndarray:
    return documents.tokens[starts[:, None] + np.arange(length + 1)].astype(np.int64)
