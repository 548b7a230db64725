"""What there may be besides queries, keys and values in fused attention, and how a kernel is given it.

Shape letters as in `attention`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

How = tuple[float, int, float, int, bool]
"""Scale, threshold and factor of dropout, number of the normaliser, whether pairs are halves."""


class Parts(NamedTuple):
    """All of it optional: what is None changes nothing. Numbers are in fp32."""

    table_NHT: Tensor | None = None
    """Added to the logits, by distance. Distances are differences of index."""
    turns_NRTGPC: Tensor | None = None
    """Cosines and sines by which pairs of entries of queries and keys are rotated, grown or shrunk; no gradient."""
    angles_NRTHP: Tensor | None = None
    """The angles that `turns` are made of, where they want a gradient."""
    key_N: Tensor | None = None
    """Decides, with the place of a weight, whether dropout keeps it."""
    row_NRHT: Tensor | None = None
    """A number of the query, added to the logits, and with `column_NRHT` one of the key; without, a key has minus what
    its token has as a query."""
    column_NRHT: Tensor | None = None
    window_NH: Tensor | None = None
    """Hides keys at that distance and beyond."""
    sink_NH: Tensor | None = None
    """One more logit for each head of a softmax, without a value."""
    factor_NRHT: Tensor | None = None
    """Multiplies the products of a query, as `scale` does all of them."""
    grid_NHTT: Tensor | None = None
    """Added to the logits, by the positions of the query and of the key, which `place_NRT` says: they count up by one
    in each segment, and are below T."""
    place_NRT: Tensor | None = None
    given_NRHTS: Tensor | None = None
    """The logits themselves, on which nothing but the mask is put; then there are values alone."""
    rows_NEK: Tensor | None = None
    """Vectors of the positions that gates count (see `counted_gates`), in the precision of the queries."""
    vectors_NRTHK: Tensor | None = None
    """Of reflections (see `reflections`), with their strengths."""
    strength_NRHT: Tensor | None = None
    offset_NHK: Tensor | None = None
    """Phases of keys beside those of their positions: entries are magnitudes and phases then (see `polar`), and `turns`
    has a cosine and a sine of every entry."""

    @property
    def read(self) -> tuple[Tensor | None, ...]:
        """What the kernels read, in the order in which they take it."""
        return (*self[:2], *self[3:])  # angles come as turns


LEARNED = (
    *("table_NHT", "angles_NRTHP", "row_NRHT", "column_NRHT", "sink_NH", "factor_NRHT", "grid_NHTT", "given_NRHTS"),
    *("rows_NEK", "vectors_NRTHK", "strength_NRHT", "offset_NHK"),
)
"""Parts that have gradients, in the order in which these come back."""


class Gradients(NamedTuple):
    """Of queries, keys and values, joined, and of `LEARNED`: empty where there is no such part."""

    joined: Tensor
    table: Tensor
    angles: Tensor
    row: Tensor
    column: Tensor
    sink: Tensor
    factor: Tensor
    grid: Tensor
    given: Tensor
    rows: Tensor
    vectors: Tensor
    strength: Tensor
    offset: Tensor

    @classmethod
    def like(cls, joined_NRTXHK: Tensor, parts: Parts) -> Gradients:
        """Where they are written."""
        some = (getattr(parts, name) for name in LEARNED)
        N = len(joined_NRTXHK)
        others = [joined_NRTXHK.new_empty((N, 0)) if x is None else x.new_empty(x.shape) for x in some]
        return cls(joined_NRTXHK.new_empty(joined_NRTXHK.shape), *others)

    def where(self, name: str, parts: Parts) -> Tensor | None:
        """The gradient of a part, for a kernel to write; None where there is no such part."""
        field = next(each for each in LEARNED if each.startswith(f"{name}_"))
        return None if getattr(parts, field) is None else getattr(self, name)


def readable(joined: Tensor, segments: Tensor, parts: Parts) -> tuple[Tensor, Tensor, Parts]:
    """As the kernels read them: they know the strides of queries, keys, values, segments and the table, but for the
    last, which they take to be 1. All else they take to be contiguous."""
    others = (None if x is None else x.contiguous() for x in parts)
    return rows_of(joined), rows_of(segments), Parts(*others)._replace(table_NHT=rows_of(parts.table_NHT))


def rows_of(x: Any) -> Any:
    """With entries side by side in the last dimension."""
    return x if x is None or x.stride(-1) == 1 else x.contiguous()


def split(joined_NRTXHK: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Queries, keys and values; where there are values alone, these three times."""
    parts = joined_NRTXHK.unbind(3)
    return (parts[0], parts[1], parts[2]) if len(parts) == 3 else (parts[0],) * 3


def strides(v_NRTHK: Tensor, segments: Tensor, table: Tensor | None) -> tuple[int, ...]:
    """Queries and keys have those of the values."""
    table_strides = (0, 0) if table is None else table.stride()[:2]
    return (*v_NRTHK.stride()[:4], *segments.stride()[:2], *table_strides)


def pair_sizes(parts: Parts) -> tuple[int, int, int]:
    """G, P and C."""
    return (1, 0, 2) if parts.turns_NRTGPC is None else tuple(parts.turns_NRTGPC.shape[3:])  # pyrefly: ignore


def sum_out(x: torch.Tensor | None, dim: int | tuple[int, ...], out: Tensor) -> None:
    """Adds up what programs wrote apart, where there is such a thing."""
    if x is not None:
        out.copy_(x.sum(dim)) if x.dtype != out.dtype else torch.sum(x, dim=dim, out=out)
