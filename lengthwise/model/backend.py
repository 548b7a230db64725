"""Which program computes the attention of a layer, decided from what its encoding declares, and why.

Shape letters: B batch, H heads, T queries, K head width.
"""

from itertools import chain
from typing import Literal

import torch
from torch import Tensor

from lengthwise.encodings.contribution import Contribution, Normalizer, Polar, ScoreChange
from lengthwise.encodings.encoding import Encoding
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.kernels import attention as kernel
from lengthwise.model.config import ModelConfig

Backend = Literal["eager", "fused", "kernel"]
"""What a model may take where it can: PyTorch's operations one by one, PyTorch's fused attention (for a lone model), or
our kernel (for packed rows on a GPU, stacked or not). What it cannot do falls back to eager."""


def kernel_refuses(
    contribution: Contribution, layout: AttentionLayout, config: ModelConfig, dtype: torch.dtype = torch.bfloat16
) -> str:
    """Why our kernel does not compute this; nothing where it does, be it of logits that are made before it."""
    normalizer = contribution.normalizer
    if normalizer is not None and not isinstance(normalizer, Normalizer):
        return _WEIGHTS
    for name, words in (("distance_bias", "a bias by distance"), ("window", "a window")):
        if getattr(contribution, name) is not None and not layout.consecutive:
            return f"{words} needs consecutive positions there"
    if contribution.position_bias is not None and not layout.from_zero:
        return "a bias by position needs positions that count from 0 there"
    if layout.segments_BT is None:
        return "it reads packed rows, without a cache"
    if not kernel.supports(layout.key_positions_BS.shape[1], config.head_width):
        return f"it has no program for rows of {layout.key_positions_BS.shape[1]} and heads of {config.head_width}"
    program, length = kernel_program(contribution), layout.key_positions_BS.shape[1]
    if not kernel.normalizes(program, length, config.head_width, dtype):
        return f"it has no {program} for rows of {length}"
    return ""


_SCORES, _WEIGHTS = "scores are changed", "weights are not a softmax"


def kernel_program(contribution: Contribution) -> str:
    """What our kernel calls the way in which logits become weights."""
    normalizer = contribution.normalizer
    if not isinstance(normalizer, Normalizer) or normalizer.program == "sink":
        return "softmax"
    return normalizer.program


def kernel_scores(contribution: Contribution, length: int, config: ModelConfig, dtype: torch.dtype) -> bool:
    """Whether our kernel makes the logits, from queries and keys of the usual width; else it is given them."""
    score = contribution.score
    if is_polar(contribution):
        return score is None and kernel.parts_entries(length, config.head_width, dtype)
    if not isinstance(score, ScoreChange):
        return score is None
    if config.groups != config.heads:
        return False
    if score.program == "counted-gates":
        return kernel.counts_gates(len(score.arrays[0]), length, config.head_width, dtype)
    return score.program == "reflections" and kernel.reflects(length, config.head_width, dtype)


def is_polar(contribution: Contribution) -> bool:
    """Whether queries and keys become magnitudes and phases, of the same positions, and nothing else."""
    queries, keys = contribution.queries, contribution.keys
    if not isinstance(queries, Polar) or not isinstance(keys, Polar):
        return False
    rotated = contribution.rotation is not None or contribution.token_rotation is not None
    return queries.phases == keys.phases and queries.offset_GK is None and not rotated


def reads_projection(contribution: Contribution, config: ModelConfig) -> bool:
    """Whether our kernel may read queries, keys and values as the projection wrote them, and change them itself."""
    changed = contribution.queries is not None or contribution.keys is not None
    twice = contribution.rotation is not None and contribution.token_rotation is not None
    return (not changed or is_polar(contribution)) and not twice and config.groups == config.heads


def sdpa_refuses(contribution: Contribution, q_BHTK: Tensor) -> str:
    """Why PyTorch's fused attention does not compute this; nothing where it does."""
    for name, words in (("score", _SCORES), ("normalizer", _WEIGHTS)):
        if getattr(contribution, name) is not None:
            return words
    has_bias = any(each.endswith("_bias") for each in contribution.names)
    if has_bias and q_BHTK.dtype != torch.float32:
        return f"it would round the bias to {q_BHTK.dtype}"
    return ""


def explain(encoding: Encoding, config: ModelConfig) -> str:
    """How packed training rows are computed on a GPU, in words: `fused`, `partly fused` and what is not, or `eager` and
    why."""
    with torch.no_grad(), torch.device("cpu"):
        asked = probe(encoding, config.width)
        contribution = asked.contribution(encoding)
        width = _width_of_queries(contribution, asked, config)
    length = 64
    positions_BT = torch.arange(length)[None]
    ones = torch.ones_like(positions_BT)
    layout = AttentionLayout(positions_BT, positions_BT, segments_BT=ones, consecutive=True, from_zero=True)
    why = kernel_refuses(contribution, layout, config)
    whole = kernel_scores(contribution, length, config, torch.bfloat16)
    if not (whole and reads_projection(contribution, config)):
        why = why or ("" if common_width(width, config.head_width) else f"it has no program for heads of {width}")
    if why:
        return f"eager: {why}"
    return "fused" if whole else "partly fused: logits are made before the kernel"


def common_width(width: int, values: int) -> int:
    """The width at which our kernel may hold queries and keys of one width and values of another; 0 for none."""
    return next((each for each in kernel.HEAD_WIDTHS if each >= max(width, values)), 0)


def _width_of_queries(contribution: Contribution, layout: AttentionLayout, config: ModelConfig) -> int:
    """The width of a head's queries, and so of its keys, as they are multiplied."""
    if contribution.queries is None:
        return config.head_width
    positions_BT = layout.query_positions_BT
    q_BHTK = torch.zeros(1, config.heads, positions_BT.shape[1], config.head_width, device=positions_BT.device)
    return contribution.queries(q_BHTK, positions_BT).shape[-1]


def probe(encoding: Encoding, width: int, length: int = 4) -> AttentionLayout:
    """A small layout to ask an encoding about: one sequence, its layer's input all zeros."""
    last = encoding.last_position
    length = length if last is None else min(length, last + 1)
    device = next((each.device for each in chain(encoding.parameters(), encoding.buffers())), None)
    positions_BT = torch.arange(length, device=device)[None]
    x_BTD = torch.zeros(1, length, width, device=device)
    numbers = encoding.token_numbers(x_BTD)
    ones = torch.ones_like(positions_BT)
    whole = AttentionLayout(positions_BT, positions_BT, segments_BT=ones, consecutive=True, from_zero=True)
    return whole.at_layer(0, x_BTD, numbers)
