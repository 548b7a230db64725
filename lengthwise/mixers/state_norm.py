"""The norm of what a mixer's states say."""

import torch.nn.functional as F
from torch import Tensor, nn


class StateNorm(nn.RMSNorm):
    """States stay in fp32 where weights are read in bf16, and so does their norm."""

    def forward(self, x: Tensor) -> Tensor:
        assert self.weight is not None
        return F.rms_norm(x, self.normalized_shape, self.weight.to(x.dtype), self.eps)
