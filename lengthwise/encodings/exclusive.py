"""Exclusive self-attention (2603.09078): what a head found, without what the token's own value says already.

Shape letters: B batch, H heads, T queries, K head width.
"""

from torch import Tensor

from lengthwise.encodings.card import Card
from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding


class Exclusive(Encoding):
    """Takes out of what each head found the part that points along the token's own value."""

    name = "exclusive"
    kind = "output"
    card = Card(
        kind="output",
        equation='y - (y · v)/(v · v) v, v "the value of the query\'s own token"',
        arxiv="2603.09078",
    )

    def contribute(self, layout: AttentionLayout) -> Contribution:
        return Contribution(output=self.without_own)

    def without_own(self, mixed_BHTK: Tensor, layout: AttentionLayout) -> Tensor:
        assert layout.own_values is not None
        mixed, own = mixed_BHTK.float(), layout.own_values().float()
        along = (mixed * own).sum(-1, keepdim=True) / own.square().sum(-1, keepdim=True).clamp(min=1e-12)
        return (mixed - along * own).to(mixed_BHTK.dtype)
