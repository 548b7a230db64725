"""RMSNorm: every state divided by its root mean square, times a learned weight."""

import torch
from torch import Tensor, nn


class RMSNorm(nn.Module):
    grad_out: Tensor | None
    """Where a kernel writes the gradient of the weight; None where PyTorch finds it."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.register_buffer("grad_out", None, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * self.weight
