"""Dual chunk attention, DCA (An et al. 2024): positions begin anew in every chunk of the sequence."""

from dataclasses import dataclass

import torch

from lengthwise.encodings.contribution import Contribution
from lengthwise.encodings.encoding import Geometry
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.errors import UserError
from lengthwise.extensions.remapping import Elsewhere, Remapping


class DualChunk(Remapping):
    """Keeps distances within a chunk and to the nearest tokens of the chunk before; all others stay below the chunk.

    A chunk has s = chunk - local tokens, and the key at position j stands at j mod s. A query at position i stands at
    i mod s for keys of its own chunk, at s + i mod s (at most chunk - 1) for those of the chunk before, and at
    chunk - 1 for all earlier ones. As in the paper; its code has chunk instead of chunk - 1. The code also multiplies
    logits as the length grows: put `uniform-scale` before it.
    """

    name = "dual-chunk"

    @dataclass(frozen=True)
    class Config:
        chunk: int
        """Positions that are used. Published: three quarters of the trained length; in vLLM all of it."""
        local: int
        """So many first tokens of a chunk keep distances to the chunk before. Published: an eighth of the length."""

        def __post_init__(self) -> None:
            if not 1 <= self.local < self.chunk:
                raise ValueError(f"local must be 1 or more and below chunk {self.chunk}, not {self.local}")

    config: Config

    @property
    def shift_invariant(self) -> bool:
        return False  # where chunks begin depends on absolute positions

    def check(self, contribution: Contribution, geometry: Geometry) -> None:
        super().check(contribution, geometry)
        if self.config.chunk > geometry.trained_context:
            raise UserError(
                f"the chunk of dual-chunk must be at most the trained length {geometry.trained_context}, "
                f"not {self.config.chunk}"
            )

    def elsewhere(self, layout: AttentionLayout, geometry: Geometry) -> list[Elsewhere]:
        last, size = self.config.chunk - 1, self.config.chunk - self.config.local
        query_BT, key_BS = layout.query_positions_BT, layout.key_positions_BS
        back_BTS = (query_BT // size)[:, :, None] - (key_BS // size)[:, None, :]
        following_BT = (query_BT % size + size).clamp(max=last)
        return [
            Elsewhere(following_BT, key_BS % size, back_BTS == 1),
            Elsewhere(torch.full_like(query_BT, last), key_BS % size, back_BTS > 1),
        ]
