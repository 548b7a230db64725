"""DAPE (Zheng et al. 2024): a small network over heads changes a bias by what the logits are.

Shape letters: B batch, H heads, T queries, S keys.
"""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lengthwise.encodings.alibi import Alibi
from lengthwise.encodings.card import Card
from lengthwise.encodings.contribution import ScoreChange, Scores
from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding, Geometry
from lengthwise.encodings.kerple import Kerple
from lengthwise.encodings.linear import linear


class Dape(Encoding):
    """Logits x and a bias b become x + b + f(x, b), where f is a network that sees all heads of a query and a key."""

    name = "dape"
    card = Card(
        kind="bias",
        equation='z + b_h(d) + f_h(z, b), b "of kerple or alibi"',
        source="Zheng et al. 2024",
        arxiv="2405.14722",
    )
    per_layer = True

    @dataclass(frozen=True)
    class Config:
        base: Literal["kerple", "alibi"] = "kerple"
        """Whose bias is changed."""
        width: int = 32
        """Of the hidden layer."""

        def __post_init__(self) -> None:
            if self.width < 1:
                raise ValueError(f"width must be 1 or more, not {self.width}")

    config: Config

    def __init__(self, config: Config, geometry: Geometry) -> None:
        super().__init__(config, geometry)
        kerple = config.base == "kerple"
        self.base = Kerple(Kerple.Config(), geometry) if kerple else Alibi(Alibi.Config(), geometry)
        self.inner = nn.Linear(2 * geometry.heads, config.width)
        self.outer = nn.Linear(config.width, geometry.heads)

    def initial(self, name: str, generator: torch.Generator) -> Tensor | float | None:
        owner, _, own = name.partition(".")
        return self.base.initial(own, generator) if owner == "base" else None

    def contribute(self, layout: AttentionLayout) -> Contribution:
        arrays = (self.inner.weight, self.inner.bias, self.outer.weight, self.outer.bias)
        return Contribution(distance_bias=self.base.penalty, score=ScoreChange(self.changed, "head-network", arrays))

    def changed(self, scores: Scores) -> Tensor:
        assert scores.bias_BHTS is not None
        both = torch.cat([scores.logits_BHTS - scores.bias_BHTS, scores.bias_BHTS.expand_as(scores.logits_BHTS)], dim=1)
        inner = linear(both.movedim(1, -1), self.inner.weight, self.inner.bias)
        outer = linear(F.leaky_relu(inner), self.outer.weight, self.outer.bias)
        return scores.logits_BHTS + outer.movedim(-1, 1)
