"""Rows of stacked matrices by their number: the states that predict something.

Shape letters: N models, M rows, P numbers, D width, B batch, T tokens. Inside a kernel: B numbers and W columns that a
program holds; a stride has the name of its array and the letter of its dimension.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lengthwise.kernels.attention import available
from lengthwise.kernels.parts import jit, tl, triton
from lengthwise.kernels.stacking import stacked

ELEMENTS = 4096
"""What a program copies at most."""


def pick_tokens(x_BTD: Tensor, chosen_P: Tensor) -> Tensor:
    """(P, D): the states of these tokens of a batch, by their number in it.

    A number may come up several times only if no more than one of its states has a gradient but zero.
    """
    x_MD = x_BTD.flatten(0, 1)
    if not available(x_MD.device):
        return x_MD.gather(0, chosen_P.long()[:, None].expand(-1, x_MD.shape[1]))
    return _Pick.apply(x_MD[None], chosen_P[None]).squeeze(0)


class _Pick(torch.autograd.Function):
    """For stacked models: (N, M, D) and (N, P) to (N, P, D)."""

    @staticmethod
    def forward(x_NMD: Tensor, numbers_NP: Tensor) -> Tensor:
        picked_NPD = x_NMD.new_empty((*numbers_NP.shape, x_NMD.shape[2]))
        _copy(_take, x_NMD if x_NMD[0].is_contiguous() else x_NMD.contiguous(), numbers_NP, picked_NPD)
        return picked_NPD

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], _output: Tensor) -> None:
        ctx.shape = inputs[0].shape
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, grad_NPD: Tensor) -> tuple[Tensor, None]:  # pyrefly: ignore
        (numbers_NP,) = ctx.saved_tensors
        dx_NMD = grad_NPD.new_zeros(ctx.shape)
        _copy(_put, dx_NMD, numbers_NP, grad_NPD.contiguous())
        return dx_NMD, None

    vmap = staticmethod(stacked(lambda *inputs: _Pick.apply(*inputs)))


def _copy(copy: Any, x_NMD: Tensor, numbers_NP: Tensor, picked_NPD: Tensor) -> None:
    """Between the rows of `x` with these numbers and `picked`."""
    (N, P), D = numbers_NP.shape, x_NMD.shape[2]
    W = triton.next_power_of_2(D)
    B = max(1, ELEMENTS // W)
    numbers = numbers_NP.contiguous()
    with torch.cuda.device_of(x_NMD):
        copy[triton.cdiv(P, B), N](x_NMD, numbers, picked_NPD, x_NMD.stride(0), P, D, B, W, num_warps=4)


@jit
def _take(x, numbers, picked, x_N, P, D: tl.constexpr, B: tl.constexpr, W: tl.constexpr):
    n = tl.program_id(1).to(tl.int64)
    p_B, d_W = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, W)
    inside_BW = (p_B < P)[:, None] & (d_W < D)[None, :]
    number_B = tl.load(numbers + n * P + p_B, mask=p_B < P, other=0).to(tl.int64)
    row_BW = tl.load(x + n * x_N + number_B[:, None] * D + d_W[None, :], mask=inside_BW)
    tl.store(picked + (n * P + p_B)[:, None] * D + d_W[None, :], row_BW, mask=inside_BW)


@jit
def _put(x, numbers, picked, x_N, P, D: tl.constexpr, B: tl.constexpr, W: tl.constexpr):
    n = tl.program_id(1).to(tl.int64)
    p_B, d_W = tl.program_id(0) * B + tl.arange(0, B), tl.arange(0, W)
    inside_BW = (p_B < P)[:, None] & (d_W < D)[None, :]
    number_B = tl.load(numbers + n * P + p_B, mask=p_B < P, other=0).to(tl.int64)
    row_BW = tl.load(picked + (n * P + p_B)[:, None] * D + d_W[None, :], mask=inside_BW, other=0.0)
    # Zeros are there already; those of padding must not overwrite the row whose number it borrows.
    any_B = tl.max((row_BW != 0.0).to(tl.int32), 1) > 0
    tl.store(x + n * x_N + number_B[:, None] * D + d_W[None, :], row_BW, mask=inside_BW & any_B[:, None])
