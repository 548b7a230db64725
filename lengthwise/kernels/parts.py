"""Triton itself, where it is installed, and dropout, which all our kernels share."""

from __future__ import annotations

from typing import Any, cast

try:
    import triton
    import triton.language as tl
except ImportError:  # PyTorch for the CPU comes without it; the functions below then stay plain, and are never called
    triton = tl = cast(Any, None)

jit: Any = triton.jit if triton is not None else lambda function: function


def rule(rate: float) -> tuple[int, float]:
    """Of dropout: the threshold for `kept`, below which a share `rate` of all int32 lies; the factor for what stays."""
    return int(rate * 2**32) - 2**31, 1 / (1 - rate)


@jit
def kept(row_B, column_W, key, threshold):
    """Whether dropout keeps the elements in these rows and columns of a model: `dropout.kept` in Triton."""
    key = key.to(tl.uint32)
    product_BW = spread(row_B, key)[:, None] * spread(column_W, key ^ 0xFFFFFFFF)[None, :]
    return product_BW.to(tl.int32) >= threshold


@jit
def spread(place, key):
    x = (place.to(tl.uint32) ^ key) * 0x9E3779B1
    x ^= x >> 16
    x *= 0x7FEB352D
    x ^= x >> 15
    x *= 0x846CA68B
    x ^= x >> 16
    return x | 1
