"""The seam between a block and what it mixes tokens with.

Shape letters: B batch, T tokens, D model width, P tokens of the batch by their number.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from lengthwise.encodings.card import Card
from lengthwise.encodings.encoding import Geometry
from lengthwise.model.layer import LayerPass


class Mixer(nn.Module):
    """Takes the place of attention in a block: ordinary PyTorch modules, which a fleet trains like any other.

    A study names it where it would name an encoding: `encodings = ["rotary", "gated-recurrence"]`, and in a schedule,
    `["gated-recurrence", "gated-recurrence", "none"]`.
    """

    name: ClassVar[str]
    card: ClassVar[Card | None] = None
    """What it says about itself, as `Encoding.card`."""
    dropout_places: ClassVar[int] = 0
    """How often it calls `here.ops.drop` in a pass."""

    @dataclass(frozen=True)
    class Config:
        """Settings of the mixer."""

    config: Any

    def __init__(self, config: Any, geometry: Geometry) -> None:
        super().__init__()
        self.config = config
        self.geometry = geometry

    def forward(self, x_BTD: Tensor, here: LayerPass) -> Tensor:
        """What is added to the stream, (B, T, D).

        A token may know earlier tokens of its own sequence and no others: `here.layout.continues_BT` says where a
        sequence goes on. What it must remember between calls lies in `here.cache`, see `Cache.state`.
        """
        raise NotImplementedError

    def initial(self, name: str, generator: torch.Generator) -> Tensor | float | None:
        """As `Encoding.initial`: values, a standard deviation, or None for what `__init__` makes."""
        return None

    def resolved(self) -> dict[str, Any]:
        """The facts that follow from settings and geometry; recorded with every result."""
        return {}
