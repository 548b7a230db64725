"""How good the estimates of probes are, by position: within the training length and beyond it.

Shape letters: M kinds of estimates, P positions, N cases, F sums.
"""

import math
from typing import Any

import torch
from torch import Tensor

TOLERANCE = 2.0
"""An estimate holds while its mean error is at most this many times that within the training length, or one token."""


class ProbeScores:
    """Sums from which every measure follows, gathered batch by batch."""

    FIELDS = ("n", "y", "yy", "e", "ee", "ey", "off")

    def __init__(self, kinds: int, positions: int, device: torch.device) -> None:
        self.sums_FMP = torch.zeros(len(self.FIELDS), kinds, positions, dtype=torch.float64, device=device)

    def add(self, kind: int, query_N: Tensor, answer_N: Tensor, estimate_N: Tensor) -> None:
        y, e = answer_N.double(), estimate_N.double()
        values = torch.stack([torch.ones_like(y), y, y * y, e, e * e, e * y, (e - y).abs()])
        self.sums_FMP[:, kind].index_add_(1, query_N, values)

    def by_position(self, kind: int) -> dict[str, list[Any]]:
        """Positions count from 0; those that were asked about."""
        sums_FP = self.sums_FMP[:, kind].cpu()
        known = sums_FP[0] > 0
        mean = dict(zip(self.FIELDS, (sums_FP / sums_FP[0])[:, known], strict=True))
        return {
            "position": known.nonzero()[:, 0].tolist(),
            "estimate": [round(float(value), 3) for value in mean["e"]],
            "error": [round(float(value), 3) for value in mean["off"]],
        }

    def part(self, kind: int, first: int, last: int) -> dict[str, Any]:
        """Over the positions from `first` to before `last`.

        `r2`: share of the variance that is explained, below 0 where the mean would have been a better estimate.
        `slope`: by how much the estimate grows when the answer grows by one; 0 for an estimate that has stopped.
        """
        n, y, yy, e, ee, ey, off = self.sums_FMP[:, kind, first:last].sum(-1).tolist()
        if n < 2 or yy - y * y / n <= 0:
            return {"n": int(n), "r2": None, "error": None, "slope": None}
        variance = yy - y * y / n
        return {
            "n": int(n),
            "r2": round(1 - (ee - 2 * ey + yy) / variance, 4),
            "error": round(off / n, 4),
            "slope": round((ey - e * y / n) / variance, 4),
        }

    def correlation(self, kind: int, first: int, last: int) -> float | None:
        """Of estimate and answer over the same positions; None where one of them does not vary."""
        n, y, yy, e, ee, ey, _ = self.sums_FMP[:, kind, first:last].sum(-1).tolist()
        if n < 2 or yy - y * y / n <= 0 or ee - e * e / n <= 1e-9 * ee:  # sums of squares lose smaller differences
            return None
        return round((ey - e * y / n) / math.sqrt((yy - y * y / n) * (ee - e * e / n)), 4)


def holds_until(by_position: dict[str, list[Any]], trained: int, error_within: float) -> int:
    """The last position up to which, from the end of training on, the mean error stays small."""
    allowed = max(1.0, TOLERANCE * error_within)
    held = trained - 1
    for position, error in zip(by_position["position"], by_position["error"], strict=True):
        if position < trained:
            continue
        if error > allowed:
            break
        held = position
    return held
