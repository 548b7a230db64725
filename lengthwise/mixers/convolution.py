"""A causal convolution over the last few tokens of a sequence, one filter for each entry.

Shape letters: B batch, T tokens, C entries, W width of the filter.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class CausalConvolution(nn.Module):
    """Each entry of a token is a sum over the same entry of the last tokens of its sequence, itself among them."""

    def __init__(self, entries: int, width: int, bias: bool = False) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(entries, width))
        """Last the one of the token itself."""
        self.bias = nn.Parameter(torch.zeros(entries)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """As PyTorch begins a convolution with as many inputs."""
        bound = self.weight.shape[1] ** -0.5
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -bound, bound)

    @property
    def remembered(self) -> tuple[int, int]:
        """Shape of what must be remembered of earlier calls: the last tokens but for the one that comes."""
        return self.weight.shape[1] - 1, self.weight.shape[0]

    def forward(self, x_BTC: Tensor, continues_BT: Tensor, before: Tensor) -> tuple[Tensor, Tensor]:
        """The sums, and what must be remembered. `before`: what was, (B, W - 1, C), 0 where there was nothing."""
        width, length = self.weight.shape[1], x_BTC.shape[1]
        given = torch.cat([before.to(x_BTC.dtype), x_BTC], dim=1)
        # What is remembered is 0 where it was of another sequence than the last token: before the first token of this
        # call a sequence counts as going on.
        goes_on = F.pad(continues_BT.to(x_BTC.dtype), (width - 1, 0), value=1.0)[..., None]
        total, seen = x_BTC * self.weight[:, -1], torch.ones_like(goes_on[:, width - 1 :])
        for back in range(1, width):
            seen = seen * goes_on[:, width - back : width - back + length]
            first = width - 1 - back
            total = total + given[:, first : first + length] * seen * self.weight[:, -1 - back]
        if self.bias is not None:
            total = total + self.bias
        return total, _remembered(given, goes_on, width - 1)


def _remembered(given: Tensor, goes_on: Tensor, count: int) -> Tensor:
    """The last tokens, 0 where they are of another sequence than the very last one."""
    kept, total = [], torch.ones_like(goes_on[:, -1:])
    for back in range(count):
        kept.append(given[:, given.shape[1] - 1 - back, None] * total)
        total = total * goes_on[:, goes_on.shape[1] - 1 - back, None]
    return torch.cat(kept[::-1], dim=1)
