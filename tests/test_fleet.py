"""A fleet equals its models trained alone, by an ordinary loop with PyTorch's own optimizer."""

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lengthwise.engine.batches import TrainingData, collate
from lengthwise.engine.fleet import Fleet, to_device
from lengthwise.engine.optimizer import AdamW
from lengthwise.engine.recipe import DataConfig, TrainingConfig
from lengthwise.model.build import Lengths, build, initialize
from lengthwise.model.config import ModelConfig
from lengthwise.study import make_task

CPU = torch.device("cpu")
MODEL = ModelConfig(layers=2, width=32, heads=4)
# With Adam's usual epsilon a gradient that is zero but for rounding becomes a full step of a random sign.
RECIPE = TrainingConfig(steps=50, batch=8, learning_rate=2e-3, weight_decay=0.1, clip=0.5, epsilon=1e-4)
DATA = DataConfig(train_lengths=(2, 5), test_lengths=(6, 10), examples=0)
TASKS = ["copy.words", "reverse.words"]


def sources(count: int) -> list[TrainingData]:
    return [TrainingData(make_task(TASKS[i % 2]), DATA, seed=i) for i in range(count)]


def train_fleet(data: list[TrainingData], seeds: list[int], rates: list[float], encoding: str, packed: bool) -> Fleet:
    fleet = Fleet(build(MODEL, 128, [{"name": encoding}], Lengths(24, 24)), len(seeds), CPU)
    fleet.initialize(seeds)
    optimizer = AdamW.begin(RECIPE, fleet.decays(), fleet.matrix_NW)
    for step in range(RECIPE.steps):
        examples = [each.slice(step * RECIPE.batch, RECIPE.batch) for each in data]
        batch = to_device(collate(examples, 0, 24 if packed else None), CPU)
        _, gradients = fleet.gradients(batch, None)
        factor = RECIPE.learning_rate_at(step) / RECIPE.learning_rate
        optimizer.update(fleet.matrix_NW, gradients, torch.tensor(rates) * factor, step)
    return fleet


def train_plainly(data: TrainingData, seed: int, rate: float, encoding: str) -> dict[str, torch.Tensor]:
    """An ordinary loop: one example a row, no fleet, no packing, torch.optim.AdamW."""
    model = build(MODEL, 128, [{"name": encoding}], Lengths(24, 24))
    initialize(model, seed)
    decayed = [p for n, p in model.named_parameters() if p.ndim > 1 and not n.startswith("encodings")]
    others = [p for n, p in model.named_parameters() if p.ndim == 1 or n.startswith("encodings")]
    groups = [{"params": decayed, "weight_decay": RECIPE.weight_decay}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=(RECIPE.beta1, RECIPE.beta2), eps=RECIPE.epsilon)
    for step in range(RECIPE.steps):
        examples = data.slice(step * RECIPE.batch, RECIPE.batch)
        tokens = torch.from_numpy(examples.tokens).long()
        labels = tokens.clone()
        for i in range(len(examples)):
            labels[i, : examples.prompt[i]] = -100
            labels[i, examples.size[i] :] = -100
        logits = model(tokens)[:, :-1]
        loss = F.cross_entropy(logits.flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), RECIPE.clip)
        for group in optimizer.param_groups:
            group["lr"] = rate * RECIPE.learning_rate_at(step) / RECIPE.learning_rate
        optimizer.step()
    return {name: p.detach() for name, p in model.named_parameters()}


@pytest.mark.parametrize("encoding", ["none", "t5", "learned"])
@pytest.mark.parametrize("packed", [True, False])
def test_fifty_steps_in_a_fleet_equal_fifty_steps_alone(encoding: str, packed: bool) -> None:
    data, seeds, rates = sources(3), [3, 4, 5], [2e-3, 1e-3, 5e-4]
    fleet = train_fleet(data, seeds, rates, encoding, packed)
    for i in range(3):
        alone = train_plainly(data[i], seeds[i], rates[i], encoding)
        for name, value in fleet.row(fleet.matrix_NW, i).items():
            torch.testing.assert_close(value, alone[name], rtol=0, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")


def test_a_fleet_of_one_equals_a_member_of_three() -> None:
    data = sources(3)
    three = train_fleet(data, [3, 4, 5], [2e-3] * 3, "none", packed=True)
    one = train_fleet(data[:1], [3], [2e-3], "none", packed=True)
    torch.testing.assert_close(one.matrix_NW[0], three.matrix_NW[0], rtol=0, atol=1e-5)


def test_dropout_in_a_fleet_is_the_dropout_of_the_model_alone() -> None:
    config = ModelConfig(layers=2, width=32, heads=4, dropout=0.3)
    data = sources(2)
    batch = [each.slice(0, 8) for each in data]
    seeds = torch.tensor([7, 8])
    losses = []
    for chosen in ([0, 1], [0], [1]):
        fleet = Fleet(build(config, 128, [{"name": "none"}], Lengths(24, 24)), len(chosen), CPU)
        fleet.initialize([1 + i for i in chosen])
        # The fleet's batches have the rows of the largest; alone the same number is asked for.
        tensors = to_device(collate(batch, 0), CPU)
        tensors = {name: None if value is None else value[chosen] for name, value in tensors.items()}
        losses.append(fleet.gradients(tensors, seeds[chosen])[0])
        assert not torch.equal(losses[-1], fleet.gradients(tensors, seeds[chosen] + 1)[0])
    torch.testing.assert_close(losses[0], torch.cat(losses[1:]), rtol=0, atol=1e-6)


def test_a_model_that_diverges_keeps_its_weights_and_harms_no_other() -> None:
    fleet = Fleet(build(MODEL, 128, [{"name": "none"}], Lengths(24, 24)), 2, CPU)
    fleet.initialize([1, 2])
    before = fleet.matrix_NW.clone()
    optimizer = AdamW.begin(RECIPE, fleet.decays(), fleet.matrix_NW)
    gradients = torch.randn_like(before)
    gradients[0, 5] = float("nan")
    norms = optimizer.update(fleet.matrix_NW, gradients, torch.tensor([1e-3, 1e-3]), 0)
    assert norms.isfinite().tolist() == [False, True]
    assert torch.equal(fleet.matrix_NW[0], before[0])
    assert not torch.equal(fleet.matrix_NW[1], before[1]) and fleet.matrix_NW.isfinite().all()


def test_learning_rate_rises_then_falls_in_a_line() -> None:
    recipe = TrainingConfig(steps=1000, learning_rate=1e-3, final_learning_rate=1e-5, warmup=0.1)
    rates = [recipe.learning_rate_at(step) for step in range(1001)]
    assert rates[0] == pytest.approx(1e-5) and rates[99] == pytest.approx(1e-3)
    assert np.argmax(rates) in (99, 100)
    np.testing.assert_allclose(np.diff(rates[100:]), -(1e-3 - 1e-5) / 900, rtol=1e-6)
    assert rates[1000] == pytest.approx(1e-5)


def test_bf16_arithmetic_keeps_fp32_weights() -> None:
    fleet = Fleet(build(MODEL, 128, [{"name": "t5"}], Lengths(24, 24)), 2, CPU, "bf16")
    exact = Fleet(build(MODEL, 128, [{"name": "t5"}], Lengths(24, 24)), 2, CPU)
    for each in (fleet, exact):
        each.initialize([1, 2])
    batch = to_device(collate([each.slice(0, 8) for each in sources(2)], 0, 24), CPU)
    (rough, gradients), (loss, _) = fleet.gradients(batch, None), exact.gradients(batch, None)
    assert fleet.matrix_NW.dtype == gradients.dtype == torch.float32
    torch.testing.assert_close(rough, loss, rtol=0.02, atol=0)
    assert not torch.equal(rough, loss)
