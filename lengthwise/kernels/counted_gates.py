"""Positions counted by gates that queries open for keys (CoPE), inside a Triton kernel that holds whole rows.

Shape letters as in `attention`; E rows of the table of vectors, a power of two.
"""

from __future__ import annotations

from lengthwise.kernels.parts import jit, tl


@jit
def count_gates(logits_TS, seen_TS, score_TE, LAST: tl.constexpr):
    """Gates, positions counted up to `LAST`, and the scores of the two rows of the table that each lies between."""
    gate_TS = tl.where(seen_TS, 1.0 / (1.0 + tl.exp(-logits_TS)), 0.0)
    position_TS = tl.minimum(tl.cumsum(gate_TS, 1, reverse=True), LAST)
    below_TS = tl.floor(position_TS)
    above_TS = tl.ceil(position_TS)
    low_TS = tl.gather(score_TE, below_TS.to(tl.int32), 1)
    high_TS = tl.gather(score_TE, above_TS.to(tl.int32), 1)
    return gate_TS, position_TS, low_TS, high_TS


@jit
def found_between(position_TS, low_TS, high_TS):
    """The score at a position: linear between those of two rows."""
    share_TS = position_TS - tl.floor(position_TS)
    return (1.0 - share_TS) * low_TS + share_TS * high_TS


@jit
def gradient_of_gates(gate_TS, low_TS, high_TS, dlogits_TS):
    """What counting adds to the gradient of the logits that opened the gates."""
    dgate_TS = tl.cumsum(dlogits_TS * (high_TS - low_TS), 1)
    return dgate_TS * gate_TS * (1.0 - gate_TS)


@jit
def gradient_of_scores(position_TS, dlogits_TS, E: tl.constexpr, LAST: tl.constexpr):
    """(T, E): of the scores of the table's rows."""
    e_E = tl.arange(0, E)
    dscore_TE = tl.zeros((dlogits_TS.shape[0], E), tl.float32)
    for e in range(LAST + 1):
        near_TS = tl.maximum(1.0 - tl.abs(position_TS - e), 0.0)
        dscore_TE += tl.where((e_E == e)[None, :], tl.sum(dlogits_TS * near_TS, 1)[:, None], 0.0)
    return dscore_TE
