"""The examples that runs are judged on: the same for every encoding and every seed."""

from collections.abc import Collection

import numpy as np

from lengthwise.data import splits
from lengthwise.data.examples import Examples, concatenate
from lengthwise.data.scratchpad import Scratchpad
from lengthwise.data.sequences import Sequences, placed, render
from lengthwise.data.splits import Split
from lengthwise.placements.placement import Generators
from lengthwise.seeding import derive
from lengthwise.tasks.task import Task
from lengthwise.training.recipe import DataConfig

SEED = 0


def validation_set(task: Task, config: DataConfig) -> Sequences:
    """In distribution: lengths of training, prompts that training never shows."""
    span, count, division = config.spans(task)[0], config.validation_count(task), config.division(task)
    again = repeats(task, config)
    drawn = splits.draw(task, Split.VALIDATION, span, count, SEED, again=again, division=division)
    return rendered(task, drawn, config)


def watched_set(task: Task, config: DataConfig) -> Sequences | None:
    """Of unseen lengths, to see along the way how accuracy on them moves; not the examples of the test."""
    if not config.watched:
        return None
    span, buckets = config.spans(task)[1], config.unseen(task)
    drawn = splits.draw(task, Split.TEST, span, config.watched, SEED, "watched", apart=False, buckets=buckets)
    return rendered(task, drawn, config)


def test_set(task: Task, config: DataConfig) -> Sequences:
    """Every length of training and every unseen one that is tested, in order of length."""
    sequences = rendered(task, tested_examples(task, config), config)
    return sequences.select(sequences.buckets.argsort(kind="stable"))


def tested_examples(task: Task, config: DataConfig, lengths: Collection[int] | None = None) -> Examples:
    """What `test_set` shows: first the examples of seen lengths, then those of unseen ones.

    `lengths`: only these, with as many examples of each.
    """
    drawn = []
    for span, count, seen in zip(config.spans(task), config.test_counts(task), (True, False), strict=True):
        buckets = task.buckets(span) if seen else config.unseen(task)
        if lengths is not None:
            at = {task.length_of(bucket) for bucket in buckets}
            buckets = [bucket for bucket in buckets if task.length_of(bucket) in lengths]
            if not buckets:
                continue
            count = round(count * len(at.intersection(lengths)) / len(at))
        again, division = not seen and repeats(task, config), config.division(task)
        drawn.append(
            splits.draw(
                *(task, Split.TEST, span, count, SEED), apart=seen, again=again, division=division, buckets=buckets
            )
        )
    return concatenate(drawn)


def repeats(task: Task, config: DataConfig) -> bool:
    """Whether a length with too few different examples shows them again, as in the published sets."""
    return config.held_out == "overall" and task.repeats


def rendered(task: Task, examples: Examples, config: DataConfig) -> Sequences:
    """Examples as the models of a run read them."""
    placement, scratchpad = config.make_placement(), Scratchpad(config.scratchpad)
    sequences = render(task, examples, scratchpad, config.anchor, config.make_tokens(task), placement.tracks)
    generators = Generators(derive(SEED, "placement"), np.arange(len(sequences)), training=False)
    return placed(sequences, placement, generators)
