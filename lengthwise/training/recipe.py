"""The settings of training and its data. Imports no torch, so that they are checked at once."""

from dataclasses import dataclass, field
from typing import Any, Literal

from lengthwise.configuration import YOUNGER
from lengthwise.data.scratchpad import Scratchpad
from lengthwise.data.splits import Division
from lengthwise.data.tokenization import PUBLISHED, SYMBOLS, make_tokens
from lengthwise.data.tokens import Tokens
from lengthwise.errors import nearest
from lengthwise.placements.choosing import CONSECUTIVE, make_placement, placement_words
from lengthwise.placements.placement import Placement
from lengthwise.tasks.file import fingerprint
from lengthwise.tasks.task import Span, Task

MOST_TOKENS_OF_A_WORD = 10_000
MOST_ROWS = 1_000_000


@dataclass(frozen=True)
class DataConfig:
    """Which examples, and as which tokens."""

    train_lengths: tuple[int, int] | None = None
    """First and last length of training; None for the task's published ones."""
    test_lengths: tuple[int, int] | None = None
    test_at: tuple[int, ...] | None = field(default=None, metadata={YOUNGER: True})
    """Of the unseen lengths only these are tested; None for all."""
    examples: int | None = None
    """Training examples, seen again and again; 0 for an endless supply of new ones, None for the published number."""
    validation: int | None = None
    """In-distribution examples that choose the best checkpoint; None for the published number."""
    test_per_length: int | None = None
    """Mean over the lengths, where a task does not spread its examples equally; None for the published test set."""
    watched: int = 500
    """Examples of unseen lengths that every validation looks at too. They are never used to choose anything."""
    scratchpad: str = "none"
    anchor: bool = True
    """Keep the constant first words of prompts; without them NoPE has nothing to count from."""
    tokens: str = SYMBOLS
    """`symbols`: one for each symbol; `published`: the pieces of T5's tokenizer; or the file of any tokenizer."""
    tokens_sha256: str = ""
    """Of a tokenizer's file; filled in by itself, so that a run knows which tokens it was trained on."""
    trimmed: bool = False
    """Embedding rows only for pieces that the task uses, instead of all that the tokenizer has."""
    rows: int = field(default=0, metadata={YOUNGER: True})
    """Embedding rows at least, where there are only those in use: tasks with few symbols then have models of the same
    shape as those with many, and share a fleet."""
    prefix_tokens: int = 0
    """How many tokens the first word of a prompt takes, where tokens are symbols; 0 for one."""
    separator_tokens: int = 0
    held_out: Literal["by_length", "overall"] = "by_length"
    """Validation and in-distribution test get the same share of each length, or a share of all prompts (published)."""
    seed: int | None = None
    """Of the training examples; None for the run's own. The published examples are the same for all seeds."""
    placement: Any = CONSECUTIVE
    """Which positions tokens get: `randomized`, `randomized(range=4096)`, or a table of a name and settings."""

    def __post_init__(self) -> None:
        least = {"examples": 0, "validation": 1, "test_per_length": 1, "watched": 0, "seed": 0, "rows": 0}
        for name, smallest in {**least, "prefix_tokens": 0, "separator_tokens": 0}.items():
            value = getattr(self, name)
            if value is not None and value < smallest:
                raise ValueError(f"{name} must be {smallest} or more, not {value}")
        if (most := max(self.prefix_tokens, self.separator_tokens)) > MOST_TOKENS_OF_A_WORD:
            raise ValueError(f"prefix_tokens and separator_tokens are at most {MOST_TOKENS_OF_A_WORD:,}, not {most:,}")
        if self.rows > MOST_ROWS:
            raise ValueError(f"rows are at most {MOST_ROWS:,}, not {self.rows:,}")
        for name in ("train_lengths", "test_lengths"):
            if getattr(self, name) is not None:
                try:
                    Span(*getattr(self, name))
                except ValueError as error:
                    raise ValueError(f"{name}: {error}") from error
        if self.train_lengths and self.test_lengths and self.test_lengths[0] <= self.train_lengths[1]:
            raise ValueError(
                f"test_lengths must begin above the last of train_lengths ({self.train_lengths[1]}), "
                f"not at {self.test_lengths[0]}: they are the unseen lengths"
            )
        if self.test_at is not None and (not self.test_at or sorted(set(self.test_at)) != list(self.test_at)):
            raise ValueError(f"test_at must be lengths in ascending order, not {list(self.test_at)}")
        _ = Scratchpad(self.scratchpad).parts  # an unknown name is an error now, not after training
        self._read_tokens()
        object.__setattr__(self, "placement", placement_words(self.placement))
        if Scratchpad(self.scratchpad).steps and self.placement != CONSECUTIVE:
            # What a model writes itself has no positions drawn beforehand.
            raise ValueError(f"a scratchpad needs consecutive positions, not {self.placement}")

    def make_placement(self) -> Placement:
        return make_placement(self.placement)

    def _read_tokens(self) -> None:
        if self.rows and self.tokens != SYMBOLS and not self.trimmed:
            raise ValueError('rows is for tokens = "symbols" or trimmed = true; a tokenizer has a row for each piece')
        if self.tokens in (SYMBOLS, PUBLISHED):
            if self.trimmed and self.tokens == SYMBOLS:
                raise ValueError(f'trimmed is for tokens of a tokenizer; "{SYMBOLS}" have no rows to spare')
            return
        if not self.tokens.endswith(".json"):
            hint = nearest(self.tokens, (SYMBOLS, PUBLISHED))
            raise ValueError(f"tokens cannot be {self.tokens!r}; {hint} (the file of a tokenizer ends in .json)")
        found = fingerprint(self.tokens)
        if self.tokens_sha256 not in ("", found):
            raise ValueError(f"{self.tokens} is no longer the tokenizer that the run was made with")
        object.__setattr__(self, "tokens_sha256", found)

    def make_tokens(self, task: Task) -> Tokens:
        """How `task` is tokenised."""
        return make_tokens(task, self.tokens, self.trimmed, self.prefix_tokens, self.separator_tokens, self.rows)

    def training_count(self, task: Task) -> int:
        """Examples in a finite training set; 0 for an endless one."""
        return task.published_counts[0] if self.examples is None else self.examples

    def validation_count(self, task: Task) -> int:
        """Published runs looked at half of the examples that were not for training."""
        return task.published_counts[1] // 2 if self.validation is None else self.validation

    def test_counts(self, task: Task) -> tuple[int, int]:
        """Test examples of seen and of unseen lengths. Published are the unseen ones; of the seen ones there are as
        many for each length."""
        seen, unseen = (span.last - span.first + 1 for span in self.spans(task))
        unseen = len(self.test_at) if self.test_at else unseen
        if self.test_per_length is not None:
            return self.test_per_length * seen, self.test_per_length * unseen
        count = task.published_counts[2]
        return round(count / unseen * seen), count

    def division(self, task: Task) -> Division:
        """Which prompts are for training and which are held out."""
        return Division(self.held_out == "overall", self.spans(task)[0])

    def spans(self, task: Task) -> tuple[Span, Span]:
        """Train and test lengths for `task`."""
        train = Span(*self.train_lengths) if self.train_lengths else task.train_lengths
        test = Span(*self.test_lengths) if self.test_lengths else task.test_lengths
        if test.first <= train.last:
            raise ValueError(
                f"{task.name}: the unseen lengths {test} overlap the training lengths {train}; "
                "set both data.train_lengths and data.test_lengths"
            )
        for span in (train, test):
            if not task.buckets(Span(span.last, span.last)):
                raise ValueError(f"{task.title} has no examples of length {span.last} ({task.length_means})")
        for length in self.test_at or ():
            if not test.first <= length <= test.last:
                raise ValueError(f"{task.name}: test_at names {length}, which is not among the unseen lengths {test}")
            if not task.buckets(Span(length, length)):
                raise ValueError(f"{task.title} has no examples of length {length} ({task.length_means})")
        return train, test

    def unseen(self, task: Task) -> list[int]:
        """The buckets of unseen lengths that are tested."""
        test = self.spans(task)[1]
        if self.test_at is None:
            return task.buckets(test)
        return [bucket for length in self.test_at for bucket in task.buckets(Span(length, length))]


@dataclass(frozen=True)
class TrainingConfig:
    """How the weights are found; the defaults are the published ones."""

    steps: int = 40_000
    batch: int = 64
    """Examples in a step."""
    learning_rate: float = 3e-5
    final_learning_rate: float = 1e-7
    warmup: float = 0.06
    """Share of the steps in which the learning rate rises."""
    weight_decay: float = 0.05
    decay_norms: bool = True
    """Whether the weights of norms decay as well; in the published runs they did. Those of encodings never do."""
    clip: float = 1.0
    """Largest norm of the gradient."""
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8
    validate_every: int = 2000
    best: Literal["earliest", "latest", "last"] = "earliest"
    """Which checkpoint results call `best`: of the validations with the best score the earliest, as published, or the
    latest; or simply the last checkpoint."""
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    """Arithmetic of the forward and backward pass; weights and optimizer state are always fp32.

    `auto`: bf16 on a GPU, fp32 on a CPU. Published: fp32.
    """

    def __post_init__(self) -> None:
        for name in ("steps", "batch", "validate_every", "learning_rate", "clip", "epsilon"):
            if getattr(self, name) <= 0:
                raise ValueError(f"{name} must be above 0, not {getattr(self, name)}")
        for name in ("final_learning_rate", "weight_decay"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, not {getattr(self, name)}")
        for name in ("warmup", "beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 0 and below 1, not {getattr(self, name)}")

    def precision_on(self, device: str) -> str:
        """The arithmetic on a kind of device (`cpu`, `cuda`)."""
        return self.precision if self.precision != "auto" else "bf16" if device == "cuda" else "fp32"

    def learning_rate_at(self, step: int) -> float:
        """For the update number `step`, counted from 0: up from nothing, then down in a straight line."""
        warm = round(self.warmup * self.steps)
        if step < warm:
            return self.learning_rate * (step + 1) / warm
        left = (self.steps - step) / max(1, self.steps - warm)
        return self.final_learning_rate + (self.learning_rate - self.final_learning_rate) * left
