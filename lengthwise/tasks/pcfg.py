"""PCFG SET: string-editing functions in prefix form, applied to sequences of symbols.

Expressions of up to 8 functions are sampled; those of 9 and more are the published test set, shipped in `data/`.
"""

import lzma
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from lengthwise.data.examples import ABSENT, Column, Part
from lengthwise.data.vocabulary import TIE
from lengthwise.tasks.pcfg_language import COMMA, FUNCTIONS, SYMBOLS, evaluate
from lengthwise.tasks.pcfg_sampling import DEV_COUNTS, DEV_SCALE, sample
from lengthwise.tasks.task import Span, Task

__all__ = ["Pcfg", "evaluate", "published"]

FIRST_WORD = "Solve:"
SEPARATOR = TIE + "[SEP]"
"""As published, no space is before it."""
PUBLISHED_TEST = Path(__file__).parent / "data/pcfg_productivity_test.txt.xz"
TestSet = Literal["published", "sampled"]


class Pcfg(Task):
    """Functions in prefix form on sequences of symbols; the target is the resulting sequence.

    `shift` moves the first symbol to the end, `echo` says the last one again, `repeat` says all twice; `append a , b`
    is a then b, `prepend a , b` is b then a; `remove_first` and `remove_second` drop one of two arguments.

    Examples:
        Solve: swap_first_last A1 B2 C3[SEP] -> C3 B2 A1
        Solve: echo shift A1 B2 C3[SEP] -> B2 C3 A1 A1
        Solve: append reverse F1 H1 , repeat T1 A1[SEP] -> H1 F1 T1 A1 T1 A1
        Solve: remove_first A1 B2 , prepend copy C3 D4 , E5 F6[SEP] -> E5 F6 C3 D4
    Length: number of functions.

    `test_set`: the `published` 11,333 pairs of 9 to 35 functions, or new ones `sampled` in their likeness.
    """

    name = "pcfg"
    family = "instructions"
    published_split = "md_productivity"
    train_lengths = Span(1, 8)
    test_lengths = Span(9, 35)
    length_means = "number of functions"
    published_counts = (72_909, 8_101, 11_333)
    repeats = False

    @dataclass(frozen=True)
    class Config:
        test_set: TestSet = "published"

        def __post_init__(self) -> None:
            if self.test_set not in get_args(TestSet):
                raise ValueError(f"test_set must be {' or '.join(get_args(TestSet))}, not {self.test_set!r}")

    config: Config

    def symbols(self) -> Iterable[str]:
        return [FIRST_WORD, SEPARATOR, COMMA, *FUNCTIONS, *SYMBOLS]

    def draw(self, functions: int, count: int, generator: np.random.Generator) -> list[Column]:
        listed = self.every(functions)
        if listed is not None:
            chosen = generator.integers(len(published()[functions]), size=count)
            return [(part, ids[chosen] if ids.ndim == 2 else ids) for part, ids in listed]
        return self.columns(*sample(functions, count, generator))

    def every(self, functions: int) -> list[Column] | None:
        sampled = functions <= self.train_lengths.last or self.config.test_set == "sampled"
        if sampled or functions not in published():
            return None
        return self.columns(*_published_grids(functions))

    def buckets(self, span: Span) -> list[int]:
        """In the published test set some numbers of functions do not occur."""
        if self.config.test_set == "sampled":
            return list(span)
        return [n for n in span if n <= self.train_lengths.last or n in published()]

    def share(self, functions: int) -> float:
        """How many of the original 100,000 pairs have this number of functions."""
        if functions < len(DEV_COUNTS):
            return DEV_COUNTS[functions] * DEV_SCALE
        return float(len(published().get(functions, "?")))  # at least one, so that it can be sampled

    def chance(self, functions: int) -> float:
        """At most this: of one who guesses two symbols, the shortest and most easily guessed result."""
        return len(SYMBOLS) ** -2.0

    def columns(self, prompts: np.ndarray, results: np.ndarray) -> list[Column]:
        """Prompts and results as columns, from ids that count from COMMA."""
        first = self.vocabulary.id(COMMA)
        prompts, results = (np.where(ids == ABSENT, ABSENT, ids + first) for ids in (prompts, results))
        return [
            (Part.ANCHOR, self.fixed(FIRST_WORD)),
            (Part.PROMPT, prompts),
            (Part.PROMPT, self.fixed(SEPARATOR)),
            (Part.ANSWER, results),
        ]


@cache
def published() -> dict[int, list[tuple[str, str]]]:
    """Number of functions -> pairs (expression, result) of the published test set; read once per process."""
    found: dict[int, list[tuple[str, str]]] = {}
    for line in lzma.decompress(PUBLISHED_TEST.read_bytes()).decode().splitlines():
        expression, result = line.split("\t")
        functions = sum(word.islower() for word in expression.split())
        found.setdefault(functions, []).append((expression, result))
    return dict(sorted(found.items()))


@cache
def _published_grids(functions: int) -> tuple[np.ndarray, np.ndarray]:
    id_of = {word: i for i, word in enumerate((COMMA, *FUNCTIONS, *SYMBOLS))}
    sides = zip(*published()[functions], strict=True)
    prompts, results = ([[id_of[word] for word in text.split()] for text in texts] for texts in sides)
    return _grid(prompts), _grid(results)


def _grid(rows: list[list[int]]) -> np.ndarray:
    grid = np.full((len(rows), max(map(len, rows))), ABSENT, dtype=np.int32)
    for i, row in enumerate(rows):
        grid[i, : len(row)] = row
    return grid
