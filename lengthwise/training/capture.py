"""Updates on a GPU: the whole step captured in one graph for each shape of batch, on two streams.

Batches of a task differ in the number of rows that they fill, and (rarely) in the width of a row. Each number of rows,
rounded up a little, has a graph of its own: the first step of a shape is launched kernel by kernel, the second one is
captured, all others are replayed.

The optimizer is bound by memory, products are bound by arithmetic, so they run side by side: a step finds out its
gradients, and its update waits for the next step, which updates each section just before its forward pass reads it.
The gradients of weights, for which nothing waits, run beside the backward pass.
Shape letters: K steps, N models, R rows, P predicted tokens, L places that drop, X partial sums.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from lengthwise.data.vocabulary import Vocabulary
from lengthwise.errors import first_line
from lengthwise.kernels import adamw as optimizer_kernel
from lengthwise.kernels.dropout import place_keys
from lengthwise.kernels.side_stream import on_side_stream, working
from lengthwise.training.batches import NO_TARGET
from lengthwise.training.fleet import Batch, Fleet
from lengthwise.training.recipe import TrainingConfig
from lengthwise.training.state import TrainingState
from lengthwise.training.update import Measured, Steps, Updater

ROUNDED_ROWS = 16
"""Row counts are rounded up to about a sixteenth of themselves, so that there are few graphs."""
ROUNDED_PREDICTIONS = 128
SPARE = 1.15
"""Room in the buffers, relative to the first steps."""
ROWS = ("tokens_KNRT", "segments_KNRT", "positions_KNRT")
"""Of a batch, what is laid out in rows."""


class _Room:
    """Where graphs for rows of one width read their steps and write what they measured."""

    def __init__(self) -> None:
        self.buffers: dict[str, Tensor] = {}
        self.values_K2N = torch.zeros(0)
        self.consecutive = self.from_zero = False
        self.graphs: dict[tuple[int, int], torch.cuda.CUDAGraph | None] = {}
        """By rows and predictions; None for a shape that was seen once."""


class CapturedUpdater(Updater):
    """Falls back to launching kernel by kernel where PyTorch cannot capture, and says so once."""

    def __init__(self, fleet: Fleet, recipe: TrainingConfig, state: TrainingState, note: Callable[[str], None]) -> None:
        super().__init__(fleet, recipe, state)
        self.note = note
        device, count = fleet.device, fleet.count
        self.stream = torch.cuda.Stream(device, priority=-1)
        self.second = torch.cuda.Stream(device)
        self.counter = torch.zeros(1, dtype=torch.int64, device=device)
        self.rooms: dict[tuple[int, bool, bool], _Room] = {}
        """By the width of a row, in tokens, and what is known of positions."""
        self.captures = True
        # The update that waits: whether there is one, norms, rates, corrections.
        self.waits = False
        self.waits_1 = torch.zeros(1, dtype=torch.int32, device=device)
        self.norms_N, self.rates_N = torch.zeros(count, device=device), torch.zeros(count, device=device)
        self.corrections_2 = torch.ones(2, device=device)
        sizes = [optimizer_kernel.pieces(section.size) for section in fleet.sections.values()]
        self.pieces_NX = torch.zeros(count, sum(sizes), device=device)
        self.pieces = dict(zip(fleet.sections, self.pieces_NX.split(sizes, dim=1), strict=True))

    def run(self, steps: Steps) -> Measured:
        # What a graph computes depends on what is known of positions: each kind has a room of its own.
        batches = steps.batches
        kind = (batches.tokens_KNRT.shape[3], batches.consecutive, batches.from_zero)
        room = self.rooms.setdefault(kind, _Room())
        room.consecutive, room.from_zero = kind[1:]
        # What others have queued, such as a copy of the best weights, must be done before the weights change.
        self.stream.wait_stream(torch.cuda.current_stream(self.fleet.device))
        with torch.cuda.stream(self.stream):
            self._load(steps, room)
            for index in range(len(steps)):
                self._advance(room, self._shape(steps, index))
            values = torch.empty(len(steps), *room.values_K2N.shape[1:], pin_memory=True)
            values.copy_(room.values_K2N[: len(steps)], non_blocking=True)
            arrived = torch.cuda.Event()
            arrived.record()
        return Measured(values, arrived.synchronize)

    def launch_only(self) -> None:
        self.captures = False
        for room in self.rooms.values():
            room.graphs = dict.fromkeys(room.graphs)

    def settle(self) -> None:
        """Does the update that waits, so that the weights are those after the last step."""
        if self.waits:
            with torch.cuda.stream(self.stream):
                self._update()
                self.waits_1.zero_()
            self.waits = False
        torch.cuda.current_stream(self.fleet.device).wait_stream(self.stream)

    def _load(self, steps: Steps, room: _Room) -> None:
        """Copies the steps to where the graphs read them; where that is too small it is made anew, with the graphs."""
        arrays = {
            **{name: getattr(steps.batches, name) for name in Batch.ARRAYS},
            "keys_KLN": self._keys(steps),
            "rates_KN": steps.rates_KN,
            "corrections_K2": steps.corrections_K2,
        }
        rows = int(_rounded_rows(steps.batches.rows_K).max())  # of the largest graph
        if not room.buffers or not all(
            all(size <= most for size, most in zip(array.shape, room.buffers[name].shape, strict=True))
            and (name not in ROWS or rows <= room.buffers[name].shape[2])
            for name, array in arrays.items()
        ):
            self.stream.synchronize()
            room.graphs = {}
            room.buffers = {name: self._buffer(name, array, rows, room) for name, array in arrays.items()}
            room.values_K2N = torch.zeros(len(room.buffers["rates_KN"]), 2, self.fleet.count, device=self.fleet.device)
        room.buffers["predicting_KNP"].zero_()
        room.buffers["targets_KNP"].fill_(NO_TARGET)
        for name in ROWS:
            # Beyond its own rows a step reads padding, whatever was there before it: the same bits after a resume.
            room.buffers[name][:, :, arrays[name].shape[2] :].fill_(Vocabulary.pad if name == "tokens_KNRT" else 0)
        for name, array in arrays.items():
            host = torch.from_numpy(np.ascontiguousarray(array)).pin_memory()
            room.buffers[name][tuple(slice(size) for size in array.shape)].copy_(host, non_blocking=True)
        self.counter.zero_()

    def _buffer(self, name: str, array: np.ndarray, rows: int, room: _Room) -> Tensor:
        """For somewhat more rows and predictions than this stretch of steps has, and never for less than before.

        `rows`: of the largest graph that reads it.
        """
        shape = list(array.shape)
        if name in ROWS:
            shape[2] = max(rows, int(shape[2] * SPARE))
        elif name in Batch.ARRAYS:
            shape[2] = -(-int(shape[2] * SPARE) // ROUNDED_PREDICTIONS) * ROUNDED_PREDICTIONS
        if name in room.buffers:
            shape = [max(sizes) for sizes in zip(shape, room.buffers[name].shape, strict=True)]
        return torch.zeros(shape, dtype=torch.from_numpy(array).dtype, device=self.fleet.device)

    @staticmethod
    def _shape(steps: Steps, index: int) -> tuple[int, int]:
        """Rows and predictions of the graph for a step: of the step alone, not of those before it."""
        predictions = int(steps.batches.predictions_K[index])
        return (
            int(_rounded_rows(steps.batches.rows_K[index])),
            -(-predictions // ROUNDED_PREDICTIONS) * ROUNDED_PREDICTIONS,
        )

    def _keys(self, steps: Steps) -> np.ndarray:
        keys_KNL = place_keys(torch.from_numpy(steps.seeds_KN), sum(self.fleet.model.dropout_places()))
        return keys_KNL.numpy().swapaxes(1, 2)

    def _advance(self, room: _Room, shape: tuple[int, int]) -> None:
        """Does the step that the counter stands at."""
        if shape not in room.graphs:
            self._launch(room, shape)
            if self.captures:
                room.graphs[shape] = None  # seen once: everything that it needs is there now
            return
        if room.graphs[shape] is None and self.captures:
            self._capture(room, shape)
        graph = room.graphs[shape]
        if graph is None:
            self._launch(room, shape)
        else:
            graph.replay()
            self.waits = self.fleet.kernels

    def _launch(self, room: _Room, shape: tuple[int, int]) -> None:
        if self.fleet.kernels:
            values_2N = self._two_streams(room, shape)
        else:
            batch, keys_NL = self._batch(room, shape)
            values_2N = self.step(batch, keys_NL, self._now(room, "rates_KN"), self._now(room, "corrections_K2"))
        room.values_K2N.index_copy_(0, self.counter, values_2N[None])
        self.counter.add_(1)

    def _now(self, room: _Room, name: str, out: Tensor | None = None) -> Tensor:
        """Of one buffer, what belongs to the step that the counter stands at."""
        if out is not None:
            out = out[None]
        return torch.index_select(room.buffers[name], 0, self.counter, out=out).squeeze(0)

    def _batch(self, room: _Room, shape: tuple[int, int]) -> tuple[Batch, Tensor | None]:
        """The examples of a step, and the keys of its dropout."""
        rows, predictions = shape
        parts = {name: self._now(room, name)[:, : rows if name in ROWS else predictions] for name in Batch.ARRAYS}
        batch = Batch(*parts.values(), consecutive=room.consecutive, from_zero=room.from_zero)
        return batch, self._now(room, "keys_KLN").t() if self.drops else None

    def _two_streams(self, room: _Room, shape: tuple[int, int]) -> Tensor:
        """The update of the step before, beside the forward pass of this one; then its gradients."""
        updated: dict[str, torch.cuda.Event] = {}

        def note_end(section: str) -> None:
            updated[section] = torch.cuda.Event()
            updated[section].record()

        def wait(section: str) -> None:
            if section in updated:
                torch.cuda.current_stream(self.fleet.device).wait_event(updated[section])

        unsquared = set(self.fleet.sections)

        def square(section: str) -> None:
            optimizer_kernel.squares(self.fleet.sections[section].cut(gradients_NW), self.pieces[section])

        def square_beside(section: str) -> None:
            unsquared.remove(section)
            with on_side_stream():
                square(section)

        gradients_NW = self.fleet.gradient_matrix()
        with working(self.second):
            with on_side_stream():
                self._update(note_end)
                # For the update of this step, which the next one does.
                self._now(room, "rates_KN", self.rates_N)
                self._now(room, "corrections_K2", self.corrections_2)
                self.waits_1.fill_(1)
            self.waits = False
            losses_N, _ = self.fleet.gradients(*self._batch(room, shape), wait, square_beside)
        for section in self.fleet.sections:
            if section in unsquared:
                square(section)
        optimizer_kernel.norms(self.pieces_NX, self.norms_N)
        self.waits = True
        return torch.stack([losses_N, self.norms_N])

    def _update(self, done: Callable[[str], None] = lambda section: None) -> None:
        """AdamW with the gradients that are there; `done` is called with the name of each section after it."""
        fleet, state = self.fleet, self.state
        for name, section in fleet.sections.items():
            optimizer_kernel.adamw(
                section.cut(fleet.matrix_NW),
                section.cut(state.first_NW),
                section.cut(state.second_NW),
                section.cut(self.decays_W[None])[0],
                section.cut(fleet.gradient_matrix()),
                self.norms_N,
                self.rates_N,
                self.corrections_2,
                None if fleet.read_NW is fleet.matrix_NW else section.cut(fleet.read_NW),
                self.waits_1,
                self.recipe,
            )
            done(name)

    def _capture(self, room: _Room, shape: tuple[int, int]) -> None:
        graph, waits = torch.cuda.CUDAGraph(), self.waits
        pools = (other.pool() for each in self.rooms.values() for other in each.graphs.values() if other is not None)
        try:
            with torch.cuda.graph(graph, pool=next(pools, None), stream=self.stream, capture_error_mode="thread_local"):
                self._launch(room, shape)
        except torch.cuda.OutOfMemoryError:
            raise
        except Exception as error:
            self.note(f"cannot capture steps here, so they are slower ({first_line(error)})")
            self.launch_only()
            return
        finally:
            self.waits = waits  # nothing was done yet
        room.graphs[shape] = graph


def _rounded_rows(rows_K: np.ndarray) -> np.ndarray:
    unit_K = np.maximum(1, rows_K // ROUNDED_ROWS)
    return -(-rows_K // unit_K) * unit_K
