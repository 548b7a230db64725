"""Where target and separator tokens look: how much of their attention falls on each region of the sequence.

Shape letters: B examples, H heads, T queries, S keys, R regions, Q kinds of queries, L lengths, Y layers.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from lengthwise.analysis.regions import REGIONS, Region

QUERIES = (Region.TARGET, Region.SEPARATOR)
"""Whose attention is asked about."""


@dataclass(frozen=True)
class RegionTokens:
    """A batch: the region of each token, and the place of each example's length among all lengths."""

    region_BT: Tensor
    length_B: Tensor

    def keys_BSR(self) -> Tensor:
        return torch.stack([self.region_BT == region for region in REGIONS], dim=-1).float()

    def queries_BTQ(self) -> Tensor:
        """The last token of a sequence is its end, from which nothing is predicted: it is left out."""
        chosen_BTQ = torch.stack([self.region_BT == region for region in QUERIES], dim=-1).float()
        chosen_BTQ[:, -1] = 0
        return chosen_BTQ


def region_shares(weights_BHTS: Tensor, asked: RegionTokens) -> Tensor:
    """The attention of all queries of a kind on each region, summed over the queries: (B, H, Q, R)."""
    share_BHTR = weights_BHTS.float() @ asked.keys_BSR()[:, None]
    return torch.einsum("bhtr,btq->bhqr", share_BHTR, asked.queries_BTQ())


def even_shares(asked: RegionTokens) -> Tensor:
    """The same of a head that looks at everything it sees alike: (B, Q, R)."""
    seen_T = torch.arange(1, asked.region_BT.shape[1] + 1, device=asked.region_BT.device)
    even_BTR = asked.keys_BSR().cumsum(1) / seen_T[:, None]
    return torch.einsum("btr,btq->bqr", even_BTR, asked.queries_BTQ())


class RegionStatistics:
    """Gathers the shares of all layers and heads by length, batch by batch."""

    def __init__(
        self, layers: int, heads: int, lengths: Sequence[int], seen: Sequence[bool], device: torch.device
    ) -> None:
        """`seen`: whether each of the lengths is one of training."""
        self.lengths, self.seen_L = list(lengths), torch.tensor(seen)

        def zeros(*sizes: int) -> Tensor:
            return torch.zeros(sizes, dtype=torch.float64, device=device)

        self.sums_YLHQR = zeros(layers, len(lengths), heads, len(QUERIES), len(REGIONS))
        self.even_LQR = zeros(len(lengths), len(QUERIES), len(REGIONS))
        self.queries_LQ, self.examples_L = zeros(len(lengths), len(QUERIES)), zeros(len(lengths))

    def begin(self, asked: RegionTokens) -> None:
        """What does not depend on the model: once for each batch, before its layers."""
        self.examples_L.index_add_(0, asked.length_B, torch.ones_like(asked.length_B).double())
        self.queries_LQ.index_add_(0, asked.length_B, asked.queries_BTQ().sum(1).double())
        self.even_LQR.index_add_(0, asked.length_B, even_shares(asked).double())

    def add(self, layer: int, asked: RegionTokens, weights_BHTS: Tensor) -> None:
        self.sums_YLHQR[layer].index_add_(0, asked.length_B, region_shares(weights_BHTS, asked).double())

    def rows(self) -> list[dict[str, Any]]:
        """One for each kind of queries, layer and head, both counted from 1.

        `seen`, `unseen`: mean shares over the queries of these lengths, None where there are none; `even`: those of a
        head that looks at everything alike. `by_length` has the same means of each length.
        """
        sums, even, queries, examples = (
            each.cpu() for each in (self.sums_YLHQR, self.even_LQR, self.queries_LQ, self.examples_L)
        )
        found = []
        for number, kind in enumerate(QUERIES):
            known = queries[:, number] > 0
            groups = {"seen": known & self.seen_L, "unseen": known & ~self.seen_L}
            for layer in range(len(sums)):
                for head in range(sums.shape[2]):
                    sum_LR, count_L = sums[layer, :, head, number], queries[:, number]
                    mean_LR = sum_LR[known] / count_L[known, None]
                    found.append(
                        {
                            "queries": kind.title,
                            "layer": layer + 1,
                            "head": head + 1,
                            **{name: _means(sum_LR, count_L, examples, group) for name, group in groups.items()},
                            "even": {
                                name: _means(even[:, number], count_L, examples, group)
                                for name, group in groups.items()
                            },
                            "by_length": {
                                "length": [n for n, has in zip(self.lengths, known.tolist(), strict=True) if has],
                                **{region.title: _numbers(mean_LR[:, i]) for i, region in enumerate(REGIONS)},
                            },
                        }
                    )
        return found


def _means(sum_LR: Tensor, queries_L: Tensor, examples_L: Tensor, group_L: Tensor) -> dict[str, Any] | None:
    if not group_L.any():
        return None
    mean_R = sum_LR[group_L].sum(0) / queries_L[group_L].sum()
    counts = {"examples": int(examples_L[group_L].sum()), "queries": int(queries_L[group_L].sum())}
    return {**counts, **dict(zip((region.title for region in REGIONS), _numbers(mean_R), strict=True))}


def _numbers(values: Tensor) -> list[float]:
    return [round(float(value), 5) for value in values]
