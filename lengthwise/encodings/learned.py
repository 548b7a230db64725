"""Learned absolute positions: one trained vector per position, added to the token embedding."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.encodings.card import Card
from lengthwise.encodings.encoding import Encoding, Geometry


class Learned(Encoding):
    """One trained vector per position, added to the token embedding; ends where its table ends."""

    name = "learned"
    card = Card(
        kind="embedding",
        equation="x_i + e[i]",
    )
    shift_invariant = False

    @dataclass(frozen=True)
    class Config:
        rows: int = 0
        """Positions in the table; 0 makes it as long as the longest sequence of the study."""

        def __post_init__(self) -> None:
            if self.rows < 0:
                raise ValueError(f"rows must be 0 or more, not {self.rows}")

    config: Config

    def __init__(self, config: Config, geometry: Geometry) -> None:
        super().__init__(config, geometry)
        self.table = nn.Parameter(torch.zeros(config.rows or geometry.context, geometry.width))

    @property
    def last_position(self) -> int:
        return len(self.table) - 1

    def embed(self, x_BTD: Tensor, positions_BT: Tensor) -> Tensor:
        return x_BTD + self.table[positions_BT].to(x_BTD.dtype)

    def initial(self, name: str, generator: torch.Generator) -> float:
        return self.geometry.embedding_deviation

    def resolved(self) -> dict[str, Any]:
        trained = min(len(self.table), self.geometry.trained_context)
        return {"rows": len(self.table), "rows_trained": trained, "rows_left_random": len(self.table) - trained}
