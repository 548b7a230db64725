"""The seam that everything hangs on: the places where position may enter a decoder.

Shape letters: B batch (1 where all rows are alike), H heads, T queries, S keys, K head width, D model width.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor, nn


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

    @classmethod
    def of(cls, width: int, heads: int, layers: int = 2, context: int = 512) -> "Geometry":
        """A geometry with the usual values for what is not said."""
        head_width = width // heads
        return cls(width, heads, head_width, layers, context, context, logit_scale=1 / math.sqrt(head_width))


class Encoding(nn.Module):
    """An encoding overrides the hooks through which it acts. This class overrides none: it is NoPE.

    Positions are explicit integers everywhere, so cache, packing and padding need no special case. Compute phases and
    distances in fp32 from them: bf16 loses integers from 257 up.
    """

    name: ClassVar[str]
    shift_invariant: ClassVar[bool] = True
    """Whether adding a constant to all positions changes nothing; checked by the contract tests."""
    per_layer: bool = False
    """Whether each layer has an instance, and so weights, of its own; by default all layers share one."""

    pairs: Literal["interleaved", "halves"] = "interleaved"
    """What `angles` turns together: entry 2i with 2i + 1, or entry i of the first half with entry i of the second."""

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

    def angles(self, positions_BT: Tensor) -> Tensor | None:
        """Radians by which pairs of the first entries of queries and keys are turned: (B, T, pairs) in fp32.

        None for nothing. Turning neighbours (entry 2i with 2i + 1) keeps the fused kernel.
        """
        return None

    def rotate(self, x_BHTK: Tensor, positions_BT: Tensor) -> Tensor:
        """Changes queries and keys. Override it for anything but turning pairs."""
        angles_BTP = self.angles(positions_BT)
        return x_BHTK if angles_BTP is None else turn(x_BHTK, angles_BTP, self.pairs)

    def scale(self, positions_BT: Tensor) -> float | Tensor:
        """Multiplies the attention logits: one number, or a tensor that broadcasts to (B, H, T, 1)."""
        return self.geometry.logit_scale

    def by_distance(self, distance: Tensor) -> Tensor | None:
        """Is added to the scaled logits, from the distance alone: integers of any shape to (H, *shape) in fp32.

        None for nothing. A bias of this kind keeps the fused kernel.
        """
        return None

    def bias(self, q_BHTK: Tensor, k_BHSK: Tensor, query_BT: Tensor, key_BS: Tensor) -> Tensor | None:
        """The same from anything: (B, H, T, S) in fp32, or None. Override it to read queries, keys or positions."""
        if type(self).by_distance is Encoding.by_distance:
            return None  # before distances are made: they are a matrix of length x length
        found = self.by_distance(distances(query_BT, key_BS))
        return None if found is None else found.movedim(0, 1)

    def normalize(self, logits_BHTS: Tensor) -> Tensor:
        """Logits, -inf where a key may not be seen, to attention weights."""
        return torch.softmax(logits_BHTS, dim=-1)

    @property
    def last_position(self) -> int | None:
        """The largest position that the encoding knows, or None where there is no end."""
        return None

    def initial(self, name: str) -> float:
        """Standard deviation of the initial values of the weight `name`."""
        return self.geometry.width**-0.5

    def resolved(self) -> dict[str, Any]:
        """The facts that follow from settings and geometry; printed and recorded with every result."""
        return {}


def distances(query_BT: Tensor, key_BS: Tensor) -> Tensor:
    """How far each key lies before each query: (B, T, S) integers, 0 for the query itself and for later keys."""
    return (query_BT[:, :, None] - key_BS[:, None, :]).clamp(min=0)


def turn(x_BHTK: Tensor, angles_BTP: Tensor, pairs: Literal["interleaved", "halves"]) -> Tensor:
    """Pairs of the first 2P entries turned by their angles, in fp32; the rest as it was."""
    cosine, sine = angles_BTP[:, None].cos(), angles_BTP[:, None].sin()
    turned, rest = x_BHTK.float().split([2 * angles_BTP.shape[-1], x_BHTK.shape[-1] - 2 * angles_BTP.shape[-1]], dim=-1)
    if pairs == "interleaved":
        a, b = turned[..., 0::2], turned[..., 1::2]
        turned = torch.stack([a * cosine - b * sine, a * sine + b * cosine], dim=-1).flatten(-2)
    else:
        a, b = turned.chunk(2, dim=-1)
        turned = torch.cat([a * cosine - b * sine, a * sine + b * cosine], dim=-1)
    return torch.cat([turned, rest], dim=-1).to(x_BHTK.dtype)
