"""LogN scaling (Su 2021, Chiang & Cholak 2022): logits grow with the logarithm of the number of visible keys."""

import math
from dataclasses import dataclass, replace

from lengthwise.encodings.contribution import Contribution
from lengthwise.encodings.encoding import Geometry
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.extensions.extension import Extension


class LognExtension(Extension):
    """Multiplies attention logits by ln(n) / ln(trained length) for n visible keys, where that is above 1.

    Before any bias is added. In a layer with a window no query sees more keys than the window has.
    """

    name = "logn"

    @dataclass(frozen=True)
    class Config:
        below: bool = False
        """Whether logits also shrink where there are fewer keys than the trained length."""

    config: Config

    def extend(self, contribution: Contribution, layout: AttentionLayout, geometry: Geometry) -> Contribution:
        within = layout.within(contribution.window, contribution.chunk)
        trained = math.log(max(2, geometry.trained_context))
        factor_B1T1 = within.visible_BT[:, None, :, None].float().log() / trained
        factor_B1T1 = factor_B1T1 if self.config.below else factor_B1T1.clamp(min=1)
        scale = contribution.scale
        return replace(contribution, scale=factor_B1T1 if scale is None else scale * factor_B1T1)
