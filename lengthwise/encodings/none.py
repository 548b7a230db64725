"""No position encoding at all (NoPE): the causal mask is the only trace of order."""

from lengthwise.encodings.card import Card
from lengthwise.encodings.encoding import Encoding


class NoEncoding(Encoding):
    """Nothing: the causal mask is the only trace of order (NoPE)."""

    name = "none"
    card = Card(
        kind="none",
        equation="z = q_i · k_j",
        source="Kazemnejad et al. 2023",
        arxiv="2305.19466",
    )
    takes = ("whole", "fractions", "levels")
