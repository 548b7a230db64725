"""A matrix product without bias, spelled so that stacked models with a varying number of rows can be compiled.

`nn.Linear` computes the same. Under `vmap` PyTorch (2.11) cannot trace it with a size that is left open, and its
weights, stored outputs first, get gradients that must be copied once more.
"""

import torch
from torch import Tensor, nn


class Linear(nn.Module):
    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))

    def forward(self, x: Tensor) -> Tensor:
        return multiply(x, self.weight)


def multiply(x: Tensor, weight_IO: Tensor) -> Tensor:
    """(*, I) to (*, O)."""
    return torch.mm(x.reshape(-1, x.shape[-1]), weight_IO).view(*x.shape[:-1], -1)
