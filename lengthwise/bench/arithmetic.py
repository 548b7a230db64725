"""How much arithmetic a step needs, and how much of it this machine can do.

Shape letters: K steps, N models, R rows, T tokens, P predicted tokens.
"""

import time
from dataclasses import dataclass

import numpy as np
import torch

from lengthwise.data.sequences import Sequences
from lengthwise.model.config import ModelConfig
from lengthwise.training.batches import Batches


@dataclass(frozen=True)
class TokenCounts:
    """What some examples ask of a model, padding not counted."""

    tokens: int
    predicted: int
    """Target tokens: only their states need the output layer."""
    pairs: int
    """Of a query and a key that it may see: n (n + 1) / 2 for an example of n tokens."""

    @classmethod
    def of(cls, batches: Batches) -> "TokenCounts":
        """Of all steps and all models together."""
        real_KNRT = batches.segments_KNRT > 0
        # A token at position p sees p + 1 keys, itself included.
        pairs = int((batches.positions_KNRT.astype("int64") + 1)[real_KNRT].sum())
        return cls(batches.tokens, int((batches.targets_KNP >= 0).sum()), pairs)

    @classmethod
    def of_sequences(cls, sequences: Sequences) -> "TokenCounts":
        return cls.of_sizes(sequences.size, sequences.prompt)

    @classmethod
    def of_sizes(cls, size_E: np.ndarray, prompt_E: np.ndarray) -> "TokenCounts":
        """Of examples of so many tokens, of which so many are prompt."""
        size_E = size_E.astype("int64")
        return cls(int(size_E.sum()), int((size_E - prompt_E).sum()), int((size_E * (size_E + 1) // 2).sum()))


def matrix_weights(config: ModelConfig) -> int:
    """Weights of a model's layers that are factors of a matrix product, as often as they are; the embedding table is
    none of them."""
    attention = config.width * config.head_width * (2 * config.heads + 2 * config.groups)
    feed_forward = (2 if config.style == "t5" else 3) * config.width * config.inner_width
    return config.passes * (attention + feed_forward)


def training_flops(config: ModelConfig, vocabulary_rows: int, work: TokenCounts) -> int:
    """Operations (a multiplication and an addition are two) that forward and backward pass cannot do without.

    6 x matrix weights x tokens
    + 6 x width x vocabulary rows x predicted tokens, for the output layer
    + 12 x passes of a layer x heads x head width x pairs, for queries x keys and weights x values.
    The backward pass of a product is two products; work on padding, masked pairs or states that predict nothing does
    not count, nor do norms, softmax and the optimizer.
    """
    layers = 6 * matrix_weights(config) * work.tokens
    output = 6 * config.width * vocabulary_rows * work.predicted
    attention = 12 * config.passes * config.heads * config.head_width * work.pairs
    return layers + output + attention


@dataclass(frozen=True)
class Peak:
    """Operations a second of plain matrix products, in the arithmetic that training uses on this device."""

    precision: str
    flops: float
    """Of a large square product: what shares of the peak refer to."""
    flops_of_layer: float
    """Of 1728 x 768 x 3072, a feed-forward product of a step of the base size."""


STRETCHES = 6
"""Of products that are timed, at least."""

CPU_SECONDS = 2.0
"""That products of each shape are timed on a processor."""


def measure_peak(device: torch.device) -> Peak:
    """On a CPU with all threads, whatever a fleet takes of them."""
    if device.type == "cuda":
        precision, dtype, side = "bf16", torch.bfloat16, 8192
    else:
        precision, dtype, side = "fp32", torch.float32, 1024
    return Peak(
        precision, _product_flops(device, dtype, side, side, side), _product_flops(device, dtype, 1728, 768, 3072)
    )


def _product_flops(device: torch.device, dtype: torch.dtype, rows: int, inner: int, columns: int) -> float:
    """The fastest of several stretches: what the device can do when nothing disturbs it.

    A processor that others use too is seldom left alone: there every product is timed by itself, for a few seconds.
    """
    left = torch.randn(rows, inner, device=device, dtype=dtype)
    right = torch.randn(inner, columns, device=device, dtype=dtype)
    result = left @ right
    flops = 2 * rows * inner * columns
    repeats = max(1, int(2e13 / flops)) if device.type == "cuda" else 1
    seconds: list[float] = []
    while len(seconds) < STRETCHES or (device.type == "cpu" and sum(seconds) < CPU_SECONDS):
        synchronize(device)
        start = time.perf_counter()
        for _ in range(repeats):
            torch.mm(left, right, out=result)
        synchronize(device)
        seconds.append((time.perf_counter() - start) / repeats)
    return flops / min(seconds)


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
