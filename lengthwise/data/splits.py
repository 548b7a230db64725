"""Train, validation and test examples that never meet.

Which split an example may be in is a function of its prompt, not of luck: three disjoint ranges of the prompt's
fingerprint or, where all examples can be listed, of its rank by fingerprint. So the splits stay disjoint across seeds,
batch sizes and endless training. Ranks are those within a length, or, as published, those among all prompts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from lengthwise.data.examples import Examples, concatenate
from lengthwise.errors import UserError
from lengthwise.seeding import stream
from lengthwise.tasks.task import Span, Task


class Split(StrEnum):
    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


Ranges = dict[Split, tuple[float, float]]

_RANGES: Ranges = {Split.TRAIN: (0, 0.9), Split.VALIDATION: (0.9, 0.95), Split.TEST: (0.95, 1)}
"""Shares of all prompts; enough for the 100,000 of 115,000 that are for training."""

_RANGES_OF_FEW: Ranges = {Split.TRAIN: (0, 0.8), Split.VALIDATION: (0.8, 0.9), Split.TEST: (0.9, 1)}
FEW = 1000
"""With fewer prompts than this in a bucket, more of them are held out: else hardly any would be."""
TOO_FEW = 20
"""With fewer than this none can be held out: the splits share them, and results say so."""


@dataclass(frozen=True)
class Division:
    """Which prompts are for training and which are held out."""

    overall: bool = False
    """Whether the share that is held out is one of all prompts, as published, or the same of each length."""
    trained: Span | None = None
    """The lengths of training; the shares of all prompts are counted over these."""

    def ranges(self, task: Task) -> Ranges:
        if not self.overall:
            return _RANGES
        train, rest, _ = task.published_counts
        edge = train / (train + rest)
        middle = (1 + edge) / 2  # published runs looked at half of the rest; the other half is our test of seen lengths
        return {Split.TRAIN: (0, edge), Split.VALIDATION: (edge, middle), Split.TEST: (middle, 1)}


BY_LENGTH = Division()


def draw(
    task: Task,
    split: Split,
    span: Span,
    count: int,
    seed: int,
    *names: str | int,
    apart: bool = True,
    again: bool = False,
    division: Division = BY_LENGTH,
    buckets: Sequence[int] | None = None,
) -> Examples:
    """`count` examples spread over the buckets of `span` by their shares, shuffled; `names` tell draws apart.

    `apart=False` for lengths that no other split uses: there every prompt may be drawn. Where a bucket has fewer
    examples than its share, all of them are drawn, or, with `again`, all of them as often as it takes. Where prompts
    are held out overall and all can be listed, examples are drawn from all that are in the split, as published:
    then lengths get what chance gives them. `buckets`: only these of them.
    """
    if buckets is None:
        buckets = task.training_buckets(span) if split is Split.TRAIN else task.buckets(span)
    if not buckets:
        raise UserError(f"{task.name} has no examples of the lengths {span} ({task.length_means})")
    if apart and division.overall and (listed := _all_listed(task, division.trained or span)) is not None:
        generator = stream(seed, "data", task.name, split.value, *names)
        return _draw_overall(task, listed, split, buckets, count, generator, again, division)
    batches = []
    for bucket, share in zip(buckets, spread(count, [task.share(bucket) for bucket in buckets]), strict=True):
        if share:
            generator = stream(seed, "data", task.name, split.value, bucket, *names)
            batches.append(_draw_bucket(task, split if apart else None, bucket, share, generator, again, division))
    drawn = concatenate(batches)
    order = stream(seed, "shuffle", task.name, split.value, *names).permutation(len(drawn))
    return drawn.select(order)


def _all_listed(task: Task, span: Span) -> Examples | None:
    """Every example of these lengths; None where some length has more than can be listed, or splits share them."""
    buckets = task.buckets(span)
    if task.shares_examples or any(map(task.shares, buckets)):
        return None
    listed = [task.all_examples(bucket) for bucket in buckets]
    found = [examples for examples in listed if examples is not None]
    return concatenate(found) if found and len(found) == len(listed) else None


def _draw_overall(
    task: Task,
    listed: Examples,
    split: Split,
    buckets: Sequence[int],
    count: int,
    generator: np.random.Generator,
    again: bool,
    division: Division,
) -> Examples:
    _, rank = np.unique(listed.fingerprints(), return_inverse=True)
    distinct = int(rank.max()) + 1
    first, last = (round(edge * distinct) for edge in division.ranges(task)[split])
    candidates = np.flatnonzero((rank >= first) & (rank < last) & np.isin(listed.buckets, buckets))
    if not len(candidates):
        raise UserError(f"{task.title} has too few different examples to keep {split} examples apart from others")
    return listed.select(_some(candidates, count, generator, again))


def _some(candidates: np.ndarray, count: int, generator: np.random.Generator, again: bool) -> np.ndarray:
    """`count` of them, each once; again only when all have been used."""
    rounds = -(-count // len(candidates)) if again else 1
    return np.concatenate([generator.permutation(candidates) for _ in range(rounds)])[:count]


def spread(count: int, shares: Sequence[float]) -> list[int]:
    """`count` divided by shares into whole numbers; what is left over goes to the largest remainders, first come."""
    exact = np.asarray(shares, dtype=float) / sum(shares) * count
    whole = np.floor(exact + 1e-9).astype(int)
    first = np.argsort(-(exact - whole), kind="stable")
    whole[first[: count - whole.sum()]] += 1
    return whole.tolist()


def in_split(examples: Examples, split: Split | None, ranges: Ranges = _RANGES) -> np.ndarray:
    """Which examples, of more than can be listed, may be in `split`; None for all."""
    first, last = ranges[split] if split else (0, 1)
    place = (examples.fingerprints() >> np.uint64(11)) / 2**53
    return (place >= first) & (place < last)


def pool(task: Task, listed: Examples, split: Split | None, division: Division = BY_LENGTH) -> np.ndarray:
    """The examples, of all in a bucket, that may be in `split`; None for all. Equal prompts are in the same split."""
    _, rank = np.unique(listed.fingerprints(), return_inverse=True)
    distinct = int(rank.max(initial=-1)) + 1
    if split is None or task.shares_examples or distinct < TOO_FEW:
        return np.arange(len(listed))
    if division.overall:
        return np.flatnonzero(in_split(listed, split, division.ranges(task)))
    first, last = (round(edge * distinct) for edge in (_RANGES_OF_FEW if distinct < FEW else _RANGES)[split])
    return np.flatnonzero((rank >= first) & (rank < last))


def is_shared(task: Task, bucket: int, division: Division = BY_LENGTH) -> bool:
    """Whether training, validation and test share the examples of this bucket."""
    if task.shares(bucket):
        return True
    if division.overall and division.trained and _all_listed(task, division.trained) is not None:
        return False
    listed = task.all_examples(bucket)
    if listed is None:
        return False
    return task.shares_examples or len(np.unique(listed.fingerprints())) < TOO_FEW


def _draw_bucket(
    task: Task,
    split: Split | None,
    bucket: int,
    count: int,
    generator: np.random.Generator,
    again: bool,
    division: Division,
) -> Examples:
    if task.shares(bucket):
        split = None
    listed = task.all_examples(bucket)
    if listed is not None:
        candidates = pool(task, listed, split, division)
        if not len(candidates):
            raise _too_few(task, split, bucket)
        return listed.select(_some(candidates, count, generator, again))
    ranges = division.ranges(task)
    first, last = ranges[split] if split else (0, 1)
    kept: list[Examples] = []
    missing = count
    for _ in range(40):
        drawn = task.examples(bucket, int(missing / (last - first) * 1.05) + 16, generator)
        suitable = np.flatnonzero(in_split(drawn, split, ranges))[:missing]
        kept.append(drawn.select(suitable))
        missing -= len(suitable)
        if missing == 0:
            return concatenate(kept)
    raise _too_few(task, split, bucket)


def _too_few(task: Task, split: Split | None, bucket: int) -> UserError:
    return UserError(
        f"{task.title} has too few different examples of length {task.length_of(bucket)} to keep {split} examples "
        "apart from others; begin with a greater length or use more symbols"
    )
