"""What a study will need, estimated before anything is allocated: more than the machine has is refused in a line.

Estimates are from below, so that nothing is refused that would fit. Imports no torch.
"""

import os
from collections.abc import Iterable
from functools import lru_cache

from lengthwise.errors import UserError
from lengthwise.model.config import ModelConfig
from lengthwise.tasks.task import Task
from lengthwise.training.recipe import DataConfig, TrainingConfig

LONGEST = 100_000
"""Of an example, in what its task calls length."""
MOST_LAYERS = 1000
KEPT_OF_A_TOKEN = 16
"""Bytes of a token of an example in memory: the token, its part, its position, its order."""
KEPT_OF_A_WEIGHT = 16
"""Bytes: weight, two moments and the best, in fp32."""
WINDOW = 64
"""Steps whose examples are in memory at once; see `batches`."""


@lru_cache(maxsize=1)
def host_memory() -> int:
    """Bytes of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def refuse_long(what: str, data: DataConfig, task: Task) -> None:
    """Refuses lengths that nobody can train on, before a task is asked for them."""
    for name, own in (("train_lengths", data.train_lengths), ("test_lengths", data.test_lengths)):
        last = own[1] if own else getattr(task, name).last
        if last > LONGEST:
            raise UserError(f"{what}: {name} go up to {LONGEST:,}, not to {last:,}")


def refuse_large_sets(what: str, data: DataConfig, training: TrainingConfig, task: Task) -> None:
    """Refuses sets of examples that this machine cannot hold."""
    train, test = data.spans(task)
    short, long = (train.last, test.last) if task.length_counts_tokens else (1, 1)
    seen, unseen = data.test_counts(task)
    needs = {
        "data.examples": data.training_count(task) * short,
        "data.validation": data.validation_count(task) * short,
        "data.test_per_length": seen * train.first + unseen * test.first,
        "data.watched": data.watched * test.first,
        "training.batch": training.batch * WINDOW,
        "data.test_lengths": long,
    }
    for setting, tokens in needs.items():
        _refuse_beyond(f"{what}: {setting}", tokens * KEPT_OF_A_TOKEN, host_memory(), "this machine")


def refuse_large_models(settings: Iterable[tuple[ModelConfig, TrainingConfig]], memory: int, device: str) -> None:
    """Refuses models that `memory` bytes cannot hold with what training keeps, each by itself."""
    for model, training in dict.fromkeys(settings):
        if model.layers > MOST_LAYERS:
            raise UserError(f"model.layers: at most {MOST_LAYERS:,}, not {model.layers:,}")
        weights = weights_of(model)
        _refuse_beyond(f"a model of {weights:,} parameters", weights * KEPT_OF_A_WEIGHT, memory, device)
        states = training.batch * model.layers * model.width * 4  # one token of each example, one state of each layer
        _refuse_beyond(f"training.batch = {training.batch:,}", states, memory, device)


def weights_of(model: ModelConfig) -> int:
    """Of its layers, without embeddings and encodings."""
    attention = 2 * model.width**2 + 2 * model.width * model.groups * model.head_width
    return model.layers * (attention + (2 if model.style == "t5" else 3) * model.width * model.inner_width)


def refuse_long_attention(what: str, tokens: int, model: ModelConfig, memory: int, device: str) -> None:
    """Refuses sequences whose attention weights do not fit where they are all in memory: on a CPU."""
    _refuse_beyond(f"{what}: attention to {tokens:,} tokens", model.heads * tokens**2 * 4, memory, device)


def attention_memory(model: ModelConfig, rows: int, width: int) -> int:
    """Bytes of the attention weights of all layers."""
    return 4 * model.layers * model.heads * rows * width**2


def refuse_large_step(what: str, needed: int, memory: int) -> None:
    """Refuses training whose steps do not fit even with one model at a time."""
    _refuse_beyond(f"{what}: a training step", needed, memory, "this machine")


def is_out_of_memory(error: BaseException) -> bool:
    """Of a CPU; PyTorch has no class for it."""
    return isinstance(error, MemoryError) or (isinstance(error, RuntimeError) and "DefaultCPUAllocator" in str(error))


def _refuse_beyond(what: str, needed: int, there: int, where: str) -> None:
    if needed > there:
        raise UserError(f"{what} would need at least {needed / 2**30:,.0f} GB; {where} has {there / 2**30:,.0f} GB")
