"""Fleets that our kernels work for equal those that PyTorch works for, in Triton's interpreter on the CPU."""

import pytest
import torch
from conftest import INTERPRETED
from torch import Tensor, nn
from torch.func import vmap

from lengthwise import registry
from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding, Geometry
from lengthwise.errors import UserError
from lengthwise.kernels.linear import Linear, multiply
from lengthwise.kernels.ops import Ops
from lengthwise.kernels.picking import pick_tokens
from lengthwise.kernels.side_stream import when_differentiated
from lengthwise.language.processes import ProcessGroup
from lengthwise.language.whole import AveragedFleet
from lengthwise.model.build import Lengths, build
from lengthwise.model.config import ModelConfig
from lengthwise.model.decoder import Decoder
from lengthwise.tasks.choosing import make_task
from lengthwise.training.batches import TrainingData, collate
from lengthwise.training.fleet import Batch, Fleet
from lengthwise.training.recipe import DataConfig

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="test_interpreted runs it in a process of its own")

CPU = torch.device("cpu")
TASK = make_task("copy.words")
DATA = DataConfig(train_lengths=(2, 5), test_lengths=(6, 7), examples=0)


def batch_of(count: int, first: int = 0) -> Batch:
    examples = [TrainingData(TASK, DATA, seed=seed).slice(first, 4) for seed in range(count)]
    return Batch.of(collate(examples, 0, 32, 4), 0, CPU)


def fleet_of(encodings: list[str], count: int, style: str, **more: int | bool) -> Fleet:
    config = ModelConfig(layers=len(encodings), width=32, heads=2, dropout=0.1, style=style, **more)  # type: ignore[arg-type]
    tables = [{"name": name} for name in encodings]
    fleet = Fleet(build(config, TASK.vocabulary.rows, tables, Lengths(64, 64)), count, CPU)
    fleet.initialize(list(range(count)))
    return fleet


def assert_kernels_change_nothing(fleet: Fleet, batch: Batch) -> None:
    """Losses and gradients are those of PyTorch alone."""
    assert fleet.kernels
    keys = fleet.keys(torch.arange(fleet.count) + 7)
    losses, gradients = fleet.gradients(batch, keys)
    gradients = {name: each.clone() for name, each in gradients.items()}
    fleet.kernels = False
    expected_losses, expected = fleet.gradients(batch, keys)
    torch.testing.assert_close(losses, expected_losses, rtol=1e-5, atol=1e-5)
    for name, gradient in gradients.items():
        assert (gradient - expected[name]).norm() <= 1e-4 * expected[name].norm(), name


@pytest.mark.parametrize(
    ("encodings", "count", "style"),
    [
        *((name.split(), 2, "t5") for name in ("none none", "t5", "alibi", "rotary", "sinusoidal", "learned")),
        (["rotary", "t5"], 1, "t5"),
        (["rotary", "t5"], 2, "llama"),
        (["none"], 1, "llama"),
    ],
)
def test_losses_gradients_and_predictions_are_the_same(encodings: list[str], count: int, style: str) -> None:
    fleet = fleet_of(encodings, count, style)
    assert fleet.kernels
    keys = fleet.keys(torch.arange(count) + 7)
    fleet.gradients(batch_of(count, 100), keys)  # nothing of it may be left
    batch = batch_of(count)
    losses, gradients = fleet.gradients(batch, keys)
    gradients = {name: each.clone() for name, each in gradients.items()}
    predicted = fleet.predictions(fleet.matrix_NW, batch)
    fleet.kernels = False
    expected_losses, expected = fleet.gradients(batch, keys)
    torch.testing.assert_close(losses, expected_losses, rtol=1e-5, atol=1e-5)
    assert gradients.keys() == expected.keys()
    for name, gradient in gradients.items():
        assert (gradient - expected[name]).norm() <= 1e-5 * expected[name].norm(), name
    assert torch.equal(predicted, fleet.predictions(fleet.matrix_NW, batch))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("style", ["t5", "llama"])
def test_gradients_of_layers_that_are_passed_again_are_added_up(style: str, count: int) -> None:
    """A kernel that writes the gradient of a weight writes over that of its last call."""
    assert_kernels_change_nothing(fleet_of(["rotary", "none"], count, style, loops=3, inject=True), batch_of(count))


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("name", registry.mixers.names())
def test_mixers_train_beside_our_kernels(name: str, count: int) -> None:
    assert_kernels_change_nothing(fleet_of([name, "rotary"], count, "t5"), batch_of(count))


class Idle(Encoding):
    """A bias, and a weight that has no part in it."""

    name = "idle"

    def __init__(self, config: Encoding.Config, geometry: Geometry) -> None:
        super().__init__(config, geometry)
        self.slopes, self.idle = (nn.Parameter(torch.zeros(geometry.heads)) for _ in range(2))

    def contribute(self, layout: AttentionLayout) -> Contribution:
        return Contribution(distance_bias=self.penalty)

    def penalty(self, distances: Tensor) -> Tensor:
        return -self.slopes.view(-1, *[1] * distances.ndim) * distances.float().log1p()


@pytest.mark.parametrize("kernels", [True, False])
def test_a_weight_without_a_gradient_is_an_error(kernels: bool) -> None:
    layer = Idle(Idle.Config(), Geometry.of(32, 2))
    fleet = Fleet(Decoder(ModelConfig(layers=1, width=32, heads=2), TASK.vocabulary.rows, [layer]), 2, CPU)
    fleet.initialize([1, 2])
    fleet.kernels = kernels
    with pytest.raises(UserError, match=r"encodings\.0\.idle has no part in the loss"):
        fleet.gradients(batch_of(2))


class Adapted(nn.Module):
    """A feed-forward of ours, and beside it one of PyTorch's modules."""

    def __init__(self, feed_forward: nn.Module) -> None:
        super().__init__()
        self.feed_forward = feed_forward
        self.ordinary = nn.Sequential(nn.Linear(32, 24), nn.GELU(), nn.Linear(24, 32))

    def forward(self, x_BTD: Tensor, ops: Ops) -> Tensor:
        return self.feed_forward(x_BTD, ops) + self.ordinary(x_BTD)


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("style", ["t5", "llama"])
def test_ordinary_modules_get_their_gradients_beside_our_kernels(style: str, count: int) -> None:
    """They got zeros: only `embedding.` and `encodings.` were asked for, all else had to write its own."""
    model = fleet_of(["t5", "none"], 1, style).model
    for block in model.blocks:
        block.feed_forward = Adapted(block.feed_forward)
    fleet = Fleet(model, count, CPU)
    assert fleet.kernels
    for row in range(count):
        fleet.put(row, dict(model.named_parameters()))
    batch, keys = batch_of(count), fleet.keys(torch.arange(count) + 7)
    losses, gradients = fleet.gradients(batch, keys)
    gradients = {name: each.clone() for name, each in gradients.items()}
    fleet.kernels = False
    expected_losses, expected = fleet.gradients(batch, keys)
    torch.testing.assert_close(losses, expected_losses, rtol=1e-5, atol=1e-5)
    assert sum(".ordinary." in name for name in gradients) == 8
    for name, gradient in gradients.items():
        assert gradient.any(), name
        assert (gradient - expected[name]).norm() <= 1e-5 * expected[name].norm(), name


class Reads(nn.Module):
    """Reads the weight of a module that is to write its gradient, instead of calling the module."""

    def __init__(self) -> None:
        super().__init__()
        self.product = Linear(32, 32)

    def forward(self, x_BTD: Tensor, ops: Ops) -> Tensor:
        return x_BTD @ self.product.weight


def test_a_gradient_that_was_to_be_written_and_was_not_is_an_error() -> None:
    """The update took what had been there before, at first zeros."""
    model = fleet_of(["none"], 1, "t5").model
    model.blocks[0].feed_forward = Reads()
    fleet = Fleet(model, 2, CPU)
    with torch.no_grad():
        fleet.matrix_NW += 0.1 * torch.randn(fleet.matrix_NW.shape, generator=torch.Generator().manual_seed(1))
    with pytest.raises(UserError, match=r"blocks\.0\.feed_forward\.product\.weight is to write the gradient"):
        fleet.gradients(batch_of(2))
    fleet.kernels = False
    assert fleet.gradients(batch_of(2))[1]["blocks.0.feed_forward.product.weight"].any()


class ThreeAlike(ProcessGroup):
    """Three processes that all have the same."""

    def add_up(self, value: Tensor) -> Tensor:
        return value.mul_(3)


@pytest.mark.parametrize("style", ["t5", "llama"])
@pytest.mark.parametrize("kernels", [True, False])
def test_means_over_processes_that_are_alike_are_those_of_one(style: str, kernels: bool) -> None:
    model = fleet_of(["rotary", "t5"], 1, style).model
    found = []
    for processes in (ProcessGroup(), ThreeAlike(0, 3)):
        fleet = AveragedFleet(model, CPU, "fp32", processes)
        fleet.initialize([1])
        fleet.kernels = kernels
        losses, gradients = fleet.gradients(batch_of(1))
        found.append((losses, {name: each.clone() for name, each in gradients.items()}))
        if kernels:
            assert all(each.equal(gradients[name]) for name, each in fleet.named(fleet.gradient_matrix()).items())
    (loss, one), (losses, three) = found
    torch.testing.assert_close(losses, loss)
    for name, gradient in one.items():
        assert (three[name] - gradient).norm() <= 1e-6 * gradient.norm(), name


def test_sections_are_told_in_the_order_of_the_passes() -> None:
    fleet, told = fleet_of(["t5"] * 3, 2, "t5"), []
    fleet.gradients(
        batch_of(2), None, lambda name: told.append(("reads", name)), lambda name: told.append(("wrote", name))
    )
    blocks = [f"blocks.{layer}" for layer in range(3)]
    reads = [("reads", name) for name in ("embedding", "encodings.0", *blocks, "output")]
    assert told == [*reads, *(("wrote", name) for name in ("output", *reversed(blocks)))]


def test_a_gradient_goes_home_and_nowhere_else() -> None:
    draw = torch.Generator().manual_seed(0)
    x, weights = torch.randn(3, 5, 4, generator=draw), torch.randn(3, 40, generator=draw)
    homes = torch.full((3, 40), 9.0)
    weight = weights[:, 8:32].unflatten(1, (4, 6)).requires_grad_()
    leaf = x.clone().requires_grad_()
    product = vmap(multiply)(leaf, weight, homes[:, 8:32].unflatten(1, (4, 6)))
    expected = torch.einsum("nmi,nio->nmo", leaf, weight)
    torch.testing.assert_close(product, expected)
    grad = torch.randn(product.shape, generator=draw)
    dx, dweight = torch.autograd.grad(expected, [leaf, weight], grad)
    found, nothing = torch.autograd.grad(product, [leaf, weight], grad, allow_unused=True)
    torch.testing.assert_close(found, dx)
    assert nothing is None
    torch.testing.assert_close(homes[:, 8:32], dweight.flatten(1))
    assert (homes[:, :8] == 9).all() and (homes[:, 32:] == 9).all()


@pytest.mark.parametrize("width", [3, 300])
def test_picked_states_and_their_gradient(width: int) -> None:
    """The last number fills up: it has no gradient, and must not overwrite that of the state whose number it has."""
    draw = torch.Generator().manual_seed(0)
    x = torch.randn(2, 2, 30, width, generator=draw).requires_grad_()
    numbers = torch.stack([torch.randperm(60, generator=draw)[:39], torch.arange(39)])
    numbers[0, 5] = 0 if 0 not in numbers[0] else numbers[0, 5]
    numbers = torch.cat([numbers, torch.zeros(2, 1, dtype=torch.int64)], dim=1).to(torch.int32)
    grad = torch.randn(2, 40, width, generator=draw)
    grad[:, -1] = 0.0
    picked = vmap(pick_tokens)(x, numbers)
    expected = torch.stack([each.flatten(0, 1)[chosen] for each, chosen in zip(x, numbers.long(), strict=True)])
    assert picked.equal(expected)
    (found,), (wanted,) = torch.autograd.grad(picked, [x], grad), torch.autograd.grad(expected, [x], grad)
    assert found.equal(wanted)


def test_a_mark_calls_when_all_after_it_was_differentiated() -> None:
    calls: list[str] = []

    class Late(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
            return x * 2

        @staticmethod
        def backward(ctx, grad: Tensor) -> Tensor:  # type: ignore[no-untyped-def]
            calls.append("after")
            return grad * 2

    x = torch.ones(3, requires_grad=True)
    y = Late.apply(when_differentiated(Late.apply(x), lambda: calls.append("mark")))
    (gradient,) = torch.autograd.grad(y.sum(), [x])
    assert gradient.tolist() == [4, 4, 4] and calls == ["after", "mark", "after"]
