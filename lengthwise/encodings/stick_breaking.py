"""Stick-breaking attention (Tan et al. 2025): the nearest key takes its share first, the next one of what is left.

Shape letters: B batch, H heads, T queries, S keys.
"""

import torch.nn.functional as F
from torch import Tensor

from lengthwise.encodings.card import Card
from lengthwise.encodings.contribution import Normalizer
from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding


class StickBreaking(Encoding):
    """A key's weight is sigmoid(z) of what keys between it and the query, the query's own among them, have left."""

    name = "stick-breaking"
    kind = "normalizer"
    card = Card(
        kind="normalizer",
        equation="a_j = σ(z_j) ∏_(l=j+1)^i (1 - σ(z_l))",
        source="Tan et al. 2025",
        arxiv="2410.17980",
    )

    def contribute(self, layout: AttentionLayout) -> Contribution:
        return Contribution(normalizer=Normalizer(self.broken, "stick-breaking"))

    def broken(self, logits_BHTS: Tensor, layout: AttentionLayout) -> Tensor:
        """Weights sum to less than one: what no key took is dropped. A token sees itself, first of all keys."""
        left_BHTS = F.logsigmoid(-logits_BHTS)  # 0 for a hidden key, which takes nothing
        after_BHTS = left_BHTS.flip(-1).cumsum(-1).flip(-1) - left_BHTS
        return (F.logsigmoid(logits_BHTS) + after_BHTS).exp()
