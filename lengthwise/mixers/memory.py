"""What a mixer remembers between calls of decoding, where that is several tensors: one row of numbers a sequence.

Shape letters: B batch, M all numbers.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lengthwise.model.layer import LayerPass


def recall(here: LayerPass, x_BTD: Tensor, shapes: Sequence[tuple[int, ...]]) -> list[Tensor]:
    """Tensors (B, *shape) in fp32 as they were kept; zeros where nothing was, as in training."""
    sizes = [math.prod(shape) for shape in shapes]
    row_BM = x_BTD.new_zeros(len(x_BTD), sum(sizes), dtype=torch.float32)
    if here.cache is not None:
        row_BM = here.cache.state(here.number, row_BM)
    return [part.unflatten(1, shape) for part, shape in zip(row_BM.split(sizes, dim=1), shapes, strict=True)]


def keep(here: LayerPass, parts: Sequence[Tensor]) -> None:
    """For `recall` of the next call, in the same order."""
    if here.cache is not None:
        row_BM = torch.cat([part.flatten(1).float() for part in parts], dim=1)
        here.cache.keep_state(here.number, row_BM)
