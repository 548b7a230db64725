"""The feed-forward layer of stacked models: ReLU, dropout and their gradient inside the products that precede them.

The hidden activations are four times as wide as the stream. Where that is narrow, to write and read them takes longer
than to multiply, so they are written once forwards, and their gradient once backwards.

Shape letters: N models, M tokens of a model, D width, F inner width. Inside a kernel: B rows and W columns of the
product that a program holds, C terms of its sums that it adds at a time; a stride has the name of its array and the
letter of its dimension. Nothing depends on how many models are stacked, and nothing is added up in an order left to
chance: the same inputs give the same bits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from lengthwise.kernels.linear import _product
from lengthwise.kernels.parts import jit, kept, rule, tl, triton
from lengthwise.kernels.side_stream import on_side_stream
from lengthwise.kernels.stacking import stacked

WIDEST = 512
"""The wider the stream, the longer the sums for each element stored, and the less there is to save.

On an H200 a whole layer, both ways, takes 10 % less at width 256 (15 models of 1,728 tokens), 1 % more at width 768.
"""


class Tiles(NamedTuple):
    """How a product is divided among programs."""

    rows: int
    columns: int
    terms: int
    """At most: as many as divide the width are added at a time."""
    group: int
    """Rows of tiles whose columns are gone through together, so that what they share is still in the L2 cache."""
    warps: int
    stages: int
    """Steps of the sum that are on their way from memory at once, or in use."""


TILES = {
    # Two programs fit a multiprocessor of 64 K registers: one drops and stores while the other multiplies.
    torch.bfloat16: Tiles(rows=128, columns=128, terms=64, group=8, warps=8, stages=3),
    # Here every product is three in tf32.
    torch.float32: Tiles(rows=64, columns=64, terms=32, group=8, warps=4, stages=2),
}
"""Never chosen by the number of models or tokens: bits must not depend on them."""


def suits(width: int, dtype: torch.dtype) -> bool:
    """Whether this layer is the one to take.

    Not in float32, which is for those who want every digit: PyTorch's products have more of them than three in tf32.
    """
    return dtype == torch.bfloat16 and width % 16 == 0 and width <= WIDEST


def feed_forward(
    x_NMD: Tensor,
    inner_NDF: Tensor,
    output_NFD: Tensor,
    key_N: Tensor | None,
    rate: float,
    inner_out_NDF: Tensor | None,
    output_out_NFD: Tensor | None,
) -> Tensor:
    """`drop(relu(x @ inner)) @ output`, (N, M, D).

    `key_N` decides what dropout at `rate` keeps of the hidden activations (see `dropout.kept`); None for no dropout.
    The gradient of a weight is written where `_out` says, if it does, over what is there, and autograd then has
    none. Under `torch.func.vmap` the stacked models join N (of size 1 there); gradients are taken outside of it.
    """
    if x_NMD.ndim != 3 or x_NMD.shape[-1] % 16:
        raise ValueError(f"the kernel takes (N, M, D) with D a multiple of 16, not {x_NMD.shape}")
    for each in (x_NMD, inner_NDF, output_NFD):
        if each.dtype not in TILES or each.dtype != x_NMD.dtype:
            raise ValueError(f"the kernel takes either float32 or bfloat16 throughout, not {each.dtype}")
    if not 0 <= rate < 1:
        raise ValueError(f"a dropout rate lies in [0, 1), {rate} does not")
    if key_N is None or rate == 0:
        key_N, rate = None, 0.0
    return _FeedForward.apply(x_NMD, inner_NDF, output_NFD, key_N, rate, inner_out_NDF, output_out_NFD)[0]


class _FeedForward(torch.autograd.Function):
    """Returns, beside the output, what its gradient needs: the hidden activations."""

    @staticmethod
    def forward(
        x_NMD: Tensor,
        inner_NDF: Tensor,
        output_NFD: Tensor,
        key_N: Tensor | None,
        rate: float,
        inner_out_NDF: Tensor | None,
        output_out_NFD: Tensor | None,
    ) -> tuple[Tensor, Tensor]:
        for out in (inner_out_NDF, output_out_NFD):
            if out is not None and len(out) > 1 and out.stride(0) == 0:
                raise ValueError("several models have one place for the gradients of their weights")
        hidden_NMF = relu_product(x_NMD, inner_NDF, key_N, rate)
        return _product(hidden_NMF, output_NFD), hidden_NMF

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
        # Homes are not among the saved tensors: gradients of other weights are written beside them before their turn.
        x_NMD, inner_NDF, output_NFD, _, ctx.rate, ctx.inner_out_NDF, ctx.output_out_NFD = inputs
        hidden_NMF = output[1]
        ctx.mark_non_differentiable(hidden_NMF)
        ctx.set_materialize_grads(False)  # else zeros are made for it
        ctx.save_for_backward(x_NMD, inner_NDF, output_NFD, hidden_NMF)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_NMD: Tensor, _: None) -> tuple[Tensor | None, ...]:
        x_NMD, inner_NDF, output_NFD, hidden_NMF = ctx.saved_tensors
        doutput_NFD = _weight_gradient(hidden_NMF, grad_NMD, ctx.output_out_NFD, ctx.needs_input_grad[2])
        dhidden_NMF = masked_product(grad_NMD, output_NFD.transpose(1, 2), hidden_NMF, ctx.rate)
        dinner_NDF = _weight_gradient(x_NMD, dhidden_NMF, ctx.inner_out_NDF, ctx.needs_input_grad[1])
        dx_NMD = _product(dhidden_NMF, inner_NDF.transpose(1, 2))
        return dx_NMD, dinner_NDF, doutput_NFD, None, None, None, None

    vmap = staticmethod(stacked(lambda *inputs: _FeedForward.apply(*inputs)))


def _weight_gradient(x_NMI: Tensor, grad_NMO: Tensor, out_NIO: Tensor | None, wanted: bool) -> Tensor | None:
    """For autograd, if it is wanted and nobody writes it elsewhere."""
    if out_NIO is not None:
        with on_side_stream(x_NMI, grad_NMO):
            _product(x_NMI.transpose(1, 2), grad_NMO, out_NIO)
        return None
    return _product(x_NMI.transpose(1, 2), grad_NMO) if wanted else None


def relu_product(
    x_NMD: Tensor, weight_NDF: Tensor, key_N: Tensor | None, rate: float, tiles: Tiles | None = None
) -> Tensor:
    """What is positive in `x @ weight` and kept by dropout, divided by 1 - rate."""
    return _launch(x_NMD, weight_NDF, None, key_N, rate, tiles)


def masked_product(
    x_NMD: Tensor, weight_NDF: Tensor, hidden_NMF: Tensor, rate: float, tiles: Tiles | None = None
) -> Tensor:
    """`x @ weight` where `hidden` is positive, divided by 1 - rate."""
    return _launch(x_NMD, weight_NDF, hidden_NMF.contiguous(), None, rate, tiles)


def _launch(
    x_NMD: Tensor,
    weight_NDF: Tensor,
    hidden_NMF: Tensor | None,
    key_N: Tensor | None,
    rate: float,
    tiles: Tiles | None,
) -> Tensor:
    (N, M, D), F = x_NMD.shape, weight_NDF.shape[2]
    tiles = tiles or TILES[x_NMD.dtype]
    out_NMF = x_NMD.new_empty((N, M, F))
    programs = triton.cdiv(M, tiles.rows) * triton.cdiv(F, tiles.columns)
    with torch.cuda.device_of(x_NMD):
        _multiply[programs, N](
            *(x_NMD, weight_NDF, hidden_NMF, key_N, out_NMF),
            *(*x_NMD.stride(), *weight_NDF.stride(), 0 if key_N is None else key_N.stride(0)),
            *(M, *rule(rate), D, F),
            *(tiles.rows, tiles.columns, _terms(D, tiles.terms), tiles.group),
            num_warps=tiles.warps,
            num_stages=tiles.stages,
        )
    return out_NMF


def _terms(width: int, most: int) -> int:
    """The largest power of two that divides the width, up to `most`: then no step of the sum needs a mask."""
    return min(width & -width, most)


@jit
def _multiply(
    x, weight, hidden, key, out, x_N, x_M, x_D, weight_N, weight_D, weight_F, key_N,
    M, threshold, inverse, D: tl.constexpr, F: tl.constexpr,
    B: tl.constexpr, W: tl.constexpr, C: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    """A tile of `x @ weight`."""
    n = tl.program_id(1).to(tl.int64)
    # Down the rows of a group, then on to its next column.
    rows, columns = tl.cdiv(M, B), tl.cdiv(F, W)
    group = tl.program_id(0) // (GROUP * columns)
    within = tl.program_id(0) % (GROUP * columns)
    height = tl.minimum(rows - group * GROUP, GROUP)
    first_m = (group * GROUP + within % height).to(tl.int64) * B
    first_f = (within // height) * W

    # Numbers of 64 bits are few: of the tile's first element. Those of its elements count from there.
    m_B, f_W, d_C = tl.arange(0, B), tl.arange(0, W), tl.arange(0, C)
    inside_B, inside_W = first_m + m_B < M, first_f + f_W < F
    x_BC = x + (n * x_N + first_m * x_M) + m_B[:, None] * x_M + d_C[None, :] * x_D
    weight_CW = weight + (n * weight_N + first_f * weight_F) + d_C[:, None] * weight_D + f_W[None, :] * weight_F
    sum_BW = tl.zeros((B, W), tl.float32)
    for _ in range(0, D, C):
        left_BC = tl.load(x_BC, mask=inside_B[:, None], other=0.0)
        right_CW = tl.load(weight_CW, mask=inside_W[None, :], other=0.0)
        sum_BW = tl.dot(left_BC, right_CW, sum_BW, input_precision="tf32x3")
        x_BC += C * x_D
        weight_CW += C * weight_D

    # By halves: what the epilogue computes of a whole tile would not fit the registers beside its sums.
    left_BH, right_BH = tl.split(tl.permute(tl.reshape(sum_BW, (B, 2, W // 2)), (0, 2, 1)))
    _finish(left_BH, hidden, key, out, n, first_m, first_f, key_N, M, threshold, inverse, F, B, W // 2)
    _finish(right_BH, hidden, key, out, n, first_m, first_f + W // 2, key_N, M, threshold, inverse, F, B, W // 2)


@jit
def _finish(
    sum_BW, hidden, key, out, n, first_m, first_f, key_N,
    M, threshold, inverse, F: tl.constexpr, B: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    """Stores W columns from `first_f` on: forwards, without `hidden`, after ReLU and dropout; backwards masked."""
    m_B, f_W = tl.arange(0, B), tl.arange(0, W)
    inside_BW = (first_m + m_B < M)[:, None] & (first_f + f_W < F)[None, :]
    place_BW = m_B[:, None] * F + f_W[None, :]
    first = first_m * F + first_f
    if hidden is None:
        stays_BW = sum_BW > 0
        if key is not None:
            stays_BW &= kept(first_m + m_B, first_f + f_W, tl.load(key + n * key_N), threshold)
    else:
        # What came out positive was positive before, and kept.
        stays_BW = tl.load(hidden + (n * M * F + first) + place_BW, mask=inside_BW, other=0.0) > 0
    # Rounded first: then threads exchange half the bytes, to store whole rows.
    product_BW = (sum_BW * inverse).to(out.dtype.element_ty)
    tl.store(out + (n * M * F + first) + place_BW, tl.where(stays_BW, product_BW, 0.0), mask=inside_BW)
