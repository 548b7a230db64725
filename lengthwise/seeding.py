"""Named streams of randomness: everything random is drawn from (seed, names...) and from nothing else.

A stream depends on its names alone, so adding a consumer never disturbs another one, runs that share a seed share
their data and their initial weights, and resuming at step k needs no saved generator state.
"""

import hashlib

import numpy as np

Name = str | int


def derive(seed: int, *names: Name) -> int:
    """A 63-bit seed for the stream `names`; fits torch.Generator.manual_seed."""
    text = "\x1f".join([str(seed), *(f"{type(name).__name__}:{name}" for name in names)])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little") >> 1


def stream(seed: int, *names: Name) -> np.random.Generator:
    """An independent NumPy generator for the stream `names`."""
    return np.random.Generator(np.random.PCG64(derive(seed, *names)))
