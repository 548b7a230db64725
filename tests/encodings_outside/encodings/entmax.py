"""1.5-entmax (Peters et al. 2019) in place of the softmax: small weights are exactly zero.

Shape letters: B batch, H heads, T queries, S keys.
"""

import torch
from torch import Tensor

from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding


class Entmax(Encoding):
    """Weights max(z / 2 - tau, 0)^2, with the tau for which they sum to one, found exactly by sorting."""

    name = "entmax"
    kind = "normalizer"

    def contribute(self, layout: AttentionLayout) -> Contribution:
        return Contribution(normalizer=self.normalizer)

    def normalizer(self, logits_BHTS: Tensor, layout: AttentionLayout) -> Tensor:
        half = logits_BHTS / 2
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
