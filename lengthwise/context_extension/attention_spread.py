"""What heads attend to when they predict scored tokens: how attention is spread over the first token, near and far.

Shape letters: B rows, H heads, L layers, S keys, P positions of queries, C what is known of a query.
"""

import math

import numpy as np
import torch
from torch import Tensor

from lengthwise.context_extension.entropy import LARGEST_BLOCK
from lengthwise.context_extension.forward import batches
from lengthwise.context_extension.reader import Reader
from lengthwise.model.attention import Attended

NEAR = 8
"""Near is what lies within this part of the trained length."""
SHARES = ("first", "near", "far", "beyond")
"""Of attention: on the first token; on others that are near; farther off, as far as in training; farther than that."""


@torch.no_grad()
def attention_spread(model: Reader, rows_RT: np.ndarray, positions: np.ndarray) -> Tensor:
    """(L, H, 6), means over rows and positions, on the CPU in fp64: bits of entropy, distance in tokens, the shares.

    `positions`: of the queries, in rows of one text each.
    """
    asked_P = torch.from_numpy(positions).to(model.device)
    total_LHC = torch.zeros((model.layers, model.heads, 2 + len(SHARES)), dtype=torch.float64)

    def look(attended: Attended) -> None:
        total_LHC[attended.layer] += _of_layer(attended, asked_P, model.trained).double().cpu()

    with model.arithmetic():
        for tokens_BT in batches(model, rows_RT):
            model.hidden(tokens_BT, look=look)
    return total_LHC / (len(rows_RT) * len(positions))


def _of_layer(attended: Attended, asked_P: Tensor, trained: int) -> Tensor:
    """(H, C), sums over rows and positions."""
    batch, heads, length, _ = attended.q_BHTK.shape
    size = max(1, LARGEST_BLOCK[asked_P.device.type] // (batch * heads * length))
    key_S = torch.arange(length, device=asked_P.device)
    found = []
    for asked_Q in asked_P.split(size):
        weights_BHQS = attended.weights(asked_Q).float()
        distance_QS = (asked_Q[:, None] - key_S).clamp(min=0)
        first_QS = (key_S == 0).expand_as(distance_QS)
        near_QS, beyond_QS = distance_QS < trained / NEAR, distance_QS >= trained
        kinds = (first_QS, near_QS & ~first_QS, ~near_QS & ~beyond_QS & ~first_QS, beyond_QS & ~first_QS)
        bits_H = torch.special.entr(weights_BHQS).sum(dim=(0, 2, 3)) / math.log(2)
        summed = [torch.einsum("bhqs,qs->h", weights_BHQS, each.float()) for each in (distance_QS, *kinds)]
        found.append(torch.stack([bits_H, *summed], dim=-1))
    return torch.stack(found).sum(dim=0)


def spread_rows(found_LHC: Tensor, count: int) -> list[dict[str, float | int]]:
    """A row for each head; `count`: queries that the means are over."""
    rows: list[dict[str, float | int]] = []
    for layer, heads in enumerate(found_LHC.tolist()):
        for head, (bits, distance, *shares) in enumerate(heads):
            named = dict(zip(SHARES, shares, strict=True))
            rows.append({"layer": layer, "head": head, "n": count, "bits": bits, "distance": distance, **named})
    return rows
