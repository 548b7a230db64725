"""ReRoPE (Su 2023): all keys beyond a window are seen at one distance, that of its end."""

from dataclasses import dataclass

import torch

from lengthwise.encodings.encoding import Geometry
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.extensions.remapping import Elsewhere, Remapping


class Rerope(Remapping):
    """Keeps distances within a window; all beyond it are the window (rectified rotary positions).

    Published together with LogN, which multiplies logits by ln(i) / ln(trained length) beyond the trained length: put
    `uniform-scale` before it, with slope 1 / ln(trained length), which is the same number.
    """

    name = "rerope"
    below_trained = "window"

    @dataclass(frozen=True)
    class Config:
        window: int
        """Keys at a smaller distance are seen as in training. Published: 512 and 1,024 for 4,096 trained tokens."""

        def __post_init__(self) -> None:
            if self.window < 1:
                raise ValueError(f"window must be 1 or more, not {self.window}")

    config: Config

    def elsewhere(self, layout: AttentionLayout, geometry: Geometry) -> list[Elsewhere]:
        query_BT = torch.full_like(layout.query_positions_BT, self.config.window)
        key_BS = torch.zeros_like(layout.key_positions_BS)
        return [Elsewhere(query_BT, key_BS, layout.distances_BTS >= self.config.window)]
