"""Short causal convolutions over the numbers of tokens, each number by itself, within each sequence.

Shape letters: B batch, S tokens, C numbers of a token, W taps.
"""

import torch
from torch import Tensor

from lengthwise.encodings.layout import AttentionLayout


def convolved(numbers_BSC: Tensor, taps_CW: Tensor, layout: AttentionLayout) -> Tensor:
    """The last tap is of the token itself, the one before of the token before it, and so on."""
    if layout.convolve is not None and layout.consecutive and layout.key_segments_BS is not None:
        return layout.convolve(numbers_BSC, taps_CW, layout.key_segments_BS)
    width = taps_CW.shape[-1]
    found = numbers_BSC * taps_CW[:, -1]
    for back in range(1, width):
        found = found + layout.earlier(numbers_BSC, back) * taps_CW[:, width - 1 - back]
    return found


def first_taps(taps_CW: Tensor, generator: torch.Generator) -> Tensor:
    """Of that shape, as PyTorch begins its convolutions: uniform within 1 / sqrt(taps)."""
    return (2 * torch.rand(taps_CW.shape, generator=generator) - 1) * taps_CW.shape[1] ** -0.5
