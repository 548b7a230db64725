"""The Forgetting Transformer (Lin et al. 2025): every token says how much of what was before it is kept.

Shape letters: B batch, H heads, T queries, S keys, D model width.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from lengthwise.encodings.card import Card
from lengthwise.encodings.contribution import RowColumnBias
from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding, Geometry
from lengthwise.encodings.gates import Gates


class Fox(Encoding):
    """The logit of a key falls by the logarithms of the forget gates of all tokens after it, up to the query."""

    name = "fox"
    card = Card(
        kind="bias",
        equation="b_h(i, j) = Σ_(l=j+1)^i ln σ(w_h · x_l + c_h)",
        source="Lin et al. 2025",
        arxiv="2503.02130",
    )
    per_layer = True
    reads_layer = True

    @dataclass(frozen=True)
    class Config:
        bias: float = 0.0
        """Of the gates before training; published: 0, which keeps a half at every token."""

    config: Config

    def __init__(self, config: Config, geometry: Geometry) -> None:
        super().__init__(config, geometry)
        self.gate = nn.Linear(geometry.width, geometry.heads)

    def initial(self, name: str, generator: torch.Generator) -> Tensor | float:
        return 0.02 if name == "gate.weight" else torch.full((self.geometry.heads,), self.config.bias)

    def gates(self) -> Gates:
        return Gates(self.gate.weight, self.gate.bias)

    def contribute(self, layout: AttentionLayout) -> Contribution:
        assert layout.token_numbers_BSC is not None
        kept_BHS = layout.running_sums(layout.token_numbers_BSC).transpose(1, 2)
        return Contribution(row_column_bias=RowColumnBias.difference(kept_BHS, layout))
