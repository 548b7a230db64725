"""The contract of a task: how examples of a given length are drawn, and what their length means."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from lengthwise.data.examples import Column, Examples, Part, assemble, concatenate
from lengthwise.data.scratchpad import Scratchpad
from lengthwise.data.vocabulary import Vocabulary
from lengthwise.errors import UserError
from lengthwise.seeding import stream


@dataclass(frozen=True)
class Span:
    """Lengths from `first` to `last`, both included."""

    first: int
    last: int

    def __post_init__(self) -> None:
        if self.first < 1 or self.last < self.first:
            raise ValueError(f"lengths must be 1 <= first <= last, not {self.first} to {self.last}")

    def __iter__(self):
        return iter(range(self.first, self.last + 1))

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


class Task:
    """A task draws examples of a given length from an explicit generator.

    A subclass sets the class attributes, declares its symbols and writes `draw`. Its docstring holds the definition,
    `Examples:` (prompt -> target, checked by a test) and `Length:`.
    """

    name: ClassVar[str]
    family: ClassVar[str] = "other"
    """What kind of thing is asked, by which a page sorts tasks: copying, order, arithmetic, formal languages, state
    tracking, instructions, recall."""
    published_split: ClassVar[str] = ""
    """The name in the paper's released data; empty where the paper does not have the task."""
    train_lengths: ClassVar[Span]
    test_lengths: ClassVar[Span]
    length_means: ClassVar[str]
    published_counts: ClassVar[tuple[int, int, int]] = (100_000, 15_000, 10_000)
    """Examples for training, the rest of the same lengths (runs looked at half of it), and test."""
    shares_examples: ClassVar[bool] = False
    """Whether training, validation and test share examples where they can be listed, as published for parity."""
    repeats: ClassVar[bool] = True
    """Whether a finite set shows examples again where a length has too few of them (published parity does)."""
    length_counts_tokens: ClassVar[bool] = True
    """Whether an example has at least as many tokens as its length says; a file may call anything a length."""
    step_parts: ClassVar[tuple[Part, ...]] = ()
    """The parts that a step of this task has; none for a task without scratchpad."""
    later_settings: ClassVar[tuple[str, ...]] = ()
    """Settings that results are older than: at their defaults they are not recorded, so that runs keep their names."""
    titled: ClassVar[tuple[str, ...]] = ()
    """Settings that results show beside the name where they are not the defaults: they make another task of it."""

    @dataclass(frozen=True)
    class Config:
        """Settings of the task; the defaults are the published ones."""

    config: Any

    def __init__(self, config: Any = None) -> None:
        self.config = self.Config() if config is None else config

    def symbols(self) -> Iterable[str]:
        """Every symbol of every prompt and target, each once."""
        raise NotImplementedError

    def draw(self, bucket: int, count: int, generator: np.random.Generator) -> list[Column]:
        """`count` independent examples of one bucket (of one length, for most tasks), as columns in reading order."""
        raise NotImplementedError

    def chance(self, bucket: int) -> float:
        """Exact match of a guesser who knows the form of the answer and nothing else."""
        raise NotImplementedError

    # What follows has defaults that suit most tasks.

    def every(self, bucket: int) -> list[Column] | None:
        """All examples of a bucket, each once, where they are few enough to list; else None."""
        return None

    def buckets(self, span: Span) -> list[int]:
        """The buckets whose length lies in `span`. A bucket is a length; `addition` has one for each pair of them."""
        return list(span)

    def training_buckets(self, span: Span) -> list[int]:
        """The buckets of training; those of `span`, but for a mixture, which trains on more than it is tested on."""
        return self.buckets(span)

    def length_of(self, bucket: int) -> int:
        """The length that curves show for a bucket."""
        return bucket

    def share(self, bucket: int) -> float:
        """How many examples a bucket gets, relative to the others; published sets spread them equally."""
        return 1.0

    def shares(self, bucket: int) -> bool:
        """Whether training, validation and test may share examples of this bucket.

        For tasks with a kind of example that is too rare to be kept apart: else no test of seen lengths would have it.
        """
        return False

    def refuse_spans(self, train: Span, test: Span) -> None:
        """Raises a UserError where the settings do not suit the lengths of training and test."""

    def tracks(self, examples: Examples) -> dict[str, np.ndarray]:
        """What a placement may want to know of the symbols, by name: whole numbers beside `examples.tokens`.

        For example the significance of each digit, by which positions of digits that belong together are coupled.
        """
        return {}

    def read_answer(self, text: str) -> str | None:
        """The answer in an answer's text, in a form that can be compared; None where there is none."""
        return text

    # What follows is the same for every task.

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The symbols with their ids."""
        return Vocabulary(self.symbols())

    @property
    def title(self) -> str:
        """What results call it: `flip_flop(ignore=0.98)`."""
        defaults = {field.name: field.default for field in fields(self.config)} if self.titled else {}
        told = [(name, getattr(self.config, name)) for name in self.titled]
        changed = ",".join(f"{name}={value}" for name, value in told if value != defaults[name])
        return f"{self.name}({changed})" if changed else self.name

    def examples(self, bucket: int, count: int, generator: np.random.Generator) -> Examples:
        """`count` independent examples of one bucket, as arrays of tokens."""
        return assemble(bucket, count, self.draw(bucket, count, generator))

    def all_examples(self, bucket: int) -> Examples | None:
        """What `every` lists, as arrays of tokens; None where it lists nothing."""
        columns = self.every(bucket)
        if columns is None:
            return None
        return assemble(bucket, max(len(ids) for _, ids in columns if ids.ndim == 2), columns)

    def sample(self, length: int, count: int = 1, seed: int = 0, scratchpad: str = "none") -> list[tuple[str, str]]:
        """`count` pairs of prompt and target of one length, as text."""
        kept = self.formatted(self.drawn(length, count, seed), Scratchpad(scratchpad))
        return [self.text(kept, i) for i in range(count)]

    def drawn(self, length: int, count: int, seed: int) -> Examples:
        """`count` examples of one length, as arrays of tokens."""
        generator = stream(seed, "sample", self.name, length)
        buckets = self.buckets(Span(length, length))
        if not buckets:
            raise UserError(f"{self.name} has no examples of length {length} ({self.length_means})")
        if len(buckets) == 1:
            return self.examples(buckets[0], count, generator)
        chosen = generator.choice(buckets, size=count)
        return concatenate([self.examples(int(bucket), 1, generator) for bucket in chosen])

    def formatted(self, examples: Examples, scratchpad: Scratchpad) -> Examples:
        """The examples with the parts that a scratchpad format keeps."""
        if scratchpad.steps and not self.step_parts:
            raise UserError(f"{self.name} has no steps, so it has no scratchpad {scratchpad.name!r}; use 'none'")
        return examples.keep(scratchpad.parts)

    def text(self, examples: Examples, index: int) -> tuple[str, str]:
        """Prompt and target of one example, symbols separated by spaces."""
        one = slice(examples.starts[index], examples.starts[index + 1])
        tokens, target = examples.tokens[one], examples.parts[one] > Part.PROMPT
        return self.vocabulary.decode(tokens[~target]), self.vocabulary.decode(tokens[target])

    def fixed(self, text: str) -> np.ndarray:
        """Ids of words that stand in every example."""
        return self.vocabulary.encode(text)
