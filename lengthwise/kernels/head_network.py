"""A small network over heads that changes every logit by what all heads say of a query and a key (DAPE), in Triton.

Eager, it takes two products with a few rows over all pairs of tokens, whose weights' gradients are sums of hundreds of
thousands of terms. Shape letters: N models, B rows, A = B or 1, H heads, M pairs of a query and a key, W width of the
network, C = 2H. Inside a kernel: P pairs that a program holds, Y and V the powers of two from H and W on. Nothing is
added up in an order left to chance.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lengthwise.kernels.parts import jit, tl, triton
from lengthwise.kernels.stacking import stacked

MOST_HEADS, WIDEST = 32, 64
PAIRS = 64
"""That a program holds at a time; 16 divides the tokens of a row, and so 64 divides its pairs."""
PROGRAMS = 256
"""For the rows of a model: each adds up the gradients of the weights over its share of them."""
SLOPE = tl.constexpr(0.01) if tl is not None else 0.01
"""Of what is below zero: PyTorch's leaky ReLU."""


def supports(inner_WC: Tensor, _inner_W: Tensor, outer_HW: Tensor, _outer_H: Tensor) -> bool:
    """Whether there is a kernel for a network of that size."""
    heads, width = outer_HW.shape
    return heads <= MOST_HEADS and width <= WIDEST and inner_WC.shape == (width, 2 * heads)


def changed(
    content_BHTS: Tensor,
    bias_AHTS: Tensor | None,
    inner_WC: Tensor,
    inner_W: Tensor,
    outer_HW: Tensor,
    outer_H: Tensor,
    exact: bool = True,
) -> Tensor:
    """Logits (B, H, T, S) in fp32: products, biases, and what the network makes of both.

    `exact`: products of fp32 are not rounded to what a tensor core takes at once, which has more digits than bf16.
    """
    if bias_AHTS is None:
        bias_AHTS = content_BHTS.new_zeros(1, 1, 1, 1)
    bias_AHM = bias_AHTS.expand(-1, *content_BHTS.shape[1:]).flatten(2)
    weights = (each.float()[None] for each in (inner_WC, inner_W, outer_HW, outer_H))
    return _changed(content_BHTS.flatten(2)[None], bias_AHM[None], *weights, exact).view(content_BHTS.shape)


@torch.library.custom_op("lengthwise::head_network", mutates_args=())
def _changed(
    content_NBHM: Tensor,
    bias_NAHM: Tensor,
    inner_NWC: Tensor,
    inner_NW: Tensor,
    outer_NHW: Tensor,
    outer_NH: Tensor,
    exact: bool,
) -> Tensor:
    given = (content_NBHM, bias_NAHM, inner_NWC, inner_NW, outer_NHW, outer_NH)
    arrays = [each.contiguous() for each in given]
    out_NBHM = torch.empty_like(arrays[0])
    N, B, H, M = content_NBHM.shape
    with torch.cuda.device_of(out_NBHM):
        _forward[M // PAIRS, B, N](*arrays, out_NBHM, *_sizes(bias_NAHM, inner_NW, H, M, exact), num_warps=4)
    return out_NBHM


@torch.library.custom_op("lengthwise::head_network_backward", mutates_args=())
def _changed_backward(
    grad_NBHM: Tensor,
    content_NBHM: Tensor,
    bias_NAHM: Tensor,
    inner_NWC: Tensor,
    inner_NW: Tensor,
    outer_NHW: Tensor,
    outer_NH: Tensor,
    exact: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Returns the gradients of products, of biases, and of weights, joined."""
    given = (grad_NBHM, content_NBHM, bias_NAHM, inner_NWC, inner_NW, outer_NHW, outer_NH)
    arrays = [each.contiguous() for each in given]
    N, B, H, M = content_NBHM.shape
    A, programs = bias_NAHM.shape[1], min(PROGRAMS, B * M // PAIRS)
    dcontent_NBHM, dbias_NBHM = torch.empty_like(arrays[1]), torch.empty_like(arrays[1])
    size = sum(each[0].numel() for each in given[3:])
    part_NGL = inner_NWC.new_empty((N, programs, size))
    with torch.cuda.device_of(dcontent_NBHM):
        sizes = _sizes(bias_NAHM, inner_NW, H, M, exact)
        _backward[programs, N](*arrays, dcontent_NBHM, dbias_NBHM, part_NGL, B, size, programs, *sizes, num_warps=4)
    dbias_NAHM = dbias_NBHM if A == B else dbias_NBHM.sum(1, keepdim=True)
    return dcontent_NBHM, dbias_NAHM, part_NGL.sum(1)


def _sizes(bias_NAHM: Tensor, inner_NW: Tensor, H: int, M: int, exact: bool) -> tuple[Any, ...]:
    W = inner_NW.shape[1]
    padded = (max(16, triton.next_power_of_2(each)) for each in (H, W))
    return (M, bias_NAHM.shape[1], H, W, PAIRS, *padded, "tf32x3" if exact else "tf32")


@_changed.register_fake
def _(content_NBHM: Tensor, *_: Any) -> Tensor:
    return content_NBHM.new_empty(content_NBHM.shape)


@_changed_backward.register_fake
def _(_grad: Tensor, content_NBHM: Tensor, bias_NAHM: Tensor, *others: Any) -> tuple[Tensor, Tensor, Tensor]:
    size = sum(each[0].numel() for each in others[:-1])
    new = content_NBHM.new_empty
    return new(content_NBHM.shape), new(bias_NAHM.shape), new((len(content_NBHM), size))


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.exact = inputs
    ctx.save_for_backward(*tensors)


def _backward_of_change(ctx: Any, grad_NBHM: Tensor) -> tuple[Tensor | None, ...]:
    dcontent_NBHM, dbias_NAHM, joined_NL = _changed_backward(grad_NBHM, *ctx.saved_tensors, ctx.exact)
    weights = ctx.saved_tensors[2:]
    parts = joined_NL.split([each[0].numel() for each in weights], dim=1)
    return dcontent_NBHM, dbias_NAHM, *(part.view(each.shape) for part, each in zip(parts, weights, strict=True)), None


_changed.register_autograd(_backward_of_change, setup_context=_setup_context)
_changed.register_vmap(stacked(_changed))
_changed_backward.register_vmap(stacked(_changed_backward))


@jit
def _network(
    inner, inner_bias, outer, outer_bias, n, H: tl.constexpr, W: tl.constexpr, Y: tl.constexpr, V: tl.constexpr
):
    """Its weights, those of the inner layer apart for products and for biases."""
    h_Y, w_V = tl.arange(0, Y), tl.arange(0, V)
    place_VY = (n * W + w_V[:, None]) * 2 * H + h_Y[None, :]
    inside_VY = (w_V < W)[:, None] & (h_Y < H)[None, :]
    of_content_VY = tl.load(inner + place_VY, mask=inside_VY, other=0.0)
    of_bias_VY = tl.load(inner + place_VY + H, mask=inside_VY, other=0.0)
    first_V = tl.load(inner_bias + n * W + w_V, mask=w_V < W, other=0.0)
    place_YV = (n * H + h_Y[:, None]) * W + w_V[None, :]
    outer_YV = tl.load(outer + place_YV, mask=(h_Y < H)[:, None] & (w_V < W)[None, :], other=0.0)
    second_Y = tl.load(outer_bias + n * H + h_Y, mask=h_Y < H, other=0.0)
    return of_content_VY, of_bias_VY, first_V, outer_YV, second_Y


@jit
def _inner(content_YP, bias_YP, of_content_VY, of_bias_VY, first_V, PRECISION: tl.constexpr):
    """The inner layer, before what is below zero shrinks."""
    inner_VP = tl.dot(of_content_VY, content_YP, input_precision=PRECISION)
    return inner_VP + tl.dot(of_bias_VY, bias_YP, input_precision=PRECISION) + first_V[:, None]


@jit
def _forward(
    content, bias, inner, inner_bias, outer, outer_bias, out,
    M, A, H: tl.constexpr, W: tl.constexpr, P: tl.constexpr, Y: tl.constexpr, V: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    b, n = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    h_Y, m_P = tl.arange(0, Y), tl.program_id(0) * P + tl.arange(0, P)
    network = _network(inner, inner_bias, outer, outer_bias, n, H, W, Y, V)
    of_content_VY, of_bias_VY, first_V, outer_YV, second_Y = network
    place_YP = ((n * tl.num_programs(1) + b) * H + h_Y[:, None]) * M + m_P[None, :]
    bias_at_YP = ((n * A + b % A) * H + h_Y[:, None]) * M + m_P[None, :]
    known_YP = (h_Y < H)[:, None] & (m_P < M)[None, :]
    content_YP = tl.load(content + place_YP, mask=known_YP, other=0.0)
    bias_YP = tl.load(bias + bias_at_YP, mask=known_YP, other=0.0)
    inner_VP = _inner(content_YP, bias_YP, of_content_VY, of_bias_VY, first_V, PRECISION)
    inner_VP = tl.where(inner_VP > 0, inner_VP, inner_VP * SLOPE)
    more_YP = tl.dot(outer_YV, inner_VP, input_precision=PRECISION) + second_Y[:, None]
    tl.store(out + place_YP, content_YP + bias_YP + more_YP, mask=known_YP)


@jit
def _backward(
    grad, content, bias, inner, inner_bias, outer, outer_bias, dcontent, dbias, part,
    B, L, G: tl.constexpr, M, A, H: tl.constexpr, W: tl.constexpr, P: tl.constexpr, Y: tl.constexpr, V: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(1).to(tl.int64)
    h_Y, w_V = tl.arange(0, Y), tl.arange(0, V)
    network = _network(inner, inner_bias, outer, outer_bias, n, H, W, Y, V)
    of_content_VY, of_bias_VY, first_V, outer_YV, _ = network
    dof_content_VY, dof_bias_VY = tl.zeros((V, Y), tl.float32), tl.zeros((V, Y), tl.float32)
    douter_YV = tl.zeros((Y, V), tl.float32)
    dfirst_V, dsecond_Y = tl.zeros((V,), tl.float32), tl.zeros((Y,), tl.float32)
    for block in range(tl.program_id(0) + 0, B * (M // P), G):
        b, m_P = (block // (M // P)).to(tl.int64), block % (M // P) * P + tl.arange(0, P)
        place_YP = ((n * B + b) * H + h_Y[:, None]) * M + m_P[None, :]
        bias_at_YP = ((n * A + b % A) * H + h_Y[:, None]) * M + m_P[None, :]
        known_YP = (h_Y < H)[:, None] & (m_P < M)[None, :]
        content_YP = tl.load(content + place_YP, mask=known_YP, other=0.0)
        bias_YP = tl.load(bias + bias_at_YP, mask=known_YP, other=0.0)
        grad_YP = tl.load(grad + place_YP, mask=known_YP, other=0.0)
        inner_VP = _inner(content_YP, bias_YP, of_content_VY, of_bias_VY, first_V, PRECISION)
        slope_VP = tl.where(inner_VP > 0, 1.0, SLOPE)
        dinner_VP = tl.dot(tl.trans(outer_YV), grad_YP, input_precision=PRECISION) * slope_VP
        more_YP = tl.dot(tl.trans(of_content_VY), dinner_VP, input_precision=PRECISION)
        tl.store(dcontent + place_YP, grad_YP + more_YP, mask=known_YP)
        more_YP = tl.dot(tl.trans(of_bias_VY), dinner_VP, input_precision=PRECISION)
        tl.store(dbias + place_YP, grad_YP + more_YP, mask=known_YP)
        dof_content_VY += tl.dot(dinner_VP, tl.trans(content_YP), input_precision=PRECISION)
        dof_bias_VY += tl.dot(dinner_VP, tl.trans(bias_YP), input_precision=PRECISION)
        douter_YV += tl.dot(grad_YP, tl.trans(inner_VP * slope_VP), input_precision=PRECISION)
        dfirst_V += tl.sum(dinner_VP, 1)
        dsecond_Y += tl.sum(grad_YP, 1)
    part += (n * G + tl.program_id(0)) * L
    place_VY = w_V[:, None] * 2 * H + h_Y[None, :]
    inside_VY = (w_V < W)[:, None] & (h_Y < H)[None, :]
    tl.store(part + place_VY, dof_content_VY, mask=inside_VY)
    tl.store(part + place_VY + H, dof_bias_VY, mask=inside_VY)
    part += 2 * H * W
    tl.store(part + w_V, dfirst_V, mask=w_V < W)
    part += W
    tl.store(part + h_Y[:, None] * W + w_V[None, :], douter_YV, mask=(h_Y < H)[:, None] & (w_V < W)[None, :])
    part += H * W
    tl.store(part + h_Y, dsecond_Y, mask=h_Y < H)
