"""Dynamic NTK scaling (emozilla 2023): the base grows with the length of the sequence at hand.

Shape letters: B batch, T tokens, P rotated pairs.
"""

from dataclasses import dataclass

from torch import Tensor

from lengthwise.encodings.encoding import Geometry
from lengthwise.extensions.ntk import change_base
from lengthwise.extensions.rescaling import Rescaling, sequence_lengths


class DynamicNtk(Rescaling):
    """NTK scaling whose factor follows the length of each sequence; within the trained length nothing changes.

    All tokens of a sequence of length T are rotated by the factor of T. So the keys of a shorter sequence are not those
    of a longer one, and decoding beyond the trained length with a cache, which would mix them, is refused. Padding on
    the right that no segment tells apart counts as part of the sequence.
    """

    name = "dynamic-ntk"
    geometric = True

    @dataclass(frozen=True)
    class Config:
        factor: float
        """At length T > L, the trained length, the slowest pair rotates slower by factor x T / L - (factor - 1)."""

        def __post_init__(self) -> None:
            if self.factor < 1:
                raise ValueError(f"factor must be 1 or more, not {self.factor}")

    config: Config

    @property
    def by_length(self) -> bool:
        return True

    def outdates(self, cached: int, length: int, trained_context: int) -> bool:
        return length > trained_context

    def frequencies(self, trained_P: Tensor, positions_BT: Tensor, geometry: Geometry) -> Tensor:
        longer_BT = sequence_lengths(positions_BT).float() / geometry.trained_context
        slower_BT = self.config.factor * longer_BT - (self.config.factor - 1)
        return change_base(trained_P, slower_BT.clamp(min=1)[..., None])
