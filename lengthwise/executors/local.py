"""Executes a study on this machine: in this process, or in several worker processes side by side."""

import gc
import os
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from lengthwise.errors import RunError
from lengthwise.executors.claims import Claims
from lengthwise.executors.processes import Watch, run_in_workers
from lengthwise.records.directory import StudyDirectory
from lengthwise.runtime import Listener, choose_device, devices_of
from lengthwise.selection import select
from lengthwise.study import Run, Study
from lengthwise.training.limits import host_memory, is_out_of_memory, refuse_large_models, refuse_long_attention
from lengthwise.training.plan import FleetPlan, longest_sequence, plan, refuse_changed, run_directory, split
from lengthwise.training.trainer import Trainer

LARGEST_FLEET = {"cpu": 10, "cuda": 64}
MOST_WEIGHTS = {"cpu": 200_000_000, "cuda": 300_000_000}
"""Weights of all models of a fleet. Training keeps about seven numbers for each and saves four of them every time; a
large model gains little from company."""


WIDE = 256
"""Models of this width and more gain from several threads; narrower ones are trained side by side instead."""


def run_study(
    study: Study,
    out: Path,
    device: str = "auto",
    watch: Watch | None = None,
    save_every: float = 30.0,
    workers: int = 1,
    deterministic: bool = False,
    only: str = "",
) -> int:
    """Trains and evaluates what is not finished yet; returns the number of fleets that it worked on.

    Any number of processes, on any number of machines, may work on the same folder: each takes what nobody works on.
    Everything that can be wrong with the settings is found before anything is written. `workers`: processes that
    train different fleets at the same time, in turn on all GPUs where no number says on which; 0 for one per core on a
    CPU, one per GPU. `deterministic`: the same bits every time on a GPU too, a little slower. `only`: a part of the
    study, as `task=addition,encoding=none`.
    """
    if deterministic:
        be_deterministic()
    job = prepare(study, out, device, workers, only)
    directory, runs = job.directory, job.runs
    with directory.lock():
        directory.agree(study.description())
        wanted = {(run.title, run.encoding.label, run.seed): run_directory(directory, run) for run in runs}
        directory.refuse_doubles(wanted)
        directory.refuse_incomplete(wanted.values())
    claims = Claims(runs, directory, job.largest, job.device.type, job.every)
    if (several := min(claims.left(), job.workers)) > 1:
        devices = [str(each) for each in job.devices]
        run_in_workers(study, claims, devices, save_every, several, watch, deterministic)
    else:
        _work(claims, directory, job.device, watch, save_every)
    return claims.worked


@dataclass(frozen=True)
class Job:
    """A study that has been looked through: what is to be done, by how many, where."""

    directory: StudyDirectory
    every: list[Run]
    runs: list[Run]
    """Those that were asked for."""
    fleets: list[FleetPlan]
    """Of them, what is not finished."""
    largest: int
    """Runs of a fleet at most."""
    device: torch.device
    devices: list[torch.device]
    """Where processes side by side work, in turn."""
    workers: int


def prepare(study: Study, out: Path, device: str = "auto", workers: int = 0, only: str = "") -> Job:
    """Finds everything that can be wrong with the settings, and writes nothing."""
    chosen = choose_device(device)
    directory = StudyDirectory(out)
    directory.refuse_collection()
    every = study.runs()
    runs = select(every, only)
    memory = torch.cuda.mem_get_info(chosen)[1] if chosen.type == "cuda" else host_memory()
    refuse_large_models(((run.model, run.training) for run in runs), memory, str(chosen))
    one = 12 * study.model.layers * study.model.width**2  # weights of one model, nearly
    largest = max(1, min(LARGEST_FLEET[chosen.type], MOST_WEIGHTS[chosen.type] // one))
    try:
        fleets = plan(runs, directory, largest, chosen.type, every)
    except Exception as error:
        if is_out_of_memory(error):
            raise RunError(f"the examples of {study.name} do not fit into the memory of this machine") from None
        raise
    for fleet in fleets if chosen.type == "cpu" else []:
        refuse_long_attention(fleet.name, longest_sequence(fleet.runs), study.model, memory, "this machine")
    for fleet in fleets:
        refuse_changed(fleet, directory)
    directory.refuse_other_settings(study.description())  # before there is a lock in a folder that is not ours
    devices = devices_of(chosen)
    side_by_side = chosen.type == "cpu" and study.model.width < WIDE
    usual = (os.cpu_count() or 1) if side_by_side else len(devices)
    return Job(directory, every, runs, fleets, largest, chosen, devices, workers or usual)


def unfinished_runs(study: Study, out: Path, only: str = "") -> int:
    """How many runs are not finished; after `run_study` they are those that other processes work on."""
    directory = StudyDirectory(out)
    return sum(not run_directory(directory, run).is_finished for run in select(study.runs(), only))


def outdated_runs(study: Study, out: Path, only: str = "") -> list[str]:
    """A line for each file from outside the package that has changed since runs were finished with it."""
    directory, found = StudyDirectory(out), Counter[str]()
    for run in select(study.runs(), only):
        own = run_directory(directory, run)
        found.update(own.changed(run.outside) if own.is_finished else ())
    return [
        f"{file} has changed since finished runs were trained with it ({count} of them), and they stay as they are; "
        "delete them, or choose another folder with --out, to train them again"
        for file, count in found.items()
    ]


def _work(
    claims: Claims, directory: StudyDirectory, device: torch.device, watch: Watch | None, save_every: float
) -> None:
    total = claims.left()
    if device.index is not None:
        torch.cuda.set_device(device)  # our kernels are launched where PyTorch is
    while True:
        with claims.next() as fleet:
            if fleet is None:
                return
            listener = watch(claims.worked - 1, max(total, claims.worked), fleet) if watch else Listener()
            train_fleet(fleet, directory, device, listener, save_every)
            listener.done()


def train_fleet(
    fleet: FleetPlan, directory: StudyDirectory, device: torch.device, listener: Listener, save_every: float
) -> None:
    """Trains a fleet; one that does not fit into memory is cut in two, for whoever works on the study to take."""
    with one_thread() if fleet.runs[0].model.width < WIDE else nullcontext():
        fits = _fits(fleet, directory, device, listener, save_every)
    if device.type == "cuda":
        gc.collect()  # of a fleet that did not fit, the traceback held what it had
        torch.cuda.empty_cache()
    if fits:
        return
    if len(fleet.runs) == 1:
        raise RunError(f"{fleet.runs[0].name} does not fit into the memory of {device}; use a smaller model or batch")
    listener.note(f"{len(fleet.runs)} models do not fit into memory together; continuing with half of them at a time")
    with directory.lock():
        split(fleet, directory)


def _fits(
    fleet: FleetPlan, directory: StudyDirectory, device: torch.device, listener: Listener, save_every: float
) -> bool:
    trainer = None
    try:
        trainer = Trainer(fleet, directory, device, listener, save_every)
        trainer.run()
    except Exception as error:
        if not isinstance(error, torch.cuda.OutOfMemoryError) and not is_out_of_memory(error):
            raise
        if trainer is not None and trainer.loop.asked_to_stop():
            raise KeyboardInterrupt from None  # whoever goes on finds out again that it does not fit
        return False
    return True


def be_deterministic() -> None:
    # For the matrix products of the GPU; read when the first of them is made.
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.use_deterministic_algorithms(True)


@contextmanager
def one_thread() -> Iterator[None]:
    """Narrow models gain little from several threads, and lose much where another program wants a core.

    One thread also makes the bits of a result independent of the number of cores and of workers.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
