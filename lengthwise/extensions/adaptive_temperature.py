"""Adaptive temperature (Velickovic et al. 2024): the softmax is sharpened where its entropy is high.

Shape letters: B batch, H heads, T queries, S keys.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lengthwise.encodings.contribution import Contribution
from lengthwise.encodings.encoding import Geometry
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.errors import UserError
from lengthwise.extensions.extension import Extension

FITTED = (-0.037, 0.481, -2.3, 4.917, -1.791)
"""Of the published polynomial in the entropy, the highest power first; fitted to retrieval among up to 16 items."""


def inverse_temperature(entropy: Tensor) -> Tensor:
    """What logits are multiplied by, from the entropy of their softmax in nats; at least 1.

    The polynomial falls below 1 again above 5.94 nats (382 equal items): there it changes nothing.
    """
    found = torch.zeros_like(entropy)
    for coefficient in FITTED:
        found = found * entropy + coefficient
    return torch.where(entropy > 0.5, found.clamp(min=1), 1.0)


class AdaptiveTemperature(Extension):
    """Multiplies the logits of a query by a number that depends on the entropy of its weights."""

    name = "adaptive-temperature"
    needs = "a softmax"

    @dataclass(frozen=True)
    class Config:
        pass

    def check(self, contribution: Contribution, geometry: Geometry) -> None:
        if contribution.normalizer is not None:
            raise UserError("adaptive-temperature sharpens a softmax, and this model has another normaliser")

    def extend(self, contribution: Contribution, layout: AttentionLayout, geometry: Geometry) -> Contribution:
        return replace(contribution, normalizer=sharpened)


def sharpened(logits_BHTS: Tensor, layout: AttentionLayout) -> Tensor:
    weights_BHTS = logits_BHTS.softmax(-1)
    entropy_BHT1 = -(weights_BHTS * (weights_BHTS + 1e-9).log()).sum(-1, keepdim=True)
    return (logits_BHTS * inverse_temperature(entropy_BHT1)).softmax(-1)
