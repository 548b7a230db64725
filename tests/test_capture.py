"""The buffers that captured steps read, without a GPU: streams and events are doubles, and nothing is captured.

`test_interpreted` runs it once more with our kernels, whose updates wait for the step after.
"""

from contextlib import nullcontext
from typing import Any

import numpy as np
import pytest
import torch
from conftest import INTERPRETED

from lengthwise.data.vocabulary import Vocabulary
from lengthwise.model.build import Lengths, build
from lengthwise.model.config import ModelConfig
from lengthwise.tasks.choosing import make_task
from lengthwise.training.batches import TrainingData, collate
from lengthwise.training.capture import CapturedUpdater
from lengthwise.training.fleet import Batch, Fleet
from lengthwise.training.optimizer import corrections
from lengthwise.training.recipe import DataConfig, TrainingConfig
from lengthwise.training.state import TrainingState
from lengthwise.training.update import Steps, Updater

TASK = make_task("copy.words")
DATA = DataConfig(train_lengths=(2, 9), test_lengths=(10, 12), examples=0)
STRETCHES = [(1, 128), (2, 64), (3, 64), (1, 128)] if INTERPRETED else [(2, 128), (8, 64), (16, 64), (3, 64), (4, 128)]
"""Steps and row width: a rare long example in the first and in a later one, stretches that grow and shrink."""
BATCH = 4 if INTERPRETED else 16
RECIPE = TrainingConfig(steps=60, batch=BATCH, learning_rate=2e-3)


class Queue:
    """A stream or an event of a device that does everything at once."""

    device = None

    def __init__(self, *_: Any, **__: Any) -> None:
        self.synchronize = self.record = lambda: None
        self.wait_stream = self.wait_event = lambda other: None


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("Stream", "Event", "current_stream"):
        monkeypatch.setattr(torch.cuda, name, Queue)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self)
    monkeypatch.setattr(torch, "compile", lambda function: function)
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *sizes, pin_memory=False, **settings: empty(*sizes, **settings))


def steps_of(first: int, count: int, width: int) -> Steps:
    numbers = range(first, first + count)
    examples = [TrainingData(TASK, DATA, seed).slice(first * BATCH, count * BATCH) for seed in (0, 1)]
    return Steps(
        collate(examples, 0, width, BATCH),
        seeds_KN=np.array([[step, step + 1] for step in numbers]),
        rates_KN=np.array([[RECIPE.learning_rate_at(step)] * 2 for step in numbers], np.float32),
        corrections_K2=np.array([corrections(RECIPE, step) for step in numbers], np.float32),
    )


def two_models() -> tuple[Fleet, TrainingState]:
    model = build(ModelConfig(layers=1, width=32, heads=2), TASK.vocabulary.rows, [{"name": "t5"}], Lengths(64, 64))
    fleet = Fleet(model, 2, torch.device("cpu"))
    assert fleet.kernels == INTERPRETED
    fleet.initialize([0, 1])
    return fleet, TrainingState.begin(fleet.matrix_NW)


def trained(captured: bool) -> tuple[torch.Tensor, np.ndarray, list[tuple[int, ...]]]:
    (fleet, state), notes = two_models(), []
    updater = CapturedUpdater(fleet, RECIPE, state, notes.append) if captured else Updater(fleet, RECIPE, state)
    shapes, losses, first = [], [], 0
    if isinstance(updater, CapturedUpdater):
        updater.captures = False
    for count, width in STRETCHES:
        losses.append(updater.run(steps_of(first, count, width)).read()[0].copy())
        first += count
        if isinstance(updater, CapturedUpdater):
            shapes.append(tuple(updater.rooms[width, True, True].buffers["tokens_KNRT"].shape))
    assert not notes
    updater.settle()
    return fleet.matrix_NW, np.concatenate(losses), shapes


@pytest.mark.slow
@pytest.mark.usefixtures("no_gpu")
def test_steps_through_buffers_equal_plain_ones() -> None:
    """Nothing of an earlier stretch is left where a later one is read, whatever their sizes."""
    weights, losses, shapes = trained(captured=True)
    expected_weights, expected_losses, _ = trained(captured=False)
    torch.testing.assert_close(weights, expected_weights, rtol=0, atol=1e-5)
    np.testing.assert_allclose(losses, expected_losses, rtol=0, atol=1e-5)
    assert [shape[3] for shape in shapes] == [width for _, width in STRETCHES]
    most = {width: max(count for count, of in STRETCHES if of == width) for _, width in STRETCHES}
    assert shapes[-2][0] == most[64] and shapes[-1][0] == most[128], "buffers never shrink"


def with_rows(rows: int) -> Steps:
    """One step that fills so many rows: of 32 tokens, with one example of more than 16 in each."""
    examples = TrainingData(TASK, DATA, 0).slice(0, 40 * rows)
    long = examples.select(np.flatnonzero(examples.size > 16)[:rows])
    batches = collate([long, long], Vocabulary.pad, 32)
    assert batches.rows_K.tolist() == [rows]
    numbers = range(1)
    return Steps(
        batches,
        seeds_KN=np.array([[step, step + 1] for step in numbers]),
        rates_KN=np.array([[RECIPE.learning_rate_at(step)] * 2 for step in numbers], np.float32),
        corrections_K2=np.array([corrections(RECIPE, step) for step in numbers], np.float32),
    )


@pytest.mark.skipif(INTERPRETED, reason="slow, and the buffers are the same")
@pytest.mark.usefixtures("no_gpu")
@pytest.mark.parametrize("before, rows", [([41], 33), ([33], 37), ([35, 41], 37)])
def test_what_a_step_reads_does_not_depend_on_the_steps_before_it(before: list[int], rows: int) -> None:
    """So that a resumed run has the same bits. 33 rows are rounded up to 34, and 37 to 38."""

    def read(history: list[int]) -> Batch:
        fleet, state = two_models()
        updater = CapturedUpdater(fleet, RECIPE, state, print)
        seen: list[Batch] = []
        gradients = fleet.gradients

        def watched(batch: Batch, *others: Any) -> Any:
            seen.append(batch)
            return gradients(batch, *others)

        fleet.gradients = watched  # type: ignore[method-assign]
        updater.captures = False
        for count in (*history, rows):
            updater.run(with_rows(count))
        return seen[-1]

    used, fresh = read(before), read([])
    assert used.tokens_NRT.shape[1] == rows + 1 and used.consecutive and fresh.consecutive
    for name, value, expected in zip(Batch.ARRAYS, used.arrays(), fresh.arrays(), strict=True):
        assert torch.equal(value, expected), name
