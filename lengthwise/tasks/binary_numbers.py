"""Binary numbers of any size as rows of bits, for many examples at once."""

from collections.abc import Iterable

import numpy as np


def nonzero_bits(size: np.ndarray, width: int, generator: np.random.Generator) -> np.ndarray:
    """(examples, width): bits of numbers above 0 with `size` (examples, 1) bits, uniform among those, 0 behind them."""
    inside = np.arange(width) < size
    bits = generator.integers(2, size=inside.shape, dtype=np.int32) * inside
    while (zero := ~bits.any(axis=1)).any():
        bits[zero] = generator.integers(2, size=(int(zero.sum()), width), dtype=np.int32) * inside[zero]
    return bits


def values_of(bits: np.ndarray) -> Iterable[int]:
    """The numbers of rows of bits, the least significant first; of any size."""
    for row in np.packbits(bits.astype(np.uint8), axis=1, bitorder="little"):
        yield int.from_bytes(row.tobytes(), "little")


def bits_of(values: Iterable[int], width: int) -> np.ndarray:
    """The inverse of `values_of`: (examples, width)."""
    size = (width + 7) // 8
    rows = np.frombuffer(b"".join(value.to_bytes(size, "little") for value in values), dtype=np.uint8)
    return np.unpackbits(rows.reshape(-1, size), axis=1, bitorder="little")[:, :width].astype(np.int32)
