"""Dropout as a pure function of (seed, place, element): no generator state to save, to share or to disturb.

So a resumed run drops what it would have dropped, and a model in a fleet drops what it would have dropped alone.
"""

import torch
from torch import Tensor


class Dropout:
    """Drops in one forward pass; each call of `drop` is another place and has a mask of its own."""

    def __init__(self, rate: float, seed: Tensor | None) -> None:
        """`seed`: an int64 scalar, different for each step and model; None for no dropout (evaluation)."""
        self.rate = rate
        self.seed = seed
        self.place = 0

    @property
    def active(self) -> bool:
        return self.seed is not None and self.rate > 0

    def drop(self, x: Tensor) -> Tensor:
        if self.seed is None or self.rate == 0:
            return x
        self.place += 1
        index = torch.arange(x.numel(), device=x.device, dtype=torch.int32).view(x.shape)
        folded = (self.seed ^ (self.seed >> 32)).to(torch.int32)
        key = _mix(folded + self.place * 0x3C6EF372 % 2**31)
        bits = _mix(_mix(index) ^ key) & 0x7FFFFFFF
        kept = bits >= int(self.rate * 2**31)
        return x * (kept / (1 - self.rate)).to(x.dtype)


def _mix(x: Tensor) -> Tensor:
    """A 32-bit finaliser (Wellons' lowbias32) in wrapping int32 arithmetic; shifts made logical by the masks."""
    x = x ^ ((x >> 16) & 0xFFFF)
    x = x * 0x7FEB352D
    x = x ^ ((x >> 15) & 0x1FFFF)
    x = x * -2073254261  # 0x846CA68B
    return x ^ ((x >> 16) & 0xFFFF)
