"""Small nonlinear probes: one network with a hidden layer for every residual stream and answer, all fitted at once.

Shape letters: Y residual streams, N cases, F features, C answers, U hidden units.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from lengthwise.analysis.ridge import Moments

HIDDEN = 64
STEPS = 400
BATCH = 256
LEARNING_RATE = 3e-3


@dataclass(frozen=True)
class Networks:
    """Rectified hidden units; features and answers are scaled to mean 0 and deviation 1."""

    x_mean_YF: Tensor
    x_deviation_YF: Tensor
    y_mean_C: Tensor
    y_deviation_C: Tensor
    inner_YCFU: Tensor
    inner_constant_YCU: Tensor
    outer_YCU: Tensor
    outer_constant_YC: Tensor

    @property
    def weights(self) -> list[Tensor]:
        return [self.inner_YCFU, self.inner_constant_YCU, self.outer_YCU, self.outer_constant_YC]

    def estimate(self, stream: int, x_NF: Tensor) -> Tensor:
        """(N, C)."""
        x_NF = ((x_NF - self.x_mean_YF[stream]) / self.x_deviation_YF[stream]).float()
        scaled_NC = _forward(x_NF[None], *(weight[stream : stream + 1] for weight in self.weights))[0]
        return scaled_NC.double() * self.y_deviation_C + self.y_mean_C


def _forward(
    x_YNF: Tensor, inner_YCFU: Tensor, inner_constant_YCU: Tensor, outer_YCU: Tensor, outer_constant_YC: Tensor
) -> Tensor:
    """(Y, N, C)."""
    hidden_YCNU = (torch.einsum("ynf,ycfu->ycnu", x_YNF, inner_YCFU) + inner_constant_YCU[:, :, None]).relu()
    return torch.einsum("ycnu,ycu->ync", hidden_YCNU, outer_YCU) + outer_constant_YC[:, None]


@torch.enable_grad()
def fit(moments: Sequence[Moments], x_YNF: Tensor, y_NC: Tensor, seed: int) -> Networks:
    """To cases that fit into memory; `moments`, of all cases, say how features and answers are scaled."""
    scales = [each.scales() for each in moments]
    x_mean_YF, x_deviation_YF = (torch.stack([scale[i] for scale in scales]) for i in (0, 1))
    y_mean_C, y_deviation_C = scales[0][2:]
    streams, features, answers = len(moments), x_YNF.shape[-1], y_NC.shape[-1]
    generator = torch.Generator().manual_seed(seed)

    def drawn(*shape: int, deviation: float) -> Tensor:
        value = torch.randn(streams, answers, *shape, generator=generator) * deviation
        return value.to(x_YNF.device).requires_grad_()

    found = Networks(
        x_mean_YF,
        x_deviation_YF,
        y_mean_C,
        y_deviation_C,
        drawn(features, HIDDEN, deviation=features**-0.5),
        drawn(HIDDEN, deviation=1.0),
        drawn(HIDDEN, deviation=HIDDEN**-0.5),
        drawn(deviation=0.0),
    )
    x_YNF = ((x_YNF - x_mean_YF[:, None]) / x_deviation_YF[:, None]).float()
    y_NC = ((y_NC - y_mean_C) / y_deviation_C).float()
    optimizer = torch.optim.Adam(found.weights, LEARNING_RATE)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.02, STEPS)
    for _ in range(STEPS):
        chosen = torch.randint(len(y_NC), (BATCH,), generator=generator).to(x_YNF.device)
        estimate_YNC = _forward(x_YNF[:, chosen], *found.weights)
        # A sum over streams, not a mean: they have nothing to do with each other.
        loss = (estimate_YNC - y_NC[chosen]).square().mean((1, 2)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    for weight in found.weights:
        weight.requires_grad_(False)
    return found
