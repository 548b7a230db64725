"""What the whole numbers that a placement gives as positions count: tokens, fractions of a token, or two levels."""

from dataclasses import dataclass
from typing import Literal

Kind = Literal["whole", "fractions", "levels"]
"""`whole`: positions as usual. `fractions`: as many as `unit` are one position. `levels`: the number of a segment times
`unit` plus the index within the segment."""


@dataclass(frozen=True)
class Counting:
    """Positions are whole numbers everywhere, so that a cache, a kernel and a file lose nothing of them."""

    kind: Kind = "whole"
    unit: int = 1


WHOLE = Counting()
UNIT = 1024
"""Of those that are not whole: a power of two, so that fp32 has every fraction of positions below 16,384 exactly."""
EXACT = 2**24 // UNIT
