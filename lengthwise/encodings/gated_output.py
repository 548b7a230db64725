"""Gated attention (Qiu et al. 2025): what a head found is let through as far as the token wants it.

Shape letters: B batch, H heads, T queries, K head width, D model width.
"""

import torch.nn.functional as F
from torch import Tensor, nn

from lengthwise.encodings.card import Card
from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding, Geometry


class GatedOutput(Encoding):
    """Multiplies what each head found by a sigmoid of what the layer reads."""

    name = "gated-output"
    kind = "output"
    card = Card(
        kind="output",
        equation="y_h σ(w_h · x)",
        source="Qiu et al. 2025",
        arxiv="2505.06708",
    )
    per_layer = True
    reads_layer = True

    def __init__(self, config: Encoding.Config, geometry: Geometry) -> None:
        super().__init__(config, geometry)
        self.gate = nn.Linear(geometry.width, geometry.heads, bias=False)

    def contribute(self, layout: AttentionLayout) -> Contribution:
        return Contribution(output=self.gated)

    def gated(self, mixed_BHTK: Tensor, layout: AttentionLayout) -> Tensor:
        assert layout.layer_input_BTD is not None
        gate_BTH = F.linear(layout.layer_input_BTD, self.gate.weight).sigmoid()
        return mixed_BHTK * gate_BTH.transpose(1, 2)[..., None]
