"""The seam that everything hangs on: how position enters a decoder.

Shape letters: B batch (1 where all rows are alike), H heads, T queries, S keys, K head width, D model width.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from lengthwise.encodings.card import Card
from lengthwise.encodings.contribution import NOTHING, Contribution
from lengthwise.encodings.gates import Gates
from lengthwise.encodings.layout import AttentionLayout, distances
from lengthwise.placements.counting import WHOLE, Counting, Kind

__all__ = ["AttentionLayout", "Card", "Contribution", "Encoding", "Geometry", "distances"]


@dataclass(frozen=True)
class Geometry:
    """What an encoding may know of the model that it is part of."""

    width: int
    heads: int
    head_width: int
    layers: int
    context: int
    """The longest sequence that the model will meet, in tokens."""
    trained_context: int
    """The longest sequence that it is trained on."""
    logit_scale: float
    """What attention logits are multiplied by before any bias: 1/sqrt(head width), or 1 in the T5 style."""
    embedding_deviation: float = 1.0
    """Standard deviation of the initial token embeddings."""
    groups: int = 0
    """Heads of keys and values; 0 for as many as there are query heads."""
    counting: Counting = WHOLE
    """What positions count, where they are not whole; see `Encoding.takes`."""

    @property
    def key_value_heads(self) -> int:
        """How many heads keys and values have."""
        return self.groups or self.heads

    def in_tokens(self, positions: Tensor) -> Tensor:
        """Positions or distances in tokens, in fp32; they may be fractions."""
        return positions.float() if self.counting.unit == 1 else positions.float() / self.counting.unit

    @classmethod
    def of(cls, width: int, heads: int, layers: int = 2, context: int = 512) -> "Geometry":
        """A geometry with default values for everything else."""
        head_width = width // heads
        return cls(width, heads, head_width, layers, context, context, logit_scale=1 / math.sqrt(head_width))


class Encoding(nn.Module):
    """An encoding says what it contributes. This class contributes nothing: it is NoPE.

    Compute phases and distances in fp32 from positions, which are integers: bf16 loses integers from 257 up.
    """

    name: ClassVar[str]
    kind: ClassVar[str] = "position"
    """What it is: `scale` and `normalizer` are axes of a study of their own, since they go with any encoding; `output`
    changes what attention found."""
    card: ClassVar[Card | None] = None
    """What it says about itself: what it changes, its equation, where it comes from."""
    shift_invariant: ClassVar[bool] = True
    """Whether adding a constant to all positions changes nothing; checked by the contract tests."""
    per_layer: bool = False
    """Whether each layer has an instance, and so parameters, of its own; by default all layers share one."""
    takes: ClassVar[tuple[Kind, ...]] = ("whole",)
    """What positions may count: one that takes `fractions` reads them through `geometry.in_tokens`."""
    reads_layer: ClassVar[bool] = False
    """Whether what it contributes depends on the layer: its number, or what it reads. Else it is asked once for all
    layers, and is not told which one."""

    @dataclass(frozen=True)
    class Config:
        """Settings of the encoding; the defaults are the published ones."""

    config: Any

    def __init__(self, config: Any, geometry: Geometry) -> None:
        super().__init__()
        self.config = config
        self.geometry = geometry

    def embed(self, x_BTD: Tensor, positions_BT: Tensor) -> Tensor:
        """Changes the token embeddings, once, before the first layer."""
        return x_BTD

    def contribute(self, layout: AttentionLayout) -> Contribution:
        """What it contributes to attention, in one layer."""
        return NOTHING

    def token_numbers(self, layer_input_BTD: Tensor) -> Tensor | None:
        """Numbers of each token, (B, T, C) in fp32, made from what the layer reads; None for none.

        They are cached beside keys and values: `contribute` finds those of all keys in `layout.token_numbers_BSC`.
        By default, what `gates` declares.
        """
        gates = self.gates()
        return None if gates is None else gates.of(layer_input_BTD)

    def gates(self) -> Gates | None:
        """Numbers of each token that are log sigmoids of a linear map of what the layer reads; None for none.

        Declared, they need no `token_numbers`, and a GPU has a faster program for them.
        """
        return None

    @property
    def last_position(self) -> int | None:
        """The largest position that the encoding knows, or None where there is no end."""
        return None

    def initial(self, name: str, generator: torch.Generator) -> Tensor | float | None:
        """Initial values of the parameter `name`: a tensor of its shape, or a standard deviation around 0.

        None keeps what `__init__` makes: it is called once more for each model, and what it draws comes from the run's
        seed.
        """
        return None

    def decays(self, name: str) -> bool:
        """Whether weight decay applies to the parameter `name`; in the published runs it did not."""
        return False

    def resolved(self) -> dict[str, Any]:
        """The facts that follow from settings and geometry; printed and recorded with every result."""
        return {}
