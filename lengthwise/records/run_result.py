"""One finished run: what is said of it, its rows, and what people ask of these."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Literal

from lengthwise.records.points import Point, point_of
from lengthwise.records.row_table import Row, column, has_field

Measure = Literal["answer", "text"]
"""What counts as right: the final answer, as published, or the whole text with its scratchpad (exact match).

Without a scratchpad they are the same: answers are then judged by exact match, the end included.
"""


@dataclass
class Totals:
    """Of a run at one checkpoint, over all seen or all unseen lengths."""

    n: int = 0
    correct: int = 0
    right: int = 0
    """As the final answer counts; see Measure."""
    guessed: float = 0.0
    """Examples that a guesser gets right on average, and their variance."""
    variance: float = 0.0


@dataclass(frozen=True)
class RunResult:
    """One finished run: how it was made, its rows, and some examples that it got wrong."""

    description: Row
    """What was written before the first step: settings, seeds, versions, hardware."""
    finished: Row
    """What was written at the end: steps, seconds, validations."""
    rows: Sequence[Row]
    """One for each checkpoint and length."""
    failures: Sequence[Row] = ()
    """Some examples that it got wrong."""

    @cached_property
    def point(self) -> Point:
        """Its place in the grid of its study; empty without one."""
        return point_of(self.description)

    @cached_property
    def totals(self) -> dict[tuple[str, bool], Totals]:
        """(checkpoint, whether lengths are seen) -> sums over rows, for the checkpoints that were tested."""
        names = "checkpoint", "seen", "n", "chance"
        at, kinds, every, chances = (tuple(column(self.rows, name, 0.0)) for name in names)
        correct, right = column(self.rows, "correct"), self.right("answer")
        found: dict[tuple[str, bool], Totals] = defaultdict(Totals)
        for key, start, stop, n, guessed, variance in _asked(at, kinds, every, chances):
            total = found[key]
            total.n += n
            total.correct += sum(correct[start:stop])
            total.right += sum(right[start:stop])
            total.guessed += guessed
            total.variance += variance
        return dict(found)

    def total(self, name: str, checkpoint: str, seen: bool) -> int:
        """The sum of a field of its rows."""
        chosen = zip(*(column(self.rows, each) for each in ("checkpoint", "seen", name)), strict=True)
        return sum(value for at, kind, value in chosen if at == checkpoint and kind == seen)

    def accuracy(self, checkpoint: str, seen: bool, measure: Measure = "answer") -> float:
        """The share of test examples that are right, over all seen or all unseen lengths."""
        total = self.totals[checkpoint, seen]
        return (total.right if measure == "answer" else total.correct) / total.n

    def counts_by_length(self, checkpoint: str, measure: Measure = "answer") -> dict[int, tuple[int, int]]:
        """Length -> how many examples are right, and how many there are."""
        right, every = self.right(measure), column(self.rows, "n")
        at, lengths = (tuple(column(self.rows, name)) for name in ("checkpoint", "length"))
        found = {}
        for length, (place, *others) in _places(at, lengths, checkpoint):
            found[length] = right[place], every[place]
            for other in others:
                found[length] = found[length][0] + right[other], found[length][1] + every[other]
        return found

    def seen_lengths(self) -> dict[int, bool]:
        """Length -> whether it was trained on."""
        return dict(zip(column(self.rows, "length"), column(self.rows, "seen"), strict=True))

    @property
    def has_answers(self) -> bool:
        """Whether final answers were judged beside whole texts."""
        return has_field(self.rows, "answers")

    def right(self, measure: Measure = "answer") -> Sequence[int]:
        """How many examples of each row are right."""
        correct = column(self.rows, "correct")
        if measure != "answer" or not self.has_answers:
            return correct
        pairs = zip(correct, column(self.rows, "answers"), strict=True)
        return [text if answers is None else answers["right"] for text, answers in pairs]


# What the runs of a task are asked is the same, and is looked at once for all of them.


@lru_cache(maxsize=64)
def _asked(
    at: tuple[str, ...], kinds: tuple[bool, ...], every: tuple[int, ...], chances: tuple[float, ...]
) -> list[tuple[tuple[str, bool], int, int, int, float, float]]:
    """Rows of one checkpoint and of seen or unseen lengths that follow each other: which, where they begin and end,
    how many examples they are, how many of them a guesser gets right on average, and the variance of that."""
    found, stop = [], 0
    for key, rows in groupby(zip(at, kinds, strict=True)):
        start, stop = stop, stop + sum(1 for _ in rows)
        guesses = list(zip(chances[start:stop], every[start:stop], strict=True))
        guessed = sum([chance * n for chance, n in guesses])
        variance = sum([chance * (1 - chance) * n for chance, n in guesses])
        found.append((key, start, stop, sum(every[start:stop]), guessed, variance))
    return found


@lru_cache(maxsize=64)
def _places(at: tuple[str, ...], lengths: tuple[int, ...], checkpoint: str) -> list[tuple[int, list[int]]]:
    """Of the rows of a checkpoint: length -> which they are."""
    found: dict[int, list[int]] = {}
    for place, (where, length) in enumerate(zip(at, lengths, strict=True)):
        if where == checkpoint:
            found.setdefault(length, []).append(place)
    return list(found.items())
