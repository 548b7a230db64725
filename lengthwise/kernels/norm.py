"""The residual stream joined with a branch, dropped from, and normalised, in one Triton kernel each way.

Shape letters: N models, M tokens of a model, D width, P blocks of tokens. Inside a kernel: B tokens and W columns that
a program holds, W the power of two from D on; a stride has the name of its array and the letter of its dimension.
Nothing depends on how many models are stacked, and nothing is added up in an order left to chance: the same inputs give
the same bits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lengthwise.kernels.parts import jit, kept, rule, tl, triton
from lengthwise.kernels.side_stream import on_side_stream
from lengthwise.kernels.stacking import stacked

WIDEST = 4096
WARPS = 4


def supports(width: int) -> bool:
    return width % 16 == 0 and width <= WIDEST


def join_norm(
    x_NMD: Tensor,
    y_NMD: Tensor | None,
    key_N: Tensor | None,
    rate: float,
    weight_ND: Tensor,
    out_ND: Tensor | None,
) -> tuple[Tensor, Tensor]:
    """The stream `x + drop(y)` (`x` itself where there is no `y`), and the stream as `decoder.RMSNorm` gives it.

    `key_N` decides what dropout at `rate` keeps (see `dropout.kept`); None for no dropout. The gradient of the weight
    is written to `out_ND` where that is given, over what is there, and autograd then has none; `weight_ND` must
    require a gradient all the same. Under `torch.func.vmap` the stacked models join N (of size 1 there); gradients
    are taken outside of it.
    """
    _check(x_NMD, rate)
    dropped = y_NMD is not None and rate > 0
    return _JoinNorm.apply(x_NMD, y_NMD, key_N if dropped else None, rate, weight_ND, out_ND)


def drop(x_NMD: Tensor, key_N: Tensor, rate: float) -> Tensor:
    """What `dropout.kept` keeps, divided by 1 - rate."""
    _check(x_NMD, rate)
    return x_NMD if rate == 0 else _AddDrop.apply(None, x_NMD, key_N, rate)


def add_drop(x_NMD: Tensor, y_NMD: Tensor, key_N: Tensor | None, rate: float) -> Tensor:
    """`x + drop(y)`; None for no dropout."""
    _check(x_NMD, rate)
    return x_NMD + y_NMD if rate == 0 or key_N is None else _AddDrop.apply(x_NMD, y_NMD, key_N, rate)


def _check(x_NMD: Tensor, rate: float) -> None:
    width = x_NMD.shape[-1]
    if x_NMD.ndim != 3 or not supports(width):
        raise ValueError(f"the kernel takes (N, M, D) with D a multiple of 16 up to {WIDEST}, not {x_NMD.shape}")
    if x_NMD.dtype not in (torch.float32, torch.bfloat16):
        raise ValueError(f"the kernel takes float32 and bfloat16, not {x_NMD.dtype}")
    if not 0 <= rate < 1:
        raise ValueError(f"a dropout rate lies in [0, 1), {rate} does not")


class _JoinNorm(torch.autograd.Function):
    @staticmethod
    def forward(
        x_NMD: Tensor,
        y_NMD: Tensor | None,
        key_N: Tensor | None,
        rate: float,
        weight_ND: Tensor,
        out_ND: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        N, M, D = x_NMD.shape
        if out_ND is not None and N > 1 and out_ND.stride(0) == 0:
            raise ValueError("several models have one place for the gradients of their weights")
        if not weight_ND[0].is_contiguous() or not (out_ND is None or out_ND[0].is_contiguous()):
            raise ValueError("the weights of a model, and the place for their gradients, must be contiguous")
        x, y = _whole_models(x_NMD), _whole_models(y_NMD)
        stream_NMD = x_NMD.view_as(x_NMD) if y is None else x.new_empty((N, M, D))
        normed_NMD = x.new_empty((N, M, D))
        B, W, warps = _block(D)
        with torch.cuda.device_of(x):
            _forward[triton.cdiv(M, B), N](
                *(x, y, key_N, weight_ND, stream_NMD, normed_NMD),
                *(_stride(x), _stride(y), _stride(key_N), _stride(weight_ND), M, *rule(rate), D, B, W),
                num_warps=warps,
            )
        return stream_NMD, normed_NMD

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        _, y_NMD, key_N, ctx.rate, weight_ND, out_ND = inputs
        ctx.set_materialize_grads(False)
        ctx.joined = y_NMD is not None
        # Not among the saved tensors: gradients of other weights are written beside it before its turn comes.
        ctx.out_ND = out_ND
        # The backward pass reads the whole stream anyway, so it finds each row's size again rather than read it.
        ctx.save_for_backward(output[0], key_N, weight_ND)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, dstream_NMD: Tensor | None, dnormed_NMD: Tensor | None) -> tuple[Tensor | None, ...]:
        stream_NMD, key_N, weight_ND = ctx.saved_tensors
        out_ND = ctx.out_ND
        if dnormed_NMD is None:
            if out_ND is not None:
                out_ND.zero_()
            dropped = key_N is not None and dstream_NMD is not None
            dy_NMD = _add_drop(None, dstream_NMD, key_N, ctx.rate) if dropped else dstream_NMD
            return dstream_NMD, dy_NMD if ctx.joined else None, None, None, None, None
        stream, dstream, dnormed = map(_whole_models, (stream_NMD, dstream_NMD, dnormed_NMD))
        N, M, D = stream.shape
        B, W, warps = _block(D)
        dx_NMD = stream.new_empty((N, M, D))
        dy_NMD = dx_NMD if key_N is None else torch.empty_like(dx_NMD)
        part_NPD = stream.new_empty((N, triton.cdiv(M, B), D), dtype=torch.float32)
        with torch.cuda.device_of(stream):
            _backward[triton.cdiv(M, B), N](
                *(stream, dstream, dnormed, key_N, weight_ND, dx_NMD, dy_NMD, part_NPD),
                *(_stride(stream), _stride(dstream), _stride(dnormed), _stride(key_N), _stride(weight_ND)),
                *(M, *rule(ctx.rate), D, B, W),
                num_warps=warps,
            )
        dweight_ND = None
        if out_ND is not None:
            with on_side_stream(part_NPD):
                add_up(part_NPD, out_ND)
        elif ctx.needs_input_grad[4]:
            dweight_ND = weight_ND.new_empty((N, D))
            add_up(part_NPD, dweight_ND)
        return dx_NMD, dy_NMD if ctx.joined else None, None, None, dweight_ND, None

    vmap = staticmethod(stacked(lambda *inputs: _JoinNorm.apply(*inputs)))


class _AddDrop(torch.autograd.Function):
    @staticmethod
    def forward(x_NMD: Tensor | None, y_NMD: Tensor, key_N: Tensor, rate: float) -> Tensor:
        return _add_drop(x_NMD, y_NMD, key_N, rate)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        x_NMD, _, key_N, ctx.rate = inputs
        ctx.added = x_NMD is not None
        ctx.save_for_backward(key_N)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NMD: Tensor) -> tuple[Tensor | None, ...]:
        (key_N,) = ctx.saved_tensors
        return grad_NMD if ctx.added else None, _add_drop(None, grad_NMD, key_N, ctx.rate), None, None

    vmap = staticmethod(stacked(lambda *inputs: _AddDrop.apply(*inputs)))


def add_up(part_NPD: Tensor, out_ND: Tensor) -> None:
    """The sums over P, the same for a model in a stack and alone (those of `torch.sum` are not, bit for bit)."""
    N, P, D = part_NPD.shape
    with torch.cuda.device_of(part_NPD):
        _add_up[triton.cdiv(D, 32), N](part_NPD, out_ND, _stride(out_ND), P, D, 128, 32, num_warps=WARPS)


def _add_drop(x_NMD: Tensor | None, y_NMD: Tensor, key_N: Tensor, rate: float) -> Tensor:
    x, y = _whole_models(x_NMD), _whole_models(y_NMD)
    out_NMD = y.new_empty(y.shape)
    N, M, D = y.shape
    B, W, warps = _block(D)
    with torch.cuda.device_of(y):
        _drop[triton.cdiv(M, B), N](
            *(x, y, key_N, out_NMD, _stride(x), _stride(y), _stride(key_N), M, *rule(rate), D, B, W), num_warps=warps
        )
    return out_NMD


def _whole_models(x: Any) -> Any:
    """The kernels know only the stride between models; those within a model they take to be of a contiguous array."""
    return x if x is None or x[0].is_contiguous() else x.contiguous()


def _stride(x: Tensor | None) -> int:
    """Between models."""
    return 0 if x is None else x.stride(0)


def _block(width: int) -> tuple[int, int, int]:
    """Rows and columns that a program holds of each array, and its warps.

    The block is the unit in which gradients of the weight are added up, so it must not depend on the number of models.
    On an H200 a program of 2,048 elements and 2 warps takes 12 to 19 % less for the gradients of 15 or 60 models of
    width 256 than one of twice as many; for a lone model of width 768 it takes 8 % more.
    """
    columns = 1 << (width - 1).bit_length()
    elements, warps = (2048, 2) if columns <= 512 else (WIDEST, WARPS)
    return min(32, elements // columns), columns, warps


@jit
def _forward(
    x, y, key, weight, stream, normed, x_N, y_N, key_N, weight_N,
    M, threshold, inverse, D: tl.constexpr, B: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    n, start = tl.program_id(1).to(tl.int64), tl.program_id(0).to(tl.int64) * B
    m_B, d_W = tl.arange(0, B), tl.arange(0, W)
    inside_BW = (start + m_B < M)[:, None] & (d_W < D)[None, :]
    # Numbers of 64 bits are few: of the block's first element. Those of its elements count from there.
    place_BW = m_B[:, None] * D + d_W[None, :]
    first = n * M * D + start * D
    x_BW = tl.load(x + (n * x_N + start * D) + place_BW, mask=inside_BW, other=0.0).to(tl.float32)
    weight_W = tl.load(weight + n * weight_N + d_W, mask=d_W < D, other=0.0).to(tl.float32)
    if y is not None:
        y_BW = tl.load(y + (n * y_N + start * D) + place_BW, mask=inside_BW, other=0.0).to(tl.float32)
        if key is not None:
            kept_BW = kept(start + m_B, d_W, tl.load(key + n * key_N), threshold)
            y_BW = tl.where(kept_BW, y_BW * inverse, 0.0)
        # The backward pass knows the stream as it is stored, so what is normalised must be rounded too.
        rounded_BW = (x_BW + y_BW).to(stream.dtype.element_ty)
        tl.store(stream + first + place_BW, rounded_BW, mask=inside_BW)
        x_BW = rounded_BW.to(tl.float32)
    inverse_size_B = tl.rsqrt(tl.sum(x_BW * x_BW, 1) / D + 1e-6)
    normed_BW = x_BW * inverse_size_B[:, None] * weight_W[None, :]
    tl.store(normed + first + place_BW, normed_BW.to(normed.dtype.element_ty), mask=inside_BW)


@jit
def _backward(
    stream, dstream, dnormed, key, weight, dx, dy, part, stream_N, dstream_N, dnormed_N, key_N, weight_N,
    M, threshold, inverse, D: tl.constexpr, B: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    n, start = tl.program_id(1).to(tl.int64), tl.program_id(0).to(tl.int64) * B
    m_B, d_W = tl.arange(0, B), tl.arange(0, W)
    inside_BW = (start + m_B < M)[:, None] & (d_W < D)[None, :]
    place_BW = m_B[:, None] * D + d_W[None, :]
    first = n * M * D + start * D
    stream_BW = tl.load(stream + (n * stream_N + start * D) + place_BW, mask=inside_BW, other=0.0).to(tl.float32)
    dnormed_BW = tl.load(dnormed + (n * dnormed_N + start * D) + place_BW, mask=inside_BW, other=0.0).to(tl.float32)
    dstream_BW = 0.0
    if dstream is not None:
        # Asked for here, it is on its way while the sums below wait for one another.
        dstream_BW = tl.load(dstream + (n * dstream_N + start * D) + place_BW, mask=inside_BW, other=0.0).to(tl.float32)
    weight_W = tl.load(weight + n * weight_N + d_W, mask=d_W < D, other=0.0).to(tl.float32)
    inverse_size_B = tl.rsqrt(tl.sum(stream_BW * stream_BW, 1) / D + 1e-6)
    unit_BW = stream_BW * inverse_size_B[:, None]
    dunit_BW = dnormed_BW * weight_W[None, :]
    along_B = tl.sum(dunit_BW * unit_BW, 1) / D
    dx_BW = dstream_BW + (dunit_BW - unit_BW * along_B[:, None]) * inverse_size_B[:, None]
    tl.store(dx + first + place_BW, dx_BW.to(dx.dtype.element_ty), mask=inside_BW)
    if key is not None:
        kept_BW = kept(start + m_B, d_W, tl.load(key + n * key_N), threshold)
        dy_BW = tl.where(kept_BW, dx_BW * inverse, 0.0)
        tl.store(dy + first + place_BW, dy_BW.to(dy.dtype.element_ty), mask=inside_BW)
    row = n * tl.num_programs(0) + tl.program_id(0)
    tl.store(part + row * D + d_W, tl.sum(dnormed_BW * unit_BW, 0), mask=d_W < D)


@jit
def _add_up(part, out, out_N, P, D, B: tl.constexpr, W: tl.constexpr):
    n = tl.program_id(1).to(tl.int64)
    p_B, d_W = tl.arange(0, B), tl.program_id(0) * W + tl.arange(0, W)
    sum_BW = tl.zeros((B, W), tl.float32)
    for start in range(0, P, B):
        inside_BW = (start + p_B < P)[:, None] & (d_W < D)[None, :]
        place_BW = (n * P + start + p_B)[:, None] * D + d_W[None, :]
        sum_BW += tl.load(part + place_BW, mask=inside_BW, other=0.0)
    tl.store(out + n * out_N + d_W, tl.sum(sum_BW, 0).to(out.dtype.element_ty), mask=d_W < D)


@jit
def _drop(
    x, y, key, out, x_N, y_N, key_N, M, threshold, inverse, D: tl.constexpr, B: tl.constexpr, W: tl.constexpr
):  # fmt: skip
    n, start = tl.program_id(1).to(tl.int64), tl.program_id(0).to(tl.int64) * B
    m_B, d_W = tl.arange(0, B), tl.arange(0, W)
    inside_BW = (start + m_B < M)[:, None] & (d_W < D)[None, :]
    place_BW = m_B[:, None] * D + d_W[None, :]
    y_BW = tl.load(y + (n * y_N + start * D) + place_BW, mask=inside_BW, other=0.0).to(tl.float32)
    kept_BW = kept(start + m_B, d_W, tl.load(key + n * key_N), threshold)
    out_BW = tl.where(kept_BW, y_BW * inverse, 0.0)
    if x is not None:
        out_BW += tl.load(x + (n * x_N + start * D) + place_BW, mask=inside_BW, other=0.0).to(tl.float32)
    tl.store(out + (n * M * D + start * D) + place_BW, out_BW.to(out.dtype.element_ty), mask=inside_BW)
