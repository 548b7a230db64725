"""AdamW on the rows of a fleet: each model with its own learning rate and its own clipping norm.

Shape letters: N models, W weights of one model.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lengthwise.engine.recipe import TrainingConfig


@dataclass
class AdamW:
    config: TrainingConfig
    decays_W: Tensor
    first_NW: Tensor
    second_NW: Tensor

    @classmethod
    def begin(cls, config: TrainingConfig, decays_W: Tensor, weights_NW: Tensor) -> "AdamW":
        return cls(config, decays_W, torch.zeros_like(weights_NW), torch.zeros_like(weights_NW))

    @torch.no_grad()
    def update(self, weights_NW: Tensor, gradients_NW: Tensor, rates_N: Tensor, step: int) -> Tensor:
        """Changes the weights in place; `step` counts from 0. Returns the gradients' norms before clipping (N,).

        A model whose gradient is not finite keeps its weights; the others do not notice.
        """
        c = self.config
        norms_N = gradients_NW.norm(dim=1)
        finite_N = norms_N.isfinite()
        shrink_N = (c.clip / (norms_N + 1e-6)).clamp(max=1.0)
        gradients_NW = gradients_NW * shrink_N[:, None]
        if not bool(finite_N.all()):
            gradients_NW = torch.where(finite_N[:, None], gradients_NW, 0.0)
            rates_N = torch.where(finite_N, rates_N, 0.0)
        self.first_NW.lerp_(gradients_NW, 1 - c.beta1)
        self.second_NW.mul_(c.beta2).addcmul_(gradients_NW, gradients_NW, value=1 - c.beta2)
        weights_NW.mul_(1 - rates_N[:, None] * c.weight_decay * self.decays_W)
        scale = self.second_NW.sqrt().div_((1 - c.beta2 ** (step + 1)) ** 0.5).add_(c.epsilon)
        weights_NW.sub_(self.first_NW / scale * (rates_N[:, None] / (1 - c.beta1 ** (step + 1))))
        return norms_N
