"""A user's own examples as a task: a file of JSON lines with `prompt`, `target` and `length`."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np

from lengthwise import door
from lengthwise.data.examples import ABSENT, Column, Part
from lengthwise.data.vocabulary import TIE
from lengthwise.errors import UserError
from lengthwise.machine import require_memory
from lengthwise.tasks.task import Span, Task

SEPARATOR = "[SEP]"
LARGEST, LONGEST = 2**28, 100_000
"""Bytes of a file, and the greatest length."""
BYTES_OF_A_SYMBOL = 16
"""While examples are drawn and rendered."""


@dataclass(frozen=True)
class ExampleLine:
    prompt: tuple[str, ...]
    target: tuple[str, ...]
    length: int


class File(Task):
    """Examples from a file: name it in a study as `tasks = ["mine.jsonl"]`.

    Examples:
        (of the file) {"prompt": "Copy: a b", "target": "a b", "length": 2}
    Length: what the file says.

    Symbols are what is separated by spaces; a separator `[SEP]` at the end of a word is one, too. Words that all
    prompts begin with are the anchor.
    """

    name = "file"
    length_means = "what the file says"
    repeats = False
    length_counts_tokens = False

    @dataclass(frozen=True)
    class Config:
        path: str
        sha256: str = ""
        """Hash of the file's content; filled in by itself, so that a run knows what it was trained on."""

        def __post_init__(self) -> None:
            found = fingerprint(self.path)
            if self.sha256 not in ("", found):
                raise ValueError(f"{self.path} is no longer the file that the run was made from")
            object.__setattr__(self, "sha256", found)

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.lines = read_lines(config.path, config.sha256)
        self.of_length: dict[int, list[ExampleLine]] = {}
        for line in self.lines:
            self.of_length.setdefault(line.length, []).append(line)
        lengths = sorted(self.of_length)
        middle = lengths[(len(lengths) - 1) // 2]  # without other settings: trained on the shorter half
        self.train_lengths = Span(lengths[0], middle)  # type: ignore[misc]
        self.test_lengths = Span(middle + 1, max(lengths[-1], middle + 1))  # type: ignore[misc]

    @property
    def title(self) -> str:
        return Path(self.config.path).stem

    def symbols(self) -> Iterable[str]:
        return sorted({symbol for line in self.lines for symbol in (*line.prompt, *line.target)})

    def buckets(self, span: Span) -> list[int]:
        return [length for length in sorted(self.of_length) if span.first <= length <= span.last]

    def share(self, bucket: int) -> float:
        return len(self.of_length[bucket])

    def draw(self, bucket: int, count: int, generator: np.random.Generator) -> list[Column]:
        lines = self.of_length[bucket]
        return self._columns([lines[i] for i in generator.integers(len(lines), size=count)])

    def every(self, bucket: int) -> list[Column]:
        return self._columns(self.of_length[bucket])

    def chance(self, bucket: int) -> float:
        """Exact match of a guesser who names the most frequent target of that length."""
        targets = Counter(line.target for line in self.of_length[bucket])
        return max(targets.values()) / targets.total()

    def _columns(self, lines: list[ExampleLine]) -> list[Column]:
        anchor = self._anchor()
        return [
            (Part.ANCHOR, self._grid([line.prompt[:anchor] for line in lines])),
            (Part.PROMPT, self._grid([line.prompt[anchor:] for line in lines])),
            (Part.ANSWER, self._grid([line.target for line in lines])),
        ]

    def _anchor(self) -> int:
        """How many words all prompts begin with."""
        shared = 0
        for words in zip(*(line.prompt for line in self.lines), strict=False):
            if len(set(words)) > 1:
                break
            shared += 1
        return min(shared, min(len(line.prompt) for line in self.lines) - 1) if self.lines else 0

    def _grid(self, rows: list[tuple[str, ...]]) -> np.ndarray:
        grid = np.full((len(rows), max(map(len, rows), default=0)), ABSENT, dtype=np.int32)
        for i, row in enumerate(rows):
            grid[i, : len(row)] = self.vocabulary.ids(row)
        return grid


def fingerprint(path: str) -> str:
    stem = Path(path).stem
    if not stem.strip(".") or any(map(door.is_odd, stem)):
        raise UserError(f"{door.visible(path)!r} has no name that a task can have; give the file another one")
    return hashlib.sha256(_content(path)).hexdigest()


def _content(path: str) -> bytes:
    try:
        return door.read_bytes(Path(path), LARGEST, UserError)
    except UserError as error:
        raise UserError(str(error).replace("no such file: ", "no such file: cannot read ")) from None


@lru_cache(maxsize=8)
def read_lines(path: str, sha256: str) -> tuple[ExampleLine, ...]:
    """Every line of the file; the first bad one is an error with its number, none is dropped. `sha256`: cache key."""
    lines = []
    try:
        content = _content(path).decode()
    except UnicodeDecodeError:
        raise UserError(f"{path} is not a text file") from None
    if not content:
        raise UserError(f"{path} is empty; it needs a line of JSON for each example")
    for number, text in enumerate(content.removesuffix("\n").split("\n"), start=1):
        where = f"{path}:{number}"
        try:
            row = json.loads(text)
        except json.JSONDecodeError as error:
            raise UserError(f"{where}: not a line of JSON ({error.msg})") from None
        except (ValueError, RecursionError):  # numbers of thousands of digits, nesting without end
            raise UserError(
                f"{where}: not a line of JSON that can be read (nested too deeply, or a number too long)"
            ) from None
        lines.append(_line(row, where))
    longest = max(len(line.prompt) + len(line.target) for line in lines)
    require_memory(
        BYTES_OF_A_SYMBOL * longest * len(lines), f"{path}, padded to its longest line,", "shorten that line"
    )
    return tuple(lines)


def _symbols(text: str) -> Iterator[str]:
    for word in text.split():
        bare = word.removesuffix(SEPARATOR)
        yield from (bare, TIE + SEPARATOR) if bare and bare != word else (word,)


def _line(row: object, where: str) -> ExampleLine:
    if not isinstance(row, dict):
        raise UserError(f'{where}: must be an object like {{"prompt": "..", "target": "..", "length": 3}}')
    for key, kind in (("prompt", str), ("target", str), ("length", int)):
        if key not in row:
            raise UserError(f"{where}: has no {key!r}")
        if type(row[key]) is not kind:
            raise UserError(f"{where}: {key!r} must be {'a text' if kind is str else 'a whole number'}")
    if not 1 <= row["length"] <= LONGEST:
        raise UserError(f"{where}: 'length' must be 1 or more and at most {LONGEST:,}, not {str(row['length'])[:24]}")
    prompt, target = (tuple(_symbols(row[key])) for key in ("prompt", "target"))
    if not prompt or not target:
        raise UserError(f"{where}: {'prompt' if not prompt else 'target'!r} has no symbols")
    return ExampleLine(prompt, target, row["length"])
