"""What a study will need, before it is begun: arithmetic, parameters, and about how long and how much memory here."""

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch

from lengthwise.bench.arithmetic import TokenCounts, training_flops
from lengthwise.bench.training import PASSES, Session, peak_memory, session
from lengthwise.executors.executor import Job
from lengthwise.executors.local import one_thread
from lengthwise.model.config import ModelConfig
from lengthwise.study import Run
from lengthwise.training.plan import FleetPlan
from lengthwise.training.run_sizes import measured_sizes

STEPS = 16
"""That are timed; one where these would take too long."""
PATIENCE = 20.0
"""Seconds."""
LONG = 2 * 3600.0
"""Seconds from which on a study is too large for a CPU."""
PRODUCT = 512
"""Rows and columns of the matrices whose product is timed."""


@dataclass(frozen=True)
class Estimate:
    """Of what is not finished."""

    runs: int
    finished: int
    fleets: int
    workers: int
    parameters: tuple[int, int]
    """Of the smallest and of the largest model."""
    operations: float
    """Of training, forward and backward: see `training_flops`."""
    timed: str
    """The fleet that was timed."""
    seconds: float
    """For all of training, if every fleet does as many operations a second as the one that was timed; validations and
    tests are not in it."""
    memory_gib: float
    """That a process takes: on a GPU of the device, on a CPU of the machine."""


def estimate(job: Job) -> Estimate:
    """Trains the fleet with most work for a moment, in a folder that is then deleted."""
    runs = [run for fleet in job.fleets for run in fleet.runs]
    work = {id(fleet): sum(map(operations, fleet.runs)) for fleet in job.fleets}
    models = [fleet.build() for fleet in _shapes(job.fleets)]
    counts = [sum(parameter.numel() for parameter in model.parameters()) for model in models] or [0]
    workers = max(1, min(len(job.fleets), job.workers))
    finished = len(job.runs) - len({run.fingerprint for run in runs} & {run.fingerprint for run in job.runs})
    about = len(runs), finished, len(job.fleets), workers, (min(counts), max(counts)), float(sum(work.values()))
    if not job.fleets:
        return Estimate(*about, "", 0.0, 0.0)
    largest = max(job.fleets, key=lambda fleet: work[id(fleet)])
    rate, memory = _rate(largest, job.device, work[id(largest)] / largest.runs[0].training.steps)
    # Fleets are handed out whole: no process is done before its share, nor before the longest of them.
    seconds = max(sum(work.values()) / workers, max(work.values())) / rate
    return Estimate(*about, largest.name, seconds, memory)


def cpu_warning(job: Job) -> str:
    """One line where a study is too large for the CPU that it is about to be trained on; nothing where it is not.

    The time is the arithmetic of `estimate` at the speed that plain matrix products have here: rough, and known within
    a second, where `estimate` may train for minutes.
    """
    if job.device.type != "cpu":
        return ""
    work = float(sum(operations(run) for fleet in job.fleets for run in fleet.runs))
    workers = max(1, min(len(job.fleets), job.workers))
    seconds = work / workers / _product_rate(side_by_side=workers > 1)
    if seconds < LONG:
        return ""
    return (
        f"this study is made for a GPU: {_runs(sum(len(fleet.runs) for fleet in job.fleets))} train for about "
        f"{_duration(seconds)} on this CPU ({work:.2g} operations); continuing. --dry-run measures how long, "
        "--only and --set make it smaller"
    )


def _runs(count: int) -> str:
    return "1 run" if count == 1 else f"{count:,} runs"


def _product_rate(side_by_side: bool) -> float:
    """Operations a second of matrix products, the best of a few; with one thread where processes are side by side."""
    left, right = torch.ones(PRODUCT, PRODUCT), torch.ones(PRODUCT, PRODUCT)
    seconds = []
    with one_thread() if side_by_side else nullcontext():
        for _ in range(5):
            start = time.perf_counter()
            left @ right
            seconds.append(time.perf_counter() - start)
    return 2 * PRODUCT**3 / min(seconds)


def operations(run: Run) -> float:
    """Of all its training."""
    size_E, prompt_E = measured_sizes(run)
    flops = training_flops(run.model, run.make_tokens().rows, TokenCounts.of_sizes(size_E, prompt_E))
    return flops / len(size_E) * run.training.batch * run.training.steps


def _shapes(fleets: Sequence[FleetPlan]) -> list[FleetPlan]:
    """One for each encoding and model: others differ in nothing that counts parameters but embedding rows."""
    found: dict[tuple[str, ModelConfig, int], FleetPlan] = {}
    for fleet in fleets:
        first = fleet.runs[0]
        found.setdefault((first.encoding.label, first.model, first.make_tokens().rows), fleet)
    return list(found.values())


def _rate(fleet: FleetPlan, device: torch.device, operations_of_a_step: float) -> tuple[float, float]:
    """Operations a second, and GiB."""
    with session(fleet, device) as ready:
        ready.first_step()
        count, seconds = 1, _seconds(ready, 1)
        if seconds * STEPS * (1 + PASSES[device.type]) < PATIENCE:
            for _ in range(1 + PASSES[device.type]):
                count, seconds = STEPS, _seconds(ready, STEPS)
        return count * operations_of_a_step / seconds, peak_memory(device)[0]


def _seconds(ready: Session, count: int) -> float:
    steps = ready.source.steps(0, count)
    start = time.perf_counter()
    ready.do(steps)
    return time.perf_counter() - start


def lines(found: Estimate) -> list[str]:
    """For people; times are rough, and say so."""
    if not found.runs:
        return [f"Nothing left to do: all {found.finished:,} runs are finished."]
    least, most = found.parameters
    parameters = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    return [
        f"runs          {found.runs:,} in {found.fleets:,} fleets; {found.finished:,} are finished",
        f"parameters    {parameters} a model",
        f"arithmetic    {found.operations:.2g} operations of training",
        f"time          about {_duration(found.seconds)} in {found.workers:,} "
        f"{'process' if found.workers == 1 else 'processes'}, validations and tests not counted",
        f"memory        about {found.memory_gib:.1f} GiB a process",
        f"Measured here in a few steps of {found.timed}. Nothing was written.",
    ]


def _duration(seconds: float) -> str:
    for unit, size in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 1.5 * size:
            return f"{seconds / size:.2g} {unit}" if seconds < 10 * size else f"{seconds / size:,.0f} {unit}"
    return f"{max(1, round(seconds))} s"
