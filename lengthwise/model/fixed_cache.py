"""A cache of fixed shape: the next token is written at a place that a tensor holds, and keys of all slots are returned.

So a step of decoding has the same shapes and reads the same memory whatever its number is, and can be captured in a
graph. Slots that nothing was written to yet are hidden as later keys are.
Shape letters: B batch, G key-value heads, C slots, K head width, N numbers of a token.
"""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from lengthwise.encodings.layout import AttentionLayout
from lengthwise.model.cache import Cache

SEQUENCE = 1
"""The segment of the tokens of a row, and of its free slots. Padding on the left has another."""


@dataclass
class FixedCache(Cache):
    """The first rows and slots of a cache that has read prompts, for steps of one token."""

    place_1: Tensor = field(default_factory=lambda: torch.zeros(1, dtype=torch.int64))
    """The slot of the token that is read, in all rows. Whoever holds it advances it."""

    @classmethod
    def over(cls, cache: Cache, rows: int, slots: int, place_1: Tensor) -> "FixedCache":
        """Shares the memory of `cache`."""
        part = cache.mapped(lambda kept, dim: kept[:rows] if dim is None else kept[:rows].narrow(dim, 0, slots))
        return cls(
            part.keys,
            part.values,
            part.positions_BC,
            part.segments_BC,
            part.numbers,
            part.states,
            later_loops=[cls.over(each, rows, slots, place_1) for each in cache.later_loops],
            place_1=place_1,
        )

    def layout(self, positions_B1: Tensor) -> AttentionLayout:
        """Of a step whose tokens have these positions."""
        self.positions_BC.index_copy_(1, self.place_1, positions_B1)
        index_C = torch.arange(self.positions_BC.shape[1], device=positions_B1.device)
        hidden_B1C = ((index_C > self.place_1) | (self.segments_BC != SEQUENCE))[:, None]
        return AttentionLayout(
            positions_B1,
            self.positions_BC,
            lambda: hidden_B1C,
            causal=False,
            key_segments_BS=self.segments_BC,
            chosen_T=self.place_1,  # the keys of a step's tokens are not the last ones
        )

    def extend(self, layer: int, k_BGTK: Tensor, v_BGTK: Tensor) -> tuple[Tensor, Tensor]:
        for kept_BGCK, new_BG1K in ((self.keys[layer], k_BGTK), (self.values[layer], v_BGTK)):
            kept_BGCK.index_copy_(2, self.place_1, new_BG1K)
        return self.keys[layer], self.values[layer]

    def extend_numbers(self, layer: int, numbers_BTN: Tensor) -> Tensor:
        return self.numbers[layer].index_copy_(1, self.place_1, numbers_BTN)

    def keep_state(self, layer: int, state: Tensor) -> None:
        self.states[layer].copy_(state)  # where the next step reads it

    def advance(self, tokens: int) -> None:
        """Nothing: how many tokens are here, `place_1` says."""
