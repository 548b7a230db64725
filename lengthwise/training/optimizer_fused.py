"""AdamW on a CPU: what `optimizer` does, in one pass over memory, by PyTorch's own kernel.

Shape letters: N models, S elements of a weight.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lengthwise.training.recipe import TrainingConfig

LATE = torch.tensor(1e12)
"""A number of steps after which PyTorch has nothing left to correct."""


@dataclass(frozen=True)
class Weight:
    """One weight of all models, with its moments."""

    values_NS: Tensor
    first_NS: Tensor
    second_NS: Tensor
    decays: bool


@torch.no_grad()
def adamw(
    weights: Sequence[Weight],
    gradients: Sequence[Tensor],
    norms_N: Tensor,
    rates_N: Tensor,
    corrections_2: Tensor,
    config: TrainingConfig,
) -> None:
    """Changes weights and moments in place; the gradients (N, S) are used up.

    A model whose gradient is not finite keeps its weights; the others do not notice.
    """
    gradients = _own(gradients)
    for decays in (True, False):
        chosen = [
            [matrix.unbind() for matrix in (weight.values_NS, gradient_NS, weight.first_NS, weight.second_NS)]
            for weight, gradient_NS in zip(weights, gradients, strict=True)
            if weight.decays == decays
        ]
        decay = config.weight_decay if decays else 0.0
        for model, (norm, rate) in enumerate(zip(norms_N.tolist(), rates_N.tolist(), strict=True)):
            lists = [[matrices[kind][model] for matrices in chosen] for kind in range(4)]
            _change(lists, norm, rate, corrections_2.tolist(), decay, config)


def _own(gradients: Sequence[Tensor]) -> list[Tensor]:
    """Each as a block of memory that no other has: PyTorch's kernel takes that for granted, and writes to it."""
    taken: set[int] = set()
    owned = []
    for gradient_NS in gradients:
        memory = gradient_NS.untyped_storage().data_ptr()
        shared = memory in taken or not gradient_NS.is_contiguous()
        taken.add(memory)
        owned.append(gradient_NS.clone(memory_format=torch.contiguous_format) if shared else gradient_NS)
    return owned


def _change(
    lists: list[list[Tensor]], norm: float, rate: float, corrections: list[float], decay: float, config: TrainingConfig
) -> None:
    """One model: its weights, their gradients and both moments."""
    values, gradients, first, second = lists
    if not math.isfinite(norm):
        for moment, kept in ((first, config.beta1), (second, config.beta2)):
            for each in moment:
                each.mul_(kept)
        return
    # PyTorch finds corrections from the number of the step. Ours, c1 and c2, go into its rate and its epsilon:
    # rate / c1 * first / (sqrt(second) / c2 + epsilon) = rate * c2 / c1 * first / (sqrt(second) + epsilon * c2).
    # Its decay is multiplied by its rate, so the ratio is taken out of that again.
    ratio = corrections[1] / corrections[0]
    torch._fused_adamw_(  # what torch.optim.AdamW(fused=True) calls
        *(values, gradients, first, second, [], [LATE] * len(values)),
        lr=rate * ratio,
        beta1=config.beta1,
        beta2=config.beta2,
        weight_decay=decay / ratio,
        eps=config.epsilon * corrections[1],
        amsgrad=False,
        maximize=False,
        grad_scale=torch.tensor(max(1.0, (norm + 1e-6) / config.clip)),  # which divides
        found_inf=None,
    )
