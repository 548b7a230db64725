"""Fused causal attention for rows that one program holds whole: forwards, and backwards from the inputs alone.

Shape letters as in `attention`. A row that is held whole may have more than a softmax of products: other normalisers,
positions counted by gates, reflections, magnitudes and phases.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lengthwise.kernels.attention_parts import Gradients, How, Parts, pair_sizes, split, strides, sum_out
from lengthwise.kernels.counted_gates import count_gates, found_between, gradient_of_gates, gradient_of_scores
from lengthwise.kernels.grid_sums import sum_by_position
from lengthwise.kernels.logits import biased, by_distance, gradient_of_logits, own_keys, weights_of
from lengthwise.kernels.parts import jit, kept, tl
from lengthwise.kernels.polar import (
    gradient_of_entries,
    gradient_of_phases,
    phases_of,
    real_and_imaginary,
    shifted,
)
from lengthwise.kernels.reflections import gradients_of_reflections, reflect
from lengthwise.kernels.rotation import (
    entry_order,
    gradient_of_angles,
    store_of_pairs,
    turned,
    turned_back,
    turns_of,
)


def run_forward(joined: Tensor, segments: Tensor, parts: Parts, out: Tensor, how: How) -> None:
    q, k, v = split(joined)
    N, R, T, H, K = v.shape
    _forward[H, R, N](
        *(q, k, v, segments, *parts.read, out, *strides(v, segments, parts.table_NHT)),
        *(*how, *_vectors(parts), *pair_sizes(parts), H, T, K, _precision(v)),
        num_warps=_warps(v, parts),
    )


def run_backward(joined: Tensor, segments: Tensor, parts: Parts, grad: Tensor, found: Gradients, how: How) -> Gradients:
    """Writes the gradients, and returns them."""
    q, k, v = split(joined)
    dq, dk, dv = split(found.joined)
    N, R, T, H, K = v.shape
    new: Any = lambda *shape: grad.new_empty(shape, dtype=torch.float32)  # noqa: E731
    dtable = None if parts.table_NHT is None else new(N, R, H, T)
    dsink = None if parts.sink_NH is None else new(N, R, H)
    drows = None if parts.rows_NEK is None else new(N, R, H, *parts.rows_NEK.shape[1:])
    doffset = None if parts.offset_NHK is None else new(N, R, H, K)
    # A softmax does not notice what a whole row shares: all of the gradient of `row` comes by way of the keys then.
    own = parts.column_NRHT is None
    drow = None if own else found.where("row", parts)
    dcolumn = found.where("row" if own else "column", parts)
    dlogits = found.where("given", parts) if parts.grid_NHTT is None else new(N, R, H, T, T)
    others = (found.where(name, parts) for name in ("factor", "angles"))
    reflected = (found.where(name, parts) for name in ("vectors", "strength"))
    _backward[H, R, N](
        *(q, k, v, segments, *parts.read, grad, dq, dk, dv, dtable, drow, dcolumn, dsink, *others, dlogits, drows),
        *(doffset, *reflected, *strides(v, segments, parts.table_NHT), *grad.stride()[:4]),
        *(*how, *_vectors(parts), *pair_sizes(parts), joined.shape[3], H, T, K, _precision(v)),
        num_warps=_warps(v, parts),
    )
    sum_out(dtable, 1, found.table)
    sum_out(dsink, 1, found.sink)
    sum_out(drows, (1, 2), found.rows)
    sum_out(doffset, 1, found.offset)
    if parts.grid_NHTT is not None:
        assert dlogits is not None and parts.place_NRT is not None
        found = found._replace(grid=sum_by_position(dlogits, segments, parts.place_NRT))
    return found


def _vectors(parts: Parts) -> tuple[int, int]:
    """The last row of the table of vectors, and as many as a product has at least."""
    if parts.rows_NEK is None:
        return 0, 0
    rows = parts.rows_NEK.shape[1]
    return rows - 1, max(16, 1 << (rows - 1).bit_length())


def _precision(v_NRTHK: Tensor) -> str:
    return "tf32" if v_NRTHK.dtype == torch.bfloat16 else "tf32x3"


def _warps(v_NRTHK: Tensor, parts: Parts) -> int:
    exact = v_NRTHK.dtype == torch.float32
    if exact and (parts.rows_NEK is not None or parts.vectors_NRTHK is not None):
        return 4  # with more, Triton 3.6 reads shared memory that is not there, or that is wrong
    warps = v_NRTHK.shape[2] // (8 if exact else 16)
    return warps if parts.vectors_NRTHK is None else max(4, 2 * warps)


@jit
def _row(
    q, k, v, segments, table, turns, row, column, window, factor, grid, place, given, rows, vectors, strength,
    offset, q_N, q_R, q_T, q_H, segments_N, segments_R, table_N, table_H,
    scale, HALVES: tl.constexpr, LAST: tl.constexpr, E: tl.constexpr,
    G: tl.constexpr, P: tl.constexpr, C: tl.constexpr,
    H: tl.constexpr, T: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """Of a row and a head: values, logits (minus infinity for what is not seen), and what they were made of, for the
    backward pass: nothing of parts that are not there."""
    h, r, n = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    t_T, c_K = tl.arange(0, T), tl.arange(0, K)
    row_at = n * tl.num_programs(1) + r
    head_at, line, token_T = n * H + h, row_at * H + h, row_at * T + t_T
    q_at = n * q_N + r * q_R + h * q_H
    v_TK = tl.load(v + q_at + t_T[:, None] * q_T + c_K[None, :])
    segment_T = tl.load(segments + n * segments_N + r * segments_R + t_T)
    own_TS = own_keys(t_T, t_T, segment_T, segment_T)
    seen_TS = own_TS
    if window is not None:
        seen_TS &= t_T[:, None] - t_T[None, :] < tl.load(window + head_at)
    products, reflection, counting, parted = (), (), (), ()
    if given is not None:
        logits_TS = tl.load(given + (line * T + t_T[:, None]) * T + t_T[None, :])
    else:
        entry_K = entry_order(c_K, P, HALVES)
        q_TK = tl.load(q + q_at + t_T[:, None] * q_T + entry_K[None, :])
        k_TK = tl.load(k + q_at + t_T[:, None] * q_T + entry_K[None, :])
        if offset is not None:
            cosine_TK, sine_TK = phases_of(turns, token_T, c_K, K)
            real_q_TK, imaginary_q_TK = real_and_imaginary(q_TK, cosine_TK, sine_TK)
            cosine_k_TK, sine_k_TK = shifted(cosine_TK, sine_TK, tl.load(offset + head_at * K + c_K))
            real_k_TK, imaginary_k_TK = real_and_imaginary(k_TK, cosine_k_TK, sine_k_TK)
            parted = (real_q_TK, imaginary_q_TK, real_k_TK, imaginary_k_TK)
            content_TS = tl.dot(real_q_TK, tl.trans(real_k_TK), input_precision="tf32x3")
            content_TS += tl.dot(imaginary_q_TK, tl.trans(imaginary_k_TK), input_precision="tf32x3")
        else:
            if turns is not None:
                cosine_TP, sine_TP = turns_of(turns, token_T, h, False, G, P, C, K)
                q_TK = turned(q_TK, cosine_TP, sine_TP)
                if C == 4:
                    cosine_TP, sine_TP = turns_of(turns, token_T, h, True, G, P, C, K)
                k_TK = turned(k_TK, cosine_TP, sine_TP)
            content_TS = tl.dot(q_TK, tl.trans(k_TK), input_precision="tf32x3")
        if vectors is not None:
            w_TK = tl.load(vectors + (token_T[:, None] * H + h) * K + entry_K[None, :])
            strength_T = tl.load(strength + line * T + t_T)
            before_TS = own_TS & (t_T[:, None] != t_T[None, :])
            system = reflect(q_TK, k_TK, w_TK, strength_T, own_TS, before_TS, T, PRECISION)
            reflection = (w_TK, strength_T, own_TS, before_TS, system)
            content_TS -= tl.dot(system[4], system[3], input_precision=PRECISION)
        products = (entry_K, q_TK, k_TK, content_TS)
        logits_TS = biased(
            content_TS, t_T, t_T, own_TS, scale, factor, table, row, column, grid, place,
            n * table_N + h * table_H, line * T, head_at * T * T, row_at * T, T,
        )  # fmt: skip
        if rows is not None:
            e_E = tl.arange(0, E)
            place_EK = (n * (LAST + 1) + e_E[:, None]) * K + entry_K[None, :]
            row_EK = tl.load(rows + place_EK, mask=(e_E <= LAST)[:, None], other=0.0)
            score_TE = tl.dot(q_TK, tl.trans(row_EK), input_precision="tf32x3")
            gate_TS, position_TS, low_TS, high_TS = count_gates(logits_TS, seen_TS, score_TE, LAST)
            counting = (row_EK, gate_TS, position_TS, low_TS, high_TS)
            logits_TS += found_between(position_TS, low_TS, high_TS)
    return v_TK, tl.where(seen_TS, logits_TS, float("-inf")), products, reflection, counting, parted


@jit
def _forward(
    q, k, v, segments, table, turns, key, row, column, window, sink, factor, grid, place, given, rows, vectors,
    strength, offset, out,
    q_N, q_R, q_T, q_H, segments_N, segments_R, table_N, table_H,
    scale, threshold, inverse, PROGRAM: tl.constexpr, HALVES: tl.constexpr, LAST: tl.constexpr, E: tl.constexpr,
    G: tl.constexpr, P: tl.constexpr, C: tl.constexpr,
    H: tl.constexpr, T: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    v_TK, logits_TS, _, _, _, _ = _row(
        q, k, v, segments, table, turns, row, column, window, factor, grid, place, given, rows, vectors, strength,
        offset, q_N, q_R, q_T, q_H, segments_N, segments_R, table_N, table_H,
        scale, HALVES, LAST, E, G, P, C, H, T, K, PRECISION,
    )  # fmt: skip
    h, r, n = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    t_T, c_K = tl.arange(0, T), tl.arange(0, K)
    weights_TS = weights_of(logits_TS, sink, n * H + h, PROGRAM)
    if key is not None:
        kept_TS = kept((r * H + h) * T + t_T, t_T, tl.load(key + n), threshold)
        weights_TS = tl.where(kept_TS, weights_TS * inverse, 0.0)
    mixed_TK = tl.dot(weights_TS.to(v_TK.dtype), v_TK, input_precision="tf32x3")
    place_TK = ((n * tl.num_programs(1) + r) * T * H + h) * K + t_T[:, None] * (H * K) + c_K[None, :]
    tl.store(out + place_TK, mixed_TK.to(v_TK.dtype))


@jit
def _backward(
    q, k, v, segments, table, turns, key, row, column, window, sink, factor, grid, place, given, rows, vectors,
    strength, offset,
    grad, dq, dk, dv, dtable, drow, dcolumn, dsink, dfactor, dangles, dlogits, drows, doffset, dvectors, dstrength,
    q_N, q_R, q_T, q_H, segments_N, segments_R, table_N, table_H, grad_N, grad_R, grad_T, grad_H,
    scale, threshold, inverse, PROGRAM: tl.constexpr, HALVES: tl.constexpr, LAST: tl.constexpr, E: tl.constexpr,
    G: tl.constexpr, P: tl.constexpr, C: tl.constexpr, X: tl.constexpr,
    H: tl.constexpr, T: tl.constexpr, K: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """`dtable`, `dsink`, `drows` and `doffset` of this row and head alone; `dlogits` for a map that was given, or for
    the grid."""
    v_TK, logits_TS, products, reflection, counting, parted = _row(
        q, k, v, segments, table, turns, row, column, window, factor, grid, place, given, rows, vectors, strength,
        offset, q_N, q_R, q_T, q_H, segments_N, segments_R, table_N, table_H,
        scale, HALVES, LAST, E, G, P, C, H, T, K, PRECISION,
    )  # fmt: skip
    h, r, n = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    t_T, c_K = tl.arange(0, T), tl.arange(0, K)
    row_at = n * tl.num_programs(1) + r
    line, token_T = row_at * H + h, row_at * T + t_T
    grad_TK = tl.load(grad + n * grad_N + r * grad_R + h * grad_H + t_T[:, None] * grad_T + c_K[None, :])
    weights_TS = weights_of(logits_TS, sink, n * H + h, PROGRAM)
    dweights_TS = tl.dot(grad_TK, tl.trans(v_TK), input_precision="tf32x3")
    dropped_TS = weights_TS
    if key is not None:
        kept_TS = kept((r * H + h) * T + t_T, t_T, tl.load(key + n), threshold)
        dropped_TS = tl.where(kept_TS, weights_TS * inverse, 0.0)
        dweights_TS = tl.where(kept_TS, dweights_TS * inverse, 0.0)
    # Of a gradient: queries, keys and values stand side by side, or values alone.
    place_TK = (row_at * T * X * H + h) * K + t_T[:, None] * (X * H * K)
    dv_TK = tl.dot(tl.trans(dropped_TS.to(v_TK.dtype)), grad_TK, input_precision="tf32x3")
    tl.store(dv + place_TK + c_K[None, :], dv_TK.to(v_TK.dtype))
    dlogits_TS = gradient_of_logits(logits_TS, weights_TS, dweights_TS, PROGRAM)
    if dsink is not None:  # its weight is what those of the keys leave, its value is nothing
        sunk_T = (1.0 - tl.sum(weights_TS, 1)) * tl.sum(weights_TS * dweights_TS, 1)
        tl.store(dsink + line, -tl.sum(sunk_T, 0))
    if rows is not None:
        _, gate_TS, position_TS, low_TS, high_TS = counting
        dscore_TE = gradient_of_scores(position_TS, dlogits_TS, E, LAST)
        dlogits_TS += gradient_of_gates(gate_TS, low_TS, high_TS, dlogits_TS)
    if dlogits is not None:
        tl.store(dlogits + (line * T + t_T[:, None]) * T + t_T[None, :], dlogits_TS)
    if given is None:
        entry_K, q_TK, k_TK, content_TS = products
        line_T = line * T + t_T
        if dtable is not None:
            sums_T, _ = by_distance(dlogits_TS, T)
            tl.store(dtable + line_T, sums_T)
        if drow is not None:
            tl.store(drow + line_T, tl.sum(dlogits_TS, 1))
        if dcolumn is not None:
            dcolumn_T = tl.sum(dlogits_TS, 0)
            tl.store(dcolumn + line_T, -dcolumn_T if column is None else dcolumn_T)
        if factor is not None:
            tl.store(dfactor + line_T, tl.sum(dlogits_TS * content_TS, 1) * scale)
            dlogits_TS *= tl.load(factor + line_T)[:, None]
        rounded_TS = dlogits_TS.to(q_TK.dtype)
        if offset is not None:
            real_q_TK, imaginary_q_TK, real_k_TK, imaginary_k_TK = parted
            cosine_TK, sine_TK = phases_of(turns, token_T, c_K, K)
            dreal_TK = tl.dot(rounded_TS, real_k_TK, input_precision="tf32x3") * scale
            dimaginary_TK = tl.dot(rounded_TS, imaginary_k_TK, input_precision="tf32x3") * scale
            dq_TK = gradient_of_entries(q_TK, dreal_TK, dimaginary_TK, cosine_TK, sine_TK)
            dreal_TK = tl.dot(tl.trans(rounded_TS), real_q_TK, input_precision="tf32x3") * scale
            dimaginary_TK = tl.dot(tl.trans(rounded_TS), imaginary_q_TK, input_precision="tf32x3") * scale
            cosine_TK, sine_TK = shifted(cosine_TK, sine_TK, tl.load(offset + (n * H + h) * K + c_K))
            dk_TK = gradient_of_entries(k_TK, dreal_TK, dimaginary_TK, cosine_TK, sine_TK)
            doffset_K = gradient_of_phases(real_k_TK, imaginary_k_TK, dreal_TK, dimaginary_TK)
            tl.store(doffset + line * K + c_K, doffset_K)
        else:
            dq_TK = tl.dot(rounded_TS, k_TK, input_precision="tf32x3") * scale
            dk_TK = tl.dot(tl.trans(rounded_TS), q_TK, input_precision="tf32x3") * scale
        if vectors is not None:
            w_TK, strength_T, own_TS, before_TS, system = reflection
            more_dq_TK, more_dk_TK, dw_TK, dstrength_T = gradients_of_reflections(
                dlogits_TS * -scale, q_TK, k_TK, w_TK, strength_T, system, own_TS, before_TS, PRECISION
            )
            dq_TK += more_dq_TK
            dk_TK += more_dk_TK
            tl.store(dvectors + (token_T[:, None] * H + h) * K + entry_K[None, :], dw_TK)
            tl.store(dstrength + line_T, dstrength_T)
        if rows is not None:
            rounded_TE = dscore_TE.to(q_TK.dtype)  # pyrefly: ignore[unbound-name]
            dq_TK += tl.dot(rounded_TE, counting[0], input_precision="tf32x3")
            drow_EK = tl.dot(tl.trans(rounded_TE), q_TK, input_precision="tf32x3")
            e_E = tl.arange(0, E)
            place_EK = (line * (LAST + 1) + e_E[:, None]) * K + entry_K[None, :]
            tl.store(drows + place_EK, drow_EK, mask=(e_E <= LAST)[:, None])
        if turns is not None and offset is None:
            if dangles is not None:
                dangle_TP = gradient_of_angles(q_TK, dq_TK) + gradient_of_angles(k_TK, dk_TK)
                store_of_pairs(dangles, dangle_TP, token_T, h, H, P)
            dq_TK = turned_back(dq_TK, turns, token_T, h, False, G, P, C, K)
            dk_TK = turned_back(dk_TK, turns, token_T, h, True, G, P, C, K)
        tl.store(dq + place_TK + entry_K[None, :], dq_TK.to(q_TK.dtype))
        tl.store(dk + place_TK + entry_K[None, :], dk_TK.to(q_TK.dtype))
