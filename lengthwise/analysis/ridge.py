"""Ridge regression from sums that are gathered batch by batch: its memory does not depend on the number of examples.

Shape letters: N cases, F features, C answers.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

STRENGTH = 1e-3
"""Added to the diagonal of the features' correlation matrix."""


class Moments:
    """The sums from which a ridge regression follows, for several answers at once."""

    def __init__(self, features: int, answers: int, device: torch.device) -> None:
        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64, device=device)

        self.count = 0
        self.x_F, self.y_C = zeros(features), zeros(answers)
        self.xx_FF, self.xy_FC, self.yy_C = zeros(features, features), zeros(features, answers), zeros(answers)

    def add(self, x_NF: Tensor, y_NC: Tensor) -> None:
        x_NF, y_NC = x_NF.double(), y_NC.double()
        self.count += len(x_NF)
        self.x_F += x_NF.sum(0)
        self.y_C += y_NC.sum(0)
        self.xx_FF += x_NF.T @ x_NF
        self.xy_FC += x_NF.T @ y_NC
        self.yy_C += y_NC.square().sum(0)

    def scales(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Mean and standard deviation of features and of answers; deviations are 1 where nothing varies."""
        x_F, y_C = self.x_F / self.count, self.y_C / self.count
        # Sums of squares lose what is far smaller than the mean: below that, nothing varies.
        variance_F = self.xx_FF.diagonal() / self.count - x_F.square()
        varies_F = variance_F > 1e-10 * (x_F.square() + variance_F.abs().mean())
        variance_C = self.yy_C / self.count - y_C.square()
        deviation_F = torch.where(varies_F, variance_F, 1.0).sqrt()
        deviation_C = torch.where(variance_C > 1e-10, variance_C, 1.0).sqrt()
        return x_F, deviation_F, y_C, deviation_C

    def ridge(self, strength: float = STRENGTH) -> "LinearProbe":
        x_F, deviation_F, y_C, _ = self.scales()
        covariance_FF = self.xx_FF / self.count - x_F[:, None] * x_F
        correlation_FF = covariance_FF / deviation_F[:, None] / deviation_F
        with_y_FC = (self.xy_FC / self.count - x_F[:, None] * y_C) / deviation_F[:, None]
        eye = torch.eye(len(x_F), dtype=torch.float64, device=x_F.device)
        weight_FC = torch.linalg.solve(correlation_FF + strength * eye, with_y_FC) / deviation_F[:, None]
        return LinearProbe(weight_FC, y_C - x_F @ weight_FC)


@dataclass(frozen=True)
class LinearProbe:
    weight_FC: Tensor
    constant_C: Tensor

    def estimate(self, x_NF: Tensor) -> Tensor:
        """(N, C)."""
        return x_NF.double() @ self.weight_FC + self.constant_C
