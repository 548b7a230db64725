"""Work beside the main stream of a GPU: the gradients of weights, for which nothing waits until the end of a step.

A backward pass is a chain of products that are too small to fill a GPU. The gradient of a weight is no link of that
chain, so it can run in the gaps. One process works on one fleet at a time, so there is one such stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from lengthwise.kernels.stacking import stacked

# Not of a thread or a context: PyTorch computes gradients in threads of its own.
_stream: torch.cuda.Stream | None = None
_held: list[Tensor] = []
"""What the stream reads: it must not be freed, and its memory not be used anew, before the streams join."""


@contextmanager
def working(stream: torch.cuda.Stream) -> Iterator[None]:
    """Inside, `on_side_stream` means this stream; at the end the current stream waits for it."""
    global _stream
    assert _stream is None, "two steps at once"
    _stream = stream
    try:
        yield
        torch.cuda.current_stream(stream.device).wait_stream(stream)
    finally:
        _stream = None
        _held.clear()


@contextmanager
def on_side_stream(*reads: Tensor) -> Iterator[None]:
    """What is launched inside comes after all that was launched so far, and beside what is launched later.

    `reads`: what it needs. Without a second stream it is launched like anything else.
    """
    if _stream is None:
        yield
        return
    _held.extend(reads)
    _stream.wait_stream(torch.cuda.current_stream(_stream.device))
    with torch.cuda.stream(_stream):
        yield


def when_differentiated(x: Tensor, call: Callable[[], None]) -> Tensor:
    """`x`; when the backward pass has found its gradient, so has launched everything that came after it, `call`s."""
    return _Mark.apply(x[None], call).squeeze(0)


class _Mark(torch.autograd.Function):
    @staticmethod
    def forward(x: Tensor, _call: Callable[[], None]) -> Tensor:
        return x.view_as(x)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Callable[[], None]], _output: Tensor) -> None:
        ctx.call = inputs[1]

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # pyrefly: ignore
        ctx.call()
        return grad, None

    vmap = staticmethod(stacked(lambda *inputs: _Mark.apply(*inputs)))
