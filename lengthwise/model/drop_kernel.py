"""ReLU and dropout in one Triton kernel for stacked models; the gradient needs nothing but the output.

Shape letters: N models, M elements of a model.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lengthwise.model.kernel_parts import jit, stays, tl, triton
from lengthwise.model.stacking import stacked

BLOCK = 1024


def drop_relu(x: Tensor, key_N: Tensor, rate: float) -> Tensor:
    """`x` (N, *): what is positive and kept, divided by 1 - rate. See `dropout.kept` for what is kept."""
    return _drop_relu(x, key_N, rate)


@torch.library.custom_op("lengthwise::drop_relu", mutates_args=())
def _drop_relu(x: Tensor, key_N: Tensor, rate: float) -> Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    count = x[0].numel()
    with torch.cuda.device_of(x):
        _forward[triton.cdiv(count, BLOCK), len(x)](
            x, key_N.contiguous(), out, count, int(rate * 2**31), 1 / (1 - rate), BLOCK, num_warps=4
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
def _forward(x, key, out, count, threshold, inverse, BLOCK: tl.constexpr):
    n = tl.program_id(1).to(tl.int64)
    index_M = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside_M = index_M < count
    x_M = tl.load(x + n * count + index_M, mask=inside_M, other=0.0).to(tl.float32)
    kept_M = stays(index_M.to(tl.uint32), tl.load(key + n), threshold)
    tl.store(out + n * count + index_M, tl.where(kept_M & (x_M > 0), x_M * inverse, 0.0), mask=inside_M)


@jit
def _backward_kernel(grad, out, dx, count, inverse, BLOCK: tl.constexpr):
    index_M = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside_M = index_M < count
    grad_M = tl.load(grad + index_M, mask=inside_M, other=0.0).to(tl.float32)
    # What came out positive was positive before, and kept.
    positive_M = tl.load(out + index_M, mask=inside_M, other=0.0) > 0
    tl.store(dx + index_M, tl.where(positive_M, grad_M * inverse, 0.0), mask=inside_M)
