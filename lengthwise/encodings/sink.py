"""Learned sinks (as in GPT-OSS): a head may attend to nothing, by a logit of its own in the softmax.

Shape letters: B batch, H heads, T queries, S keys.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lengthwise.encodings.card import Card
from lengthwise.encodings.contribution import Normalizer
from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding, Geometry


class Sink(Encoding):
    """One learned logit for each head and layer joins the denominator of the softmax and has no value."""

    name = "sink"
    kind = "normalizer"
    card = Card(
        kind="normalizer",
        equation="a_j = e^(z_j) / (e^(s_h) + Σ_l e^(z_l))",
        source="GPT-OSS",
    )
    per_layer = True

    @dataclass(frozen=True)
    class Config:
        deviation: float = 0.02
        """Standard deviation of the logits before training."""

    config: Config

    def __init__(self, config: Config, geometry: Geometry) -> None:
        super().__init__(config, geometry)
        self.logit_H = nn.Parameter(torch.zeros(geometry.heads))

    def initial(self, name: str, generator: torch.Generator) -> float:
        return self.config.deviation

    def contribute(self, layout: AttentionLayout) -> Contribution:
        return Contribution(normalizer=Normalizer(self.with_sink, "sink", self.logit_H.float()))

    def with_sink(self, logits_BHTS: Tensor, layout: AttentionLayout) -> Tensor:
        sink_BHT1 = self.logit_H.float()[:, None, None].expand(*logits_BHTS.shape[:3], 1)
        return torch.cat([logits_BHTS, sink_BHT1], dim=-1).softmax(-1)[..., :-1]
