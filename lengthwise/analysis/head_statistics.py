"""How heads look: how far, how sharply, and whether at the first token, at themselves, at the token before, or at what
followed the same token earlier (induction).

Shape letters: B examples, H heads, T queries, S keys, K bins of distance, G groups of examples, Y layers, P positions.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

SCORES = ("tokens_back", "entropy_share", "first", "diagonal", "previous", "induction")


def entropy(weights_BHTS: Tensor) -> Tensor:
    """In nats: (B, H, T). Query t, counted from 0, sees t + 1 keys: at most ln(t + 1)."""
    return torch.special.entr(weights_BHTS).sum(-1)


def entropy_bound(queries: int) -> Tensor:
    return torch.arange(1, queries + 1).float().log()


def tokens_back(queries: int) -> Tensor:
    """How far each key lies before each query: (T, S), 0 for the query itself and for later keys."""
    index = torch.arange(queries)
    return (index[:, None] - index).clamp(min=0)


def bin_edges(longest: int) -> list[int]:
    """The last distance of each bin: 0, 1, 2, 4, 8 ..; the bin of 8 holds 5 to 8."""
    return [0, *(2**power for power in range(max(0, longest - 1).bit_length() + 1))]


def histogram(weights_BHTS: Tensor, edges: Sequence[int]) -> Tensor:
    """Attention at each distance: (B, H, T, K); a query's bins sum to one."""
    back_TS = tokens_back(weights_BHTS.shape[-1]).to(weights_BHTS.device)
    bin_TS = torch.bucketize(back_TS, torch.tensor(edges, device=weights_BHTS.device))
    return torch.einsum("bhts,tsk->bhtk", weights_BHTS, torch.nn.functional.one_hot(bin_TS, len(edges)).float())


def diagonal_share(weights_BHTS: Tensor, back: int) -> Tensor:
    """Attention on the token `back` places before the query: (B, H, T), 0 where there is none."""
    share_BHT = torch.zeros_like(weights_BHTS[..., 0])
    share_BHT[..., back:] = weights_BHTS.diagonal(-back, dim1=-2, dim2=-1)
    return share_BHT


def induction_places(tokens_BT: Tensor) -> Tensor:
    """True where a key follows an earlier token that is the query's own: (B, T, S), the query itself left out."""
    before_BS = torch.roll(tokens_BT, 1, dims=1)
    places_BTS = tokens_BT[:, :, None] == before_BS[:, None]
    places_BTS[..., 0] = False  # nothing stands before the first token
    return places_BTS.tril(-1)


def induction_share(weights_BHTS: Tensor, tokens_BT: Tensor) -> Tensor:
    """Attention on those places: (B, H, T)."""
    return torch.einsum("bhts,bts->bht", weights_BHTS, induction_places(tokens_BT).float())


def even_induction(tokens_BT: Tensor) -> tuple[Tensor, Tensor]:
    """What even attention would have there, and whether there is such a place at all: (B, T) each."""
    places_BTS = induction_places(tokens_BT)
    seen_T = torch.arange(1, tokens_BT.shape[1] + 1, device=tokens_BT.device)
    return places_BTS.sum(-1) / seen_T, places_BTS.any(-1)


@dataclass(frozen=True)
class GroupedTokens:
    """A batch: its tokens, and which group each example belongs to."""

    tokens_BT: Tensor
    group_B: Tensor


class HeadStatistics:
    """Gathers what the heads of all layers do, batch by batch; its size does not depend on how many batches.

    Scores are means over queries; the first query sees only itself and is left out.
    """

    def __init__(self, layers: int, heads: int, groups: Sequence[str], longest: int, device: torch.device) -> None:
        self.groups, self.longest = list(groups), longest
        self.edges = bin_edges(longest - 1)
        shape = layers, len(groups), heads

        def zeros(*sizes: int) -> Tensor:
            return torch.zeros(sizes, dtype=torch.float64, device=device)

        self.score_sums = {name: zeros(*shape) for name in SCORES}
        self.even_sums = {name: zeros(len(groups)) for name in ("tokens_back", "first", "induction")}
        self.queries_G, self.repeats_G, self.examples_G = (zeros(len(groups)) for _ in range(3))
        self.bins_YGHK = zeros(*shape, len(self.edges))
        self.entropy_YGHP, self.first_YGHP = (zeros(*shape, longest) for _ in range(2))
        self.count_GP = zeros(len(groups), longest)

    def begin(self, asked: GroupedTokens) -> None:
        """What does not depend on the model: once for each batch, before its layers."""
        queries = asked.tokens_BT.shape[1]
        member_GB = self._members(asked)
        examples_G = member_GB.sum(-1)
        seen_T = torch.arange(1, queries + 1, device=member_GB.device).double()
        self.examples_G += examples_G
        self.queries_G += examples_G * (queries - 1)
        self.count_GP[:, :queries] += examples_G[:, None]
        self.even_sums["tokens_back"] += examples_G * ((seen_T - 1) / 2)[1:].sum()
        self.even_sums["first"] += examples_G * (1 / seen_T)[1:].sum()
        even_BT, has_BT = even_induction(asked.tokens_BT)
        self.repeats_G += member_GB @ has_BT.sum(-1).double()
        self.even_sums["induction"] += member_GB @ even_BT.sum(-1).double()

    def add(self, layer: int, asked: GroupedTokens, weights_BHTS: Tensor) -> None:
        weights_BHTS = weights_BHTS.float()
        member_GB, queries = self._members(asked), weights_BHTS.shape[-1]
        entropy_BHT = entropy(weights_BHTS)
        bound_T = entropy_bound(queries).to(weights_BHTS.device)
        back_TS = tokens_back(queries).to(weights_BHTS.device).float()
        by_query = {
            "tokens_back": torch.einsum("bhts,ts->bht", weights_BHTS, back_TS),
            "entropy_share": entropy_BHT / bound_T.clamp(min=math.log(2)),  # the first query's share is not asked for
            "first": weights_BHTS[..., 0],
            "diagonal": diagonal_share(weights_BHTS, 0),
            "previous": diagonal_share(weights_BHTS, 1),
            "induction": induction_share(weights_BHTS, asked.tokens_BT),
        }
        for name, value_BHT in by_query.items():
            self.score_sums[name][layer] += torch.einsum("gb,bh->gh", member_GB, value_BHT[..., 1:].sum(-1).double())
        bins_BHK = histogram(weights_BHTS, self.edges)[:, :, 1:].sum(2).double()
        self.bins_YGHK[layer] += torch.einsum("gb,bhk->ghk", member_GB, bins_BHK)
        for total, value_BHT in ((self.entropy_YGHP, entropy_BHT), (self.first_YGHP, by_query["first"])):
            total[layer, ..., :queries] += torch.einsum("gb,bht->ght", member_GB, value_BHT.double())

    def _members(self, asked: GroupedTokens) -> Tensor:
        return torch.nn.functional.one_hot(asked.group_B, len(self.groups)).double().T

    def rows(self) -> list[dict[str, Any]]:
        """One for each group, layer and head, both counted from 1, of the groups that have examples.

        `even`: what a head would score that looks at everything alike. By position, counted from 1: entropy, its bound
        and the share of the first token.
        """
        found = []
        queries_G, repeats_G, bins_YGHK, count_GP, examples_G = (
            each.cpu() for each in (self.queries_G, self.repeats_G, self.bins_YGHK, self.count_GP, self.examples_G)
        )
        per_query = {name: repeats_G if name == "induction" else queries_G for name in SCORES}
        sums = {name: value.cpu() for name, value in self.score_sums.items()}
        even = {name: _shared(value.cpu(), per_query[name]) for name, value in self.even_sums.items()}
        entropy_YGHP, first_YGHP = (
            (total / self.count_GP[:, None]).cpu() for total in (self.entropy_YGHP, self.first_YGHP)
        )
        for layer in range(len(bins_YGHK)):
            for group, name in enumerate(self.groups):
                if not examples_G[group]:
                    continue
                known = int((count_GP[group] > 0).sum())
                for head in range(bins_YGHK.shape[2]):
                    found.append(
                        {
                            "group": name,
                            "layer": layer + 1,
                            "head": head + 1,
                            "n": int(examples_G[group]),
                            **{
                                score: _shared(sums[score][layer, :, head], per_query[score])[group] for score in SCORES
                            },
                            "even": {
                                "tokens_back": even["tokens_back"][group],
                                **{score: even["first"][group] for score in ("first", "diagonal", "previous")},
                                "induction": even["induction"][group],
                            },
                            "distance_up_to": self.edges,
                            "distance_share": _numbers(bins_YGHK[layer, group, head] / queries_G[group]),
                            "entropy_by_position": _numbers(entropy_YGHP[layer, group, head, :known]),
                            "entropy_bound": _numbers(entropy_bound(known)),
                            "first_by_position": _numbers(first_YGHP[layer, group, head, :known]),
                        }
                    )
        return found


def _shared(sum_G: Tensor, count_G: Tensor) -> list[float | None]:
    """Means by group; None where nothing was counted, as for induction in texts that never repeat a token."""
    return [round(float(total / count), 5) if count else None for total, count in zip(sum_G, count_G, strict=True)]


def _numbers(values: Tensor) -> list[float]:
    return [round(float(value), 4) for value in values]
