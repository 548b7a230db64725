"""Dropout as a pure function of (key, element): no generator state to save, to share or to disturb.

So a resumed run drops what it would have dropped, and a model in a fleet drops what it would have dropped alone.
"""

import torch
from torch import Tensor

from lengthwise.model import drop_kernel, norm_kernel
from lengthwise.model.kernel_parts import rule

GOLDEN = -1640531535
"""0x9E3779B1 as int32: spreads neighbouring numbers over all 32 bits."""


class Dropout:
    """Drops in one part of a forward pass; each call of `drop` is another place and has a key of its own."""

    def __init__(self, rate: float, keys: Tensor | None, kernel: bool = False) -> None:
        """`keys`: int32, one for each place; None for no dropout (evaluation). `kernel`: a GPU's own may be used."""
        self.rate = rate
        self.kernel = kernel
        self.keys = keys if rate > 0 else None
        self.place = 0

    @property
    def active(self) -> bool:
        return self.keys is not None

    def next_key(self) -> Tensor | None:
        """The key of the next place, for whoever drops there by the rule of `kept`; None where nothing is dropped."""
        if self.keys is None:
            return None
        self.place += 1
        return self.keys[self.place - 1]

    def drop(self, x: Tensor) -> Tensor:
        key = self.next_key()
        if key is None:
            return x
        if self.kernel:
            return norm_kernel.drop(x.flatten(0, -2)[None], key[None], self.rate).view(x.shape)
        return x * (kept(x.shape, key, self.rate) / (1 - self.rate)).to(x.dtype)

    def drop_relu(self, x: Tensor) -> Tensor:
        """`drop(relu(x))`, on a GPU in a kernel of its own: it is the largest array that is dropped from."""
        key = self.next_key()
        if key is not None and self.kernel:
            return drop_kernel.drop_relu(x[None], key[None], self.rate).squeeze(0)
        positive = x.relu()
        return positive if key is None else positive * (kept(x.shape, key, self.rate) / (1 - self.rate)).to(x.dtype)


def kept(shape: torch.Size, key: Tensor, rate: float) -> Tensor:
    """Which elements of a tensor of this shape stay: those whose row's number times column's is large enough.

    A row's number is odd and depends on its place among all rows; so does a column's. Times an odd number, all numbers
    of 32 bits change places: the product is as evenly spread as they are, and costs one operation where a hash of each
    element costs a dozen.
    """
    columns = shape[-1]
    row_M, column_D = _spread(shape.numel() // columns, key), _spread(columns, ~key)
    return (row_M[:, None] * column_D >= rule(rate)[0]).view(shape)


def _spread(count: int, key: Tensor) -> Tensor:
    """An odd number for each of `count` places."""
    return _mix((torch.arange(count, device=key.device, dtype=torch.int32) ^ key) * GOLDEN) | 1


def place_keys(seed: Tensor, places: int) -> Tensor:
    """Keys (*, places) in int32 from int64 seeds (*) that are different for each step and model."""
    folded = (seed ^ (seed >> 32)).to(torch.int32)
    return _mix(_mix(folded)[..., None] + torch.arange(places, device=seed.device, dtype=torch.int32) * 0x3C6EF372)


def _mix(x: Tensor) -> Tensor:
    """A 32-bit finaliser (Wellons' lowbias32) in wrapping int32 arithmetic; shifts made logical by the masks."""
    x = x ^ ((x >> 16) & 0xFFFF)
    x = x * 0x7FEB352D
    x = x ^ ((x >> 15) & 0x1FFFF)
    x = x * -2073254261  # 0x846CA68B
    return x ^ ((x >> 16) & 0xFFFF)
