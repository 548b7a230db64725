"""CUDA graphs without a GPU: what is captured is recorded operation by operation, and replayed on the same tensors.

A replay runs no Python of ours, so numbers that Python knew when a step was recorded stay what they were, as in a graph
of the device. What asks the host, or copies from it, fails while recording, as it does while a stream captures.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from lengthwise.evaluation.decoding import Decoding
from lengthwise.evaluation.step_graphs import StepGraphs
from lengthwise.model.decoder import Decoder

ASKING = (
    "_local_scalar_dense",  # bool, int, item
    "lift_fresh",  # torch.tensor of Python's numbers, which are on the host
    "nonzero",
    "masked_select",
    "equal",
    "_unique2",
    "unique_dim",
)


class Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.done: list[tuple[Callable, Any, Any, Any]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        masks = name == "index" and any(each is not None and each.dtype == torch.bool for each in args[1])
        if name in ASKING or masks:
            raise RuntimeError(f"operation not permitted when stream is capturing: {name}")
        found = func(*args, **(kwargs or {}))
        self.done.append((func, args, kwargs or {}, found))
        return found


class RecordedGraph:
    """Instead of `torch.cuda.CUDAGraph`. While a real one is captured nothing is done, here it is: so the first replay
    does nothing."""

    def __init__(self) -> None:
        self.recorder: Recorder | None = None
        self.replays = 0

    def pool(self) -> tuple[int, int]:
        return (0, 1)

    def replay(self) -> None:
        assert self.recorder is not None
        self.replays += 1
        if self.replays == 1:
            return
        made: dict[int, Tensor] = {}

        def now(x: Any) -> Any:
            return made.get(id(x), x) if isinstance(x, Tensor) else x

        for func, args, kwargs, before in self.recorder.done:
            found = func(*tree_map(now, args), **tree_map(now, kwargs))
            several = isinstance(before, (tuple, list))
            for old, new in zip(before, found, strict=True) if several else [(before, found)]:
                if isinstance(old, Tensor):
                    made[id(old)] = new


class Queue:
    """A stream that does everything at once."""

    def __init__(self, *_: Any) -> None:
        self.synchronize = lambda: None
        self.wait_stream = lambda other: None


@contextmanager
def recording(graph: RecordedGraph, pool: Any, stream: Any, capture_error_mode: str) -> Iterator[None]:
    assert isinstance(stream, Queue) and capture_error_mode == "thread_local"
    recorder = Recorder()
    with recorder:
        yield
    graph.recorder = recorder


def record(monkeypatch: pytest.MonkeyPatch) -> None:
    """For the time of a test."""
    monkeypatch.setattr(torch.cuda, "Stream", Queue)
    monkeypatch.setattr(torch.cuda, "current_stream", Queue)
    monkeypatch.setattr(torch.cuda, "stream", lambda stream: nullcontext())
    monkeypatch.setattr(torch.cuda, "CUDAGraph", RecordedGraph)
    monkeypatch.setattr(torch.cuda, "graph", recording)


def as_on_a_gpu(
    model: Decoder, precision: str | None = None, note: Callable[[str], None] = lambda text: None
) -> Decoding:
    """Rounds its shapes and captures its steps; after `record`."""
    decoding = Decoding(model, precision, note)
    decoding.graphs = StepGraphs(decoding.device, note)
    decoding.few_shapes = True
    return decoding
