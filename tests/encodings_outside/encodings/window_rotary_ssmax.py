"""Three methods in one layer: a window, rotary positions, and logits scaled by the number of visible keys."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lengthwise.encodings.contribution import combine
from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding, Geometry
from lengthwise.encodings.rotary import Rotary


class WindowRotarySsmax(Encoding):
    """Keys within a window, rotary positions, and logits times s ln(n) for the n keys that are left."""

    name = "window-rotary-ssmax"
    per_layer = True

    @dataclass(frozen=True)
    class Config:
        window: int = 8
        fraction: float = 0.5
        """Share of each head that is rotated."""

    config: Config

    def __init__(self, config: Config, geometry: Geometry) -> None:
        super().__init__(config, geometry)
        self.rotary = Rotary(Rotary.Config(fraction=config.fraction), geometry)
        self.s_H = nn.Parameter(torch.full((geometry.heads,), 1 / math.log(max(2, config.window))))

    def contribute(self, layout: AttentionLayout) -> Contribution:
        window = Contribution(window=self.config.window)
        return combine([window, self.rotary.contribute(layout), Contribution(scale=self.scale(layout))])

    def scale(self, layout: AttentionLayout) -> Tensor:
        seen_BTS = layout.mask_BTS() & (layout.distances_BTS < self.config.window)
        return self.s_H.float()[:, None, None] * seen_BTS.sum(-1)[:, None, :, None].float().log()
