"""Which training of a language model is timed: its shape, and rows of random tokens in documents of real lengths.

Shape letters: D documents, W tokens of all documents.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from lengthwise.errors import UserError, nearest
from lengthwise.language.settings import LanguageSettings, settings_from
from lengthwise.language.store import Documents
from lengthwise.language.windows import Arrangement, Windows
from lengthwise.seeding import stream

SHAPES: dict[str, Mapping[str, Any]] = {
    "tiny": {"size": "tiny"},
    "lm-small": {"size": "lm-small"},
    "lm-60m": {"size": "lm-small", "layers": 10, "width": 640, "heads": 10},
}
"""By name: a `[model]` table. With 8,192 embedding rows `lm-small` has 17 million parameters, `lm-60m` 60 million."""

WINDOWS, DOCUMENTS = "windows", "documents"
ROWS = (WINDOWS, DOCUMENTS)
"""`windows`: long documents, each row is one window of one of them. `documents`: short ones share rows."""

WINDOWS_OF_A_DOCUMENT = 16
SPREAD = 1.0
"""Standard deviation of the logarithm of a document's length, where documents are short: two thirds of them have 0.4 to
2.7 times as many tokens as the median."""
ZIPF = 2.7
"""The k-th most frequent token has a probability in proportion to 1 / (k + 2.7), as words have."""
PADDING = 0


@dataclass(frozen=True)
class WorkloadScale:
    """What a kind of device is given to do."""

    size: str
    contexts: tuple[int, ...]
    batch_tokens: int
    vocabulary_rows: int
    corpus_tokens: int
    median: int
    """Tokens of a document, where documents are short."""
    steps: int
    """That are timed at a time."""


SCALES = {
    "cpu": WorkloadScale("tiny", (64,), 1024, 512, 2**16, 25, 8),
    "cuda": WorkloadScale("lm-small", (512, 2048), 32_768, 8192, 2**23, 200, 128),
}


@dataclass(frozen=True)
class Case:
    """One training that is timed."""

    size: str
    encoding: str
    context: int
    rows: str
    """One of ROWS."""
    scale: WorkloadScale

    @property
    def name(self) -> str:
        return f"{self.size} {self.encoding} {self.context} {self.rows}"

    @cached_property
    def settings(self) -> LanguageSettings:
        return settings_from(
            {
                "encoding": self.encoding,
                "model": dict(SHAPES[self.size]),
                "data": {"context": self.context},
                "training": {"batch_tokens": self.scale.batch_tokens},
            }
        )

    def windows(self) -> Windows:
        """The endless sequence of rows, arranged as those of a corpus are."""
        return _windows(self.rows, self.context, self.scale, self.settings.seed)


@lru_cache(maxsize=2)  # models with different encodings read the same rows, one after the other
def _windows(rows: str, context: int, scale: WorkloadScale, seed: int) -> Windows:
    return Windows(Arrangement(_documents(rows, context, scale), context, PADDING), seed)


def _documents(rows: str, context: int, scale: WorkloadScale) -> Documents:
    draws, wanted = stream(0, "bench", rows, context), scale.corpus_tokens
    if rows == WINDOWS:
        # The last token of a document is only predicted, so that nothing is left over.
        inputs = context * min(WINDOWS_OF_A_DOCUMENT, max(1, wanted // context))
        size_D = np.full(max(1, wanted // inputs), inputs + 1)
    else:
        drawn_D = draws.lognormal(np.log(scale.median), SPREAD, 4 * wanted // scale.median).astype(int) + 2
        size_D = drawn_D[: int(np.searchsorted(drawn_D.cumsum(), wanted)) + 1]
    # Padding is no token of a text.
    share = (1 / (np.arange(scale.vocabulary_rows - 1) + 1 + ZIPF)).cumsum()
    token_W = np.searchsorted(share / share[-1], draws.random(int(size_D.sum()))) + 1
    return Documents(token_W.astype(np.uint16), np.concatenate([[0], size_D.cumsum()]))


def cases(
    device: str,
    sizes: Sequence[str] = (),
    encodings: Sequence[str] = (),
    contexts: Sequence[int] = (),
    rows: Sequence[str] = (),
) -> list[Case]:
    """Of a kind of device, the most telling first; what is not named is what the device is for."""
    scale = SCALES[device]
    refuse_unknown(sizes, rows)
    return list(_cases(scale, sizes or [scale.size], encodings or ["none", "rotary"], contexts, rows or ROWS))


def _cases(
    scale: WorkloadScale, sizes: Sequence[str], encodings: Sequence[str], contexts: Sequence[int], rows: Sequence[str]
) -> Iterator[Case]:
    for size in sizes:
        for context in contexts or scale.contexts:
            if scale.batch_tokens % context:
                raise UserError(
                    f"--context {context} does not divide the {scale.batch_tokens:,} tokens of a step; choose a power "
                    "of two"
                )
            for encoding in encodings:
                for kind in rows:
                    yield Case(size, encoding, context, kind, scale)


def refuse_unknown(sizes: Sequence[str], rows: Sequence[str]) -> None:
    for name in sizes:
        if name not in SHAPES:
            raise UserError(f"unknown size {name!r}; {nearest(name, SHAPES)}")
    for name in rows:
        if name not in ROWS:
            raise UserError(f"unknown rows {name!r}; {nearest(name, ROWS)}")
