"""A fleet equals its models trained alone, by an ordinary loop with PyTorch's own optimizer."""

from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from conftest import slow

from lengthwise.model.build import Lengths, build
from lengthwise.model.config import ModelConfig
from lengthwise.model.initial_values import initialize
from lengthwise.tasks.choosing import make_task
from lengthwise.training.batches import NO_TARGET, TrainingData, collate
from lengthwise.training.fleet import Batch, Fleet, cross_entropy
from lengthwise.training.optimizer import corrections
from lengthwise.training.recipe import DataConfig, TrainingConfig
from lengthwise.training.state import TrainingState
from lengthwise.training.update import Updater

CPU = torch.device("cpu")
MODEL = ModelConfig(layers=2, width=32, heads=4)
# With Adam's usual epsilon a gradient that is zero but for rounding becomes a full step of a random sign.
RECIPE = TrainingConfig(steps=50, batch=8, learning_rate=2e-3, weight_decay=0.1, clip=0.5, epsilon=1e-4)
DATA = DataConfig(train_lengths=(2, 5), test_lengths=(6, 10), examples=0)
TASKS = ["copy.words", "reverse.words"]


def sources(count: int) -> list[TrainingData]:
    return [TrainingData(make_task(TASKS[i % 2]), DATA, seed=i) for i in range(count)]


def updater_of(fleet: Fleet, recipe: TrainingConfig = RECIPE) -> Updater:
    return Updater(fleet, recipe, TrainingState.begin(fleet.matrix_NW))


def advance(updater: Updater, batch: Batch, rates: list[float], step: int) -> torch.Tensor:
    """One update; losses and norms (2, N)."""
    seeds = torch.zeros(len(rates), dtype=torch.int64)
    return updater.step(batch, updater.fleet.keys(seeds), torch.tensor(rates), torch.tensor(corrections(RECIPE, step)))


def joined(gradients: dict[str, torch.Tensor]) -> torch.Tensor:
    return torch.cat([each.flatten(1) for each in gradients.values()], dim=1)


def train_fleet(
    data: list[TrainingData],
    seeds: list[int],
    rates: list[float],
    encoding: str,
    row_width: int,
    recipe: TrainingConfig = RECIPE,
) -> Fleet:
    fleet = Fleet(build(MODEL, 128, [{"name": encoding}], Lengths(24, 24)), len(seeds), CPU)
    fleet.initialize(seeds)
    updater = updater_of(fleet, recipe)
    for step in range(RECIPE.steps):
        examples = [each.slice(step * RECIPE.batch, RECIPE.batch) for each in data]
        batch = Batch.of(collate(examples, 0, row_width), 0, CPU)
        factor = RECIPE.learning_rate_at(step) / RECIPE.learning_rate
        advance(updater, batch, [rate * factor for rate in rates], step)
    return fleet


def train_plainly(
    data: TrainingData, seed: int, rate: float, encoding: str, norms_decay: bool = True
) -> dict[str, torch.Tensor]:
    """An ordinary loop: one example a row, no fleet, no packing, torch.optim.AdamW."""
    model = build(MODEL, 128, [{"name": encoding}], Lengths(24, 24))
    initialize(model, seed)
    weights = dict(model.named_parameters())
    kept = {n for n in weights if n.startswith("encodings") or ("norm" in n and not norms_decay)}
    decayed, others = [weights[n] for n in weights if n not in kept], [weights[n] for n in kept]
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


@pytest.mark.slow
@pytest.mark.parametrize("encoding", [slow("none"), "t5", slow("learned")])
@pytest.mark.parametrize("row_width", [slow(13), 24, slow(64)])  # the longest example alone, a few, many
def test_fifty_steps_in_a_fleet_equal_fifty_steps_alone(encoding: str, row_width: int) -> None:
    data, seeds, rates = sources(3), [3, 4, 5], [2e-3, 1e-3, 5e-4]
    fleet = train_fleet(data, seeds, rates, encoding, row_width)
    for i in range(3):
        alone = train_plainly(data[i], seeds[i], rates[i], encoding)
        for name, value in fleet.row(fleet.matrix_NW, i).items():
            torch.testing.assert_close(value, alone[name], rtol=0, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")


@pytest.mark.slow
def test_norms_decay_or_keep_their_weights_as_the_recipe_says() -> None:
    data = sources(2)
    fleet = train_fleet(data, [3, 4], [2e-3, 1e-3], "t5", 24, replace(RECIPE, decay_norms=False))
    alone = train_plainly(data[1], 4, 1e-3, "t5", norms_decay=False)
    decayed = train_plainly(data[1], 4, 1e-3, "t5")
    for name, value in fleet.row(fleet.matrix_NW, 1).items():
        torch.testing.assert_close(value, alone[name], rtol=0, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")
    assert (alone["final_norm.weight"] - decayed["final_norm.weight"]).abs().max() > 1e-4


@pytest.mark.slow
def test_a_fleet_of_one_equals_a_member_of_three() -> None:
    data = sources(3)
    three = train_fleet(data, [3, 4, 5], [2e-3] * 3, "none", row_width=24)
    one = train_fleet(data[:1], [3], [2e-3], "none", row_width=24)
    torch.testing.assert_close(one.matrix_NW[0], three.matrix_NW[0], rtol=0, atol=1e-5)


@pytest.mark.parametrize("row_width", [13, 24])
def test_dropout_in_a_fleet_is_the_dropout_of_the_model_alone(row_width: int) -> None:
    config = ModelConfig(layers=2, width=32, heads=4, dropout=0.3)
    batch = [each.slice(0, 8) for each in sources(2)]
    seeds = torch.tensor([7, 8])
    losses, gradients = [], []
    for chosen in ([0, 1], [0], [1]):
        fleet = Fleet(build(config, 128, [{"name": "none"}], Lengths(24, 24)), len(chosen), CPU)
        fleet.initialize([1 + i for i in chosen])
        # Alone the number of rows may be smaller than in the fleet, which has those of the largest.
        tensors = Batch.of(collate([batch[i] for i in chosen], 0, row_width), 0, CPU)
        loss, gradient = fleet.gradients(tensors, fleet.keys(seeds[chosen]))
        losses.append(loss)
        gradients.append(joined(gradient))
        assert not torch.equal(loss, fleet.gradients(tensors, fleet.keys(seeds[chosen] + 1))[0])
    torch.testing.assert_close(losses[0], torch.cat(losses[1:]), rtol=0, atol=1e-6)
    torch.testing.assert_close(gradients[0], torch.cat(gradients[1:]), rtol=0, atol=1e-5)


def test_a_model_that_diverges_keeps_its_weights_and_harms_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet(build(MODEL, 128, [{"name": "none"}], Lengths(24, 24)), 2, CPU)
    fleet.initialize([1, 2])
    before = fleet.matrix_NW.clone()
    updater, losses = updater_of(fleet), torch.tensor([1.0, 2.0])
    by_name = fleet.named(torch.randn(before.shape, generator=torch.Generator().manual_seed(0)))
    expected_norm = joined(by_name)[1].double().norm().item()
    by_name["embedding.weight"][0, 5] = float("nan")
    batch = Batch.of(collate([each.slice(0, 8) for each in sources(2)], 0, 24), 0, CPU)
    monkeypatch.setattr(fleet, "gradients", lambda batch, keys: (losses, by_name))
    found_losses, norms = advance(updater, batch, [1e-3, 1e-3], 0)
    assert torch.equal(found_losses, losses)
    assert norms.isfinite().tolist() == [False, True]
    assert norms[1].item() == pytest.approx(expected_norm, rel=1e-5)
    assert torch.equal(fleet.matrix_NW[0], before[0])
    assert not torch.equal(fleet.matrix_NW[1], before[1]) and fleet.matrix_NW.isfinite().all()
    assert updater.state.first_NW.isfinite().all() and updater.state.second_NW.isfinite().all()


@pytest.mark.parametrize("largest", [5.0, 40.0, 1000.0])
def test_the_loss_and_its_gradient_have_all_their_digits(largest: float) -> None:
    """Against PyTorch in fp64: likely tokens, one a little less likely, hopeless ones, one that is not asked for."""
    logits_NPV = largest - torch.rand(2, 3, 9, generator=torch.Generator().manual_seed(0)) * 4 - 8
    logits_NPV[:, :, 4] = largest
    targets_NP = torch.tensor([[4, 4, NO_TARGET], [4, 2, 7]])
    losses_N, dlogits_NPV = cross_entropy(logits_NPV, targets_NP, kernels=False)
    exact = logits_NPV.double().requires_grad_()
    for n, targets_P in enumerate(targets_NP):
        loss = F.cross_entropy(exact[n], targets_P, ignore_index=NO_TARGET)
        (gradient,) = torch.autograd.grad(loss, [exact])
        torch.testing.assert_close(losses_N[n].double(), loss.detach(), rtol=2e-4, atol=0.0)
        torch.testing.assert_close(dlogits_NPV[n].double(), gradient[n], rtol=1e-5, atol=1e-7)


def test_the_loss_of_a_hopeless_token_is_finite() -> None:
    logits_NPV = torch.tensor([[[300.0, 0.0, -10.0]]])
    losses_N, dlogits_NPV = cross_entropy(logits_NPV, torch.tensor([[2]]), kernels=False)
    assert losses_N.item() == pytest.approx(310.0) and dlogits_NPV.tolist() == [[[1.0, 0.0, -1.0]]]


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
    assert torch.equal(fleet.matrix_NW, exact.matrix_NW)
    batch = Batch.of(collate([each.slice(0, 8) for each in sources(2)], 0, 24), 0, CPU)
    (rough, gradients), (loss, exact_gradients) = (
        (losses, joined(by_name)) for losses, by_name in (fleet.gradients(batch), exact.gradients(batch))
    )
    assert fleet.matrix_NW.dtype == exact_gradients.dtype == rough.dtype == torch.float32
    assert gradients.dtype == torch.bfloat16
    torch.testing.assert_close(rough, loss, rtol=0.02, atol=0)
    assert not torch.equal(rough, loss)
    off = (gradients.float() - exact_gradients).norm(dim=1) / exact_gradients.norm(dim=1)
    assert (off < 0.05).all()


def test_a_bf16_fleet_reads_what_the_optimizer_wrote() -> None:
    """Weights and optimizer in fp32: changes far below what bf16 can hold add up."""
    fleet = Fleet(build(MODEL, 128, [{"name": "t5"}], Lengths(24, 24)), 2, CPU, "bf16")
    fleet.initialize([1, 2])
    assert torch.equal(fleet.read_NW, fleet.matrix_NW.bfloat16())
    before, updater = fleet.matrix_NW.clone(), updater_of(fleet)
    batch = Batch.of(collate([each.slice(0, 8) for each in sources(2)], 0, 24), 0, CPU)
    first, _ = fleet.gradients(batch)
    for step in range(20):
        advance(updater, batch, [1e-5, 1e-3], step)
        assert torch.equal(fleet.read_NW, fleet.matrix_NW.bfloat16())
    state = updater.state
    assert fleet.matrix_NW.dtype == state.first_NW.dtype == state.second_NW.dtype == torch.float32
    assert 0 < (fleet.matrix_NW[0] - before[0]).abs().max() < 1e-3
    assert fleet.gradients(batch)[0][1] < first[1]
    fleet.matrix_NW.zero_()
    fleet.refresh()
    assert not fleet.read_NW.any()
