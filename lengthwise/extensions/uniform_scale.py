"""UniformScale (Wang et al. 2024): attention logits multiplied by one number, the same in every head."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lengthwise.encodings.encoding import Encoding
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

    def subclass(self, encoding: Encoding, layer: int) -> type[Encoding]:
        constant, slope = self.config.constant or 1.0, self.config.slope or 0.0

        class ScaledByConstant(type(encoding)):
            def scale(self, positions_BT: Tensor) -> float | Tensor:
                return super().scale(positions_BT) * constant

        class ScaledByPosition(type(encoding)):
            shift_invariant = False

            def scale(self, positions_BT: Tensor) -> Tensor:
                ratio_BT = (positions_BT + 1).float() / self.geometry.trained_context
                factor_BT = 1 + slope * torch.log(ratio_BT.clamp(min=1))
                return super().scale(positions_BT) * factor_BT[:, None, :, None]

        return ScaledByPosition if self.config.constant is None else ScaledByConstant
