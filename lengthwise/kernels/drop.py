"""ReLU and dropout in one Triton kernel for stacked models; the gradient needs nothing but the output.

Shape letters: N models, M rows of a model, F columns. Inside a kernel: B rows and W columns that a program holds.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lengthwise.kernels.parts import jit, kept, rule, tl, triton
from lengthwise.kernels.stacking import stacked

BLOCK = 1024
"""Elements that a program holds."""


def drop_relu(x: Tensor, key_N: Tensor, rate: float) -> Tensor:
    """`x` (N, *): what is positive and kept, divided by 1 - rate. See `dropout.kept` for what is kept."""
    return _drop_relu(x, key_N, rate)


@torch.library.custom_op("lengthwise::drop_relu", mutates_args=())
def _drop_relu(x: Tensor, key_N: Tensor, rate: float) -> Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    N, F = len(x), x.shape[-1]
    M = x[0].numel() // F
    W = min(BLOCK, triton.next_power_of_2(F))
    B = BLOCK // W
    with torch.cuda.device_of(x):
        _forward[triton.cdiv(M, B), triton.cdiv(F, W), N](
            x, key_N.contiguous(), out, M, *rule(rate), F, B, W, num_warps=4
        )
    return out


@_drop_relu.register_fake
def _(x: Tensor, key_N: Tensor, rate: float) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.rate = inputs[2]
    ctx.save_for_backward(output)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
    (out,) = ctx.saved_tensors
    return _drop_relu_backward(grad, out, ctx.rate), None, None


@torch.library.custom_op("lengthwise::drop_relu_backward", mutates_args=())
def _drop_relu_backward(grad: Tensor, out: Tensor, rate: float) -> Tensor:
    grad, out = grad.contiguous(), out.contiguous()
    dx = torch.empty_like(out)
    count = out.numel()
    with torch.cuda.device_of(out):
        _backward_kernel[triton.cdiv(count, BLOCK),](grad, out, dx, count, 1 / (1 - rate), BLOCK, num_warps=4)
    return dx


@_drop_relu_backward.register_fake
def _(grad: Tensor, out: Tensor, rate: float) -> Tensor:
    return torch.empty_like(out, memory_format=torch.contiguous_format)


_drop_relu.register_autograd(_backward, setup_context=_setup_context)
_drop_relu.register_vmap(stacked(_drop_relu))
_drop_relu_backward.register_vmap(stacked(_drop_relu_backward))


@jit
def _forward(x, key, out, M, threshold, inverse, F: tl.constexpr, B: tl.constexpr, W: tl.constexpr):
    n = tl.program_id(2).to(tl.int64)
    m_B, f_W = tl.program_id(0).to(tl.int64) * B + tl.arange(0, B), tl.program_id(1) * W + tl.arange(0, W)
    inside_BW = (m_B < M)[:, None] & (f_W < F)[None, :]
    place_BW = (n * M + m_B)[:, None] * F + f_W[None, :]
    x_BW = tl.load(x + place_BW, mask=inside_BW, other=0.0).to(tl.float32)
    kept_BW = kept(m_B, f_W, tl.load(key + n), threshold)
    tl.store(out + place_BW, tl.where(kept_BW & (x_BW > 0), x_BW * inverse, 0.0), mask=inside_BW)


@jit
def _backward_kernel(grad, out, dx, count, inverse, BLOCK: tl.constexpr):
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    grads = tl.load(grad + index, mask=inside, other=0.0).to(tl.float32)
    # What came out positive was positive before, and kept.
    positive = tl.load(out + index, mask=inside, other=0.0) > 0
    tl.store(dx + index, tl.where(positive, grads * inverse, 0.0), mask=inside)
