"""Sums of numbers of tokens up to each token, in one Triton kernel each way.

PyTorch's own take five: of a dimension that is not the last, and back to front for the gradient. Shape letters: N
models, B rows, S tokens, C numbers of a token. Inside a kernel: T tokens that a program holds at a time, W numbers.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lengthwise.kernels.parts import jit, tl, triton
from lengthwise.kernels.stacking import stacked

BLOCK = 64
"""Tokens that a program holds at a time."""


def running_sums(numbers_BSC: Tensor) -> Tensor:
    """Up to each token and itself among them, in fp32. Beside each other in memory are the sums of one number."""
    return _running_sums(numbers_BSC.float()[None], False).squeeze(0).transpose(1, 2)


@torch.library.custom_op("lengthwise::running_sums", mutates_args=())
def _running_sums(x: Tensor, back: bool) -> Tensor:
    """(N, B, S, C) to sums (N, B, C, S); `back`: (N, B, C, S) to sums from the end (N, B, S, C)."""
    out = _like(x)
    N, B, S, C = out.shape if back else x.shape
    T, W = min(BLOCK, triton.next_power_of_2(S)), triton.next_power_of_2(C)
    with torch.cuda.device_of(x):
        _sums[N * B,](x.contiguous(), out, S, C, back, T, W, num_warps=4)
    return out


def _like(x: Tensor) -> Tensor:
    return x.new_empty((*x.shape[:2], x.shape[3], x.shape[2]))


@_running_sums.register_fake
def _(x: Tensor, back: bool) -> Tensor:
    return _like(x)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.back = inputs[1]


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    return _running_sums(grad, not ctx.back), None


_running_sums.register_autograd(_backward, setup_context=_setup_context)
_running_sums.register_vmap(stacked(_running_sums))


@jit
def _sums(x, out, S, C, BACK: tl.constexpr, T: tl.constexpr, W: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * S * C
    t_T, c_W = tl.arange(0, T), tl.arange(0, W)
    before_W = tl.zeros((W,), tl.float32)
    for first in range(0, S, T):
        s_T = (S - 1 - first - t_T) if BACK else (first + t_T)
        inside_TW = ((s_T >= 0) & (s_T < S))[:, None] & (c_W < C)[None, :]
        by_token_TW, by_number_TW = s_T[:, None] * C + c_W[None, :], c_W[None, :] * S + s_T[:, None]
        x_TW = tl.load(x + row + (by_number_TW if BACK else by_token_TW), mask=inside_TW, other=0.0)
        sums_TW = tl.cumsum(x_TW, 0) + before_W[None, :]
        tl.store(out + row + (by_token_TW if BACK else by_number_TW), sums_TW, mask=inside_TW)
        before_W += tl.sum(x_TW, 0)
