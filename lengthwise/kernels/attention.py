"""Causal attention for packed rows and stacked models as one fused kernel each way, written in Triton.

Shape letters: N models, R rows, T tokens of a row (queries), S the same as keys, X = 3 for queries, keys and
values, H heads, K head width. Inside a
kernel the letters name the block that a program holds. Nothing is added up in an order left to chance: the same
inputs give the same bits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lengthwise.kernels.parts import (
    by_distance,
    gradient_of_logits,
    jit,
    kept,
    masked_logits,
    rule,
    tl,
    triton,
    turned,
    turns_of,
    weights_of,
)
from lengthwise.kernels.stacking import stacked

PROGRAMS = {"softmax": 0, "entmax": 1, "stick-breaking": 2}
"""How logits become weights; all but the softmax need rows that one program holds whole. Entmax: of alpha 1.5."""
HEAD_WIDTHS = (16, 32, 64, 128)
LONGEST_WHOLE = 128
"""The longest rows that one program holds whole; longer ones go in blocks (see `kernel_long`)."""


def available(device: torch.device | str) -> bool:
    """Whether the kernels run there: on a GPU, or on the CPU where Triton interprets them (TRITON_INTERPRET=1)."""
    if triton is None:
        return False
    return torch.device(device).type == ("cpu" if triton.knobs.runtime.interpret else "cuda")


def supports(length: int, head_width: int) -> bool:
    """Whether there is a kernel for rows of that length and heads of that width."""
    whole = length in (16, 32, 64, LONGEST_WHOLE)
    in_blocks = length > LONGEST_WHOLE and length % 64 == 0
    return (whole or in_blocks) and head_width in HEAD_WIDTHS


def normalizes(program: str, length: int, head_width: int, dtype: torch.dtype) -> bool:
    """Whether there is that program for rows of that length."""
    return program == "softmax" or (program in PROGRAMS and _held_whole(length, head_width, dtype))


def fused_attention(
    joined_NRTXHK: Tensor,
    segments_NRT: Tensor,
    table_NHT: Tensor | None = None,
    turns_NRTPC: Tensor | None = None,
    key_N: Tensor | None = None,
    rate: float = 0.0,
    scale: float = 1.0,
    row_NRHT: Tensor | None = None,
    column_NRHT: Tensor | None = None,
    window_NH: Tensor | None = None,
    sink_NH: Tensor | None = None,
    program: str = "softmax",
) -> Tensor:
    """A token sees itself and the earlier tokens of its segment; returns the mixed values, (N, R, T, H, K).

    X is 3: queries, keys and values in one array, as one product makes them. `table_NHT` is added to the logits by
    distance; by `turns_NRTPC` (P pairs, C = 2: cosine and sine) neighbouring entries of queries and keys are rotated;
    `key_N` decides, with the place of a weight, whether dropout at `rate` keeps it; `row_NRHT` and `column_NRHT`, a
    number of the query and one of the key, are added to the logits (without `column_NRHT`, a key has minus what its
    token has as a query; only a program that does not notice what a whole row shares may do without);
    `window_NH` hides keys at that distance and beyond. Distances are differences of index. `program` makes weights of
    logits (see `PROGRAMS`), the softmax with a further logit without a value for each head, `sink_NH`. Under
    `torch.func.vmap` the stacked models join N; gradients are taken outside of it (PyTorch has no `vmap(grad(...))` of
    such operators).
    """
    _, _, length, parts, _, head_width = joined_NRTXHK.shape
    if not supports(length, head_width):
        raise ValueError(f"no fused attention for rows of {length} and heads of {head_width}")
    if parts != 3:
        raise ValueError("fused attention takes queries, keys and values joined in the fourth dimension")
    if joined_NRTXHK.dtype not in (torch.float32, torch.bfloat16):
        raise ValueError(f"fused attention takes float32 and bfloat16, not {joined_NRTXHK.dtype}")
    if table_NHT is not None and table_NHT.dtype != torch.float32:
        raise ValueError(f"the table of biases must be float32, not {table_NHT.dtype}")
    if not 0 <= rate < 1:
        raise ValueError(f"a dropout rate lies in [0, 1), {rate} does not")
    if row_NRHT is None and column_NRHT is not None:
        raise ValueError("a bias of the column needs one of the row")
    if any(each is not None and each.dtype != torch.float32 for each in (row_NRHT, column_NRHT, sink_NH)):
        raise ValueError("biases of row and column, and sinks, must be float32")
    if not normalizes(program, length, head_width, joined_NRTXHK.dtype):
        raise ValueError(f"no program for {program} in rows of {length} and heads of {head_width}")
    if program != "softmax" and sink_NH is not None:
        raise ValueError(f"only a softmax has a sink, {program} does not")
    if column_NRHT is None and row_NRHT is not None and not notices_nothing(program, sink_NH is not None):
        raise ValueError(f"{program} notices what a whole row shares: a bias of the row needs one of the column")
    key_N = None if rate == 0 or key_N is None else key_N.to(torch.int32)
    window_NH = None if window_NH is None else window_NH.to(torch.int32)
    if turns_NRTPC is not None:
        turns_NRTPC = turns_NRTPC.detach().float()
    arrays = (table_NHT, turns_NRTPC, key_N, row_NRHT, column_NRHT, window_NH, sink_NH)
    return _attention(joined_NRTXHK, segments_NRT, *arrays, rate, scale, PROGRAMS[program])[0]


def notices_nothing(program: str, has_sink: bool) -> bool:
    """Whether weights stay the same when a number is added to all logits of a query."""
    return program != "stick-breaking" and not has_sink


@torch.library.custom_op("lengthwise::attention", mutates_args=())
def _attention(
    joined_NRTXHK: Tensor,
    segments_NRT: Tensor,
    table_NHT: Tensor | None,
    turns_NRTPC: Tensor | None,
    key_N: Tensor | None,
    row_NRHT: Tensor | None,
    column_NRHT: Tensor | None,
    window_NH: Tensor | None,
    sink_NH: Tensor | None,
    rate: float,
    scale: float,
    program: int,
) -> tuple[Tensor, Tensor]:
    """Returns the output and, for long rows, the logarithm of each softmax's denominator (else it is empty)."""
    out_NRTHK, lse_NRHT = _like_forward(joined_NRTXHK)
    segments, table, turns = _rows(segments_NRT), _rows(table_NHT), _contiguous(turns_NRTPC)
    joined = _rows(joined_NRTXHK)
    key_N = _contiguous(key_N)
    row, column, window, sink = map(_contiguous, (row_NRHT, column_NRHT, window_NH, sink_NH))
    drop = rule(rate)
    with torch.cuda.device_of(joined):
        if _whole(joined):
            q, k, v = joined.unbind(3)
            N, R, T, H, K = q.shape
            _forward_whole[H, R, N](
                *(q, k, v, segments, table, turns, key_N, row, column, window, sink, out_NRTHK),
                *_strides(q, segments, table),
                *(scale, *drop, program, _pairs(turns), H, T, K),
                num_warps=_warps(q),
            )
        else:
            from lengthwise.kernels import attention_long as kernel_long

            q, k, v = (joined if turns is None else kernel_long.turned_first(joined, turns)).unbind(3)
            strides = _strides(q, segments, table)
            biases = (table, key_N, row, column, window, sink)
            kernel_long.forward(q, k, v, segments, *biases, out_NRTHK, lse_NRHT, strides, scale, drop)
    return out_NRTHK, lse_NRHT


@torch.library.custom_op("lengthwise::attention_backward", mutates_args=())
def _attention_backward(
    grad_NRTHK: Tensor,
    joined_NRTXHK: Tensor,
    segments_NRT: Tensor,
    table_NHT: Tensor | None,
    turns_NRTPC: Tensor | None,
    key_N: Tensor | None,
    row_NRHT: Tensor | None,
    column_NRHT: Tensor | None,
    window_NH: Tensor | None,
    sink_NH: Tensor | None,
    out_NRTHK: Tensor | None,
    lse_NRHT: Tensor | None,
    rate: float,
    scale: float,
    program: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Returns the gradients of queries, keys and values, joined, and of table, rows, columns and sinks (empty without
    them)."""
    like = (joined_NRTXHK, table_NHT, row_NRHT, column_NRHT, sink_NH)
    djoined_NRTXHK, dtable_NHT, drow_NRHT, dcolumn_NRHT, dsink_NH = _like_backward(*like)
    row, column, window, sink = map(_contiguous, (row_NRHT, column_NRHT, window_NH, sink_NH))
    drow, dcolumn = (None, None) if row is None else (drow_NRHT, dcolumn_NRHT)
    if column is None:
        # A softmax does not notice what a whole row shares: all of the gradient comes by way of the keys.
        drow, dcolumn = None, drow
    dq, dk, dv = djoined_NRTXHK.unbind(3)
    segments, table, grad = _rows(segments_NRT), _rows(table_NHT), _rows(grad_NRTHK)
    turns = _contiguous(turns_NRTPC)
    joined = _rows(joined_NRTXHK)
    key_N = _contiguous(key_N)
    drop = rule(rate)
    N, R, T, _, H, K = joined.shape
    with torch.cuda.device_of(joined):
        if _whole(joined):
            q, k, v = joined.unbind(3)
            strides = (*_strides(q, segments, table), *grad.stride()[:4])
            part_NRHT = None if table is None else table.new_empty((N, R, H, T))
            sunk_NRHB = None if sink is None else sink.new_empty((N, R, H, 1))
            _backward_whole[H, R, N](
                *(q, k, v, segments, table, turns, key_N, row, column, window, sink),
                *(grad, dq, dk, dv, part_NRHT, drow, dcolumn, sunk_NRHB),
                *(*strides, scale, *drop, program, _pairs(turns), H, T, K),
                num_warps=_warps(q),
            )
        else:
            from lengthwise.kernels import attention_long as kernel_long

            assert out_NRTHK is not None and lse_NRHT is not None
            q, k, v = (joined if turns is None else kernel_long.turned_first(joined, turns)).unbind(3)
            strides = (*_strides(q, segments, table), *grad.stride()[:4])
            saved = (out_NRTHK.contiguous(), lse_NRHT.contiguous())
            inputs = (q, k, v, segments, table, turns, key_N, row, column, window, sink, grad)
            gradients = (dq, dk, dv, drow, dcolumn)
            part_NRHT, sunk_NRHB = kernel_long.backward(inputs, saved, gradients, strides, scale, drop)
        if part_NRHT is not None:
            torch.sum(part_NRHT, dim=1, out=dtable_NHT)
        if sunk_NRHB is not None:
            torch.sum(sunk_NRHB, dim=(1, 3), out=dsink_NH)
    return djoined_NRTXHK, dtable_NHT, drow_NRHT, dcolumn_NRHT, dsink_NH


def _whole(joined_NRTXHK: Tensor) -> bool:
    """Whether one program holds a row: an fp32 product is three of the tensor cores', and registers end sooner."""
    return _held_whole(joined_NRTXHK.shape[2], joined_NRTXHK.shape[5], joined_NRTXHK.dtype)


def _held_whole(length: int, head_width: int, dtype: torch.dtype) -> bool:
    small = length <= 64 and length * head_width <= 64 * 64
    return length <= LONGEST_WHOLE and (dtype == torch.bfloat16 or small)


def _warps(q_NRTHK: Tensor) -> int:
    return q_NRTHK.shape[2] // (16 if q_NRTHK.dtype == torch.bfloat16 else 8)


def _rows(x: Any) -> Any:
    """The kernels know every stride but the last, which they take to be 1."""
    return x if x is None or x.stride(-1) == 1 else x.contiguous()


def _contiguous(x: Tensor | None) -> Tensor | None:
    return None if x is None else x.contiguous()


def _pairs(turns_NRTPC: Tensor | None) -> int:
    return 0 if turns_NRTPC is None else turns_NRTPC.shape[3]


def _strides(q: Tensor, segments: Tensor, table: Tensor | None) -> tuple[int, ...]:
    """Keys and values have those of the queries."""
    table_strides = (0, 0) if table is None else table.stride()[:2]
    return (*q.stride()[:4], *segments.stride()[:2], *table_strides)


def _like_forward(joined_NRTXHK: Tensor) -> tuple[Tensor, Tensor]:
    N, R, T, _, H, K = joined_NRTXHK.shape
    lse_NRHT = joined_NRTXHK.new_empty((N, R, H, 0 if _whole(joined_NRTXHK) else T), dtype=torch.float32)
    return joined_NRTXHK.new_empty((N, R, T, H, K)), lse_NRHT


def _like_backward(
    joined_NRTXHK: Tensor,
    table_NHT: Tensor | None,
    row_NRHT: Tensor | None,
    column_NRHT: Tensor | None,
    sink_NH: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    N, R, T, _, H, _ = joined_NRTXHK.shape
    dtable_NHT = joined_NRTXHK.new_empty((N, H, 0 if table_NHT is None else T), dtype=torch.float32)
    drow_NRHT, dcolumn_NRHT = (
        joined_NRTXHK.new_empty((N, R, H, 0 if bias is None else T), dtype=torch.float32)
        for bias in (row_NRHT, column_NRHT)
    )
    dsink_NH = joined_NRTXHK.new_empty((N, 0 if sink_NH is None else H), dtype=torch.float32)
    return joined_NRTXHK.new_empty(joined_NRTXHK.shape), dtable_NHT, drow_NRHT, dcolumn_NRHT, dsink_NH


@_attention.register_fake
def _(joined_NRTXHK: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return _like_forward(joined_NRTXHK)


@_attention_backward.register_fake
def _(_grad: Tensor, joined_NRTXHK: Tensor, _segments: Tensor, table_NHT: Any, *others: Any) -> tuple[Tensor, ...]:
    _turns, _key, row_NRHT, column_NRHT, _window, sink_NH, *_ = others
    return _like_backward(joined_NRTXHK, table_NHT, row_NRHT, column_NRHT, sink_NH)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.rate, ctx.scale, ctx.program = inputs
    ctx.set_materialize_grads(False)
    # A row held whole is computed afresh from its inputs; only blocks need what the forward pass found out.
    ctx.save_for_backward(*tensors, *((None, None) if _whole(inputs[0]) else output))


def _backward(ctx: Any, grad_NRTHK: Tensor, _grad_lse: Tensor) -> tuple[Tensor | None, ...]:
    tensors = ctx.saved_tensors
    djoined, *others = _attention_backward(grad_NRTHK, *tensors, ctx.rate, ctx.scale, ctx.program)
    table, row, column, sink = 2, 5, 6, 8
    places = (table, row, column, sink)
    given = {at: None if tensors[at] is None else each for at, each in zip(places, others, strict=True)}
    return djoined, None, given[table], None, None, given[row], given[column], None, given[sink], None, None, None


_attention.register_autograd(_backward, setup_context=_setup_context)


_attention.register_vmap(stacked(_attention))
_attention_backward.register_vmap(stacked(_attention_backward))


@jit
def _forward_whole(
    q, k, v, segments, table, turns, key, row, column, window, sink, out,
    q_N, q_R, q_T, q_H, segments_N, segments_R, table_N, table_H,
    scale, threshold, inverse, PROGRAM: tl.constexpr,
    P: tl.constexpr, H: tl.constexpr, T: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    h, r, n = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    t_T, c_K = tl.arange(0, T), tl.arange(0, K)
    q_TK = tl.load(q + n * q_N + r * q_R + h * q_H + t_T[:, None] * q_T + c_K[None, :])
    k_TK = tl.load(k + n * q_N + r * q_R + h * q_H + t_T[:, None] * q_T + c_K[None, :])
    v_TK = tl.load(v + n * q_N + r * q_R + h * q_H + t_T[:, None] * q_T + c_K[None, :])
    if turns is not None:
        cosine_TP, sine_TP = turns_of(turns, n * tl.num_programs(1) + r, t_T, T, P, K)
        q_TK, k_TK = turned(q_TK, cosine_TP, sine_TP), turned(k_TK, cosine_TP, sine_TP)
    segment_T = tl.load(segments + n * segments_N + r * segments_R + t_T)
    head_at, line = n * H + h, (n * tl.num_programs(1) + r) * H + h
    logits_TS = masked_logits(
        q_TK, k_TK, t_T, t_T, segment_T, segment_T, table, row, column, window,
        n * table_N + h * table_H, line * T, head_at, scale,
    )  # fmt: skip
    weights_TS = weights_of(logits_TS, sink, head_at, PROGRAM)
    if key is not None:
        kept_TS = kept((r * H + h) * T + t_T, t_T, tl.load(key + n), threshold)
        weights_TS = tl.where(kept_TS, weights_TS * inverse, 0.0)
    mixed_TK = tl.dot(weights_TS.to(v_TK.dtype), v_TK, input_precision="tf32x3")
    place_TK = ((n * tl.num_programs(1) + r) * T * H + h) * K + t_T[:, None] * (H * K) + c_K[None, :]
    tl.store(out + place_TK, mixed_TK.to(v_TK.dtype))


@jit
def _backward_whole(
    q, k, v, segments, table, turns, key, row, column, window, sink, grad, dq, dk, dv, part, drow, dcolumn, dsink,
    q_N, q_R, q_T, q_H, segments_N, segments_R, table_N, table_H,
    grad_N, grad_R, grad_T, grad_H, scale, threshold, inverse, PROGRAM: tl.constexpr,
    P: tl.constexpr, H: tl.constexpr, T: tl.constexpr, K: tl.constexpr,
):  # fmt: skip
    h, r, n = tl.program_id(0), tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    t_T, c_K = tl.arange(0, T), tl.arange(0, K)
    q_TK = tl.load(q + n * q_N + r * q_R + h * q_H + t_T[:, None] * q_T + c_K[None, :])
    k_TK = tl.load(k + n * q_N + r * q_R + h * q_H + t_T[:, None] * q_T + c_K[None, :])
    v_TK = tl.load(v + n * q_N + r * q_R + h * q_H + t_T[:, None] * q_T + c_K[None, :])
    grad_TK = tl.load(grad + n * grad_N + r * grad_R + h * grad_H + t_T[:, None] * grad_T + c_K[None, :])
    if turns is not None:
        cosine_TP, sine_TP = turns_of(turns, n * tl.num_programs(1) + r, t_T, T, P, K)
        q_TK, k_TK = turned(q_TK, cosine_TP, sine_TP), turned(k_TK, cosine_TP, sine_TP)
    segment_T = tl.load(segments + n * segments_N + r * segments_R + t_T)
    head_at, line = n * H + h, (n * tl.num_programs(1) + r) * H + h
    logits_TS = masked_logits(
        q_TK, k_TK, t_T, t_T, segment_T, segment_T, table, row, column, window,
        n * table_N + h * table_H, line * T, head_at, scale,
    )  # fmt: skip
    weights_TS = weights_of(logits_TS, sink, head_at, PROGRAM)
    dweights_TS = tl.dot(grad_TK, tl.trans(v_TK), input_precision="tf32x3")
    dropped_TS = weights_TS
    if key is not None:
        kept_TS = kept((r * H + h) * T + t_T, t_T, tl.load(key + n), threshold)
        dropped_TS = tl.where(kept_TS, weights_TS * inverse, 0.0)
        dweights_TS = tl.where(kept_TS, dweights_TS * inverse, 0.0)
    # Of a gradient: queries, keys and values stand side by side.
    place_TK = ((n * tl.num_programs(1) + r) * T * 3 * H + h) * K + t_T[:, None] * (3 * H * K) + c_K[None, :]
    dv_TK = tl.dot(tl.trans(dropped_TS.to(v_TK.dtype)), grad_TK, input_precision="tf32x3")
    tl.store(dv + place_TK, dv_TK.to(v_TK.dtype))
    dlogits_TS = gradient_of_logits(logits_TS, weights_TS, dweights_TS, PROGRAM)
    if dsink is not None:  # its weight is what those of the keys leave, its value is nothing
        sunk_T = (1.0 - tl.sum(weights_TS, 1)) * tl.sum(weights_TS * dweights_TS, 1)
        tl.store(dsink + line, -tl.sum(sunk_T, 0))
    place_T = line * T + t_T
    if part is not None:
        sums_T, _ = by_distance(dlogits_TS, T)
        tl.store(part + place_T, sums_T)
    if drow is not None:
        tl.store(drow + place_T, tl.sum(dlogits_TS, 1))
    if dcolumn is not None:
        dcolumn_T = tl.sum(dlogits_TS, 0)
        tl.store(dcolumn + place_T, -dcolumn_T if column is None else dcolumn_T)
    rounded_TS = dlogits_TS.to(q_TK.dtype)
    dq_TK = tl.dot(rounded_TS, k_TK, input_precision="tf32x3") * scale
    dk_TK = tl.dot(tl.trans(rounded_TS), q_TK, input_precision="tf32x3") * scale
    if turns is not None:
        cosine_TP, sine_TP = turns_of(turns, n * tl.num_programs(1) + r, t_T, T, P, K)
        dq_TK, dk_TK = turned(dq_TK, cosine_TP, -sine_TP), turned(dk_TK, cosine_TP, -sine_TP)
    tl.store(dq + place_TK, dq_TK.to(q_TK.dtype))
    tl.store(dk + place_TK, dk_TK.to(q_TK.dtype))
