"""Train, validation and test examples that never meet.

Which split an example may be in is a function of its prompt, not of luck: three disjoint ranges of the prompt's
fingerprint. So the splits stay disjoint across seeds, batch sizes and endless training.
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


_RANGES = {Split.TRAIN: (0, 890), Split.VALIDATION: (890, 945), Split.TEST: (945, 1000)}
"""Thousandths of all prompts: enough for the 100,000 of 115,000 published examples that are for training."""

SMALLEST_SPACE = 500
"""With fewer different examples than this in a bucket, the splits share them: some slice would be nearly empty."""


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
    """Which examples may be in `split`; None for all."""
    first, last = _RANGES[split] if split else (0, 1000)
    thousandth = examples.fingerprints() % np.uint64(1000)
    return (thousandth >= first) & (thousandth < last)


def is_shared(task: Task, bucket: int) -> bool:
    """Whether the space is too small to keep the splits apart in this bucket."""
    listed = task.all_examples(bucket)
    return listed is not None and len(listed) < SMALLEST_SPACE


def _draw_bucket(
    task: Task, split: Split | None, bucket: int, count: int, generator: np.random.Generator, again: bool
) -> Examples:
    listed = task.all_examples(bucket)
    if listed is not None:
        pool = np.arange(len(listed)) if len(listed) < SMALLEST_SPACE else np.flatnonzero(in_split(listed, split))
        rounds = -(-count // len(pool)) if again else 1  # each once; again only when all have been used
        chosen = np.concatenate([generator.permutation(pool) for _ in range(rounds)])[:count]
        return listed.select(chosen)
    first, last = _RANGES[split] if split else (0, 1000)
    kept: list[Examples] = []
    missing = count
    for _ in range(40):
        drawn = task.examples(bucket, int(missing * 1000 / (last - first) * 1.05) + 16, generator)
        suitable = np.flatnonzero(in_split(drawn, split))[:missing]
        kept.append(drawn.select(suitable))
        missing -= len(suitable)
        if missing == 0:
            return concatenate(kept)
    raise UserError(
        f"{task.name} has too few different examples of length {task.length_of(bucket)} to keep {split} examples "
        "apart from others; begin with a greater length or use more symbols"
    )
