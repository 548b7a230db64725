"""The rule of `torch.func.vmap` for functions that know stacked models themselves: their tensors have a leading N."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor


def stacked(function: Callable[..., Any]) -> Callable[..., tuple[Any, Any]]:
    """Stacked models are more models: the dimension that is stacked along joins N for the call and leaves it after."""

    def rule(info: Any, in_dims: tuple[int | None, ...], *inputs: Any) -> tuple[Any, Any]:
        size = info.batch_size
        joined = []
        for x, dim in zip(inputs, in_dims, strict=True):
            if isinstance(x, Tensor):
                x = (x.expand(size, *x.shape) if dim is None else x.movedim(dim, 0)).flatten(0, 1)
            joined.append(x)
        outputs = function(*joined)
        if isinstance(outputs, Tensor):
            return outputs.unflatten(0, (size, -1)), 0
        return tuple(x.unflatten(0, (size, -1)) for x in outputs), (0,) * len(outputs)

    return rule
