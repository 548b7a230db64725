"""The shape of a decoder, and the sizes that have names. Imports no torch, so that settings are checked at once."""

import math
from dataclasses import dataclass, field
from typing import Any, Literal

from lengthwise.configuration import YOUNGER
from lengthwise.door import visible
from lengthwise.errors import UserError, nearest

SIZES: dict[str, dict[str, Any]] = {
    "tiny": {"layers": 2, "width": 64, "heads": 4},
    "small": {"layers": 4, "width": 256, "heads": 8},
    "base": {"layers": 12, "width": 768, "heads": 12},
    "1b": {"layers": 22, "width": 2048, "heads": 32, "key_value_heads": 4, "feed_forward": 5632, "style": "llama"},
}
"""`base` is the size of the first paper, `1b` (TinyLlama) that of the second."""


MOST_LOOPS = 1000


@dataclass(frozen=True)
class ModelConfig:
    """A decoder without its encoding and its vocabulary."""

    size: str = "small"
    """A name from SIZES; gives layers, width, heads where they are not said."""
    style: Literal["t5", "llama"] = "t5"
    layers: int = 4
    width: int = 256
    heads: int = 8
    key_value_heads: int = 0
    """Heads of keys and values, for grouped attention; 0 for as many as there are query heads."""
    feed_forward: int = 0
    """Inner width of the feed-forward layers; 0 for 4 x width (t5) or 8/3 x width (llama)."""
    dropout: float = 0.0
    loops: int = field(default=1, metadata={YOUNGER: True})
    """How often all layers are passed, one time after the other, with the same weights (a looped Transformer)."""
    inject: bool = field(default=False, metadata={YOUNGER: True})
    """Whether the embedding is added again before each loop but the first."""

    def __post_init__(self) -> None:
        for name in ("layers", "width", "heads"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, not {getattr(self, name)}")
        if self.key_value_heads < 0 or self.feed_forward < 0:
            raise ValueError("key_value_heads and feed_forward must be 0 or more")
        if self.width % self.heads:
            raise ValueError(f"width {self.width} cannot be divided among {self.heads} heads")
        if self.heads % self.groups:
            raise ValueError(f"{self.heads} heads cannot share {self.groups} key-value heads evenly")
        if not 1 <= self.loops <= MOST_LOOPS:
            raise ValueError(f"loops must be 1 to {MOST_LOOPS:,}, not {self.loops:,}")
        if self.inject and self.loops == 1:
            raise ValueError("inject adds the embedding again before each loop but the first; set loops to 2 or more")
        if not 0 <= self.dropout < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, not {self.dropout}")

    @property
    def passes(self) -> int:
        """Of a token through a layer."""
        return self.layers * self.loops

    @property
    def head_width(self) -> int:
        return self.width // self.heads

    @property
    def groups(self) -> int:
        return self.key_value_heads or self.heads

    @property
    def inner_width(self) -> int:
        if self.feed_forward:
            return self.feed_forward
        # Llama: two thirds of 4 x width, since SwiGLU has three matrices, rounded up to 32.
        return 4 * self.width if self.style == "t5" else math.ceil(8 * self.width / 3 / 32) * 32

    @property
    def embedding_deviation(self) -> float:
        """Standard deviation of the initial token embeddings."""
        return 1.0 if self.style == "t5" else 0.02

    @property
    def logit_scale(self) -> float:
        """T5 does not divide attention logits by sqrt(head width): its small initial queries take care of it."""
        return 1.0 if self.style == "t5" else self.head_width**-0.5


def with_size(table: dict[str, Any]) -> dict[str, Any]:
    """A `[model]` table with the values of its size filled in; what the table says itself wins."""
    size = table.get("size", "small")
    if not isinstance(size, str) or size not in SIZES:
        raise UserError(f"model.size cannot be {visible(repr(size), 60)}; {nearest(str(size), SIZES)}")
    return {**SIZES[size], **table}
