"""What an encoding contributes to the attention of a layer, as data: what is absent changes nothing.

    logits = scale x (rotated queries) . (rotated keys) + bias by distance, by position, and of row and column
    logits = score(logits), -inf where a key is hidden
    output = output(normalizer(logits) . values)

A backend reads what is there and takes the fastest program that computes it (`model.attention`). So an encoding never
says how it is run.

Shape letters: B batch (1 where all rows are alike), H heads, T queries, S keys, K head width, D model width, P pairs.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor

from lengthwise.encodings.layout import AttentionLayout
from lengthwise.errors import UserError

ByPosition = Callable[[Tensor], Tensor]
"""Positions (B, T) to numbers of pairs (B, T, P) in fp32."""
Transform = Callable[[Tensor, Tensor], Tensor]
"""Queries or keys (B, H, T, K) and positions (B, T) to what takes their place; the last width may change."""
ByPair = Callable[[Tensor, Tensor], Tensor]
"""Positions of queries (B, T) and of keys (B, S) to numbers (B, H, T, S) in fp32; hidden keys come too."""
Pairs = Literal["interleaved", "halves"]
"""Entry 2i with entry 2i + 1, or entry i of the first half of the rotated entries with entry i of the second."""


@dataclass(frozen=True)
class Rotation:
    """Pairs of the first entries of queries and keys are rotated by angles that depend on their positions."""

    angles: ByPosition
    """Radians; of queries and, unless `key_angles` are given, of keys."""
    key_angles: ByPosition | None = None
    pairs: Pairs = "interleaved"
    query_magnitude: ByPosition | None = None
    """Factors of rotated pairs."""
    key_magnitude: ByPosition | None = None

    @property
    def plain(self) -> bool:
        """Whether queries and keys are rotated alike, neighbours together, and nothing more."""
        others = (self.key_angles, self.query_magnitude, self.key_magnitude)
        return self.pairs == "interleaved" and all(other is None for other in others)

    def of_queries(self, q_BHTK: Tensor, positions_BT: Tensor) -> Tensor:
        return self._applied(q_BHTK, positions_BT, self.angles, self.query_magnitude)

    def of_keys(self, k_BGTK: Tensor, positions_BT: Tensor) -> Tensor:
        return self._applied(k_BGTK, positions_BT, self.key_angles or self.angles, self.key_magnitude)

    def _applied(self, x: Tensor, positions_BT: Tensor, angles: ByPosition, magnitude: ByPosition | None) -> Tensor:
        factors = None if magnitude is None else magnitude(positions_BT)
        return rotate(x, angles(positions_BT), self.pairs, factors)


@dataclass(frozen=True)
class TokenRotation:
    """Pairs of the first entries of queries and keys are rotated by angles that are each token's own."""

    angles_BGTP: Tensor
    """Radians of the queries' tokens, in each head of keys (G is 1 where all are alike); they may be learned."""
    pairs: Pairs = "interleaved"

    def rotated(self, x_BHTK: Tensor) -> Tensor:
        """Queries or keys of these tokens."""
        shared = x_BHTK.shape[1] // self.angles_BGTP.shape[1]
        return rotate_heads(x_BHTK, self.angles_BGTP.repeat_interleave(shared, dim=1), self.pairs)


@dataclass(frozen=True)
class Polar:
    """A change of queries or keys that a kernel may know: an entry x becomes a magnitude, softplus(x), with a phase."""

    phases: ByPosition
    """Radians of all entries: (B, T) to (B, T, K)."""
    offset_GK: Tensor | None = None
    """Added to the phases of each head."""

    def __call__(self, x_BHTK: Tensor, positions_BT: Tensor) -> Tensor:
        """Real and imaginary parts side by side: a product is the sum of products times the cosine between."""
        phases = self.phases(positions_BT)[:, None]
        if self.offset_GK is not None:
            phases = phases + self.offset_GK[:, None]
        magnitude = F.softplus(x_BHTK.float())
        return torch.cat([magnitude * phases.cos(), magnitude * phases.sin()], dim=-1).to(x_BHTK.dtype)


@dataclass(frozen=True)
class RowColumnBias:
    """A number of the query plus a number of the key: (B, H, T) and (B, H, S) in fp32."""

    row_BHT: Tensor
    column_BHS: Tensor | None = None
    """None for minus those of the rows, where queries and keys are the same tokens: see `difference`."""

    @classmethod
    def difference(cls, numbers_BHS: Tensor, layout: AttentionLayout) -> "RowColumnBias":
        """The number of the query's token less that of the key's; a kernel reads them once."""
        row_BHT = layout.of_queries(numbers_BHS)
        return cls(row_BHT) if row_BHT is numbers_BHS else cls(row_BHT, -numbers_BHS)

    @property
    def of_keys_BHS(self) -> Tensor:
        return -self.row_BHT if self.column_BHS is None else self.column_BHS


@dataclass(frozen=True)
class Normalizer:
    """What makes weights of logits in place of the softmax, and what a kernel may know it by."""

    weights: Callable[[Tensor, AttentionLayout], Tensor]
    """Logits (B, H, T, S), -inf where a key is hidden, to weights."""
    program: Literal["entmax", "stick-breaking", "sink"]
    """`entmax`: that of alpha 1.5; `sink`: a softmax with `logit_H` among its logits, which has no value."""
    logit_H: Tensor | None = None

    def __call__(self, logits_BHTS: Tensor, layout: AttentionLayout) -> Tensor:
        return self.weights(logits_BHTS, layout)


@dataclass(frozen=True)
class ScoreChange:
    """A change of logits, and what a kernel may know it by."""

    change: Callable[["Scores"], Tensor]
    program: Literal["counted-gates", "reflections", "head-network"]
    """`counted-gates`: CoPE's, with a table of vectors (E, K); `reflections`: PaTH's, with vectors (B, H, S, K) of
    length one and their strengths (B, H, S); `head-network`: DAPE's, with weights and biases of its two layers."""
    arrays: tuple[Tensor, ...]

    def __call__(self, scores: "Scores") -> Tensor:
        return self.change(scores)


@dataclass(frozen=True)
class Scores:
    """What a change of scores may read."""

    logits_BHTS: Tensor
    """Scaled products plus all biases, in fp32; hidden keys are not told apart yet: see `visible_BTS`."""
    q_BHTK: Tensor
    """Queries and keys as they were multiplied."""
    k_BHSK: Tensor
    layout: AttentionLayout
    scale: float | Tensor
    """What the products were multiplied by."""
    bias_BHTS: Tensor | None
    """What was added to them."""

    @property
    def visible_BTS(self) -> Tensor:
        """True where a key may be seen; what a window hides besides is hidden afterwards."""
        return self.layout.seen_BTS()


@dataclass(frozen=True)
class Contribution:
    """See the formula above. Every field is optional."""

    rotation: Rotation | None = None
    token_rotation: TokenRotation | None = None
    """After the rotation."""
    queries: Transform | None = None
    """Any other change of queries; after both. Keys are cached as they are after theirs. `Polar` may be fused."""
    keys: Transform | None = None
    scale: float | Tensor | None = None
    """Multiplies the logits, beside the model's own scale: a number, or what broadcasts to (B, H, T, 1)."""
    distance_bias: Callable[[Tensor], Tensor] | None = None
    """Added to the logits: integers of any shape to (H, *shape) in fp32."""
    position_bias: ByPair | None = None
    """Added to the logits, by the positions of query and key: what the distance alone does not say."""
    row_column_bias: RowColumnBias | None = None
    window: int | tuple[int, ...] | None = None
    """Keys at this distance and beyond are hidden; one number for all heads, or one for each."""
    chunk: int | None = None
    """Positions are cut into chunks of this size; keys of another chunk than the query's are hidden."""
    score: ScoreChange | Callable[[Scores], Tensor] | None = None
    """Any other change of logits: to (B, H, T, S) in fp32. A `ScoreChange` may be fused, any other function is
    called."""
    normalizer: Normalizer | Callable[[Tensor, AttentionLayout], Tensor] | None = None
    """Logits (B, H, T, S), -inf where a key is hidden, to weights; by default the softmax. A `Normalizer` may be
    fused, any other function is called."""
    output: Callable[[Tensor, AttentionLayout], Tensor] | None = None
    """Changes the mixed values (B, H, T, K)."""

    @property
    def names(self) -> list[str]:
        """The names of the parts that are there."""
        return [each.name for each in fields(self) if getattr(self, each.name) is not None]

    def bias(self, layout: AttentionLayout) -> Tensor | None:
        """All that is added to logits: broadcasts to (B, H, T, S) in fp32; None for nothing."""
        found = None
        if self.distance_bias is not None:
            found = self.distance_bias(layout.distances_BTS).movedim(0, 1)
        if self.position_bias is not None:
            more = self.position_bias(layout.query_positions_BT, layout.key_positions_BS)
            found = more if found is None else found + more
        if self.row_column_bias is not None:
            both = self.row_column_bias.row_BHT[..., None] + self.row_column_bias.of_keys_BHS[..., None, :]
            found = both if found is None else found + both
        return found

    def hidden_by_chunk(self, layout: AttentionLayout) -> Tensor | None:
        """True where a key is of another chunk than the query: (B, 1, T, S)."""
        return None if self.chunk is None else layout.elsewhere_BTS(self.chunk)[:, None]

    def hidden_by_window(self, layout: AttentionLayout) -> Tensor | None:
        """True where a window hides a key: (B, 1 or H, T, S)."""
        if self.window is None:
            return None
        distance_B1TS = layout.distances_BTS[:, None]
        if isinstance(self.window, int):
            return distance_B1TS >= self.window
        # Filled, not copied from the host, for which a step that is captured in a graph has no place.
        fill = partial(torch.full, (1, 1), device=distance_B1TS.device)
        return distance_B1TS >= torch.stack([fill(window) for window in self.window])


NOTHING = Contribution()


def combine(contributions: Sequence[Contribution]) -> Contribution:
    """Several methods in one layer: biases add, scales multiply, windows hide what any of them hides.

    Score and output changes act one after the other. Two normalisers, and two rotations, are an error.
    """
    result = NOTHING
    for each in contributions:
        for name in ("rotation", "token_rotation", "normalizer", "chunk"):
            if getattr(result, name) is not None and getattr(each, name) is not None:
                raise UserError(f"two methods of one layer have a {name}; only one of them can")
        result = Contribution(
            rotation=each.rotation or result.rotation,
            token_rotation=each.token_rotation or result.token_rotation,
            queries=_one_after_the_other(result.queries, each.queries),
            keys=_one_after_the_other(result.keys, each.keys),
            scale=_product(result.scale, each.scale),
            distance_bias=_sum(result.distance_bias, each.distance_bias),
            position_bias=_sum(result.position_bias, each.position_bias),
            row_column_bias=_sum_by_row(result.row_column_bias, each.row_column_bias),
            window=_smaller(result.window, each.window),
            chunk=result.chunk if each.chunk is None else each.chunk,
            score=_both_scores(result.score, each.score),
            normalizer=each.normalizer or result.normalizer,
            output=_one_after_the_other(result.output, each.output),
        )
    return result


def _one_after_the_other(first: Callable | None, second: Callable | None) -> Callable | None:
    if first is None or second is None:
        return first or second
    return lambda x, *others: second(first(x, *others), *others)


def _product(first: float | Tensor | None, second: float | Tensor | None) -> float | Tensor | None:
    if first is None or second is None:
        return second if first is None else first
    return first * second


def _sum(first: Callable | None, second: Callable | None) -> Callable | None:
    if first is None or second is None:
        return first or second
    return lambda *places: first(*places) + second(*places)


def _sum_by_row(first: RowColumnBias | None, second: RowColumnBias | None) -> RowColumnBias | None:
    if first is None or second is None:
        return first or second
    return RowColumnBias(first.row_BHT + second.row_BHT, first.of_keys_BHS + second.of_keys_BHS)


def _smaller(first: int | tuple[int, ...] | None, second: int | tuple[int, ...] | None) -> int | tuple[int, ...] | None:
    if first is None or second is None:
        return second if first is None else first
    if isinstance(first, int) and isinstance(second, int):
        return min(first, second)
    heads = len(first) if isinstance(first, tuple) else len(second) if isinstance(second, tuple) else 1
    both = ((each,) * heads if isinstance(each, int) else each for each in (first, second))
    return tuple(map(min, *both))


ChangeOfScores = Callable[[Scores], Tensor]


def _both_scores(first: ChangeOfScores | None, second: ChangeOfScores | None) -> ChangeOfScores | None:
    if first is None or second is None:
        return first or second
    return lambda scores: second(replace(scores, logits_BHTS=first(scores)))


def rotate(x_BHTK: Tensor, angles_BTP: Tensor, pairs: Pairs, magnitude_BTP: Tensor | None = None) -> Tensor:
    """Pairs of the first 2P entries rotated by their angles, in fp32; the rest as it was."""
    magnitude_B1TP = None if magnitude_BTP is None else magnitude_BTP[:, None]
    return rotate_heads(x_BHTK, angles_BTP[:, None], pairs, magnitude_B1TP)


def rotate_heads(x_BHTK: Tensor, angles_BHTP: Tensor, pairs: Pairs, magnitude_BHTP: Tensor | None = None) -> Tensor:
    """The same by angles of each head."""
    cosine, sine = angles_BHTP.cos(), angles_BHTP.sin()
    if magnitude_BHTP is not None:
        cosine, sine = cosine * magnitude_BHTP, sine * magnitude_BHTP
    width = 2 * angles_BHTP.shape[-1]
    rotated, rest = x_BHTK.float().split([width, x_BHTK.shape[-1] - width], dim=-1)
    if pairs == "interleaved":
        a, b = rotated[..., 0::2], rotated[..., 1::2]
        rotated = torch.stack([a * cosine - b * sine, a * sine + b * cosine], dim=-1).flatten(-2)
    else:
        a, b = rotated.chunk(2, dim=-1)
        rotated = torch.cat([a * cosine - b * sine, a * sine + b * cosine], dim=-1)
    return torch.cat([rotated, rest], dim=-1).to(x_BHTK.dtype)
