"""What encodings declare, in the fused attention kernel: against attention one key at a time, interpreted.

`test_interpreted` runs it in a process of its own. Whatever the kernel refuses must come out the same all the same.
"""

from dataclasses import replace
from typing import Any

import pytest
import torch
from attention_by_hand import CONFIGS, HEADS, Declared, decoder_with, draw_tokens, geometry_of, read_by_hand
from conftest import INTERPRETED
from formulas import FORMULAS
from test_declarations import CASES

from lengthwise.kernels import attention as kernel
from lengthwise.model.backend import explain
from lengthwise.model.build import Lengths, build
from lengthwise.model.config import ModelConfig
from lengthwise.tasks.choosing import make_task
from lengthwise.training.batches import TrainingData, collate
from lengthwise.training.fleet import Batch, Fleet
from lengthwise.training.recipe import DataConfig

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="test_interpreted runs it in a process of its own")

EAGER = {"softmax plus one", "sigmoid over visible"}
GIVEN = {"scores above mean", "scores squared"}
"""The kernel is given the logits of these."""
BY_INDEX = {"bias by distance", "bias by position", "window", "windows by head"}
SIZES = (9, 4, 3)
"""Of the sequences of a row: 16 tokens, for which there is a kernel."""
GAPPED = [0, 1, 4, 5, 6, 9, 11, 17, 20]


@pytest.mark.parametrize("placed", ["consecutive", "gapped"])
@pytest.mark.parametrize("style", ["t5", "llama-grouped"])
@pytest.mark.parametrize("case", CASES)
@torch.no_grad()
def test_packed_rows_equal_each_sequence_by_hand(
    case: str, style: str, placed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[Any] = []
    fused = kernel.fused_attention
    monkeypatch.setattr(
        kernel, "fused_attention", lambda *given, **named: calls.append(given) or fused(*given, **named)
    )
    config, hand = replace(CONFIGS[style], width=16 * HEADS), CASES[case]
    encoding = Declared(hand, geometry_of(config))
    model = decoder_with(encoding, config)
    model.backend = "kernel"
    parts = set(case.split(" + "))
    said = "eager" if parts & EAGER else "partly fused" if parts & GIVEN else "fused"
    assert explain(encoding, config).split(":")[0] == said
    sequences = [draw_tokens(size, seed=size) for size in SIZES]
    segments = torch.arange(1, 4).repeat_interleave(torch.tensor(SIZES))[None]
    places = [range(size) if placed == "consecutive" else GAPPED[:size] for size in SIZES]
    positions = torch.tensor([[place for each in places for place in each]]) if placed == "gapped" else None
    logits = model(torch.cat(sequences)[None], positions_BT=positions, segments_BT=segments)
    in_kernel = not parts & EAGER and not (placed == "gapped" and parts & BY_INDEX)
    assert len(calls) == (config.layers if in_kernel else 0)
    for found, tokens, place in zip(logits[0].split(SIZES), sequences, places, strict=True):
        torch.testing.assert_close(found, read_by_hand(model, tokens, place, hand)[0], rtol=3e-5, atol=3e-5)


LIKE_COPE = {
    *("fire", "nape", "path", "logn", "sandwich", "t5-interpolated", "llama4-temperature"),
}
"""Eager as CoPE is, or the same program as KERPLE or SSMax: nothing new for the kernels."""


ELSEWHERE = ("fox", "kerple", "window-rotary-ssmax", "xpos")
"""Of each way to depend on positions one is also tried at others than 0, 1, 2."""


@pytest.mark.usefixtures("encodings_outside")
@pytest.mark.parametrize(
    ("name", "placement"),
    [
        *((name, "consecutive") for name in sorted(FORMULAS) if name not in LIKE_COPE),
        *((name, "randomized(range=64)") for name in ELSEWHERE),
    ],
)
def test_a_fleet_has_the_same_losses_and_gradients_with_and_without_kernels(name: str, placement: str) -> None:
    task, count = make_task("copy.words"), 2
    config = ModelConfig(layers=2, width=32, heads=2, dropout=0.1)
    fleet = Fleet(build(config, task.vocabulary.rows, [{"name": name}], Lengths(64, 64)), count, torch.device("cpu"))
    assert fleet.kernels
    fleet.initialize([3, 4])
    data = DataConfig(train_lengths=(2, 5), test_lengths=(6, 7), examples=0, placement=placement)
    examples = [TrainingData(task, data, seed=seed).batches(0, 1, 4) for seed in range(count)]
    batch, keys = Batch.of(collate(examples, 0, 32, 4), 0, torch.device("cpu")), fleet.keys(torch.arange(count) + 7)
    assert batch.consecutive == (placement == "consecutive")
    losses, gradients = fleet.gradients(batch, keys)
    gradients = {key: each.clone() for key, each in gradients.items()}
    fleet.kernels = False
    wanted_losses, wanted = fleet.gradients(batch, keys)
    torch.testing.assert_close(losses, wanted_losses, rtol=1e-5, atol=1e-5)
    assert gradients.keys() == wanted.keys()
    largest = max(float(gradient.norm()) for gradient in wanted.values())
    for key, gradient in gradients.items():
        error, size = float((gradient - wanted[key]).norm()), float(wanted[key].norm())
        assert error <= max(2e-5 * size, 1e-7 * largest), key
