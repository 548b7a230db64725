"""Fused causal attention for rows too long for one program: the flash algorithm, block by block.

Shape letters as in `attention`; here T is a block of queries, S a block of keys, and L the length of a row. Weights are
rounded before their sum divides them, which in bf16 moves the last bit.
"""

from typing import Any

import torch
from torch import Tensor

from lengthwise.kernels.attention_parts import Gradients, How, Parts, pair_sizes, split, strides, sum_out
from lengthwise.kernels.grid_sums import sum_by_position
from lengthwise.kernels.logits import biased, by_distance, first_block, own_keys
from lengthwise.kernels.parts import jit, kept, tl
from lengthwise.kernels.rotation import (
    entry_order,
    gradient_of_angles,
    store_of_pairs,
    turned,
    turned_back,
    turns_of,
)


def run_forward(joined: Tensor, segments: Tensor, parts: Parts, out: Tensor, lse: Tensor, how: How) -> None:
    """Writes the output and the logarithm of each softmax's denominator."""
    q, k, v = split(_turned_first(joined, parts, how))
    scale, threshold, inverse = how[:3]
    N, R, L, H, K = v.shape
    B = _block(v)
    biases = (*parts.read[:1], *parts.read[2:-4])  # they have been turned
    _forward[L // B * H, R, N](
        *(q, k, v, segments, *biases, out, lse, *strides(v, segments, parts.table_NHT)),
        *(scale, threshold, inverse, L, H, K, B),
        num_warps=4,
    )


def run_backward(
    joined: Tensor,
    segments: Tensor,
    parts: Parts,
    grad: Tensor,
    out: Tensor,
    lse: Tensor,
    found: Gradients,
    how: How,
) -> Gradients:
    """Writes the gradients, and returns them. `out` and `lse`: what the forward pass wrote."""
    scale, threshold, inverse, _, halves = how
    q, k, v = split(_turned_first(joined, parts, how))
    dq, dk, dv = split(found.joined)
    N, R, L, H, K = v.shape
    B = _block(v)
    new: Any = lambda *shape: lse.new_empty(shape)  # noqa: E731
    delta = new(*lse.shape)
    # A block of queries knows no distance beyond its last token: those places stay 0.
    dtable = None if parts.table_NHT is None else lse.new_zeros((N, R, H, L // B, L))
    dsink = None if parts.sink_NH is None else new(N, R, H, L // B)
    own = parts.column_NRHT is None
    drow = None if own else found.where("row", parts)
    dcolumn = found.where("row" if own else "column", parts)
    dlogits = found.where("given", parts)
    if parts.grid_NHTT is not None:
        dlogits = new(N, R, H, L, L)
    if dlogits is not None:
        dlogits.zero_()  # blocks that no query sees are never visited
    dangles = found.where("angles", parts)
    key_angles = None if dangles is None else torch.empty_like(dangles)
    grid = (L // B * H, R, N)
    where = (*strides(v, segments, parts.table_NHT), *grad.stride()[:4])
    shapes = (scale, threshold, inverse, L, halves, *pair_sizes(parts), joined.shape[3], H, K, B)
    inputs = (q, k, v, segments, *parts.read[:-4], grad)
    factor = found.where("factor", parts)
    _backward_queries[grid](
        *(*inputs, out.contiguous(), lse, delta, dq, dtable, drow, dsink, factor, dangles, dlogits, *where, *shapes),
        num_warps=4,
    )
    _backward_keys[grid](*(*inputs, lse, delta, dk, dv, dcolumn, key_angles, *where, *shapes), num_warps=4)
    if dangles is not None and key_angles is not None:
        dangles += key_angles
    sum_out(dtable, (1, 3), found.table)
    sum_out(dsink, (1, 3), found.sink)
    if parts.grid_NHTT is not None:
        assert dlogits is not None and parts.place_NRT is not None
        found = found._replace(grid=sum_by_position(dlogits, segments, parts.place_NRT))
    return found


def _block(q: Tensor) -> int:
    """An fp32 product is three of the tensor cores': a large block of them overflows the registers."""
    return 64 if q.dtype == torch.bfloat16 else 32


def _turned_first(joined: Tensor, parts: Parts, how: How) -> Tensor:
    """Queries and keys turned, values as they are: every block of queries meets every block of keys before it, and
    turning those anew each time would take longer than the products."""
    if parts.turns_NRTGPC is None:
        return joined
    N, R, L, _, H, K = joined.shape
    B = _block(joined)
    out = torch.empty_like(joined, memory_format=torch.contiguous_format)
    sizes = (how[-1], *pair_sizes(parts), H, K, B)
    _turn[L // B * H, R, N](joined, parts.turns_NRTGPC, out, *joined.stride()[:5], L, *sizes, num_warps=4)
    return out


@jit
def _turn(
    joined, turns, out,
    joined_N, joined_R, joined_T, joined_X, joined_H, L, HALVES: tl.constexpr,
    G: tl.constexpr, P: tl.constexpr, C: tl.constexpr, H: tl.constexpr, K: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """Entries of a pair come to lie side by side; the order of entries is the same for queries and keys."""
    h, r, n = tl.program_id(0) % H, tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    t_T, c_K = tl.program_id(0) // H * B + tl.arange(0, B), tl.arange(0, K)
    entry_K = entry_order(c_K, P, HALVES)
    row_at = n * tl.num_programs(1) + r
    joined += n * joined_N + r * joined_R + h * joined_H
    out += (row_at * L * 3 * H + h) * K
    place_TK = t_T[:, None] * (3 * H * K) + c_K[None, :]
    for part in tl.static_range(3):
        from_K = entry_K if part < 2 else c_K
        x_TK = tl.load(joined + part * joined_X + t_T[:, None] * joined_T + from_K[None, :])
        if part < 2:
            cosine_TP, sine_TP = turns_of(turns, row_at * L + t_T, h, part == 1, G, P, C, K)
            x_TK = turned(x_TK, cosine_TP, sine_TP)
        tl.store(out + part * H * K + place_TK, x_TK)


@jit
def _place(table_N, table_H, H: tl.constexpr, B: tl.constexpr):
    """Head, row and model of a program, its first token, and the numbers of its row and of its heads among all; where
    the head's biases by distance begin."""
    h, r, n = tl.program_id(0) % H, tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    row_at = n * tl.num_programs(1) + r
    return h, r, n, tl.program_id(0) // H * B, row_at, n * H + h, row_at * H + h, n * table_N + h * table_H


@jit
def _logits(
    q_TK, k_SK, t_T, s_S, segment_T, segment_S, table, row, column, window, factor, grid, place, given,
    scale, table_at, line, head_at, row_at, L,
):  # fmt: skip
    """Of a block of queries and one of keys: the products, and the logits, minus infinity for what is not seen."""
    own_TS = own_keys(t_T, s_S, segment_T, segment_S)
    seen_TS = own_TS
    if window is not None:
        seen_TS &= t_T[:, None] - s_S[None, :] < tl.load(window + head_at)
    if given is not None:
        content_TS = tl.load(given + (line * L + t_T[:, None]) * L + s_S[None, :])
        logits_TS = content_TS
    else:
        content_TS = tl.dot(q_TK, tl.trans(k_SK), input_precision="tf32x3")
        logits_TS = biased(
            content_TS, t_T, s_S, own_TS, scale, factor, table, row, column, grid, place,
            table_at, line * L, head_at * L * L, row_at * L, L,
        )  # fmt: skip
    return content_TS, tl.where(seen_TS, logits_TS, float("-inf"))


@jit
def _forward(
    q, k, v, segments, table, key, row, column, window, sink, factor, grid, place, given, out, lse,
    q_N, q_R, q_T, q_H, segments_N, segments_R, table_N, table_H,
    scale, threshold, inverse, L,
    H: tl.constexpr, K: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    h, r, n, first, row_at, head_at, line, table_at = _place(table_N, table_H, H, B)
    t_T, c_K = first + tl.arange(0, B), tl.arange(0, K)
    k += n * q_N + r * q_R + h * q_H
    v += n * q_N + r * q_R + h * q_H
    segments += n * segments_N + r * segments_R
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
        _, logits_TS = _logits(
            q_TK, k_SK, t_T, s_S, segment_T, tl.load(segments + s_S), table, row, column, window, factor, grid, place,
            given, scale, table_at, line, head_at, row_at, L,
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
    place_TK = (row_at * L * H + h) * K + t_T[:, None] * (H * K) + c_K[None, :]
    tl.store(out + place_TK, (mixed_TK / total_T[:, None]).to(q_TK.dtype))
    tl.store(lse + line * L + t_T, highest_T + tl.log(total_T))


@jit
def _backward_queries(
    q, k, v, segments, table, turns, key, row, column, window, sink, factor, grid, place, given, grad, out, lse, delta,
    dq, dtable, drow, dsink, dfactor, dangles, dlogits,
    q_N, q_R, q_T, q_H, segments_N, segments_R, table_N, table_H,
    grad_N, grad_R, grad_T, grad_H, scale, threshold, inverse, L, HALVES: tl.constexpr,
    G: tl.constexpr, P: tl.constexpr, C: tl.constexpr, X: tl.constexpr,
    H: tl.constexpr, K: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """One block of queries: its gradient, its part of the table's, and its `delta` for `_backward_keys`."""
    h, r, n, first, row_at, head_at, line, table_at = _place(table_N, table_H, H, B)
    t_T, c_K, d_T = first + tl.arange(0, B), tl.arange(0, K), tl.arange(0, B)
    k += n * q_N + r * q_R + h * q_H
    v += n * q_N + r * q_R + h * q_H
    segments += n * segments_N + r * segments_R
    q_TK = tl.load(q + n * q_N + r * q_R + h * q_H + t_T[:, None] * q_T + c_K[None, :])
    grad_TK = tl.load(grad + n * grad_N + r * grad_R + h * grad_H + t_T[:, None] * grad_T + c_K[None, :])
    place_TK = (row_at * L * H + h) * K + t_T[:, None] * (H * K) + c_K[None, :]
    delta_T = tl.sum(tl.load(out + place_TK).to(tl.float32) * grad_TK.to(tl.float32), 1)
    tl.store(delta + line * L + t_T, delta_T)
    lse_T = tl.load(lse + line * L + t_T)
    if dsink is not None:  # its value is nothing
        sunk_T = tl.exp(tl.load(sink + head_at) - lse_T) * delta_T
        tl.store(dsink + line * (L // B) + first // B, -tl.sum(sunk_T, 0))
    segment_T = tl.load(segments + t_T)
    if dtable is not None:
        dtable += (line * (L // B) + first // B) * L
    factor_T = tl.full((B,), 1.0, tl.float32)
    if factor is not None:
        factor_T = tl.load(factor + line * L + t_T)
    begin = 0
    if window is not None:
        begin = first_block(first, tl.load(window + head_at), B)
    dq_TK = tl.zeros((B, K), tl.float32)
    carried_T, drow_T = tl.zeros((B,), tl.float32), tl.zeros((B,), tl.float32)
    dfactor_T = tl.zeros((B,), tl.float32)
    for start in range(begin, first + B, B):
        s_S = start + tl.arange(0, B)
        k_SK = tl.load(k + s_S[:, None] * q_T + c_K[None, :])
        v_SK = tl.load(v + s_S[:, None] * q_T + c_K[None, :])
        content_TS, logits_TS = _logits(
            q_TK, k_SK, t_T, s_S, segment_T, tl.load(segments + s_S), table, row, column, window, factor, grid, place,
            given, scale, table_at, line, head_at, row_at, L,
        )  # fmt: skip
        weights_TS = tl.exp(logits_TS - lse_T[:, None])
        dweights_TS = tl.dot(grad_TK, tl.trans(v_SK), input_precision="tf32x3")
        if key is not None:
            kept_TS = kept((r * H + h) * L + t_T, s_S, tl.load(key + n), threshold)
            dweights_TS = tl.where(kept_TS, dweights_TS * inverse, 0.0)
        dlogits_TS = weights_TS * (dweights_TS - delta_T[:, None])
        if dlogits is not None:
            tl.store(dlogits + (line * L + t_T[:, None]) * L + s_S[None, :], dlogits_TS)
        if dtable is not None:
            # The distances of two neighbouring blocks overlap: what lies above this one's diagonal belongs to the
            # distances below the next one's.
            below_T, above_T = by_distance(dlogits_TS, B)
            tl.store(dtable + first - start + d_T, below_T + carried_T)
            carried_T = above_T
        if drow is not None:
            drow_T += tl.sum(dlogits_TS, 1)
        if given is None:
            if factor is not None:
                dfactor_T += tl.sum(dlogits_TS * content_TS, 1)
                dlogits_TS *= factor_T[:, None]
            dq_TK += tl.dot(dlogits_TS.to(q_TK.dtype), k_SK, input_precision="tf32x3")
    if drow is not None:
        tl.store(drow + line * L + t_T, drow_T)
    if given is None:
        if factor is not None:
            tl.store(dfactor + line * L + t_T, dfactor_T * scale)
        dq_TK *= scale
        if turns is not None:
            if dangles is not None:
                store_of_pairs(dangles, gradient_of_angles(q_TK, dq_TK), row_at * L + t_T, h, H, P)
            dq_TK = turned_back(dq_TK, turns, row_at * L + t_T, h, False, G, P, C, K)
        # Of a gradient: queries, keys and values stand side by side.
        entry_K = entry_order(c_K, P, HALVES)
        place_TK = (row_at * L * 3 * H + h) * K + t_T[:, None] * (3 * H * K) + entry_K[None, :]
        tl.store(dq + place_TK, dq_TK.to(q_TK.dtype))


@jit
def _backward_keys(
    q, k, v, segments, table, turns, key, row, column, window, sink, factor, grid, place, given, grad, lse, delta,
    dk, dv, dcolumn, dangles,
    q_N, q_R, q_T, q_H, segments_N, segments_R, table_N, table_H,
    grad_N, grad_R, grad_T, grad_H, scale, threshold, inverse, L, HALVES: tl.constexpr,
    G: tl.constexpr, P: tl.constexpr, C: tl.constexpr, X: tl.constexpr,
    H: tl.constexpr, K: tl.constexpr, B: tl.constexpr,
):  # fmt: skip
    """One block of keys and values: their gradients."""
    h, r, n, first, row_at, head_at, line, table_at = _place(table_N, table_H, H, B)
    s_S, c_K = first + tl.arange(0, B), tl.arange(0, K)
    q += n * q_N + r * q_R + h * q_H
    grad += n * grad_N + r * grad_R + h * grad_H
    segments += n * segments_N + r * segments_R
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
        _, logits_TS = _logits(
            q_TK, k_SK, t_T, s_S, tl.load(segments + t_T), segment_S, table, row, column, window, factor, grid, place,
            given, scale, table_at, line, head_at, row_at, L,
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
        if given is None:
            if factor is not None:
                dlogits_TS *= tl.load(factor + line * L + t_T)[:, None]
            dk_SK += tl.dot(tl.trans(dlogits_TS.to(q_TK.dtype)), q_TK, input_precision="tf32x3")
    if dcolumn is not None:
        tl.store(dcolumn + line * L + s_S, -dcolumn_S if column is None else dcolumn_S)
    place_SK = (row_at * L * X * H + h) * K + s_S[:, None] * (X * H * K)
    tl.store(dv + place_SK + c_K[None, :], dv_SK.to(v_SK.dtype))
    if given is None:
        dk_SK *= scale
        if turns is not None:
            if dangles is not None:
                store_of_pairs(dangles, gradient_of_angles(k_SK, dk_SK), row_at * L + s_S, h, H, P)
            dk_SK = turned_back(dk_SK, turns, row_at * L + s_S, h, True, G, P, C, K)
        entry_K = entry_order(c_K, P, HALVES)
        tl.store(dk + place_SK + entry_K[None, :], dk_SK.to(k_SK.dtype))
