"""AdamW in one pass on a CPU against AdamW written out. Shape letters as in `lengthwise.engine.optimizer_fused`."""

import pytest
import torch
from torch import Tensor

from lengthwise.engine.optimizer import AdamW, corrections, norms
from lengthwise.engine.optimizer_fused import Weight, adamw
from lengthwise.engine.recipe import TrainingConfig

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
