"""AdamW in one pass on a CPU against AdamW written out. Shape letters as in `lengthwise.training.optimizer_fused`."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding, Geometry
from lengthwise.model.config import ModelConfig
from lengthwise.model.decoder import Decoder
from lengthwise.tasks.choosing import make_task
from lengthwise.training.batches import TrainingData, collate
from lengthwise.training.fleet import Batch, Fleet
from lengthwise.training.optimizer import AdamW, corrections, norms
from lengthwise.training.optimizer_fused import Weight, adamw
from lengthwise.training.recipe import DataConfig, TrainingConfig
from lengthwise.training.state import TrainingState
from lengthwise.training.update import Updater

CPU = torch.device("cpu")
CONFIG = TrainingConfig(beta1=0.8, beta2=0.95, weight_decay=0.3, clip=0.7, epsilon=1e-5)
RATES = torch.tensor([1e-2, 3e-2, 0.0])
SIZES = (192, 7, 1030)
DECAYS = (True, False, True)


def drawn(seed: int) -> list[Tensor]:
    """Three models; norms of about 35, 3.5 and 0.35: above and below what is clipped."""
    draw = torch.Generator().manual_seed(seed)
    return [torch.randn(3, size, generator=draw) * torch.tensor([[1.0], [0.1], [0.01]]) for size in SIZES]


def weights() -> list[Weight]:
    """In the middle of training; views of a wider matrix, as those of a fleet are."""
    draw = torch.Generator().manual_seed(0)
    parts = torch.randn(3, 3, sum(SIZES) + 8, generator=draw).split([*SIZES, 8], dim=2)
    return [
        Weight(part[0], part[1], part[2].square_(), decays) for part, decays in zip(parts[:-1], DECAYS, strict=True)
    ]


def written_out(given: list[Weight], gradients: list[Tensor], step: int) -> None:
    norms_N, corrections_2 = norms(gradients), torch.tensor(corrections(CONFIG, step))
    for weight, gradient_NS in zip(given, gradients, strict=True):
        AdamW(CONFIG).update(
            *(weight.values_NS, weight.first_NS, weight.second_NS, torch.tensor(weight.decays), gradient_NS),
            *(norms_N, RATES, corrections_2),
        )


def in_one_pass(given: list[Weight], gradients: list[Tensor], step: int) -> None:
    adamw(given, gradients, norms(gradients), RATES, torch.tensor(corrections(CONFIG, step)), CONFIG)


def moments(given: list[Weight]) -> Tensor:
    """Weights and both moments of all models: (3, N, all elements)."""
    kinds = [[getattr(weight, kind) for weight in given] for kind in ("values_NS", "first_NS", "second_NS")]
    return torch.stack([torch.cat(each, dim=1) for each in kinds])


def test_equals_adamw_written_out() -> None:
    ours, theirs, before = weights(), weights(), moments(weights())
    for step in range(3):
        in_one_pass(ours, drawn(step), step)
        written_out(theirs, drawn(step), step)
        torch.testing.assert_close(moments(ours), moments(theirs), rtol=2e-6, atol=1e-6)
    changed = moments(ours) != before
    assert changed[:, :2].float().mean() > 0.99 and changed[1:, 2].float().mean() > 0.99
    assert not changed[0, 2].any(), "its learning rate is 0"


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_a_model_whose_gradient_is_not_finite_keeps_its_weights(bad: float) -> None:
    ours, theirs, untroubled, before = weights(), weights(), weights(), moments(weights())
    gradients = drawn(1)
    in_one_pass(untroubled, drawn(1), 4)
    gradients[2][1, 700] = bad
    in_one_pass(ours, [each.clone() for each in gradients], 4)
    written_out(theirs, gradients, 4)
    found, fine = moments(ours), moments(untroubled)
    assert found[:, ::2].equal(fine[:, ::2]), "the others do not notice"
    assert found[0, 1].equal(before[0, 1])
    torch.testing.assert_close(found[1:, 1], moments(theirs)[1:, 1], rtol=1e-6, atol=0.0)  # these shrink


class Waves(Encoding):
    """Learned sines and cosines side by side: their gradients are every second number of one."""

    name = "waves"

    def __init__(self, config: Encoding.Config, geometry: Geometry) -> None:
        super().__init__(config, geometry)
        self.cosines, self.sines = (nn.Parameter(torch.zeros(geometry.width // 2)) for _ in range(2))

    def embed(self, x_BTD: Tensor, positions_BT: Tensor) -> Tensor:
        angles = positions_BT[..., None] * torch.arange(len(self.sines)) * 0.1
        waves_BTD = torch.stack([angles.cos(), angles.sin()], dim=-1).flatten(-2)
        return x_BTD + waves_BTD * torch.stack([self.cosines, self.sines], dim=-1).flatten()


class Slopes(Encoding):
    """Two numbers a head that are added up: PyTorch finds one gradient for both. And one whose gradient is 0."""

    name = "slopes"

    def __init__(self, config: Encoding.Config, geometry: Geometry) -> None:
        super().__init__(config, geometry)
        self.one, self.other, self.idle = (nn.Parameter(torch.zeros(geometry.heads)) for _ in range(3))

    def contribute(self, layout: AttentionLayout) -> Contribution:
        return Contribution(distance_bias=self.penalty)

    def penalty(self, distances: Tensor) -> Tensor:
        slopes_H = self._slopes() + 0 * self.idle
        return -slopes_H.view(-1, *[1] * distances.ndim) * distances.float().log1p()

    def _slopes(self) -> Tensor:
        return self.one + self.other


class Level(Slopes):
    """One number several times: its gradient is expanded."""

    def _slopes(self) -> Tensor:
        return self.one.sum() + self.other


@pytest.mark.parametrize("encoding", [Waves, Slopes, Level])
@pytest.mark.parametrize("count", [1, 2])
def test_gradients_may_lie_in_memory_as_they_like(encoding: type[Encoding], count: int) -> None:
    config, task = replace(CONFIG, clip=0.001), make_task("copy.words")
    data = DataConfig(train_lengths=(2, 5), test_lengths=(6, 10), examples=0)
    batch = Batch.of(collate([TrainingData(task, data, i).slice(0, 8) for i in range(count)], 0, 24), 0, CPU)
    found = []
    for written in (False, True):
        layer = encoding(encoding.Config(), Geometry.of(32, 4))
        fleet = Fleet(Decoder(ModelConfig(layers=1, width=32, heads=4), task.vocabulary.rows, [layer]), count, CPU)
        fleet.matrix_NW.copy_(torch.randn(fleet.matrix_NW.shape, generator=torch.Generator().manual_seed(0)) * 0.1)
        updater = Updater(fleet, config, TrainingState.begin(fleet.matrix_NW))
        given = RATES[:count], torch.tensor(corrections(config, 0))
        if written:
            gradients = [each.flatten(1) for each in fleet.gradients(batch)[1].values()]
            updater._update_eagerly(gradients, norms(gradients), *given)
        else:
            _, norms_N = updater.step(batch, None, *given)
            assert (norms_N > 2 * config.clip).all()
        found.append([fleet.named(each) for each in (updater.state.first_NW, fleet.matrix_NW)])
    for ours, theirs in zip(*found, strict=True):
        for name, value in theirs.items():
            assert (ours[name] - value).norm() <= 1e-5 * value.norm(), name
    for name, first in found[0][0].items():
        assert bool(first.any()) == (not name.endswith("idle")), name
