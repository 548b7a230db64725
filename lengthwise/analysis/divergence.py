"""How different two models look at the same text: the Jensen-Shannon divergence between their heads, layer by layer.

Kazemnejad et al. 2023 (arXiv 2305.19466) define the distance of two layers as the least distance of any head of one to
any head of the other, and the distance of two heads as the mean over query rows of the divergence of their attention.
Their code has the arguments of the two Kullback-Leibler terms exchanged, which makes it unbounded, and compares head i
only with the heads after i. Both are to be had here: `jensen_shannon` over all pairs, and `published` as theirs.

Shape letters: B examples, H heads of one model, G heads of the other, T queries, S keys, L lengths, Y layers.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from lengthwise.errors import UserError

BOUND = math.log(2)
"""The largest Jensen-Shannon divergence there is, in nats."""

TOGETHER = 2**24
"""Elements (B, H, G, T, S) that are compared at once (64 MiB)."""

ROUNDING = 1e-4
"""How far rows of attention may be from summing to one, and a divergence from its bounds."""

Divergence = Callable[[Tensor, Tensor], Tensor]


def jensen_shannon(p_BHTS: Tensor, q_BGTS: Tensor) -> Tensor:
    """Of every head of one model and every head of the other, for each query row: (B, H, G, T) in nats."""
    within_BHGT = (_entropy(p_BHTS)[:, :, None] + _entropy(q_BGTS)[:, None]) / 2
    # Rounding may make the difference of two large entropies a little negative.
    return (_mixture_entropy(p_BHTS, q_BGTS) - within_BHGT).clamp(min=0)


def published(p_BHTS: Tensor, q_BGTS: Tensor) -> Tensor:
    """What the paper's code computes, 0.5 * (KL(m|p) + KL(m|q)) with m their mean: (B, H, G, T), unbounded.

    A weight that was rounded to zero counts as the smallest number there is; theirs is infinite then.
    """
    least = torch.finfo(p_BHTS.dtype).tiny
    log_p, log_q = p_BHTS.clamp(min=least).log(), q_BGTS.clamp(min=least).log()
    # The sum over keys of m * (log p + log q), where m = (p + q) / 2: two terms of one head, two of a pair.
    own_p, own_q = (p_BHTS * log_p).sum(-1)[:, :, None], (q_BGTS * log_q).sum(-1)[:, None]
    crossed = torch.einsum("bhts,bgts->bhgt", p_BHTS, log_q) + torch.einsum("bhts,bgts->bhgt", log_p, q_BGTS)
    return -_mixture_entropy(p_BHTS, q_BGTS) - (own_p + own_q + crossed) / 4


def all_pairs(heads: int, others: int) -> Tensor:
    return torch.ones(heads, others, dtype=torch.bool)


def published_pairs(heads: int, others: int) -> Tensor:
    """Head i of the model and head j of NoPE where i < j: 66 of the 144 pairs of twelve heads."""
    return all_pairs(heads, others).triu(1)


def _entropy(p: Tensor) -> Tensor:
    return torch.special.entr(p).sum(-1)


def _mixture_entropy(p_BHTS: Tensor, q_BGTS: Tensor) -> Tensor:
    return _entropy((p_BHTS[:, :, None] + q_BGTS[:, None]) / 2)


class LayerDistances:
    """Distances of two models by layer and length, gathered batch by batch; its size does not depend on how many."""

    def __init__(self, layers: int, lengths: Sequence[int], device: torch.device, as_published: bool = False) -> None:
        self.lengths = list(lengths)
        self.divergence: Divergence = published if as_published else jensen_shannon
        self.pairs = published_pairs if as_published else all_pairs
        self.bounded = not as_published
        shape = layers, len(lengths)
        self.count_YL, self.sum_YL, self.squares_YL, self.pair_sum_YL = (
            torch.zeros(shape, dtype=torch.float64, device=device) for _ in range(4)
        )
        self.largest = torch.zeros((), device=device)
        self.unnormalised = torch.zeros((), device=device)

    def add(self, layer: int, length_B: Tensor, p_BHTS: Tensor, q_BGTS: Tensor) -> None:
        """`length_B`: the place of each example's length in `lengths`. `p`: the model, `q`: what it is compared to."""
        wanted_HG = self.pairs(p_BHTS.shape[1], q_BGTS.shape[1]).to(p_BHTS.device)
        if not wanted_HG.any():
            raise UserError("the published variant compares different heads; a model with one head has none")
        p_BHTS, q_BGTS = p_BHTS.float(), q_BGTS.float()
        for maps in (p_BHTS, q_BGTS):
            self.unnormalised = torch.maximum(self.unnormalised, (maps.sum(-1) - 1).abs().max())
        step = max(1, TOGETHER // (p_BHTS[0].numel() * q_BGTS.shape[1]))
        for first in range(0, len(p_BHTS), step):
            part = slice(first, first + step)
            rows_BHGT = self.divergence(p_BHTS[part], q_BGTS[part])
            self.largest = torch.maximum(self.largest, rows_BHGT.max())
            heads_BP = rows_BHGT.mean(-1)[:, wanted_HG].double()
            nearest_B = heads_BP.amin(-1)
            self.count_YL[layer].index_add_(0, length_B[part], torch.ones_like(nearest_B))
            self.sum_YL[layer].index_add_(0, length_B[part], nearest_B)
            self.squares_YL[layer].index_add_(0, length_B[part], nearest_B.square())
            self.pair_sum_YL[layer].index_add_(0, length_B[part], heads_BP.mean(-1))

    def rows(self) -> list[dict[str, Any]]:
        """One for each layer, counted from 1, and length: mean and deviation over examples of the nearest pair."""
        if float(self.unnormalised) > ROUNDING:
            raise UserError("attention that does not sum to one has no divergence; this encoding normalises otherwise")
        assert not self.bounded or float(self.largest) <= BOUND + ROUNDING, "a Jensen-Shannon divergence above ln 2"
        count_YL = self.count_YL.cpu()
        mean_YL, squares_YL, pairs_YL = (
            each.cpu() / count_YL for each in (self.sum_YL, self.squares_YL, self.pair_sum_YL)
        )
        deviation_YL = (squares_YL - mean_YL.square()).clamp(min=0).sqrt()
        return [
            {
                "layer": layer + 1,
                "length": length,
                "n": int(count_YL[layer, place]),
                "distance": round(float(mean_YL[layer, place]), 6),
                "deviation": round(float(deviation_YL[layer, place]), 6),
                "mean_over_pairs": round(float(pairs_YL[layer, place]), 6),
            }
            for layer in range(len(mean_YL))
            for place, length in enumerate(self.lengths)
        ]
