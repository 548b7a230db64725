"""Position interpolation (Chen et al. 2023): all positions divided by one factor."""

from dataclasses import dataclass

from torch import Tensor

from lengthwise.encodings.encoding import Geometry
from lengthwise.extensions.rescaling import Rescaling


class PositionInterpolation(Rescaling):
    """Divides all positions by one factor, so that long sequences stay within the trained angles (PI, linear)."""

    name = "position-interpolation"

    @dataclass(frozen=True)
    class Config:
        factor: float
        """How many times the trained length is to be met."""

        def __post_init__(self) -> None:
            if self.factor < 1:
                raise ValueError(f"factor must be 1 or more, not {self.factor}")

    config: Config

    def reach(self, trained_context: int) -> int:
        return int(self.config.factor * trained_context)

    def frequencies(self, trained_P: Tensor, positions_BT: Tensor, geometry: Geometry) -> Tensor:
        return trained_P / self.config.factor
