"""ASEntmax (Vasylenko et al. 2025): 1.5-entmax of logits that each query scales by a power of ln(n).

Shape letters: B batch, H heads, T queries, D model width, C = 2H numbers of a token.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lengthwise.encodings.card import Card
from lengthwise.encodings.contribution import Normalizer
from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding, Geometry
from lengthwise.encodings.entmax import entmax_by_sorting
from lengthwise.encodings.linear import linear


class Asentmax(Encoding):
    """Logits times 1 + beta ln(n + 1)^gamma, for n visible keys and a beta and gamma that the token says; entmax."""

    name = "asentmax"
    kind = "normalizer"
    card = Card(
        kind="normalizer",
        equation='entmax(z (1 + β ln(n + 1)^γ)), β "and" γ "from" x',
        source="Vasylenko et al. 2025",
        arxiv="2506.16640",
    )
    per_layer = True
    reads_layer = True

    def __init__(self, config: Encoding.Config, geometry: Geometry) -> None:
        super().__init__(config, geometry)
        self.scaler = nn.Linear(geometry.width, 2 * geometry.heads)

    def initial(self, name: str, generator: torch.Generator) -> float:
        return 0.02 if name == "scaler.weight" else 0.0

    def contribute(self, layout: AttentionLayout) -> Contribution:
        assert layout.layer_input_BTD is not None
        raw_BTC = linear(layout.layer_input_BTD, self.scaler.weight, self.scaler.bias)
        beta_BHT, gamma_BHT = raw_BTC.transpose(1, 2).chunk(2, dim=1)
        # The authors take the logarithm of the index + 2; counted are keys, so that packing changes nothing.
        logarithm_B1T = (layout.visible_BT + 1)[:, None].float().log()
        scale_BHT = 1 + F.softplus(beta_BHT) * logarithm_B1T ** (2 * gamma_BHT.tanh())
        return Contribution(scale=scale_BHT[..., None], normalizer=Normalizer(self.weights, "entmax"))

    def weights(self, logits_BHTS: Tensor, layout: AttentionLayout) -> Tensor:
        return entmax_by_sorting(logits_BHTS)
