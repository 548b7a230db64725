"""Rows of an embedding for the tokens of stacked models, and its gradient without atomic additions, in Triton.

Shape letters: N models, M tokens of a model, V vocabulary rows, D width, P chunks of C sorted tokens. Inside a kernel:
W columns that a program holds; a stride has the name of its array and the letter of its dimension.

The gradient of a vocabulary row is the sum over the places of its token, which lie side by side once the tokens are
sorted: a run. A chunk adds up its runs in one product; what reaches over its ends is left for a second kernel.
Sums are always in the same order, for a model in a stack and alone: the same inputs give the same bits.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lengthwise.kernels.parts import jit, tl, triton
from lengthwise.kernels.side_stream import on_side_stream
from lengthwise.kernels.stacking import stacked

CHUNK = 16
"""Sorted tokens that a program adds up: the smallest side of a product in Triton."""

WIDEST = 4096


def look_up(tokens_NM: Tensor, weight_NVD: Tensor, out_NVD: Tensor | None, skip: int | None = None) -> Tensor:
    """The rows of the tokens, (N, M, D).

    The gradient of the weight is added to what is in `out_NVD` where that is given, in the rows that occur alone, and
    autograd then has none; `weight_NVD` must require a gradient all the same. `skip` is a token whose gradients are
    known to be zero (padding): they are not read. Under `torch.func.vmap` the stacked models join N (of size 1 there);
    gradients are taken outside of it.
    """
    width = weight_NVD.shape[-1]
    if weight_NVD.ndim != 3 or width % 16 or width > WIDEST:
        raise ValueError(f"the kernel takes (N, V, D) with D a multiple of 16 up to {WIDEST}, not {weight_NVD.shape}")
    if weight_NVD.dtype not in (torch.float32, torch.bfloat16):
        raise ValueError(f"the kernel takes float32 and bfloat16, not {weight_NVD.dtype}")
    sorted_NM = order_NM = None
    if torch.is_grad_enabled():
        with on_side_stream(tokens_NM):
            sorted_NM, order_NM = tokens_NM.to(torch.int32).sort(dim=1, stable=True)
    return _LookUp.apply(tokens_NM, sorted_NM, order_NM, weight_NVD, out_NVD, skip)


class _LookUp(torch.autograd.Function):
    @staticmethod
    def forward(
        tokens_NM: Tensor,
        sorted_NM: Tensor | None,
        order_NM: Tensor | None,
        weight_NVD: Tensor,
        out_NVD: Tensor | None,
        skip: int | None,
    ) -> Tensor:
        (N, M), D = tokens_NM.shape, weight_NVD.shape[2]
        if out_NVD is not None and N > 1 and out_NVD.stride(0) == 0:
            raise ValueError("several models have one place for the gradients of their weights")
        if not weight_NVD[0].is_contiguous() or not (out_NVD is None or out_NVD[0].is_contiguous()):
            raise ValueError("the weights of a model, and the place for their gradients, must be contiguous")
        tokens, x_NMD = tokens_NM.contiguous(), weight_NVD.new_empty((N, M, D))
        with torch.cuda.device_of(weight_NVD):
            _gather[triton.cdiv(M, CHUNK), triton.cdiv(D, _columns(D)), N](
                tokens, weight_NVD, x_NMD, weight_NVD.stride(0), M, D, CHUNK, _columns(D), num_warps=4
            )
        return x_NMD

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        _, sorted_NM, order_NM, weight_NVD, out_NVD, ctx.skip = inputs
        ctx.like = (weight_NVD.shape, weight_NVD.dtype)
        # Not among the saved tensors: the gradient of the output layer is written to it before its turn comes.
        ctx.out_NVD = out_NVD
        ctx.save_for_backward(sorted_NM, order_NM)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NMD: Tensor) -> tuple[Tensor | None, ...]:
        sorted_NM, order_NM = ctx.saved_tensors
        shape, dtype = ctx.like
        out_NVD = ctx.out_NVD
        if out_NVD is None:
            out_NVD = grad_NMD.new_zeros(shape, dtype=dtype)
        # What autograd is given must be there when it reads it; only what kernels write elsewhere can be late.
        with on_side_stream(grad_NMD) if ctx.out_NVD is not None else nullcontext():
            _add_rows(sorted_NM.contiguous(), order_NM.contiguous(), grad_NMD.contiguous(), out_NVD, ctx.skip)
        return None, None, None, out_NVD if ctx.out_NVD is None else None, None, None

    vmap = staticmethod(stacked(lambda *inputs: _LookUp.apply(*inputs)))


def _add_rows(sorted_NM: Tensor, order_NM: Tensor, grad_NMD: Tensor, out_NVD: Tensor, skip: int | None) -> None:
    """Adds the gradients to the rows of their tokens; `order_NM` are the places of the sorted tokens."""
    N, M, D = grad_NMD.shape
    P, W = -(-M // CHUNK), _columns(D)
    # For each chunk a run that began before it, and one that began in it and goes on; written where there is one.
    part_NP2D = grad_NMD.new_empty((N, P, 2, D), dtype=torch.float32)
    skipped = -1 if skip is None else skip
    with torch.cuda.device_of(grad_NMD):
        _add_chunks[P, triton.cdiv(D, W), N](
            sorted_NM, order_NM, grad_NMD, out_NVD, part_NP2D, out_NVD.stride(0), M, skipped, D, CHUNK, W, num_warps=4
        )
        _add_crossing[P, triton.cdiv(D, W), N](
            sorted_NM, out_NVD, part_NP2D, out_NVD.stride(0), M, skipped, D, CHUNK, W, num_warps=4
        )


def _columns(width: int) -> int:
    """That a program holds: a power of two, and not so many that a chunk of them fills its registers."""
    return min(256, 1 << (width - 1).bit_length())


@jit
def _gather(tokens, weight, x, weight_N, M, D: tl.constexpr, C: tl.constexpr, W: tl.constexpr):
    n = tl.program_id(2).to(tl.int64)
    m_C, d_W = tl.program_id(0).to(tl.int64) * C + tl.arange(0, C), tl.program_id(1) * W + tl.arange(0, W)
    inside_CW = (m_C < M)[:, None] & (d_W < D)[None, :]
    token_C = tl.load(tokens + n * M + m_C, mask=m_C < M, other=0).to(tl.int64)
    row_CW = tl.load(weight + n * weight_N + token_C[:, None] * D + d_W[None, :], mask=inside_CW, other=0.0)
    tl.store(x + (n * M + m_C)[:, None] * D + d_W[None, :], row_CW, mask=inside_CW)


@jit
def _add_chunks(
    tokens, order, grad, out, part, out_N, M, skip, D: tl.constexpr, C: tl.constexpr, W: tl.constexpr
):  # fmt: skip
    p, n = tl.program_id(0), tl.program_id(2).to(tl.int64)
    tokens += n * M
    i_C, d_W = p * C + tl.arange(0, C), tl.program_id(1) * W + tl.arange(0, W)
    # Where there is no token, numbers below 0 that equal no other here.
    token_C = tl.load(tokens + i_C, mask=i_C < M, other=-2)
    before_C = tl.load(tokens + i_C - 1, mask=(i_C > p * C) & (i_C < M), other=-3)
    last_before = tl.load(tokens + p * C - 1, mask=p > 0, other=-3)
    first_after = tl.load(tokens + p * C + C, mask=p * C + C < M, other=-3)
    used_C = (i_C < M) & (token_C != skip)
    place_C = tl.load(order + n * M + i_C, mask=used_C, other=0).to(tl.int64)
    within_W = d_W < D
    grad_CW = tl.load(
        grad + (n * M + place_C)[:, None] * D + d_W[None, :], mask=used_C[:, None] & within_W[None, :], other=0.0
    ).to(tl.float32)
    # Each row of the product is the sum of its token's run; only that of the run's first place is written.
    same_CC = (token_C[:, None] == token_C[None, :]).to(tl.float32)
    sum_CW = tl.dot(same_CC, grad_CW, input_precision="tf32x3")
    first_C = used_C & (token_C != before_C)
    from_before_C, goes_on_C = token_C == last_before, token_C == first_after
    crosses_C = from_before_C | goes_on_C
    here_CW = out + n * out_N + token_C.to(tl.int64)[:, None] * D + d_W[None, :]
    whole_CW = (first_C & (crosses_C == 0))[:, None] & within_W[None, :]
    sum_out_CW = tl.load(here_CW, mask=whole_CW, other=0.0).to(tl.float32) + sum_CW
    tl.store(here_CW, sum_out_CW.to(out.dtype.element_ty), mask=whole_CW)
    slot_C = (n * tl.num_programs(0) + p) * 2 + tl.where(from_before_C, 0, 1)
    tl.store(part + slot_C[:, None] * D + d_W[None, :], sum_CW, mask=(first_C & crosses_C)[:, None] & within_W[None, :])


@jit
def _add_crossing(tokens, out, part, out_N, M, skip, D: tl.constexpr, C: tl.constexpr, W: tl.constexpr):
    """Adds up the run that began in this chunk and goes on after it, if there is one."""
    p, n = tl.program_id(0), tl.program_id(2).to(tl.int64)
    P = tl.num_programs(0)
    tokens += n * M
    last = tl.load(tokens + p * C + C - 1, mask=p * C + C < M, other=-1)
    first_after = tl.load(tokens + p * C + C, mask=p * C + C < M, other=-2)
    last_before = tl.load(tokens + p * C - 1, mask=p > 0, other=-3)
    if (last == first_after) & (last != last_before) & (last != skip):
        d_W = tl.program_id(1) * W + tl.arange(0, W)
        within_W = d_W < D
        sum_W = tl.load(part + ((n * P + p) * 2 + 1) * D + d_W, mask=within_W, other=0.0)
        start = p + 1
        while tl.load(tokens + start * C, mask=start < P, other=-1) == last:
            # The run goes through the chunks that begin with its token, C chunks at a time.
            chunk_C = start + tl.arange(0, C)
            mine_C = tl.load(tokens + chunk_C * C, mask=chunk_C < P, other=-1) == last
            place_CW = ((n * P + chunk_C) * 2 * D)[:, None] + d_W[None, :]
            part_CW = tl.load(part + place_CW, mask=mine_C[:, None] & within_W[None, :], other=0.0)
            sum_W += tl.sum(part_CW, 0)
            start += C
        here_W = out + n * out_N + last.to(tl.int64) * D + d_W
        sum_W += tl.load(here_W, mask=within_W, other=0.0).to(tl.float32)
        tl.store(here_W, sum_W.to(out.dtype.element_ty), mask=within_W)
