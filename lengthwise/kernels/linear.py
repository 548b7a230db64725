"""A matrix product without bias.

`nn.Linear` computes the same, but its weights, stored outputs first, have gradients that must be copied once more.
Shape letters: N models, M rows, I inputs, O outputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from lengthwise.kernels.side_stream import on_side_stream
from lengthwise.kernels.stacking import stacked


class Linear(nn.Module):
    grad_out: Tensor | None
    """Where the gradient of the weight is written; None where PyTorch finds it."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.register_buffer("grad_out", None, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return multiply(x, self.weight, self.grad_out)


def multiply(x: Tensor, weight_IO: Tensor, out_IO: Tensor | None = None) -> Tensor:
    """(*, I) to (*, O). The gradient of the weight is written to `out_IO`, where that is given."""
    x_MI = x.reshape(-1, x.shape[-1])
    if out_IO is None:
        product_MO = torch.mm(x_MI, weight_IO)
    else:
        product_MO = _Product.apply(x_MI[None], weight_IO[None], out_IO[None]).squeeze(0)
    return product_MO.view(*x.shape[:-1], -1)


class _Product(torch.autograd.Function):
    """For stacked models; the gradient of the weight is written beside everything else."""

    @staticmethod
    def forward(x_NMI: Tensor, weight_NIO: Tensor, _out_NIO: Tensor) -> Tensor:
        return _product(x_NMI, weight_NIO)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor, Tensor], _output: Tensor) -> None:
        x_NMI, weight_NIO, ctx.out_NIO = inputs
        ctx.save_for_backward(x_NMI, weight_NIO)

    @staticmethod
    def backward(ctx: Any, grad_NMO: Tensor) -> tuple[Tensor, None, None]:  # pyrefly: ignore
        x_NMI, weight_NIO = ctx.saved_tensors
        with on_side_stream(x_NMI, grad_NMO):
            _product(x_NMI.transpose(1, 2), grad_NMO, ctx.out_NIO)
        return _product(grad_NMO, weight_NIO.transpose(1, 2)), None, None

    vmap = staticmethod(stacked(lambda *inputs: _Product.apply(*inputs)))


def _product(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """Of stacked matrices; a lone model's is no batch, for which there are faster kernels."""
    if len(a) > 1:
        return torch.bmm(a, b, out=out)
    return torch.mm(a[0], b[0], out=None if out is None else out[0]).unsqueeze(0)
