"""The other half of a block: every token by itself."""

import torch.nn.functional as F
from torch import Tensor, nn

from lengthwise.kernels.linear import Linear
from lengthwise.kernels.ops import Ops
from lengthwise.model.config import ModelConfig


class ReluFeedForward(nn.Module):
    """Of the `t5` style."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.inner = Linear(config.width, config.inner_width)
        self.output = Linear(config.inner_width, config.width)

    def forward(self, x_BTD: Tensor, ops: Ops) -> Tensor:
        return ops.relu_feed_forward(x_BTD, self.inner, self.output)


class SwigluFeedForward(nn.Module):
    """Of the `llama` style."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.gate = Linear(config.width, config.inner_width)
        self.inner = Linear(config.width, config.inner_width)
        self.output = Linear(config.inner_width, config.width)

    def forward(self, x_BTD: Tensor, ops: Ops) -> Tensor:
        return self.output(ops.drop(F.silu(self.gate(x_BTD)) * self.inner(x_BTD)))


def make_feed_forward(config: ModelConfig) -> nn.Module:
    return ReluFeedForward(config) if config.style == "t5" else SwigluFeedForward(config)
