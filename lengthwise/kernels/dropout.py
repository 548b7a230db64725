"""Dropout as a pure function of (key, element): no generator state to save, to share or to disturb.

So a resumed run drops what it would have dropped, and a model in a fleet drops what it would have dropped alone.
"""

import torch
from torch import Tensor

from lengthwise.kernels.parts import rule

GOLDEN = -1640531535
"""0x9E3779B1 as int32: spreads neighbouring numbers over all 32 bits."""


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
