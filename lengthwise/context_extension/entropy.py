"""The entropy of attention in bits, by layer, head and position, a block of queries at a time.

Shape letters: B rows, L layers, H heads, T queries, Q queries of a block, P positions asked for.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lengthwise.context_extension.forward import batches
from lengthwise.context_extension.reader import Reader
from lengthwise.model.attention import Attended

LARGEST_BLOCK = {"cpu": 2**22, "cuda": 2**27}
"""Attention weights in memory at a time."""


def spread_positions(length: int, count: int) -> np.ndarray:
    """At most `count` positions from the first to the last, evenly."""
    return np.unique(np.linspace(0, length - 1, min(count, length)).round().astype(np.int64))


@torch.no_grad()
def entropies(model: Reader, rows_RT: np.ndarray, positions: np.ndarray | None = None) -> Tensor:
    """Means over the rows (L, H, P) in bits, on the CPU in fp64; `positions`: of the queries, by default all."""
    length = rows_RT.shape[1]
    positions = np.arange(length) if positions is None else positions
    asked_P = torch.from_numpy(positions).to(model.device)
    total_LHP = torch.zeros((model.layers, model.heads, len(positions)), dtype=torch.float64)

    def look(attended: Attended) -> None:
        total_LHP[attended.layer] += layer_entropy(attended, asked_P).sum(dim=0).double().cpu()

    with model.arithmetic():
        for tokens_BT in batches(model, rows_RT):
            model.hidden(tokens_BT, look=look)
    return total_LHP / len(rows_RT)


def layer_entropy(attended: Attended, asked_P: Tensor) -> Tensor:
    """(B, H, P), of what a layer is about to attend to."""
    batch, heads, length, _ = attended.q_BHTK.shape
    size = max(1, LARGEST_BLOCK[attended.q_BHTK.device.type] // (batch * heads * length))
    found = []
    for asked_Q in asked_P.split(size):
        found.append(torch.special.entr(attended.weights(asked_Q)).sum(dim=-1) / math.log(2))
    return torch.cat(found, dim=-1)


def bound(position: int) -> float:
    """The entropy of a query that attends to itself and all earlier tokens alike."""
    return math.log2(position + 1)


def entropy_rows(entropy_LHP: Tensor, positions: np.ndarray, samples: int) -> list[dict[str, Any]]:
    return [
        {"layer": layer, "head": head, "position": position, "n": samples, "bits": bits, "bound": bound(position)}
        for layer, of_layer in enumerate(entropy_LHP.tolist())
        for head, of_head in enumerate(of_layer)
        for position, bits in zip(positions.tolist(), of_head, strict=True)
    ]


@dataclass(frozen=True)
class Correlation:
    """Of the heads' scales with their entropy."""

    overall: float | None
    """Over all heads of all layers; None where either does not vary."""
    by_layer: list[float | None]

    @property
    def within_layers(self) -> float | None:
        """Mean over the layers that have one."""
        known = [each for each in self.by_layer if each is not None]
        return sum(known) / len(known) if known else None

    def table(self) -> dict[str, Any]:
        return {"overall": self.overall, "within_layers": self.within_layers, "by_layer": self.by_layer}


def correlate(scales_LH: Tensor, entropy_LH: Tensor) -> Correlation:
    """Pearson's; published as negative within each layer, without a number."""
    return Correlation(
        _pearson(scales_LH.flatten().tolist(), entropy_LH.flatten().tolist()),
        [_pearson(a.tolist(), b.tolist()) for a, b in zip(scales_LH, entropy_LH, strict=True)],
    )


def _pearson(a: Sequence[float], b: Sequence[float]) -> float | None:
    x, y = np.array(a) - np.mean(a), np.array(b) - np.mean(b)
    norm = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / norm if norm > 1e-12 else None
