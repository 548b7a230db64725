"""Which program computes the attention of a layer, decided from what its encoding declares, and why.

Shape letters: B batch, H heads, T queries, K head width.
"""

from itertools import chain
from typing import Literal

import torch
from torch import Tensor

from lengthwise.encodings.contribution import Contribution
from lengthwise.encodings.encoding import Encoding
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.kernels import attention as kernel
from lengthwise.model.config import ModelConfig

Backend = Literal["eager", "fused", "kernel"]
"""What a model may take where it can: PyTorch's operations one by one, PyTorch's fused attention (for a lone model), or
our kernel (for packed rows on a GPU, stacked or not). What it cannot do falls back to eager."""


def kernel_refuses(contribution: Contribution, layout: AttentionLayout, config: ModelConfig) -> str:
    """Why our kernel does not compute this; nothing where it does."""
    for name, words in _NOT_IN_KERNEL.items():
        if getattr(contribution, name) is not None:
            return words
    for name, words in (("distance_bias", "a bias by distance"), ("window", "a window")):
        if getattr(contribution, name) is not None and not layout.consecutive:
            return f"{words} needs consecutive positions there"
    if layout.segments_BT is None:
        return "it reads packed rows, without a cache"
    if not kernel.supports(layout.key_positions_BS.shape[1], config.head_width):
        return f"it has no program for rows of {layout.key_positions_BS.shape[1]} and heads of {config.head_width}"
    return ""


_NOT_IN_KERNEL = {
    "score": "scores are changed",
    "normalizer": "weights are not a softmax",
}


def reads_projection(contribution: Contribution, config: ModelConfig) -> bool:
    """Whether our kernel may read queries, keys and values as the projection wrote them."""
    rotation = contribution.rotation
    changed = contribution.queries is not None or contribution.keys is not None
    plain = (rotation is None or rotation.plain) and not isinstance(contribution.scale, Tensor)
    return plain and not changed and config.groups == config.heads


def sdpa_refuses(contribution: Contribution, q_BHTK: Tensor) -> str:
    """Why PyTorch's fused attention does not compute this; nothing where it does."""
    for name in ("score", "normalizer"):
        if getattr(contribution, name) is not None:
            return _NOT_IN_KERNEL[name]
    has_bias = contribution.distance_bias is not None or contribution.row_column_bias is not None
    if has_bias and q_BHTK.dtype != torch.float32:
        return f"it would round the bias to {q_BHTK.dtype}"
    return ""


def explain(encoding: Encoding, config: ModelConfig) -> str:
    """How packed training rows are computed on a GPU, in words: `fused`, or `eager` and why."""
    with torch.no_grad(), torch.device("cpu"):
        asked = probe(encoding, config.width)
        contribution = asked.contribution(encoding)
        wider = _changes_width(contribution, asked, config)
    length = 64
    positions_BT = torch.arange(length)[None]
    layout = AttentionLayout(positions_BT, positions_BT, segments_BT=torch.ones_like(positions_BT), consecutive=True)
    why = kernel_refuses(contribution, layout, config)
    why = why or ("queries and keys are not as wide as values" if wider else "")
    return f"eager: {why}" if why else "fused"


def _changes_width(contribution: Contribution, layout: AttentionLayout, config: ModelConfig) -> bool:
    """Whether queries, and so keys, get another width than values have."""
    if contribution.queries is None:
        return False
    positions_BT = layout.query_positions_BT
    q_BHTK = torch.zeros(1, config.heads, positions_BT.shape[1], config.head_width, device=positions_BT.device)
    return contribution.queries(q_BHTK, positions_BT).shape[-1] != config.head_width


def probe(encoding: Encoding, width: int, length: int = 4) -> AttentionLayout:
    """A small layout to ask an encoding about: one sequence, its layer's input all zeros."""
    last = encoding.last_position
    length = length if last is None else min(length, last + 1)
    device = next((each.device for each in chain(encoding.parameters(), encoding.buffers())), None)
    positions_BT = torch.arange(length, device=device)[None]
    x_BTD = torch.zeros(1, length, width, device=device)
    numbers = encoding.token_numbers(x_BTD)
    ones = torch.ones_like(positions_BT)
    whole = AttentionLayout(positions_BT, positions_BT, segments_BT=ones, consecutive=True)
    return whole.at_layer(0, x_BTD, numbers)
