"""Gates of tokens, declared: a backend may have a faster program for them than PyTorch's.

Shape letters: B batch, T tokens, C gates of a token, D model width.
"""

from dataclasses import dataclass

import torch.nn.functional as F
from torch import Tensor

from lengthwise.encodings.linear import linear


@dataclass(frozen=True)
class Gates:
    """Numbers of a token: the log sigmoid of a linear map of what the layer reads."""

    weight_CD: Tensor
    bias_C: Tensor

    def of(self, layer_input_BTD: Tensor) -> Tensor:
        """(B, T, C), in fp32 whatever the model computes in."""
        return F.logsigmoid(linear(layer_input_BTD, self.weight_CD, self.bias_C))
