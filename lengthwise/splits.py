"""Train, validation and test examples that never meet.

Which split an example may be in is a function of its prompt, not of luck: three disjoint ranges of the prompt's
fingerprint or, where all examples can be listed, of its rank by fingerprint. So the splits stay disjoint across seeds,
batch sizes and endless training.
"""

from collections.abc import Sequence
from enum import StrEnum

import numpy as np

from lengthwise.errors import UserError
from lengthwise.examples import Examples, concatenate
from lengthwise.seeding import stream
from lengthwise.tasks.task import Span, Task


class Split(StrEnum):
    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


_RANGES = {Split.TRAIN: (0, 0.9), Split.VALIDATION: (0.9, 0.95), Split.TEST: (0.95, 1)}
"""Shares of all prompts, as the published SCAN has them; enough for the 100,000 of 115,000 that are for training."""

_RANGES_OF_FEW = {Split.TRAIN: (0, 0.8), Split.VALIDATION: (0.8, 0.9), Split.TEST: (0.9, 1)}
FEW = 1000
"""With fewer prompts than this in a bucket, more of them are held out: else hardly any would be."""
TOO_FEW = 20
"""With fewer than this none can be held out: the splits share them, and results say so."""


def draw(
    task: Task,
    split: Split,
    span: Span,
    count: int,
    seed: int,
    *names: str | int,
    apart: bool = True,
    again: bool = False,
) -> Examples:
    """`count` examples spread over the buckets of `span` by their shares, shuffled; `names` tell draws apart.

    `apart=False` for lengths that no other split uses: there every prompt may be drawn. Where a bucket has fewer
    examples than its share, all of them are drawn, or, with `again`, all of them as often as it takes.
    """
    batches = []
    buckets = task.buckets(span)
    if not buckets:
        raise UserError(f"{task.name} has no examples of the lengths {span} ({task.length_means})")
    for bucket, share in zip(buckets, spread(count, [task.share(bucket) for bucket in buckets]), strict=True):
        if share:
            generator = stream(seed, "data", task.name, split.value, bucket, *names)
            batches.append(_draw_bucket(task, split if apart else None, bucket, share, generator, again))
    drawn = concatenate(batches)
    order = stream(seed, "shuffle", task.name, split.value, *names).permutation(len(drawn))
    return drawn.select(order)


def spread(count: int, shares: Sequence[float]) -> list[int]:
    """`count` divided by shares into whole numbers; what is left over goes to the largest remainders, first come."""
    exact = np.asarray(shares, dtype=float) / sum(shares) * count
    whole = np.floor(exact + 1e-9).astype(int)
    first = np.argsort(-(exact - whole), kind="stable")
    whole[first[: count - whole.sum()]] += 1
    return whole.tolist()


def in_split(examples: Examples, split: Split | None) -> np.ndarray:
    """Which examples, of more than can be listed, may be in `split`; None for all."""
    first, last = _RANGES[split] if split else (0, 1)
    place = (examples.fingerprints() >> np.uint64(11)) / 2**53
    return (place >= first) & (place < last)


def pool(task: Task, listed: Examples, split: Split | None) -> np.ndarray:
    """The examples, of all in a bucket, that may be in `split`; None for all. Equal prompts are in the same split."""
    _, rank = np.unique(listed.fingerprints(), return_inverse=True)
    distinct = int(rank.max(initial=-1)) + 1
    if split is None or task.shares_examples or distinct < TOO_FEW:
        return np.arange(len(listed))
    first, last = (round(edge * distinct) for edge in (_RANGES_OF_FEW if distinct < FEW else _RANGES)[split])
    return np.flatnonzero((rank >= first) & (rank < last))


def is_shared(task: Task, bucket: int) -> bool:
    """Whether training, validation and test share the examples of this bucket."""
    listed = task.all_examples(bucket)
    if listed is None:
        return False
    return task.shares_examples or len(np.unique(listed.fingerprints())) < TOO_FEW


def _draw_bucket(
    task: Task, split: Split | None, bucket: int, count: int, generator: np.random.Generator, again: bool
) -> Examples:
    listed = task.all_examples(bucket)
    if listed is not None:
        candidates = pool(task, listed, split)
        if not len(candidates):
            raise _too_few(task, split, bucket)
        rounds = -(-count // len(candidates)) if again else 1  # each once; again only when all have been used
        chosen = np.concatenate([generator.permutation(candidates) for _ in range(rounds)])[:count]
        return listed.select(chosen)
    first, last = _RANGES[split] if split else (0, 1)
    kept: list[Examples] = []
    missing = count
    for _ in range(40):
        drawn = task.examples(bucket, int(missing / (last - first) * 1.05) + 16, generator)
        suitable = np.flatnonzero(in_split(drawn, split))[:missing]
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
