"""Gates of tokens, log sigmoid of a linear map, in one Triton kernel; their gradients in two.

Shape letters: N models, M tokens of a model, D width, C gates of a token, P blocks of tokens, L = C x D + C weights and
biases. Inside a kernel: B tokens and W columns that a program holds, G gates, the power of two from C on; a stride has
the name of its array and the letter of its dimension. Nothing depends on how many models are stacked, and nothing is
added up in an order left to chance: the same inputs give the same bits.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from lengthwise.kernels.norm import add_up
from lengthwise.kernels.parts import jit, tl, triton
from lengthwise.kernels.stacking import stacked

WIDEST, MOST = 4096, 32


class Tiles(NamedTuple):
    """What a program holds."""

    tokens: int
    columns: int


FORWARD = {torch.bfloat16: Tiles(16, 256), torch.float32: Tiles(16, 64)}
"""Few tokens, for the sake of many programs: a program needs the whole width of a token."""
BACKWARD = {torch.bfloat16: Tiles(64, 128), torch.float32: Tiles(32, 32)}
"""The products of fp32 are none of the tensor cores': their operands lie in registers, and must be small."""


def supports(x: Tensor, weight: Tensor, bias: Tensor) -> bool:
    """Whether there is a kernel for inputs (*, D), weights (*, C, D) and biases (*, C) such as these."""
    C, D = weight.shape[-2:]
    dtypes = {x.dtype, weight.dtype, bias.dtype}
    return D % 16 == 0 and D <= WIDEST and C <= MOST and len(dtypes) == 1 and dtypes <= FORWARD.keys()


def log_sigmoid_gates(x_NMD: Tensor, weight_NCD: Tensor, bias_NC: Tensor) -> Tensor:
    """Log sigmoid of `x . weight + bias`, (N, M, C) in fp32; products of bf16 too are added up in fp32.

    Under `torch.func.vmap` the stacked models join N; gradients are taken outside of it.
    """
    if x_NMD.ndim != 3 or not supports(x_NMD, weight_NCD, bias_NC):
        raise ValueError(
            f"the kernel takes (N, M, D) with D a multiple of 16 up to {WIDEST} and up to {MOST} gates, all in float32 "
            f"or in bfloat16, not {tuple(x_NMD.shape)} of {x_NMD.dtype} and {tuple(weight_NCD.shape)} of "
            f"{weight_NCD.dtype}"
        )
    return _gates(x_NMD, weight_NCD, bias_NC)


@torch.library.custom_op("lengthwise::gates", mutates_args=())
def _gates(x_NMD: Tensor, weight_NCD: Tensor, bias_NC: Tensor) -> Tensor:
    out_NMC = _like(x_NMD, weight_NCD)
    x, weight, bias = map(_whole_models, (x_NMD, weight_NCD, bias_NC))
    (N, M, D), C = x.shape, weight.shape[1]
    B, W = _tiles(FORWARD, x)
    with torch.cuda.device_of(x):
        _forward[triton.cdiv(M, B), N](
            *(x, weight, bias, out_NMC, x.stride(0), weight.stride(0), bias.stride(0)),
            *(M, C, D, B, W, _padded(C)),
            num_warps=4,
            num_stages=4,  # three blocks of columns on their way at once: the whole of a token of width 768
        )
    return out_NMC


@torch.library.custom_op("lengthwise::gates_backward", mutates_args=())
def _gates_backward(grad_NMC: Tensor, out_NMC: Tensor, x_NMD: Tensor, weight_NCD: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the gradients of the inputs and, joined, of weights and biases."""
    dx_NMD, joined_NL = _like_backward(x_NMD, weight_NCD)
    grad, out, x, weight = map(_whole_models, (grad_NMC, out_NMC, x_NMD, weight_NCD))
    (N, M, D), C = x.shape, weight.shape[1]
    B, W = _tiles(BACKWARD, x)
    part_NPL = x.new_empty((N, -(-M // B), joined_NL.shape[1]), dtype=torch.float32)
    with torch.cuda.device_of(x):
        _backward_kernel[triton.cdiv(M, B), triton.cdiv(D, W), N](
            *(grad, out, x, weight, dx_NMD, part_NPL),
            *(grad.stride(0), out.stride(0), x.stride(0), weight.stride(0)),
            *(M, C, D, B, W, _padded(C)),
            num_warps=4,
        )
    add_up(part_NPL, joined_NL)
    return dx_NMD, joined_NL


def _whole_models(x: Tensor) -> Tensor:
    """The kernels know only the stride between models; those within a model they take to be of a contiguous array."""
    return x if x[0].is_contiguous() else x.contiguous()


def _tiles(tiles: dict[torch.dtype, Tiles], x: Tensor) -> tuple[int, int]:
    B, W = tiles[x.dtype]
    return B, min(W, 1 << (x.shape[-1] - 1).bit_length())


def _padded(gates: int) -> int:
    """A matrix product has 16 rows and columns at least."""
    return max(16, 1 << (gates - 1).bit_length())


def _like(x_NMD: Tensor, weight_NCD: Tensor) -> Tensor:
    return x_NMD.new_empty((*x_NMD.shape[:2], weight_NCD.shape[1]), dtype=torch.float32)


def _like_backward(x_NMD: Tensor, weight_NCD: Tensor) -> tuple[Tensor, Tensor]:
    N, C, D = weight_NCD.shape
    return x_NMD.new_empty(x_NMD.shape), weight_NCD.new_empty((N, C * D + C))


@_gates.register_fake
def _(x_NMD: Tensor, weight_NCD: Tensor, bias_NC: Tensor) -> Tensor:
    return _like(x_NMD, weight_NCD)


@_gates_backward.register_fake
def _(grad_NMC: Tensor, out_NMC: Tensor, x_NMD: Tensor, weight_NCD: Tensor) -> tuple[Tensor, Tensor]:
    return _like_backward(x_NMD, weight_NCD)


def _setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(output, *inputs[:2])


def _backward(ctx: Any, grad_NMC: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    C, D = ctx.saved_tensors[2].shape[1:]
    dx_NMD, joined_NL = _gates_backward(grad_NMC, *ctx.saved_tensors)
    return dx_NMD, joined_NL[:, : C * D].unflatten(1, (C, D)), joined_NL[:, C * D :]


_gates.register_autograd(_backward, setup_context=_setup_context)
_gates.register_vmap(stacked(_gates))
_gates_backward.register_vmap(stacked(_gates_backward))


@jit
def _log_sigmoid(x):
    """Exact for large x too, where the logarithm of what is nearly 1 is not."""
    small = tl.exp(-tl.abs(x))
    more = 1 + small
    rounded = more == 1
    logarithm = tl.where(rounded, small, tl.log(more) * small / tl.where(rounded, 1.0, more - 1))
    return tl.minimum(x, 0.0) - logarithm


@jit
def _rest(x):
    """1 - exp(x) of x up to 0: the sigmoid of minus a gate whose log sigmoid x is. A series where the two are close."""
    series = -x * (1 + x / 2 * (1 + x / 3 * (1 + x / 4)))
    return tl.where(x > -0.05, series, 1 - tl.exp(x))


@jit
def _forward(
    x, weight, bias, out, x_N, weight_N, bias_N,
    M, C, D: tl.constexpr, B: tl.constexpr, W: tl.constexpr, G: tl.constexpr,
):  # fmt: skip
    n, start = tl.program_id(1).to(tl.int64), tl.program_id(0).to(tl.int64) * B
    m_B, c_G = tl.arange(0, B), tl.arange(0, G)
    x += n * x_N + start * D
    weight += n * weight_N
    inside_B, inside_G = start + m_B < M, c_G < C
    gate_BG = tl.zeros((B, G), tl.float32)
    for first in range(0, D, W):
        d_W = first + tl.arange(0, W)
        x_BW = tl.load(x + m_B[:, None] * D + d_W[None, :], mask=inside_B[:, None] & (d_W < D)[None, :], other=0.0)
        place_WG = d_W[:, None] + c_G[None, :] * D
        weight_WG = tl.load(weight + place_WG, mask=(d_W < D)[:, None] & inside_G[None, :], other=0.0)
        gate_BG = tl.dot(x_BW, weight_WG, gate_BG, input_precision="ieee")
    gate_BG += tl.load(bias + n * bias_N + c_G, mask=inside_G, other=0.0).to(tl.float32)[None, :]
    place_BG = (n * M + start) * C + m_B[:, None] * C + c_G[None, :]
    tl.store(out + place_BG, _log_sigmoid(gate_BG), mask=inside_B[:, None] & inside_G[None, :])


@jit
def _backward_kernel(
    grad, out, x, weight, dx, part, grad_N, out_N, x_N, weight_N,
    M, C, D: tl.constexpr, B: tl.constexpr, W: tl.constexpr, G: tl.constexpr,
):  # fmt: skip
    """One block of tokens and of columns: the gradient of the inputs, and a part of that of the weights."""
    n, start = tl.program_id(2).to(tl.int64), tl.program_id(0).to(tl.int64) * B
    m_B, c_G, d_W = tl.arange(0, B), tl.arange(0, G), tl.program_id(1) * W + tl.arange(0, W)
    inside_BG = (start + m_B < M)[:, None] & (c_G < C)[None, :]
    inside_BW = (start + m_B < M)[:, None] & (d_W < D)[None, :]
    inside_GW = (c_G < C)[:, None] & (d_W < D)[None, :]
    place_BG, place_BW = m_B[:, None] * C + c_G[None, :], m_B[:, None] * D + d_W[None, :]
    place_GW = c_G[:, None] * D + d_W[None, :]
    x_BW = tl.load(x + (n * x_N + start * D) + place_BW, mask=inside_BW, other=0.0)
    weight_GW = tl.load(weight + n * weight_N + place_GW, mask=inside_GW, other=0.0)
    grad_BG = tl.load(grad + (n * grad_N + start * C) + place_BG, mask=inside_BG, other=0.0)
    out_BG = tl.load(out + (n * out_N + start * C) + place_BG, mask=inside_BG, other=0.0)
    dgate_BG = grad_BG * _rest(out_BG)
    rounded_BG = dgate_BG.to(x_BW.dtype)
    dx_BW = tl.dot(rounded_BG, weight_GW, input_precision="ieee")
    tl.store(dx + (n * M + start) * D + place_BW, dx_BW.to(x_BW.dtype), mask=inside_BW)
    part += (n * tl.num_programs(0) + tl.program_id(0)) * (C * D + C)
    tl.store(part + place_GW, tl.dot(tl.trans(rounded_BG), x_BW, input_precision="ieee"), mask=inside_GW)
    if tl.program_id(1) == 0:
        tl.store(part + C * D + c_G, tl.sum(dgate_BG, 0), mask=c_G < C)
