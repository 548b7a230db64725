"""Several tasks in one run, each with lengths of its own: does what one learns at greater lengths serve another?"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

from lengthwise import configuration
from lengthwise.data.examples import ABSENT, Column, Examples
from lengthwise.errors import UserError
from lengthwise.tasks.choosing import make_task, task_table
from lengthwise.tasks.task import Span, Task

FORMAT = {"reversed": True, "padded": True}
TRANSFER = (
    {"name": "addition", **FORMAT, "train_lengths": (1, 16)},
    {"name": "addition", **FORMAT, "computes": "digits", "train_lengths": (1, 32)},
    {"name": "addition", **FORMAT, "computes": "carries", "train_lengths": (1, 32)},
)
BUCKETS = 100_000_000
"""A bucket's code: that of its task, and this times the number of the task."""
MOST = 20


@dataclass(frozen=True)
class Member:
    """A task of a mixture."""

    task: Task
    span: Span
    weight: float
    """How many training examples it gets, relative to the others."""
    ids: np.ndarray
    """Of its symbols, in the vocabulary of the mixture."""


class Mixture(Task):
    """The first of several tasks, trained beside the others; validated and tested alone.

    By default (2506.09251): addition to 16 digits beside its two halves, sums without carries and carries, to 32.

    Examples:
        Compute 5 3 7 + 1 9 0 ? -> The answer is 6 2 8 0.
        Compute 0 + 8 ? -> The answer is 8 0.
    Length: what the first task says.

    Every task of `tasks` is a name or a table, with `train_lengths` of its own (by default the published ones) and a
    `weight` (1): how many of the training examples are its. Their prompts must begin with different words.
    """

    name = "mixture"
    family = "arithmetic"
    length_means = "what the first task says"
    train_lengths = Span(1, 16)
    test_lengths = Span(17, 32)

    @dataclass(frozen=True)
    class Config:
        tasks: tuple[Any, ...] = TRANSFER

        def __post_init__(self) -> None:
            if not 2 <= len(self.tasks) <= MOST:
                raise ValueError(f"tasks must name 2 to {MOST} tasks, not {len(self.tasks)}")
            object.__setattr__(self, "tasks", tuple(_in_full(task) for task in self.tasks))

    config: Config

    def __init__(self, config: Any = None) -> None:
        super().__init__(config)
        made = [(_made(table), table) for table in self.config.tasks]
        self.declared = tuple(dict.fromkeys(chain.from_iterable(task.symbols() for task, _ in made)))
        self.members = [
            Member(task, Span(*table["train_lengths"]), table["weight"], self.vocabulary.ids(task.vocabulary.symbols))
            for task, table in made
        ]
        first = self.members[0].task
        self.train_lengths = self.members[0].span  # type: ignore[misc]
        after = self.train_lengths.last + 1
        self.test_lengths = Span(max(first.test_lengths.first, after), max(first.test_lengths.last, 2 * after - 2))  # type: ignore[misc]
        self.published_counts = first.published_counts  # type: ignore[misc]
        self.repeats = first.repeats  # type: ignore[misc]
        shares = [sum(map(member.task.share, member.task.buckets(member.span))) for member in self.members]
        self.scale = [member.weight / share if share else 0 for member, share in zip(self.members, shares, strict=True)]

    @property
    def title(self) -> str:
        first, *others = self.members
        return f"{first.task.title} beside " + " and ".join(f"{each.task.title} {each.span}" for each in others)

    def symbols(self) -> Iterable[str]:
        return self.declared

    def refuse_spans(self, train: Span, test: Span) -> None:
        if train != self.train_lengths:
            raise UserError(
                f"mixture: its first task has the train_lengths {self.train_lengths}, the study {train}; give them in "
                "the table of the first task"
            )
        for number, member in enumerate(self.members):
            if not member.task.buckets(member.span):
                raise UserError(f"mixture: {member.task.title} has no examples of the lengths {member.span}")
            self.members[number].task.refuse_spans(member.span, test if number == 0 else member.task.test_lengths)
        self.refuse_like_prompts()

    def refuse_like_prompts(self) -> None:
        """One prompt with two answers cannot be learned."""
        begins: dict[str, str] = {}
        for member in self.members:
            prompt, _ = member.task.sample(member.task.length_of(member.task.buckets(member.span)[0]))[0]
            word = prompt.split()[0]
            if word in begins:
                raise UserError(
                    f"mixture: {begins[word]} and {member.task.title} begin their prompts with the same word, "
                    f"{word!r}: a model could not tell the tasks apart"
                )
            begins[word] = member.task.title

    def buckets(self, span: Span) -> list[int]:
        return self.members[0].task.buckets(span)

    def training_buckets(self, span: Span) -> list[int]:
        others = enumerate(self.members[1:], start=1)
        codes = [number * BUCKETS + bucket for number, member in others for bucket in member.task.buckets(member.span)]
        return [*self.buckets(span), *codes]

    def member(self, bucket: int) -> tuple[Member, int]:
        """The task that a bucket belongs to, and what it is there."""
        number, own = divmod(bucket, BUCKETS)
        return self.members[number], own

    def length_of(self, bucket: int) -> int:
        member, own = self.member(bucket)
        return member.task.length_of(own)

    def share(self, bucket: int) -> float:
        member, own = self.member(bucket)
        return member.task.share(own) * self.scale[bucket // BUCKETS]

    def shares(self, bucket: int) -> bool:
        member, own = self.member(bucket)
        return member.task.shares(own)

    def draw(self, bucket: int, count: int, generator: np.random.Generator) -> list[Column]:
        member, own = self.member(bucket)
        drawn = member.task.draw(own, count, generator)
        return [(kind, np.where(ids == ABSENT, ABSENT, member.ids[ids])) for kind, ids in drawn]

    def chance(self, bucket: int) -> float:
        member, own = self.member(bucket)
        return member.task.chance(own)

    def tracks(self, examples: Examples) -> dict[str, np.ndarray]:
        """Those of every task for its own examples; 0 where a task does not have a track."""
        found: dict[str, np.ndarray] = {}
        number_E = examples.buckets // BUCKETS
        for number, member in enumerate(self.members):
            its_E = np.flatnonzero(number_E == number)
            is_its = np.repeat(number_E == number, examples.sizes)
            chosen = examples.select(its_E)
            own = np.zeros(len(self.vocabulary), dtype=chosen.tokens.dtype)
            own[member.ids] = np.arange(len(member.ids))
            there = Examples(own[chosen.tokens], chosen.parts, chosen.starts, chosen.buckets % BUCKETS)
            for name, track in member.task.tracks(there).items():
                found.setdefault(name, np.zeros(len(examples.tokens), dtype=np.int64))[is_its] = track
        return found

    def read_answer(self, text: str) -> str | None:
        return self.members[0].task.read_answer(text)


def _in_full(task: Any) -> dict[str, Any]:
    """A task's table with every setting, so that equal mixtures have equal names."""
    table = {"name": task} if isinstance(task, str) else task
    if not isinstance(table, Mapping):
        raise ValueError(f"a task of a mixture is a name or a table, not {task!r}")
    own = configuration.read(_Own, {key: table[key] for key in ("train_lengths", "weight") if key in table}, "mixture")
    rest = {key: value for key, value in table.items() if key not in ("train_lengths", "weight")}
    span = own.train_lengths or (make_task(rest).train_lengths.first, make_task(rest).train_lengths.last)
    return {**task_table(rest), "train_lengths": span, "weight": own.weight}


def _made(table: Mapping[str, Any]) -> Task:
    return make_task({key: value for key, value in table.items() if key not in ("train_lengths", "weight")})


@dataclass(frozen=True)
class _Own:
    """What a task has in a mixture beside its settings."""

    train_lengths: tuple[int, int] | None = None
    weight: float = 1.0

    def __post_init__(self) -> None:
        if self.train_lengths is not None:
            Span(*self.train_lengths)
        if not 0 < self.weight < float("inf"):
            raise ValueError(f"weight must be above 0, not {self.weight}")
