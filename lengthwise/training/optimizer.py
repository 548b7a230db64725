"""AdamW on the rows of a fleet: each model with its own learning rate and its own clipping norm.

Shape letters: N models, S elements of a weight.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lengthwise.training.recipe import TrainingConfig


def corrections(config: TrainingConfig, step: int) -> tuple[float, float]:
    """What the running means and the roots of the running squares must be divided by; `step` counts from 0."""
    return 1 - config.beta1 ** (step + 1), math.sqrt(1 - config.beta2 ** (step + 1))


@torch.no_grad()
def norms(gradients: Sequence[Tensor]) -> Tensor:
    """Each model's norm over all weights (N,), in fp32."""
    squares = [torch.linalg.vector_norm(each, dim=1, dtype=torch.float32).square() for each in gradients]
    return torch.stack(squares).sum(dim=0).sqrt()


@dataclass(frozen=True)
class AdamW:
    config: TrainingConfig

    @torch.no_grad()
    def update(
        self,
        weights_NS: Tensor,
        first_NS: Tensor,
        second_NS: Tensor,
        decays_S: Tensor,
        gradients_NS: Tensor,
        norms_N: Tensor,
        rates_N: Tensor,
        corrections_2: Tensor,
        copy_NS: Tensor | None = None,
    ) -> None:
        """Changes weights and moments in place, and a copy of the weights in another precision.

        A model whose gradient is not finite keeps its weights; the others do not notice.
        """
        c = self.config
        finite_N1 = norms_N.isfinite()[:, None]
        shrink_N1 = (c.clip / (norms_N + 1e-6)).clamp(max=1.0)[:, None]
        gradients_NS = gradients_NS * shrink_N1
        if gradients_NS.is_cuda or not bool(finite_N1.all()):  # a GPU must not be asked
            gradients_NS = torch.where(finite_N1, gradients_NS, 0.0)
        rate_N1 = torch.where(finite_N1, rates_N[:, None], 0.0)
        first_NS.lerp_(gradients_NS, 1 - c.beta1)
        second_NS.mul_(c.beta2).addcmul_(gradients_NS, gradients_NS, value=1 - c.beta2)
        weights_NS.mul_(torch.where(decays_S, 1 - rate_N1 * c.weight_decay, 1.0))
        scale_NS = second_NS.sqrt().div_(corrections_2[1]).add_(c.epsilon)
        weights_NS.sub_((first_NS / scale_NS).mul_(rate_N1 / corrections_2[0]))
        if copy_NS is not None:
            copy_NS.copy_(weights_NS)
