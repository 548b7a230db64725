"""From products of queries and keys to weights, and back: what the attention kernels share.

Shape letters as in `attention`.
"""

from __future__ import annotations

from lengthwise.kernels.parts import jit, tl


@jit
def own_keys(t_T, s_S, segment_T, segment_S):
    """Whether a key is of the query's sequence and no later."""
    return (t_T[:, None] >= s_S[None, :]) & (segment_T[:, None] == segment_S[None, :])


@jit
def biased(
    content_TS, t_T, s_S, own_TS, scale, factor, table, row, column, grid, place,
    table_at, line_at, grid_at, place_at, SIDE,
):  # fmt: skip
    """Products scaled, by a number and by one of the query, plus biases: by distance, of the row and of the column, by
    both positions.

    Of the head that is computed: `table_at` is where its table begins, `line_at` its numbers of queries and keys,
    `grid_at` its biases by position, which have `SIDE` rows; `place_at` is where the positions of its row begin.
    """
    logits_TS = content_TS * scale
    if factor is not None:
        logits_TS *= tl.load(factor + line_at + t_T)[:, None]
    if table is not None:
        distance_TS = t_T[:, None] - s_S[None, :]
        logits_TS += tl.load(table + table_at + distance_TS, mask=distance_TS >= 0, other=0.0)
    if row is not None:
        # Added up first: the two may be large, and close to one another but for the sign.
        if column is None:
            logits_TS += tl.load(row + line_at + t_T)[:, None] - tl.load(row + line_at + s_S)[None, :]
        else:
            logits_TS += tl.load(row + line_at + t_T)[:, None] + tl.load(column + line_at + s_S)[None, :]
    if grid is not None:
        place_T, place_S = tl.load(place + place_at + t_T), tl.load(place + place_at + s_S)
        at_TS = place_T[:, None] * SIDE + place_S[None, :]
        logits_TS += tl.load(grid + grid_at + at_TS, mask=own_TS, other=0.0)
    return logits_TS


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
