"""No position encoding at all (NoPE): the causal mask is the only trace of order."""

from lengthwise.encodings.encoding import Encoding


class NoEncoding(Encoding):
    """Nothing: the causal mask is the only trace of order (NoPE)."""

    name = "none"
    takes = ("whole", "fractions", "levels")
