"""Scalable softmax (Nakanishi 2025): attention stays sharp however many keys there are."""

import math

import torch
from torch import nn

from lengthwise.encodings.card import Card
from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding, Geometry


class Ssmax(Encoding):
    """Multiplies the logits by s ln(n), for n visible keys and a learned s of each layer and head."""

    name = "ssmax"
    kind = "scale"
    card = Card(
        kind="scale",
        equation="z s_h ln n",
        source="Nakanishi 2025",
        arxiv="2501.19399",
    )
    per_layer = True

    def __init__(self, config: Encoding.Config, geometry: Geometry) -> None:
        super().__init__(config, geometry)
        # So that the longest sequences of training begin with the usual logits.
        self.s_H = nn.Parameter(torch.full((geometry.heads,), 1 / math.log(max(2, geometry.trained_context))))

    def contribute(self, layout: AttentionLayout) -> Contribution:
        visible_B1T1 = layout.visible_BT[:, None, :, None]
        return Contribution(scale=self.s_H.float()[:, None, None] * visible_B1T1.float().log())
