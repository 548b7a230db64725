"""Executes a study: looks it through, has an executor train it; `local` trains in this process."""

import gc
import math
import os
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path

import torch

from lengthwise.errors import RunError
from lengthwise.executors.claims import Claims
from lengthwise.executors.executor import Executor, Job, Watch, Work, make_executor
from lengthwise.executors.time_limit import TimeLimit
from lengthwise.records.directory import StudyDirectory
from lengthwise.records.rows import load_results
from lengthwise.runtime import Listener, choose_device, devices_of
from lengthwise.selection import select
from lengthwise.study import Run, Study
from lengthwise.training.limits import (
    host_memory,
    is_out_of_memory,
    refuse_large_models,
    refuse_large_step,
    refuse_long_attention,
)
from lengthwise.training.plan import FleetPlan, memory_of_step, plan, refuse_changed, run_directory, split
from lengthwise.training.run_sizes import longest_sequence
from lengthwise.training.trainer import Trainer

LARGEST_FLEET = {"cpu": 10, "cuda": 64}

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
    finished_in: Sequence[Path] = (),
    minutes: float = math.inf,
    prepared: "Callable[[Job], None] | None" = None,
    executor: Executor | None = None,
    command: Sequence[str] = (),
    say: Callable[[str], None] = print,
) -> int:
    """Trains and evaluates what is not finished yet; returns the number of fleets that it worked on.

    Any number of processes, on any number of machines, may work on the same folder: each takes what nobody works on.
    Everything that can be wrong with the settings is found before anything is written. `workers`: processes that
    train different fleets at the same time, in turn on all GPUs where no number says on which; 0 for one per core on a
    CPU, one per GPU. `deterministic`: the same bits every time on a GPU too, a little slower. `only`: a part of the
    study, as `task=addition,encoding=none`. `finished_in`: folders of results whose runs are not trained again.
    `minutes`: when they are over, what was reached is saved; fleets are begun as far as they can be finished by then.
    `prepared`: is told what is to be done, before it begins. `executor`: who trains; by default worker processes where
    there is work for several, else this process. `command` and `say`: as in `Work`.
    """
    limit = TimeLimit(minutes)
    if deterministic:
        be_deterministic()
    job = prepare(study, out, device, workers, only, finished_in, executor)
    if prepared:
        prepared(job)
    directory, runs = job.directory, job.runs
    claims = Claims(runs, directory, job.largest, job.device.type, job.every, limit)
    work = Work(study, job, claims, watch, save_every, deterministic, command, say)
    if executor is not None and executor.hands_over:
        executor.execute(work)
        return 0
    with directory.lock():
        directory.agree(study.description())
        wanted = {(run.title, run.encoding.label, run.seed, run.point): run_directory(directory, run) for run in runs}
        directory.refuse_doubles(wanted)
        directory.refuse_incomplete(wanted.values())
    if executor is None:
        executor = make_executor("processes") if min(claims.left(), job.workers) > 1 else Local()
    try:
        executor.execute(work)
    except KeyboardInterrupt:
        if not limit.is_over:
            raise
    return claims.worked


def prepare(
    study: Study,
    out: Path,
    device: str = "auto",
    workers: int = 0,
    only: str = "",
    finished_in: Sequence[Path] = (),
    executor: Executor | None = None,
) -> Job:
    """Finds everything that can be wrong with the settings, and writes nothing."""
    wanted = device if executor is None else executor.device(device)
    away = executor is not None and executor.elsewhere and wanted == "cuda"
    chosen = torch.device("cuda") if away else choose_device(wanted)
    directory = StudyDirectory(out)
    directory.refuse_collection()
    every = study.runs()
    runs = missing(select(every, only), finished_in)
    if not away:  # how much memory a GPU elsewhere has is found out there
        memory = torch.cuda.mem_get_info(chosen)[1] if chosen.type == "cuda" else host_memory()
        refuse_large_models(((run.model, run.training) for run in runs), memory, str(chosen))
    largest = LARGEST_FLEET[chosen.type]
    try:
        fleets = plan(runs, directory, largest, chosen.type, every)
    except Exception as error:
        if is_out_of_memory(error):
            raise RunError(f"the examples of {study.name} do not fit into the memory of this machine") from None
        raise
    for fleet in fleets if chosen.type == "cpu" else []:
        refuse_long_attention(
            fleet.name, longest_sequence(fleet.runs), fleet.runs[0].model, host_memory(), "this machine"
        )
        refuse_large_step(fleet.name, memory_of_step(fleet.runs[0], "cpu"), host_memory())
    for fleet in fleets:
        refuse_changed(fleet, directory)
    directory.refuse_other_settings(study.description())  # before there is a lock in a folder that is not ours
    devices = [chosen] if away else devices_of(chosen)
    side_by_side = chosen.type == "cpu" and all(run.model.width < WIDE for run in runs)
    usual = (os.cpu_count() or 1) if side_by_side else len(devices)
    return Job(directory, every, runs, fleets, largest, chosen, devices, workers or usual)


def unfinished_runs(study: Study, out: Path, only: str = "", finished_in: Sequence[Path] = ()) -> int:
    """How many runs are not finished; after `run_study` they are those that other processes work on."""
    directory = StudyDirectory(out)
    runs = missing(select(study.runs(), only), finished_in)
    return sum(not run_directory(directory, run).is_finished for run in runs)


def missing(runs: Sequence[Run], finished_in: Sequence[Path]) -> list[Run]:
    """Those that none of the folders of results has."""
    found = {each.description["fingerprint"] for folder in finished_in for each in load_results(folder).runs}
    return [run for run in runs if run.fingerprint not in found]


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


class Local(Executor):
    """In this process, one fleet after the other."""

    name = "local"

    def execute(self, work: Work) -> None:
        claims, device = work.claims, work.job.device
        total = claims.left()
        if device.index is not None:
            torch.cuda.set_device(device)  # our kernels are launched where PyTorch is
        while True:
            with claims.next() as (number, fleet):
                if fleet is None:
                    return
                listener = work.listener(number, total, fleet)
                train_fleet(fleet, work.job.directory, device, listener, work.save_every, claims.limit.ends)
                listener.done()


def train_fleet(
    fleet: FleetPlan,
    directory: StudyDirectory,
    device: torch.device,
    listener: Listener,
    save_every: float,
    until: float = math.inf,
) -> None:
    """Trains a fleet; one that does not fit into memory is cut in two, for whoever works on the study to take.

    `until`: when to save and stop, in seconds of `time.monotonic`.
    """
    with one_thread() if fleet.runs[0].model.width < WIDE else nullcontext():
        fits = _fits(fleet, directory, device, listener, save_every, until)
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
    fleet: FleetPlan,
    directory: StudyDirectory,
    device: torch.device,
    listener: Listener,
    save_every: float,
    until: float,
) -> bool:
    trainer = None
    try:
        trainer = Trainer(fleet, directory, device, listener, save_every, until=until)
        trainer.run()
    except Exception as error:
        if not isinstance(error, torch.cuda.OutOfMemoryError) and not is_out_of_memory(error):
            raise
        if trainer is not None and trainer.loop.interrupted():
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
