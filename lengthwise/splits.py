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
from lengthwise.tasks.task import Task


class Split(StrEnum):
    TRAIN = "train"
    VALIDATION = "validation"
    TEST = "test"


_RANGES = {Split.TRAIN: (0, 890), Split.VALIDATION: (890, 945), Split.TEST: (945, 1000)}
"""Thousandths of all prompts: enough for the 100,000 of 115,000 published examples that are for training."""

SMALLEST_SPACE = 500
"""With fewer different examples than this at a length, the splits share them: some slice would be nearly empty."""


def draw(
    task: Task, split: Split, lengths: Sequence[int], count: int, seed: int, *names: str | int, apart: bool = True
) -> Examples:
    """`count` examples spread equally over `lengths`, shuffled; `names` tell repeated draws apart.

    `apart=False` for lengths that no other split uses: there every prompt may be drawn.
    """
    batches = []
    for i, length in enumerate(lengths):
        share = count // len(lengths) + (i < count % len(lengths))
        if share:
            generator = stream(seed, "data", task.name, split.value, length, *names)
            batches.append(_draw_length(task, split if apart else None, length, share, generator))
    order = stream(seed, "shuffle", task.name, split.value, *names).permutation(count)
    return concatenate(batches).select(order)


def in_split(examples: Examples, split: Split | None) -> np.ndarray:
    """Which examples may be in `split`; None for all."""
    first, last = _RANGES[split] if split else (0, 1000)
    thousandth = examples.fingerprints() % np.uint64(1000)
    return (thousandth >= first) & (thousandth < last)


def is_shared(task: Task, length: int) -> bool:
    """Whether the space is too small to keep the splits apart at this length."""
    listed = task.all_examples(length)
    return listed is not None and len(listed) < SMALLEST_SPACE


def _draw_length(task: Task, split: Split | None, length: int, count: int, generator: np.random.Generator) -> Examples:
    listed = task.all_examples(length)
    if listed is not None:
        pool = np.arange(len(listed)) if len(listed) < SMALLEST_SPACE else np.flatnonzero(in_split(listed, split))
        rounds = -(-count // len(pool))  # each once; again only when all have been used
        chosen = np.concatenate([generator.permutation(pool) for _ in range(rounds)])[:count]
        return listed.select(chosen)
    first, last = _RANGES[split] if split else (0, 1000)
    kept: list[Examples] = []
    missing = count
    for _ in range(40):
        drawn = task.examples(length, int(missing * 1000 / (last - first) * 1.05) + 16, generator)
        suitable = np.flatnonzero(in_split(drawn, split))[:missing]
        kept.append(drawn.select(suitable))
        missing -= len(suitable)
        if missing == 0:
            return concatenate(kept)
    raise UserError(
        f"{task.name} has too few different examples of length {length} to keep {split} examples apart from others; "
        "begin with a greater length or use more symbols"
    )
