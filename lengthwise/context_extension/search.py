"""The best uniform scale for a length, by a grid that becomes finer, and how it grows with position."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from lengthwise.errors import UserError

SMALLEST, LARGEST = 0.5, 4.0
COARSE, FINE = 0.1, 0.01
"""Steps of the grid; published: 0.01."""


@dataclass
class Search:
    """What has been tried."""

    losses: dict[float, float] = field(default_factory=dict)
    """Scale -> loss."""

    @property
    def best(self) -> float:
        return min(self.losses, key=lambda scale: (self.losses[scale], scale))


def search_scale(
    loss_of: Callable[[float], float], smallest: float = SMALLEST, largest: float = LARGEST, fine: float = FINE
) -> Search:
    """Walks from 1 in steps of 0.1 to both sides as long as the loss falls, then tries every fine step around the best.

    Finds the minimum of a loss that has one. A step beyond it is followed by one more, which noise needs.
    """
    if not 0 < smallest <= 1 <= largest or fine <= 0:
        raise UserError(f"scales to be tried must be above 0 and hold 1, not {smallest:g} to {largest:g}")
    found = Search()

    def tried(scale: float) -> float:
        scale = round(scale, 6)
        if scale not in found.losses:
            loss = loss_of(scale)
            found.losses[scale] = loss if math.isfinite(loss) else math.inf
        return found.losses[scale]

    tried(1.0)
    for step in (COARSE, -COARSE):
        scale, worse = 1.0 + step, 0
        while smallest - 1e-9 <= scale <= largest + 1e-9 and worse < 2:
            before = found.losses[found.best]
            worse = 0 if tried(scale) < before else worse + 1
            scale += step
    centre = found.best
    for offset in range(1, math.ceil(COARSE / fine)):
        for scale in (centre - offset * fine, centre + offset * fine):
            if smallest - 1e-9 <= scale <= largest + 1e-9:
                tried(scale)
    return found


@dataclass(frozen=True)
class Growth:
    """1 + slope x ln(position / trained length)."""

    slope: float
    determination: float | None
    """R squared: the share of the variance that the line explains, below 0 where one constant would fit better; None
    where all scales are the same."""


def fit_growth(scales: Mapping[int, float], trained: int) -> Growth:
    """Least squares over the positions beyond the trained length; `scales`: position -> best scale."""
    beyond = sorted(position for position in scales if position > trained)
    if not beyond:
        raise UserError(f"the growth of the scale is fitted beyond the trained {trained} tokens; no length is")
    logarithms = np.log(np.array(beyond) / trained)
    wanted = np.array([scales[position] for position in beyond])
    slope = float(logarithms @ (wanted - 1) / (logarithms @ logarithms))
    residual = float(((wanted - 1 - slope * logarithms) ** 2).sum())
    spread = float(((wanted - wanted.mean()) ** 2).sum())
    return Growth(slope, 1 - residual / spread if spread > 0 else None)
