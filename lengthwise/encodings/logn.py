"""LogN scaling (Chiang & Cholak 2022, Su 2021): logits grow with the logarithm of the number of keys."""

import math
from dataclasses import dataclass
from typing import Any

from lengthwise.encodings.card import Card
from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding, Geometry


class Logn(Encoding):
    """Multiplies logits by ln(n) / ln(trained length) for n visible keys, where that is above 1."""

    name = "logn"
    kind = "scale"
    card = Card(
        kind="scale",
        equation='z max(1, (ln n) / (ln L)), L "the trained length"',
        source="Chiang & Cholak 2022",
        arxiv="2202.12172",
    )

    @dataclass(frozen=True)
    class Config:
        below: bool = False
        """Whether logits also shrink where there are fewer keys than the trained length."""

    config: Config

    def __init__(self, config: Config, geometry: Geometry) -> None:
        super().__init__(config, geometry)
        self.trained = math.log(max(2, geometry.trained_context))

    def contribute(self, layout: AttentionLayout) -> Contribution:
        scale_B1T1 = layout.visible_BT[:, None, :, None].float().log() / self.trained
        return Contribution(scale=scale_B1T1 if self.config.below else scale_B1T1.clamp(min=1))

    def resolved(self) -> dict[str, Any]:
        return {"trained_length": max(2, self.geometry.trained_context)}
