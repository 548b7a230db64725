"""Training as the engine does it, timed part by part.

Shape letters: K steps, N models, W weights of one model.
"""

import gc
import resource
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from lengthwise.bench.arithmetic import Peak, TokenCounts, training_flops
from lengthwise.bench.workload import Workload
from lengthwise.data.sequences import Sequences
from lengthwise.evaluation.test_set import validation_set
from lengthwise.executors.local import WIDE, one_thread
from lengthwise.records.directory import StudyDirectory
from lengthwise.runtime import Listener
from lengthwise.training.loop import STEPS_AT_ONCE
from lengthwise.training.plan import FleetPlan
from lengthwise.training.state import TrainingState
from lengthwise.training.trainer import TaskSteps, Trainer
from lengthwise.training.update import Measured, Steps

PASSES = {"cpu": 1, "cuda": 4}
"""How often all stretches are done before they are timed: on a GPU the first pass finds the largest batch, the others
launch, capture and replay each shape."""
VALIDATIONS = 3
"""Validations that are timed after the first."""


@dataclass(frozen=True)
class TrainingTimes:
    """One fleet. Times of a step are medians over stretches of steps; a step advances every model of the fleet."""

    task: str
    size: str
    layers: int
    width: int
    encoding: str
    fleet: int
    dropout: float
    precision: str
    threads: int
    """That PyTorch may use; narrow models are trained on one, so that another fleet can have the other cores."""
    batch: int
    """Examples of a model in a step."""
    row_width: int
    timed_steps: int
    tokens_per_step: float
    """Of all models, padding not counted."""
    padding_share: float
    """Of the cells of the rows that are packed."""
    step_ms: float
    """On the device, the examples being ready on the host."""
    step_ms_per_model: float
    preparation_ms_per_model: float
    """On the host, for a step of a model: examples chosen, packed, put into arrays."""
    end_to_end_ms: float
    """For a step, examples prepared beside it in a thread as in real training."""
    model_steps_per_second: float
    """Steps of all models, end to end."""
    tokens_per_second: float
    flops: float
    """Model operations a second, end to end; see `training_flops`."""
    peak_share: float
    peak_memory_gib: float
    """On a GPU of tensors; on a CPU of the whole process since it began."""
    reserved_memory_gib: float
    start_up_seconds: float
    """From the settings to the end of the first step; a cache of compiled kernels may have been there."""
    warm_up_seconds: float
    """Spent on shapes of batches that are met for the first time, beyond what their steps take later."""
    first_validation_seconds: float
    validation_seconds: float
    run_steps: int
    run_validations: int
    run_seconds: float
    """A whole run of the recipe: start-up, warm-up, all steps end to end, all validations; the test set not."""
    loss: float
    """Mean over the models after the last step: a fleet that computes nonsense is not fast."""
    note: str = ""


class Session:
    """A fleet that is ready to train: any stretch of steps can be done next."""

    def __init__(self, plan: FleetPlan, device: torch.device, folder: Path) -> None:
        self.notes: list[str] = []
        self.device = device
        self.begun = time.perf_counter()
        self.trainer = Trainer(plan, StudyDirectory(folder), device, Listener(note=self.notes.append))
        self.trainer.fleet.initialize([run.seed for run in plan.runs])
        self.updater = self.trainer.updater(TrainingState.begin(self.trainer.fleet.matrix_NW))
        self.source = TaskSteps(plan.runs, self.trainer.tokens[0].pad, plan.row_width(device.type))
        self.start_up_seconds = 0.0

    @property
    def models(self) -> int:
        return len(self.trainer.runs)

    def first_step(self) -> None:
        self.do(self.source.steps(0, 1))
        self.start_up_seconds = time.perf_counter() - self.begun

    def do(self, steps: Steps) -> float:
        """Does the steps and waits for them; returns the mean loss of the last one."""
        losses_KN, _ = self.updater.run(steps).read()
        return float(losses_KN[-1].mean())

    @cached_property
    def validation(self) -> list[Sequences]:
        """The same examples for all models, which differ in their seed alone."""
        return [validation_set(self.trainer.tasks[0], self.trainer.runs[0].data)] * self.models

    def validate(self) -> float:
        """Seconds for one validation."""
        sequences = self.validation
        start = time.perf_counter()
        self.updater.settle()
        self.trainer.evaluator.outcomes(self.trainer.fleet.matrix_NW, sequences)
        return time.perf_counter() - start


@contextmanager
def session(fleet: Workload | FleetPlan, device: torch.device) -> Iterator[Session]:
    """A fleet with as many threads as training gives it."""
    plan = FleetPlan(fleet.runs()) if isinstance(fleet, Workload) else fleet
    free_memory(device)
    narrow = plan.runs[0].model.width < WIDE
    with tempfile.TemporaryDirectory() as folder, one_thread() if narrow else nullcontext():
        yield Session(plan, device, Path(folder))


def free_memory(device: torch.device) -> None:
    """Gives back what an earlier measurement left behind, and begins a new count of the peak."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)


def time_training(
    workload: Workload, device: torch.device, peak: Peak, steps: int, validates: bool = True
) -> TrainingTimes:
    """Times `steps` steps, after a warm-up in which every shape among them is met."""
    with session(workload, device) as fleet:
        fleet.first_step()
        return _time(fleet, peak, steps, validates)


def _time(fleet: Session, peak: Peak, steps: int, validates: bool) -> TrainingTimes:
    spans = list(_stretches(steps, STEPS_AT_ONCE[fleet.device.type]))
    prepared: list[Steps] = []
    start = time.perf_counter()
    for _ in range(PASSES[fleet.device.type]):
        prepared = []
        for span in spans:
            prepared.append(fleet.source.steps(*span))
            fleet.do(prepared[-1])
    warm_up = time.perf_counter() - start

    loss, seconds = 0.0, []
    for stretch in prepared:
        start = time.perf_counter()
        loss = fleet.do(stretch)
        seconds.append((time.perf_counter() - start) / len(stretch))
    step = statistics.median(seconds)
    preparation = _preparation(fleet, spans)
    end_to_end = _end_to_end(fleet, spans)
    validations = [fleet.validate() for _ in range(1 + VALIDATIONS)] if validates else [0.0]
    memory, reserved = peak_memory(fleet.device)

    run, models = fleet.trainer.runs[0], fleet.models
    work, cells = _work(prepared)
    done = end_to_end * steps
    rows = fleet.trainer.fleet.model.embedding.num_embeddings
    flops = training_flops(run.model, rows, work) / done
    recipe = run.training
    run_validations = -(-recipe.steps // recipe.validate_every)
    later = statistics.median(validations[1:]) if validates else 0.0
    excess = max(0.0, warm_up - PASSES[fleet.device.type] * done)
    return TrainingTimes(
        task=run.title,
        size=run.model.size,
        layers=run.model.layers,
        width=run.model.width,
        encoding=run.encoding.label,
        fleet=models,
        dropout=run.model.dropout,
        precision=recipe.precision_on(fleet.device.type),
        threads=torch.get_num_threads(),
        batch=recipe.batch,
        row_width=prepared[0].batches.tokens_KNRT.shape[-1],
        timed_steps=steps,
        tokens_per_step=work.tokens / steps,
        padding_share=1 - work.tokens / cells,
        step_ms=1e3 * step,
        step_ms_per_model=1e3 * step / models,
        preparation_ms_per_model=1e3 * preparation / models,
        end_to_end_ms=1e3 * end_to_end,
        model_steps_per_second=models / end_to_end,
        tokens_per_second=work.tokens / done,
        flops=flops,
        peak_share=flops / peak.flops,
        peak_memory_gib=memory,
        reserved_memory_gib=reserved,
        start_up_seconds=fleet.start_up_seconds,
        warm_up_seconds=excess,
        first_validation_seconds=validations[0],
        validation_seconds=later,
        run_steps=recipe.steps,
        run_validations=run_validations,
        run_seconds=fleet.start_up_seconds
        + excess
        + recipe.steps * end_to_end
        + validations[0]
        + (run_validations - 1) * later,
        loss=loss,
        note="; ".join(fleet.notes),
    )


def _stretches(steps: int, longest: int) -> Iterator[tuple[int, int]]:
    """First and end of each; all of one length where `steps` can be divided."""
    for first in range(0, steps, longest):
        yield first, min(first + longest, steps)


def _preparation(fleet: Session, spans: Sequence[tuple[int, int]]) -> float:
    """Median seconds of the host for a step of the whole fleet, nothing else going on."""
    seconds = []
    for span in spans:
        start = time.perf_counter()
        steps = fleet.source.steps(*span)
        seconds.append((time.perf_counter() - start) / len(steps))
    return statistics.median(seconds)


def _end_to_end(fleet: Session, spans: Sequence[tuple[int, int]]) -> float:
    """Seconds for a step where a thread prepares the next ones beside it, as in training."""
    unread: Measured | None = None
    with ThreadPoolExecutor(1) as beside:
        ready = fleet.source.steps(*spans[0])
        start = time.perf_counter()
        # As many stretches are prepared as are done: the one after the last is the first again.
        for following in (*spans[1:], spans[0]):
            upcoming = beside.submit(fleet.source.steps, *following)
            measured = fleet.updater.run(ready)
            if unread is not None:
                unread.read()
            unread, ready = measured, upcoming.result()
        if unread is not None:
            unread.read()
        return (time.perf_counter() - start) / spans[-1][1]


def _work(prepared: Sequence[Steps]) -> tuple[TokenCounts, int]:
    """What all stretches ask, and the cells of the rows that hold it."""
    parts = [TokenCounts.of(steps.batches) for steps in prepared]
    work = TokenCounts(
        *(int(np.sum([getattr(part, name) for part in parts])) for name in ("tokens", "predicted", "pairs"))
    )
    cells = sum(
        int(steps.batches.rows_K.sum()) * steps.batches.tokens_KNRT.shape[1] * steps.batches.tokens_KNRT.shape[3]
        for steps in prepared
    )
    return work, cells


def peak_memory(device: torch.device) -> tuple[float, float]:
    """Peak of tensors, and of what PyTorch keeps for them, in GiB."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device) / 2**30, torch.cuda.max_memory_reserved(device) / 2**30
    process = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20  # Linux counts in KiB
    return process, process


def skipped(workload: Workload, note: str) -> dict[str, Any]:
    """The row of a fleet that could not be timed."""
    run = workload.runs()[0]
    return {
        "task": run.title,
        "size": run.model.size,
        "layers": run.model.layers,
        "width": run.model.width,
        "encoding": run.encoding.label,
        "fleet": workload.fleet,
        "batch": run.training.batch,
        "note": note,
    }


def training_row(
    workload: Workload, device: torch.device, peak: Peak, steps: int, validates: bool = True
) -> dict[str, Any]:
    """The times as a row; a fleet that the device cannot hold gets a row that says so."""
    try:
        return asdict(time_training(workload, device, peak, steps, validates))
    except torch.cuda.OutOfMemoryError:
        return skipped(workload, "does not fit into the device's memory")
