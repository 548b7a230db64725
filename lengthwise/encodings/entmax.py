"""Entmax (Peters et al. 2019) in place of the softmax: small weights are exactly zero.

Shape letters: B batch, H heads, T queries, S keys.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lengthwise.encodings.card import Card
from lengthwise.encodings.contribution import Normalizer
from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding

HALVINGS = 40
"""Of the interval that tau lies in, which is 1 wide: more than fp32 can tell."""


class Entmax(Encoding):
    """Weights max((alpha - 1) z - tau, 0)^(1 / (alpha - 1)), with the tau for which they sum to one."""

    name = "entmax"
    kind = "normalizer"
    card = Card(
        kind="normalizer",
        equation="a_j = max((α - 1) z_j - τ, 0)^(1/(α - 1))",
        source="Peters et al. 2019",
        arxiv="1905.05702",
    )

    @dataclass(frozen=True)
    class Config:
        alpha: float = 1.5
        """Towards 1 it is the softmax, 2 is the sparsemax."""

        def __post_init__(self) -> None:
            if not 1 < self.alpha <= 4:
                raise ValueError(f"alpha must be above 1 and at most 4, not {self.alpha}")

    config: Config

    def contribute(self, layout: AttentionLayout) -> Contribution:
        if self.config.alpha == 1.5:
            return Contribution(normalizer=Normalizer(self.normalizer, "entmax"))
        return Contribution(normalizer=self.normalizer)

    def normalizer(self, logits_BHTS: Tensor, layout: AttentionLayout) -> Tensor:
        if self.config.alpha == 1.5:
            return entmax_by_sorting(logits_BHTS)
        return entmax_by_bisection(logits_BHTS, self.config.alpha)


def entmax_by_sorting(logits: Tensor) -> Tensor:
    """1.5-entmax, exactly."""
    half = logits / 2
    # tau is at most one below the largest: what is further below has no weight, hidden keys among it.
    half = (half - half.amax(-1, keepdim=True)).clamp(min=-2)
    falling = half.sort(-1, descending=True).values
    count = torch.arange(1, half.shape[-1] + 1, device=half.device)
    mean, mean_of_squares = falling.cumsum(-1) / count, falling.square().cumsum(-1) / count
    variance = mean_of_squares - mean.square()
    # At least 1 / count^2 where it is asked for; elsewhere a root of zero would spoil the gradient.
    tau_if = mean - (1 / count - variance).clamp(min=1e-12).sqrt()
    support = (tau_if <= falling).sum(-1, keepdim=True)
    return (half - tau_if.gather(-1, support - 1)).clamp(min=0).square()


def entmax_by_bisection(logits: Tensor, alpha: float) -> Tensor:
    """For any alpha above 1. The gradient goes through one step of Newton's method at the end."""
    scaled = (alpha - 1) * logits
    scaled = (scaled - scaled.amax(-1, keepdim=True)).clamp(min=-2)
    power = 1 / (alpha - 1)
    with torch.no_grad():
        low = torch.full_like(scaled[..., :1], -1.0)
        for halving in range(1, HALVINGS + 1):
            middle = low + 0.5**halving
            enough = (scaled - middle).clamp(min=0).pow(power).sum(-1, keepdim=True) >= 1
            low = torch.where(enough, middle, low)
        inside = scaled > low
        slope = torch.where(inside, (scaled - low).clamp(min=1e-12).pow(power - 1), 0.0)
        slope_sum = slope.sum(-1, keepdim=True)
    # tau moves with the scaled logits so that the sum stays one: d tau = sum(slope d z) / sum(slope).
    tau = low + ((scaled - scaled.detach()) * slope).sum(-1, keepdim=True) / slope_sum
    return torch.where(inside, (scaled - tau).clamp(min=1e-12).pow(power), 0.0)
