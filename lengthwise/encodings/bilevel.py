"""Bilevel encoding, BiPE (He et al. 2024, 2401.16421): one encoding within segments of a text, another between them.

A trained vector for the index within the segment, added to the token embedding; rotation by the number of the segment
(BiPE-RoPE), or a penalty for each segment between (BiPE-ALiBi). The placement `bilevel` gives both numbers; at ordinary
positions a sequence is one segment.
Shape letters: B batch, H heads, T queries, S keys, D model width.
"""

from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lengthwise.encodings.alibi import slopes
from lengthwise.encodings.card import Card
from lengthwise.encodings.contribution import Rotation, RowColumnBias
from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding, Geometry
from lengthwise.placements.counting import UNIT


class Bilevel(Encoding):
    """A trained vector by the index within a segment, rotation or a penalty by the segment's number (BiPE).

    Needs the placement `bilevel`.
    """

    name = "bilevel"
    card = Card(
        kind="rotation",
        equation='x + e["index in the segment"], z = (R_s q) · (R_t k), s, t "the segments of" i, j',
        source="He et al. 2024",
        arxiv="2401.16421",
    )
    shift_invariant = False
    takes = ("whole", "levels")

    @dataclass(frozen=True)
    class Config:
        between: Literal["rotary", "alibi"] = "rotary"
        """What tells segments apart."""
        base: float = 10000.0
        """Of the rotation of all entries of a head."""

        def __post_init__(self) -> None:
            if self.base <= 1:
                raise ValueError(f"base must be above 1, not {self.base}")

    config: Config

    def __init__(self, config: Config, geometry: Geometry) -> None:
        super().__init__(config, geometry)
        if config.between == "rotary" and geometry.head_width % 2:
            raise ValueError(f"rotary rotates pairs: a head width of {geometry.head_width} is no even number")
        self.table = nn.Parameter(torch.zeros(min(UNIT, geometry.context), geometry.width))

    def levels(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """The number of the segment, and the index within it."""
        if self.geometry.counting.kind == "whole":
            return torch.zeros_like(positions), positions
        unit = self.geometry.counting.unit
        return positions.div(unit, rounding_mode="floor"), positions % unit

    def embed(self, x_BTD: Tensor, positions_BT: Tensor) -> Tensor:
        # As published, all indices from the table's end on share its last row.
        index_BT = self.levels(positions_BT)[1].clamp(max=len(self.table) - 1)
        return x_BTD + self.table[index_BT].to(x_BTD.dtype)

    def contribute(self, layout: AttentionLayout) -> Contribution:
        if self.config.between == "rotary":
            return Contribution(rotation=Rotation(self.angles))
        segment_BS = self.levels(layout.key_positions_BS)[0].float()
        slope_H1 = slopes(self.geometry.heads, segment_BS.device)[:, None]
        # Keys lie before their queries, so the difference of two numbers is the distance.
        return Contribution(row_column_bias=RowColumnBias.difference(-slope_H1 * segment_BS[:, None], layout))

    def angles(self, positions_BT: Tensor) -> Tensor:
        width = self.geometry.head_width
        pairs = torch.arange(0, width, 2, device=positions_BT.device, dtype=torch.float32)
        return self.levels(positions_BT)[0][..., None].float() * self.config.base ** (-pairs / width)

    def initial(self, name: str, generator: torch.Generator) -> float:
        return self.geometry.embedding_deviation

    def resolved(self) -> dict[str, Any]:
        return {"rows": len(self.table), "between": self.config.between}
