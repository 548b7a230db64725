"""Steps of decoding on a GPU, captured in a CUDA graph for each shape, so that the host launches one thing a step.

The first step of a shape is launched kernel by kernel: it compiles, loads and allocates what the shape needs. The
second is captured; it and all others are replayed. Steps read and write nothing but what stays in its
place (`DecodingBuffers`).
"""

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager

import torch

from lengthwise.errors import first_line


class StepGraphs:
    """Falls back to launching kernel by kernel where PyTorch cannot capture, and says so once."""

    def __init__(self, device: torch.device, note: Callable[[str], None]) -> None:
        self.device, self.note = device, note
        self.stream = torch.cuda.Stream(device)
        self.graphs: dict[Hashable, torch.cuda.CUDAGraph | None] = {}
        """By shape; None for one that was seen once."""
        self.captures = True
        self.replayed = 0
        """Steps that a graph has done."""

    @contextmanager
    def working(self) -> Iterator[None]:
        """All that is done within is done on the stream that captures; others wait for it."""
        others = torch.cuda.current_stream(self.device)
        self.stream.wait_stream(others)
        try:
            with torch.cuda.stream(self.stream):
                yield
        finally:
            others.wait_stream(self.stream)

    def run(self, shape: Hashable, step: Callable[[], None]) -> None:
        """Does a step: `step` launches one of this shape, always the same kernels on the same memory."""
        if shape not in self.graphs or not self.captures:
            self.graphs.setdefault(shape, None)
            step()
            return
        graph = self.graphs[shape] or self._captured(step)
        if graph is None:
            step()
            return
        self.graphs[shape] = graph
        graph.replay()
        self.replayed += 1

    def forget(self) -> None:
        """Before the memory that the graphs read is given back."""
        self.stream.synchronize()
        self.graphs.clear()

    def _captured(self, step: Callable[[], None]) -> torch.cuda.CUDAGraph | None:
        """Nothing is done yet: what is captured only runs when it is replayed."""
        graph = torch.cuda.CUDAGraph()
        # What one graph needs in between, the others may overwrite: none runs beside another.
        pool = next((other.pool() for other in self.graphs.values() if other is not None), None)
        try:
            with torch.cuda.graph(graph, pool=pool, stream=self.stream, capture_error_mode="thread_local"):
                step()
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:
            self.captures = False
            self.note(f"cannot capture steps of generation here, so they are slower ({first_line(error)})")
            return None
        return graph
