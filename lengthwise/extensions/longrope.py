"""LongRoPE (Ding et al. 2024) as released with Phi-3: a searched factor for each pair, one set for long sequences.

Shape letters: B batch, T tokens, P rotated pairs.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from lengthwise.encodings.encoding import Geometry
from lengthwise.errors import UserError
from lengthwise.extensions.rescaling import Rescaling, sequence_lengths


class LongRope(Rescaling):
    """Divides the frequency of each pair by its own factor: one set up to the trained length, another one beyond.

    The magnitude holds at every length, as released. The first tokens, which the paper leaves as they are, are treated
    as all others, as released.
    """

    name = "longrope"

    @dataclass(frozen=True)
    class Config:
        factor: float
        """How many times the trained length is to be met; gives the magnitude."""
        long: tuple[float, ...]
        """By how much slower each pair rotates, fastest pair first, in sequences longer than the trained length."""
        short: tuple[float, ...]
        """The same in sequences up to the trained length."""
        choice: Literal["length", "long"] = "length"
        """By the length of each sequence, as released; or always long, with which a cache can go beyond it."""
        attention_factor: float | None = None
        """Magnitude of queries and keys; by default sqrt(1 + ln(factor) / ln(trained length))."""
        magnitude_on: Literal["logits", "rotated"] = "rotated"
        """On rotated entries alone, as released, or its square on whole logits.

        The same where whole heads are rotated.
        """

        def __post_init__(self) -> None:
            if self.factor < 1:
                raise ValueError(f"factor must be 1 or more, not {self.factor}")
            if len(self.long) != len(self.short):
                raise ValueError(f"long and short need as many factors: {len(self.long)} and {len(self.short)}")
            if not all(factor > 0 for factor in (*self.long, *self.short)):
                raise ValueError("factors of pairs must be above 0")
            if self.attention_factor is not None and self.attention_factor <= 0:
                raise ValueError(f"attention_factor must be above 0, not {self.attention_factor}")

    config: Config

    @property
    def by_length(self) -> bool:
        return self.config.choice == "length"

    def outdates(self, cached: int, length: int, trained_context: int) -> bool:
        return self.by_length and cached <= trained_context < length

    def reach(self, trained_context: int) -> int:
        return int(self.config.factor * trained_context)

    def magnitude(self, geometry: Geometry) -> float:
        given = self.config.attention_factor
        if given is not None:
            return given
        return math.sqrt(1 + math.log(self.config.factor) / math.log(geometry.trained_context))

    @property
    def magnitude_on(self) -> Literal["logits", "rotated"]:
        return self.config.magnitude_on

    def check_frequencies(self, trained_P: Tensor) -> None:
        if len(trained_P) != len(self.config.long):
            raise UserError(f"longrope has factors for {len(self.config.long)} pairs, and {len(trained_P)} are rotated")

    def frequencies(self, trained_P: Tensor, positions_BT: Tensor, geometry: Geometry) -> Tensor:
        long_P = trained_P / trained_P.new_tensor(self.config.long)
        if not self.by_length:
            return long_P
        short_P = trained_P / trained_P.new_tensor(self.config.short)
        longer_BT = sequence_lengths(positions_BT) > geometry.trained_context
        return torch.where(longer_BT[..., None], long_P, short_P)
