"""Rows of stacked matrices by their number: the states that predict something.

Shape letters: N models, M rows, P numbers, D width.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lengthwise.model.stacking import stacked


def pick(x_NMD: Tensor, numbers_NP: Tensor) -> Tensor:
    """(N, P, D). A number may come up several times only if no more than one of its rows has a gradient but zero."""
    return _Pick.apply(x_NMD, numbers_NP)


class _Pick(torch.autograd.Function):
    @staticmethod
    def forward(x_NMD: Tensor, numbers_NP: Tensor) -> Tensor:
        models, rows = x_NMD.shape[:2]
        picked = x_NMD.reshape(models * rows, -1).index_select(0, _places(numbers_NP, rows))
        return picked.view(models, numbers_NP.shape[1], -1)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], _output: Tensor) -> None:
        ctx.shape = inputs[0].shape
        ctx.save_for_backward(inputs[1])

    @staticmethod
    def backward(ctx: Any, grad_NPD: Tensor) -> tuple[Tensor, None]:  # pyrefly: ignore
        (numbers_NP,) = ctx.saved_tensors
        models, rows, width = ctx.shape
        # Adding zeros in any order gives the same bits, so this is as good as copying.
        dx = grad_NPD.new_zeros(models * rows, width)
        dx.index_add_(0, _places(numbers_NP, rows), grad_NPD.reshape(-1, width))
        return dx.view(ctx.shape), None

    vmap = staticmethod(stacked(lambda *inputs: _Pick.apply(*inputs)))


def _places(numbers_NP: Tensor, rows: int) -> Tensor:
    """Among the rows of all models."""
    if len(numbers_NP) == 1:
        return numbers_NP[0]
    first_N = torch.arange(len(numbers_NP), device=numbers_NP.device, dtype=numbers_NP.dtype) * rows
    return (numbers_NP + first_N[:, None]).flatten()
