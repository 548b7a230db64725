"""The entropy of attention in bits, by layer, head and position, a block of queries at a time.

Shape letters: B rows, L layers, H heads, T queries, S keys, Q queries of a block, P positions asked for, K head width,
D width.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lengthwise.context_extension.forward import arithmetic, batches, device_of
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.mixers.attention import Attention
from lengthwise.model.attention import attention_weights
from lengthwise.model.decoder import Block, Decoder

LARGEST_BLOCK = {"cpu": 2**22, "cuda": 2**27}
"""Attention weights in memory at a time."""


def spread_positions(length: int, count: int) -> np.ndarray:
    """At most `count` positions from the first to the last, evenly."""
    return np.unique(np.linspace(0, length - 1, min(count, length)).round().astype(np.int64))


@torch.no_grad()
def entropies(model: Decoder, rows_RT: np.ndarray, positions: np.ndarray | None = None) -> Tensor:
    """Means over the rows (L, H, P) in bits, on the CPU in fp64; `positions`: of the queries, by default all."""
    length = rows_RT.shape[1]
    positions = np.arange(length) if positions is None else positions
    asked_P = torch.from_numpy(positions).to(device_of(model))
    shape = (model.config.layers, model.config.heads, len(positions))
    total_LHP = torch.zeros(shape, dtype=torch.float64)
    with arithmetic(device_of(model)):
        for tokens_BT in batches(model, rows_RT):
            layout = model.layout(tokens_BT)

            def look(layer: int, x_BTD: Tensor, layout: AttentionLayout = layout) -> Tensor:
                if layer < model.config.layers:
                    total_LHP[layer] += layer_entropy(model, layer, x_BTD, layout, asked_P).sum(dim=0).double().cpu()
                return x_BTD

            model.hidden(tokens_BT, layout, before=look)
    return total_LHP / len(rows_RT)


def layer_entropy(model: Decoder, layer: int, x_BTD: Tensor, layout: AttentionLayout, asked_P: Tensor) -> Tensor:
    """(B, H, P), of what the layer is about to compute from what it reads."""
    block, encoding = model.blocks[layer], model.encoding_at(layer)
    assert isinstance(block, Block) and isinstance(block.mixer, Attention)
    normed_BTD = block.attention_norm(x_BTD)
    here = layout.at_layer(layer, normed_BTD, encoding.token_numbers(normed_BTD))
    q_BHTK, k_BHSK = block.mixer.queries_and_keys(normed_BTD, here.contribution(encoding), here)
    batch, heads, length, _ = q_BHTK.shape
    size = max(1, LARGEST_BLOCK[x_BTD.device.type] // (batch * heads * length))
    found = []
    for asked_Q in asked_P.split(size):
        some = here.queries(asked_Q)
        inputs = q_BHTK[:, :, asked_Q], k_BHSK, some.contribution(encoding), some, model.config.logit_scale
        weights_BHQS = attention_weights(*inputs)[2]
        found.append(torch.special.entr(weights_BHQS).sum(dim=-1) / math.log(2))
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
