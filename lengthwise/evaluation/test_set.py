"""The examples that runs are judged on: the same for every encoding and every seed."""

from lengthwise import splits
from lengthwise.engine.recipe import DataConfig
from lengthwise.examples import concatenate
from lengthwise.scratchpad import Scratchpad
from lengthwise.sequences import Sequences, render
from lengthwise.splits import Split
from lengthwise.tasks.task import Task

SEED = 0


def validation_set(task: Task, config: DataConfig) -> Sequences:
    """In distribution: lengths of training, prompts that training never shows."""
    drawn = splits.draw(task, Split.VALIDATION, config.spans(task)[0], config.validation, SEED)
    return render(task, drawn, Scratchpad(config.scratchpad), config.anchor)


def test_set(task: Task, config: DataConfig) -> Sequences:
    """Every length of training and every unseen one, in order of length."""
    train, test = config.spans(task)
    seen, unseen = (
        splits.draw(task, Split.TEST, span, config.test_per_length * len(list(span)), SEED, apart=span is train)
        for span in (train, test)
    )
    sequences = render(task, concatenate([seen, unseen]), Scratchpad(config.scratchpad), config.anchor)
    return sequences.select(sequences.buckets.argsort(kind="stable"))
