"""SSMax (Nakanishi 2025) put on a model that was trained with the usual softmax."""

import math
from dataclasses import dataclass, replace

from lengthwise.encodings.contribution import Contribution
from lengthwise.encodings.encoding import Geometry
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.extensions.extension import Extension


class SsmaxExtension(Extension):
    """Multiplies attention logits by s ln(n) + b for n visible keys: at every length, shorter ones too.

    Before any bias is added. Models that are trained so learn s for each head; here it is one number for all.
    """

    name = "ssmax"

    @dataclass(frozen=True)
    class Config:
        s: float | None = None
        """By default such that the last query of a trained length has the logits that it was trained with."""
        b: float = 0.0

        def __post_init__(self) -> None:
            if self.s is not None and self.s <= 0:
                raise ValueError(f"s must be above 0, not {self.s}")
            if self.b < 0:
                raise ValueError(f"b must be 0 or more, not {self.b}")

    config: Config

    def extend(self, contribution: Contribution, layout: AttentionLayout, geometry: Geometry) -> Contribution:
        within = layout.within(contribution.window, contribution.chunk)
        s, b = self.config.s, self.config.b
        if s is None:
            s = (1 - b) / math.log(max(2, geometry.trained_context))
        factor_B1T1 = s * within.visible_BT[:, None, :, None].float().log() + b
        scale = contribution.scale
        return replace(contribution, scale=factor_B1T1 if scale is None else scale * factor_B1T1)
