"""Fused causal attention for rows too long for one program: the flash algorithm, block by block.

Shape letters as in `kernel`; here T is a block of queries, S a block of keys, and L the length of a row. Weights are
rounded before their sum divides them, which in bf16 moves the last bit.
"""

from typing import Any

import torch
from torch import Tensor

from lengthwise.kernels.parts import (
    by_distance,
    first_block,
    jit,
    kept,
    masked_logits,
    tl,
    turned,
    turned_back,
    turns_of,
)


def _block(q: Tensor) -> int:
    """An fp32 product is three of the tensor cores': a large block of them overflows the registers."""
    return 64 if q.dtype == torch.bfloat16 else 32


def turned_first(joined: Tensor, turns: Tensor) -> Tensor:
    """Queries and keys turned, values as they are: every block of queries meets every block of keys before it, and
    turning those anew each time would take longer than the products."""
    N, R, L, _, H, K = joined.shape
    B = _block(joined)
    out = torch.empty_like(joined, memory_format=torch.contiguous_format)
    _turn[L // B * H, R, N](joined, turns, out, *joined.stride()[:5], L, turns.shape[3], H, K, B, num_warps=4)
    return out


def forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    segments: Tensor,
    table: Tensor | None,
    key: Tensor | None,
    row: Tensor | None,
    column: Tensor | None,
    window: Tensor | None,
    sink: Tensor | None,
    out: Tensor,
    lse: Tensor,
    strides: tuple[int, ...],
    scale: float,
    drop: tuple[int, float],
) -> None:
    """Writes the output and the logarithm of each softmax's denominator; queries and keys have been rotated."""
    N, R, L, H, K = q.shape
    B = _block(q)
    shapes = (scale, *drop, L, H, K, B)
    inputs = (q, k, v, segments, table, key, row, column, window, sink)
    _forward[L // B * H, R, N](*inputs, out, lse, *strides, *shapes, num_warps=4)


def backward(
    inputs: tuple[Any, ...],
    saved: tuple[Tensor, Tensor],
    gradients: tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None],
    strides: tuple[int, ...],
    scale: float,
    drop: tuple[int, float],
) -> tuple[Tensor | None, Tensor | None]:
    """Writes the gradients of queries, keys, values, rows and columns; returns that of the table for each row of a
    batch, (N, R, H, T), and of the sinks for each block of queries of a row, (N, R, H, blocks).

    `inputs`: q, k, v, segments, table, turns, key, row, column, window, sink, and the gradient of the output. Queries
    and keys have been rotated by `turns`; their gradients are rotated back.
    """
    q, table, turns, sink = inputs[0], inputs[4], inputs[5], inputs[10]
    (out, lse), (dq, dk, dv, drow, dcolumn) = saved, gradients
    N, R, L, H, K = q.shape
    B = _block(q)
    grid = (L // B * H, R, N)
    shapes = (scale, *drop, L, 0 if turns is None else turns.shape[3], H, K, B)
    delta = lse.new_empty(lse.shape)
    # A block of queries knows no distance beyond its last token: those places stay 0.
    part = None if table is None else table.new_zeros((N, R, H, L // B, L))
    dsink = None if sink is None else sink.new_empty((N, R, H, L // B))
    _backward_queries[grid](*inputs, out, lse, delta, dq, part, drow, dsink, *strides, *shapes, num_warps=4)
    _backward_keys[grid](*inputs, lse, delta, dk, dv, dcolumn, *strides, *shapes, num_warps=4)
    return None if part is None else part.sum(3), dsink


@jit
def _turn(
    joined, turns, out,
    joined_N, joined_R, joined_T, joined_X, joined_H, L,
    P: tl.constexpr, H: tl.constexpr, K: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    h, r, n = tl.program_id(0) % H, tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    t_T, c_K = tl.program_id(0) // H * B + tl.arange(0, B), tl.arange(0, K)
    row = n * tl.num_programs(1) + r
    joined += n * joined_N + r * joined_R + h * joined_H
    out += (row * L * 3 * H + h) * K
    cosine_TP, sine_TP = turns_of(turns, row, t_T, L, P, K)
    for part in tl.static_range(3):
        x_TK = tl.load(joined + part * joined_X + t_T[:, None] * joined_T + c_K[None, :])
        if part < 2:
            x_TK = turned(x_TK, cosine_TP, sine_TP)
        tl.store(out + part * H * K + t_T[:, None] * (3 * H * K) + c_K[None, :], x_TK)


@jit
def _forward(
    q, k, v, segments, table, key, row, column, window, sink, out, lse,
    q_N, q_R, q_T, q_H, segments_N, segments_R, table_N, table_H,
    scale, threshold, inverse, L,
    H: tl.constexpr, K: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    h, r, n = tl.program_id(0) % H, tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    first = tl.program_id(0) // H * B
    t_T, c_K = first + tl.arange(0, B), tl.arange(0, K)
    k += n * q_N + r * q_R + h * q_H
    v += n * q_N + r * q_R + h * q_H
    segments += n * segments_N + r * segments_R
    head_at, line = n * H + h, (n * tl.num_programs(1) + r) * H + h
    table_at, line_at = n * table_N + h * table_H, line * L
    q_TK = tl.load(q + n * q_N + r * q_R + h * q_H + t_T[:, None] * q_T + c_K[None, :])
    segment_T = tl.load(segments + t_T)
    begin = 0
    if window is not None:
        begin = first_block(first, tl.load(window + head_at), B)
    # A finite start: a block without a single visible key must not subtract infinities.
    highest_T = tl.full((B,), -1e30, tl.float32)
    if sink is not None:
        highest_T = tl.maximum(highest_T, tl.load(sink + head_at))
    total_T = tl.zeros((B,), tl.float32)
    mixed_TK = tl.zeros((B, K), tl.float32)
    for start in range(begin, first + B, B):
        s_S = start + tl.arange(0, B)
        k_SK = tl.load(k + s_S[:, None] * q_T + c_K[None, :])
        logits_TS = masked_logits(
            q_TK, k_SK, t_T, s_S, segment_T, tl.load(segments + s_S), table, row, column, window,
            table_at, line_at, head_at, scale,
        )  # fmt: skip
        higher_T = tl.maximum(highest_T, tl.max(logits_TS, 1))
        shrink_T = tl.exp(highest_T - higher_T)
        weights_TS = tl.exp(logits_TS - higher_T[:, None])
        total_T = total_T * shrink_T + tl.sum(weights_TS, 1)
        if key is not None:
            kept_TS = kept((r * H + h) * L + t_T, s_S, tl.load(key + n), threshold)
            weights_TS = tl.where(kept_TS, weights_TS * inverse, 0.0)
        v_SK = tl.load(v + s_S[:, None] * q_T + c_K[None, :])
        mixed_TK = mixed_TK * shrink_T[:, None]
        mixed_TK += tl.dot(weights_TS.to(v_SK.dtype), v_SK, input_precision="tf32x3")
        highest_T = higher_T
    if sink is not None:
        total_T += tl.exp(tl.load(sink + head_at) - highest_T)
    place_TK = ((n * tl.num_programs(1) + r) * L * H + h) * K + t_T[:, None] * (H * K) + c_K[None, :]
    tl.store(out + place_TK, (mixed_TK / total_T[:, None]).to(q_TK.dtype))
    tl.store(lse + line * L + t_T, highest_T + tl.log(total_T))


@jit
def _backward_queries(
    q, k, v, segments, table, turns, key, row, column, window, sink, grad, out, lse, delta, dq, part, drow, dsink,
    q_N, q_R, q_T, q_H, segments_N, segments_R, table_N, table_H,
    grad_N, grad_R, grad_T, grad_H, scale, threshold, inverse, L,
    P: tl.constexpr, H: tl.constexpr, K: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """One block of queries: its gradient, its part of the table's, and its `delta` for `_backward_keys`."""
    h, r, n = tl.program_id(0) % H, tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    first = tl.program_id(0) // H * B
    t_T, c_K, d_T = first + tl.arange(0, B), tl.arange(0, K), tl.arange(0, B)
    k += n * q_N + r * q_R + h * q_H
    v += n * q_N + r * q_R + h * q_H
    segments += n * segments_N + r * segments_R
    head_at, line = n * H + h, (n * tl.num_programs(1) + r) * H + h
    table_at, line_at = n * table_N + h * table_H, line * L
    q_TK = tl.load(q + n * q_N + r * q_R + h * q_H + t_T[:, None] * q_T + c_K[None, :])
    grad_TK = tl.load(grad + n * grad_N + r * grad_R + h * grad_H + t_T[:, None] * grad_T + c_K[None, :])
    place_TK = ((n * tl.num_programs(1) + r) * L * H + h) * K + t_T[:, None] * (H * K) + c_K[None, :]
    delta_T = tl.sum(tl.load(out + place_TK).to(tl.float32) * grad_TK.to(tl.float32), 1)
    tl.store(delta + line * L + t_T, delta_T)
    lse_T = tl.load(lse + line * L + t_T)
    if dsink is not None:  # its value is nothing
        sunk_T = tl.exp(tl.load(sink + head_at) - lse_T) * delta_T
        tl.store(dsink + line * (L // B) + first // B, -tl.sum(sunk_T, 0))
    segment_T = tl.load(segments + t_T)
    if part is not None:
        part += (line * (L // B) + first // B) * L
    begin = 0
    if window is not None:
        begin = first_block(first, tl.load(window + head_at), B)
    dq_TK = tl.zeros((B, K), tl.float32)
    carried_T, drow_T = tl.zeros((B,), tl.float32), tl.zeros((B,), tl.float32)
    for start in range(begin, first + B, B):
        s_S = start + tl.arange(0, B)
        k_SK = tl.load(k + s_S[:, None] * q_T + c_K[None, :])
        v_SK = tl.load(v + s_S[:, None] * q_T + c_K[None, :])
        logits_TS = masked_logits(
            q_TK, k_SK, t_T, s_S, segment_T, tl.load(segments + s_S), table, row, column, window,
            table_at, line_at, head_at, scale,
        )  # fmt: skip
        weights_TS = tl.exp(logits_TS - lse_T[:, None])
        dweights_TS = tl.dot(grad_TK, tl.trans(v_SK), input_precision="tf32x3")
        if key is not None:
            kept_TS = kept((r * H + h) * L + t_T, s_S, tl.load(key + n), threshold)
            dweights_TS = tl.where(kept_TS, dweights_TS * inverse, 0.0)
        dlogits_TS = weights_TS * (dweights_TS - delta_T[:, None])
        if part is not None:
            # The distances of two neighbouring blocks overlap: what lies above this one's diagonal belongs to the
            # distances below the next one's.
            below_T, above_T = by_distance(dlogits_TS, B)
            tl.store(part + first - start + d_T, below_T + carried_T)
            carried_T = above_T
        if drow is not None:
            drow_T += tl.sum(dlogits_TS, 1)
        dq_TK += tl.dot(dlogits_TS.to(q_TK.dtype), k_SK, input_precision="tf32x3")
    if drow is not None:
        tl.store(drow + line * L + t_T, drow_T)
    if turns is not None:  # back
        dq_TK = turned_back(dq_TK, turns, n * tl.num_programs(1) + r, t_T, L, P, K)
    # Of a gradient: queries, keys and values stand side by side.
    place_TK = ((n * tl.num_programs(1) + r) * L * 3 * H + h) * K + t_T[:, None] * (3 * H * K) + c_K[None, :]
    tl.store(dq + place_TK, (dq_TK * scale).to(q_TK.dtype))


@jit
def _backward_keys(
    q, k, v, segments, table, turns, key, row, column, window, sink, grad, lse, delta, dk, dv, dcolumn,
    q_N, q_R, q_T, q_H, segments_N, segments_R, table_N, table_H,
    grad_N, grad_R, grad_T, grad_H, scale, threshold, inverse, L,
    P: tl.constexpr, H: tl.constexpr, K: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """One block of keys and values: their gradients."""
    h, r, n = tl.program_id(0) % H, tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    first = tl.program_id(0) // H * B
    s_S, c_K = first + tl.arange(0, B), tl.arange(0, K)
    q += n * q_N + r * q_R + h * q_H
    grad += n * grad_N + r * grad_R + h * grad_H
    segments += n * segments_N + r * segments_R
    head_at, line = n * H + h, (n * tl.num_programs(1) + r) * H + h
    table_at, line_at = n * table_N + h * table_H, line * L
    k_SK = tl.load(k + n * q_N + r * q_R + h * q_H + s_S[:, None] * q_T + c_K[None, :])
    v_SK = tl.load(v + n * q_N + r * q_R + h * q_H + s_S[:, None] * q_T + c_K[None, :])
    segment_S = tl.load(segments + s_S)
    end = L
    if window is not None:
        # The last query that sees the last of these keys.
        end = tl.minimum(L, ((first + B - 1 + tl.load(window + head_at) - 1) // B + 1) * B)
    dk_SK = tl.zeros((B, K), tl.float32)
    dv_SK = tl.zeros((B, K), tl.float32)
    dcolumn_S = tl.zeros((B,), tl.float32)
    for start in range(first, end, B):
        t_T = start + tl.arange(0, B)
        q_TK = tl.load(q + t_T[:, None] * q_T + c_K[None, :])
        grad_TK = tl.load(grad + t_T[:, None] * grad_T + c_K[None, :])
        logits_TS = masked_logits(
            q_TK, k_SK, t_T, s_S, tl.load(segments + t_T), segment_S, table, row, column, window,
            table_at, line_at, head_at, scale,
        )  # fmt: skip
        weights_TS = tl.exp(logits_TS - tl.load(lse + line * L + t_T)[:, None])
        dweights_TS = tl.dot(grad_TK, tl.trans(v_SK), input_precision="tf32x3")
        dropped_TS = weights_TS
        if key is not None:
            kept_TS = kept((r * H + h) * L + t_T, s_S, tl.load(key + n), threshold)
            dropped_TS = tl.where(kept_TS, weights_TS * inverse, 0.0)
            dweights_TS = tl.where(kept_TS, dweights_TS * inverse, 0.0)
        dv_SK += tl.dot(tl.trans(dropped_TS.to(v_SK.dtype)), grad_TK, input_precision="tf32x3")
        dlogits_TS = weights_TS * (dweights_TS - tl.load(delta + line * L + t_T)[:, None])
        if dcolumn is not None:
            dcolumn_S += tl.sum(dlogits_TS, 0)
        dk_SK += tl.dot(tl.trans(dlogits_TS.to(q_TK.dtype)), q_TK, input_precision="tf32x3")
    if dcolumn is not None:
        tl.store(dcolumn + line * L + s_S, -dcolumn_S if column is None else dcolumn_S)
    if turns is not None:  # back
        dk_SK = turned_back(dk_SK, turns, n * tl.num_programs(1) + r, s_S, L, P, K)
    place_SK = ((n * tl.num_programs(1) + r) * L * 3 * H + h) * K + s_S[:, None] * (3 * H * K) + c_K[None, :]
    tl.store(dk + place_SK, (dk_SK * scale).to(k_SK.dtype))
    tl.store(dv + place_SK, dv_SK.to(v_SK.dtype))
