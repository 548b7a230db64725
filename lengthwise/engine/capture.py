"""Updates on a GPU: compiled kernels, and the whole step captured in one graph for each shape of batch.

Batches of a task differ in the number of rows that they fill. Each number, rounded up a little, has a graph of its own:
the first step of a shape is launched kernel by kernel, the second one is captured, all others are replayed.
Shape letters: K steps, N models, R rows, P predicted tokens.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from lengthwise.engine.batches import NO_TARGET
from lengthwise.engine.fleet import Batch, Fleet
from lengthwise.engine.recipe import TrainingConfig
from lengthwise.engine.state import TrainingState
from lengthwise.engine.update import Measured, Steps, Updater

ROUNDED_ROWS = 16
"""Row counts are rounded up to about a sixteenth of themselves, so that there are few graphs."""
ROUNDED_PREDICTIONS = 128
SPARE = 1.15
"""Room in the buffers, relative to the first steps."""


class CapturedUpdater(Updater):
    """Falls back to what `Updater` does where PyTorch cannot compile or capture, and says so once."""

    def __init__(self, fleet: Fleet, recipe: TrainingConfig, state: TrainingState, note: Callable[[str], None]) -> None:
        super().__init__(fleet, recipe, state)
        self.plain = (self.norms, self.change)
        self.note = note
        self.stream = torch.cuda.Stream(fleet.device)
        self.counter = torch.zeros(1, dtype=torch.int64, device=fleet.device)
        self.buffers: dict[str, Tensor] = {}
        self.values_K2N = torch.zeros(0)
        self.graphs: dict[tuple[int, int], torch.cuda.CUDAGraph | None] = {}
        self.compiled = self.captures = True
        fleet.compiled = True
        self.norms, self.change = torch.compile(self.norms), torch.compile(self.change)

    def run(self, steps: Steps) -> Measured:
        width = steps.batches.tokens_KNRT.shape[3]
        if self.buffers and width > self.width:
            return self._run_plainly(steps)
        if width < self.width:  # the first steps were the rare ones
            self.stream.synchronize()
            self.buffers, self.graphs = {}, {}
        # What others have queued, such as a copy of the best weights, must be done before the weights change.
        self.stream.wait_stream(torch.cuda.current_stream(self.fleet.device))
        with torch.cuda.stream(self.stream):
            self._load(steps)
            for index in range(len(steps)):
                self._advance(self._shape(steps, index))
            values = torch.empty(len(steps), *self.values_K2N.shape[1:], pin_memory=True)
            values.copy_(self.values_K2N[: len(steps)], non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record()
        return Measured(values, arrived.synchronize)

    def _run_plainly(self, steps: Steps) -> Measured:
        """Steps with an example that is longer than a row: too rare to compile for."""
        self.stream.synchronize()
        compiled, self.fleet.compiled = self.fleet.compiled, False
        try:
            return super().run(steps)
        finally:
            self.fleet.compiled = compiled

    @property
    def width(self) -> int:
        """Tokens of a row that the graphs are for; 0 before the first."""
        return self.buffers["tokens_KNRT"].shape[3] if self.buffers else 0

    def _load(self, steps: Steps) -> None:
        """Copies the steps to where the graphs read them; where that is too small it is made anew, with the graphs."""
        arrays = {
            **{name: getattr(steps.batches, name) for name in Batch.ARRAYS},
            "seeds_KN": steps.seeds_KN,
            "rates_KN": steps.rates_KN,
            "corrections_K2": steps.corrections_K2,
        }
        if not self.buffers or not all(
            all(size <= room for size, room in zip(array.shape, self.buffers[name].shape, strict=True))
            for name, array in arrays.items()
        ):
            self.stream.synchronize()
            self.graphs = {}
            self.buffers = {name: self._room_for(name, array) for name, array in arrays.items()}
            self.values_K2N = torch.zeros(len(self.buffers["rates_KN"]), 2, self.fleet.count, device=self.fleet.device)
        self.buffers["predicting_KNP"].zero_()
        self.buffers["targets_KNP"].fill_(NO_TARGET)
        for name, array in arrays.items():
            host = torch.from_numpy(np.ascontiguousarray(array)).pin_memory()
            self.buffers[name][tuple(slice(size) for size in array.shape)].copy_(host, non_blocking=True)
        self.counter.zero_()

    def _room_for(self, name: str, array: np.ndarray) -> Tensor:
        """A buffer with room for somewhat more rows and predictions than this stretch of steps has, never for less."""
        shape = list(array.shape)
        if name in Batch.ARRAYS:
            unit = ROUNDED_PREDICTIONS if array.ndim == 3 else 1
            shape[2] = -(-int(shape[2] * SPARE) // unit) * unit
        if name in self.buffers:
            shape = [max(sizes) for sizes in zip(shape, self.buffers[name].shape, strict=True)]
        return torch.zeros(shape, dtype=torch.from_numpy(array).dtype, device=self.fleet.device)

    def _shape(self, steps: Steps, index: int) -> tuple[int, int]:
        """Rows and predictions of the graph for a step."""
        rows, predictions = int(steps.batches.rows_K[index]), int(steps.batches.predictions_K[index])
        unit = max(1, rows // ROUNDED_ROWS)
        return (
            min(self.buffers["tokens_KNRT"].shape[2], -(-rows // unit) * unit),
            -(-predictions // ROUNDED_PREDICTIONS) * ROUNDED_PREDICTIONS,
        )

    def _advance(self, shape: tuple[int, int]) -> None:
        """Does the step that the counter stands at."""
        if shape not in self.graphs:
            self._launch_or_fall_back(shape)
            if self.captures:
                self.graphs[shape] = None  # seen once: everything that it needs is compiled now
            return
        if self.graphs[shape] is None:
            self._capture(shape)
        graph = self.graphs.get(shape)
        if graph is None:
            self._launch(shape)
        else:
            graph.replay()

    def _launch(self, shape: tuple[int, int]) -> None:
        rows, predictions = shape
        at = {name: buffer.index_select(0, self.counter)[0] for name, buffer in self.buffers.items()}
        batch = Batch(
            at["tokens_KNRT"][:, :rows],
            at["segments_KNRT"][:, :rows],
            at["positions_KNRT"][:, :rows],
            at["predicting_KNP"][:, :predictions],
            at["targets_KNP"][:, :predictions],
        )
        values_2N = self.step(batch, at["seeds_KN"], at["rates_KN"], at["corrections_K2"])
        self.values_K2N.index_copy_(0, self.counter, values_2N[None])
        self.counter.add_(1)

    def _launch_or_fall_back(self, shape: tuple[int, int]) -> None:
        """The weights change last of all, so a step that failed can be done again."""
        try:
            self._launch(shape)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:
            if not self.compiled:
                raise
            self.note(f"cannot compile here, so steps are slower ({_first_line(error)})")
            self.compiled = False
            self.fleet.compiled = False
            self.norms, self.change = self.plain
            self._launch(shape)

    def _capture(self, shape: tuple[int, int]) -> None:
        graph = torch.cuda.CUDAGraph()
        others = [other for other in self.graphs.values() if other is not None]
        try:
            with torch.cuda.graph(
                graph, pool=others[0].pool() if others else None, stream=self.stream, capture_error_mode="thread_local"
            ):
                self._launch(shape)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:
            self.note(f"cannot capture steps here, so they are slower ({_first_line(error)})")
            self.captures = False
            self.graphs = {}
            return
        self.graphs[shape] = graph


def _first_line(error: Exception) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0] if text else ''}"[:200]
