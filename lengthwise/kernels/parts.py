"""Pieces that the Triton kernels share, and Triton itself where it is installed.

Shape letters as in `kernel`.
"""

from __future__ import annotations

from typing import Any, cast

try:
    import triton
    import triton.language as tl
except ImportError:  # PyTorch for the CPU comes without it; the functions below then stay plain, and are never called
    triton = tl = cast(Any, None)

jit: Any = triton.jit if triton is not None else lambda function: function


def rule(rate: float) -> tuple[int, float]:
    """Of dropout: the threshold for `kept`, below which a share `rate` of all int32 lies; the factor for what stays."""
    return int(rate * 2**32) - 2**31, 1 / (1 - rate)


@jit
def kept(row_B, column_W, key, threshold):
    """Whether dropout keeps the elements in these rows and columns of a model: `dropout.kept` in Triton."""
    key = key.to(tl.uint32)
    product_BW = spread(row_B, key)[:, None] * spread(column_W, key ^ 0xFFFFFFFF)[None, :]
    return product_BW.to(tl.int32) >= threshold


@jit
def spread(place, key):
    x = (place.to(tl.uint32) ^ key) * 0x9E3779B1
    x ^= x >> 16
    x *= 0x7FEB352D
    x ^= x >> 15
    x *= 0x846CA68B
    x ^= x >> 16
    return x | 1


@jit
def turns_of(turns, row, t_T, length, P: tl.constexpr, K: tl.constexpr):
    """Cosines and sines of a block of tokens for all K / 2 pairs of a head: no turn from pair P on."""
    pair = tl.arange(0, K // 2)
    place = ((row * length + t_T[:, None]) * P + pair[None, :]) * 2
    known = (pair < P)[None, :]
    return tl.load(turns + place, mask=known, other=1.0), tl.load(turns + place + 1, mask=known, other=0.0)


@jit
def turned(x_TK, cosine_TP, sine_TP):
    """Neighbouring entries turned, rounded as they were."""
    a_TP, b_TP = tl.split(tl.reshape(x_TK.to(tl.float32), (cosine_TP.shape[0], cosine_TP.shape[1], 2)))
    pairs = tl.join(a_TP * cosine_TP - b_TP * sine_TP, a_TP * sine_TP + b_TP * cosine_TP)
    return tl.reshape(pairs, x_TK.shape).to(x_TK.dtype)


@jit
def turned_back(x_TK, turns, row, t_T, length, P: tl.constexpr, K: tl.constexpr):
    """Undoes the turns of a block of tokens."""
    cosine_TP, sine_TP = turns_of(turns, row, t_T, length, P, K)
    return turned(x_TK, cosine_TP, -sine_TP)


@jit
def masked_logits(
    q_TK, k_SK, t_T, s_S, segment_T, segment_S, table, row, column, window, table_at, line_at, head_at, scale
):  # fmt: skip
    """Scaled products plus biases by distance, of the row and of the column; minus infinity for what is not seen.

    Of the head that is computed: `table_at` is where its table begins, `line_at` its biases of rows and columns,
    `head_at` its window.
    """
    logits_TS = tl.dot(q_TK, tl.trans(k_SK), input_precision="tf32x3") * scale
    distance_TS = t_T[:, None] - s_S[None, :]
    if table is not None:
        logits_TS += tl.load(table + table_at + distance_TS, mask=distance_TS >= 0, other=0.0)
    if row is not None:
        # Added up first: the two may be large, and close to one another but for the sign.
        if column is None:
            logits_TS += tl.load(row + line_at + t_T)[:, None] - tl.load(row + line_at + s_S)[None, :]
        else:
            logits_TS += tl.load(row + line_at + t_T)[:, None] + tl.load(column + line_at + s_S)[None, :]
    seen_TS = (distance_TS >= 0) & (segment_T[:, None] == segment_S[None, :])
    if window is not None:
        seen_TS &= distance_TS < tl.load(window + head_at)
    return tl.where(seen_TS, logits_TS, float("-inf"))


@jit
def weights_of(logits_TS, sink, head_at, PROGRAM: tl.constexpr):
    """Logits of whole rows to weights, by the program of a normaliser: see `attention.PROGRAMS`."""
    if PROGRAM == 1:  # 1.5-entmax
        half_TS = logits_TS * 0.5
        half_TS -= tl.max(half_TS, 1)[:, None]
        # Newton's method for the tau at which weights sum to one: the sum is convex and falls, so from the left every
        # step stays left of tau. It halves what is missing at first, and doubles the digits then.
        tau_T = tl.full((logits_TS.shape[0],), -1.0, tl.float32)
        for _ in range(12):
            above_TS = tl.maximum(half_TS - tau_T[:, None], 0.0)
            tau_T += (tl.sum(above_TS * above_TS, 1) - 1.0) / (2.0 * tl.sum(above_TS, 1))
        above_TS = tl.maximum(half_TS - tau_T[:, None], 0.0)
        weights_TS = above_TS * above_TS
    elif PROGRAM == 2:  # stick-breaking: a key takes its share of what keys between it and the query have left
        left_TS = log_sigmoid(-logits_TS)
        after_TS = tl.cumsum(left_TS, 1, reverse=True) - left_TS
        weights_TS = tl.exp(log_sigmoid(logits_TS) + after_TS)
    else:
        highest_T = tl.max(logits_TS, 1)
        if sink is not None:
            highest_T = tl.maximum(highest_T, tl.load(sink + head_at))
        raised_TS = tl.exp(logits_TS - highest_T[:, None])
        total_T = tl.sum(raised_TS, 1)
        if sink is not None:
            total_T += tl.exp(tl.load(sink + head_at) - highest_T)
        weights_TS = raised_TS / total_T[:, None]
    return weights_TS


@jit
def gradient_of_logits(logits_TS, weights_TS, dweights_TS, PROGRAM: tl.constexpr):
    """The gradient of `weights_of`."""
    if PROGRAM == 1:
        slope_TS = tl.sqrt(weights_TS)
        mean_T = tl.sum(slope_TS * dweights_TS, 1) / tl.sum(slope_TS, 1)
        dlogits_TS = slope_TS * (dweights_TS - mean_T[:, None])
    elif PROGRAM == 2:
        share_TS = weights_TS * dweights_TS
        before_TS = tl.cumsum(share_TS, 1) - share_TS
        taken_TS = tl.exp(log_sigmoid(logits_TS))
        dlogits_TS = share_TS * (1.0 - taken_TS) - taken_TS * before_TS
    else:
        dlogits_TS = weights_TS * (dweights_TS - tl.sum(weights_TS * dweights_TS, 1)[:, None])
    return dlogits_TS


@jit
def log_sigmoid(x):
    """Also of infinities."""
    return tl.minimum(x, 0.0) - tl.log(1.0 + tl.exp(-tl.abs(x)))


@jit
def first_block(first, window, B: tl.constexpr):
    """Where the first block of keys begins that the first query of a block sees through a window."""
    return tl.maximum(first - window + 1, 0) // B * B


@jit
def by_distance(x_TS, T: tl.constexpr):
    """Sums of a square block by t - s: for distances 0..T-1, and for distances -T..-1 (its first place is 0)."""
    t_T = tl.arange(0, T)
    skewed_TT = tl.gather(x_TS, (t_T[:, None] - t_T[None, :]) & (T - 1), 1)
    below_TT = t_T[:, None] >= t_T[None, :]
    return tl.sum(tl.where(below_TT, skewed_TT, 0.0), 0), tl.sum(tl.where(below_TT, 0.0, skewed_TT), 0)
