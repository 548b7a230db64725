"""UniformScale (Wang et al. 2024): attention logits multiplied by one number, the same in every head."""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lengthwise.encodings.contribution import Contribution
from lengthwise.encodings.encoding import Geometry
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.extensions.extension import Extension


class UniformScale(Extension):
    """Multiplies attention logits by a constant, or by one that grows with the position beyond the trained length.

    Before any bias is added. On top of 1/sqrt(head width), or of 1 in the T5 style.
    """

    name = "uniform-scale"

    @dataclass(frozen=True)
    class Config:
        constant: float | None = None
        """Published as best: about 1.2 at 2 times the trained length, 1.5 at 4 times, 1.8 at 8 times."""
        slope: float | None = None
        """1 + slope x ln(i / L) for the i-th token, counted from 1, where i is above the trained length L; else 1.

        Published fits: 0.30 to 0.40.
        """

        def __post_init__(self) -> None:
            if (self.constant is None) == (self.slope is None):
                raise ValueError("give either a constant, or a slope for 1 + slope * ln(i / trained length)")
            if self.constant is not None and self.constant <= 0:
                raise ValueError(f"constant must be above 0, not {self.constant}")
            if self.slope is not None and self.slope < 0:
                raise ValueError(f"slope must be 0 or more, not {self.slope}")

    config: Config

    @property
    def shift_invariant(self) -> bool:
        return self.config.constant is not None

    def extend(self, contribution: Contribution, layout: AttentionLayout, geometry: Geometry) -> Contribution:
        if self.config.constant is not None:
            factor: float | Tensor = self.config.constant
        else:
            ratio_BT = (layout.query_positions_BT + 1).float() / geometry.trained_context
            factor = (1 + (self.config.slope or 0.0) * torch.log(ratio_BT.clamp(min=1)))[:, None, :, None]
        return replace(contribution, scale=factor if contribution.scale is None else contribution.scale * factor)
