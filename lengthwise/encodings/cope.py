"""CoPE (Golovneva et al. 2024): positions are counted by gates that queries open for keys.

Shape letters: B batch, H heads, T queries, S keys, K head width, R rows of the table.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lengthwise.encodings.card import Card
from lengthwise.encodings.contribution import ScoreChange, Scores
from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding, Geometry


class Cope(Encoding):
    """A key's position is the sum of the gates from it up to the query; a learned vector for each is scored."""

    name = "cope"
    card = Card(
        kind="bias",
        equation="b(i, j) = q_i · e[p], p = Σ_(l=j)^i σ(z_(i l))",
        source="Golovneva et al. 2024",
        arxiv="2405.18719",
    )
    per_layer = True

    @dataclass(frozen=True)
    class Config:
        rows: int = 16
        """Positions in the table; those beyond share the last."""

        def __post_init__(self) -> None:
            if self.rows < 2:
                raise ValueError(f"rows must be 2 or more, not {self.rows}")

    config: Config

    def __init__(self, config: Config, geometry: Geometry) -> None:
        super().__init__(config, geometry)
        self.table_RK = nn.Parameter(torch.zeros(config.rows, geometry.head_width))

    def contribute(self, layout: AttentionLayout) -> Contribution:
        return Contribution(score=ScoreChange(self.score, "counted-gates", (self.table_RK,)))

    def score(self, scores: Scores) -> Tensor:
        gates_BHTS = scores.logits_BHTS.sigmoid() * scores.visible_BTS[:, None]
        counted_BHTS = gates_BHTS.flip(-1).cumsum(-1).flip(-1).clamp(max=self.config.rows - 1)
        rows_BHTR = scores.q_BHTK.float() @ self.table_RK.float().t()
        below, above = counted_BHTS.floor(), counted_BHTS.ceil()
        share = counted_BHTS - below
        found = (1 - share) * rows_BHTR.gather(-1, below.long()) + share * rows_BHTR.gather(-1, above.long())
        return scores.logits_BHTS + found
