"""Fleets as tasks of a Ray cluster: its nodes share the study's folder, and nothing else.

A task claims its fleet where it writes. So a task whose worker or node is gone gives the claim up with its process, and
the one that follows resumes from the last saved state, on whatever node there is. This process hands out tasks, counts
losses and passes on what tasks say; when it ends, Ray ends its tasks.
"""

import importlib
import math
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from lengthwise import configuration, registry
from lengthwise.door import visible
from lengthwise.errors import RunError, UserError
from lengthwise.executors.claims import Claims
from lengthwise.executors.executor import Executor, Work
from lengthwise.executors.local import be_deterministic, train_fleet
from lengthwise.executors.time_limit import TimeLimit
from lengthwise.records.directory import StudyDirectory
from lengthwise.runtime import Listener, Row
from lengthwise.study import study_from
from lengthwise.training.interrupts import noticing_interrupts
from lengthwise.training.plan import FleetPlan

SAY_EVERY = 0.5
"""Seconds between two messages of a task, and between two looks at what tasks have said."""
PATIENCE = 60.0
"""Seconds that a task waits for the claim of the one that it follows, which a network file system frees late, and for
its last words to be heard."""

Said = tuple[int, str, tuple[Any, ...]]
"""Number of a task, what it says (`begun`, or a name of `Listener`), and the values."""


class Ray(Executor):
    """As tasks of a Ray cluster, on all its nodes; they share the study's folder."""

    name = "ray"
    elsewhere = True

    @dataclass(frozen=True)
    class Config:
        address: str = ""
        """As of `ray.init`: `auto`, `10.0.0.1:6379`; empty for RAY_ADDRESS, a cluster on this machine or a new one."""
        cpus: float = 1.0
        """Of a task."""
        gpus: float = 1.0
        """Of a task that trains on a GPU; several share one with 0.5."""
        retries: int = 10
        """Workers and nodes that a fleet may lose."""

    def device(self, wanted: str) -> str:
        if wanted == "auto":
            return "cuda" if self._connected().cluster_resources().get("GPU", 0) else "cpu"
        if wanted.startswith("cuda:"):
            raise UserError(f"Ray chooses the GPU of each task; use --device cuda instead of {wanted}")
        return wanted

    def execute(self, work: Work) -> None:
        ray = self._connected()
        try:
            _Driver(ray, work, self.config).drive()
        finally:
            if self._is_ours:
                ray.shutdown()

    _is_ours = False
    """Whether this executor connected to the cluster, and so disconnects."""

    def _connected(self) -> Any:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        try:
            ray = importlib.import_module("ray")
        except ImportError:
            raise UserError("--executor ray needs Ray: pip install 'lengthwise[ray]'") from None
        if not ray.is_initialized():
            address = self.config.address or None
            try:
                ray.init(address=address, include_dashboard=None if address else False, log_to_driver=False,
                         logging_level="ERROR")  # fmt: skip
            except (ConnectionError, ValueError, RuntimeError) as error:
                said = visible(" ".join(str(error).split()), 300)
                raise UserError(f"no Ray cluster could be reached at {address or 'this machine'}: {said}") from None
            self._is_ours = True
        return ray


@dataclass
class _Task:
    """One of the tasks that were handed out."""

    losses: int = 0
    """Of the tasks that it follows."""
    fleet: FleetPlan | None = None
    """What it has taken, once that is known."""
    listener: Listener = field(default_factory=Listener)
    said: str = ""
    """Why it ended itself."""


class _Driver:
    """Hands out tasks until nothing is left."""

    def __init__(self, ray: Any, work: Work, config: Any) -> None:
        self.ray, self.work, self.config, self.claims = ray, work, config, work.claims
        self.known = {run.fingerprint: run for run in (*work.job.every, *work.job.runs)}
        resources = {"num_cpus": config.cpus} | ({"num_gpus": config.gpus} if work.job.device.type == "cuda" else {})
        # Retries are counted here, so that a person hears of each.
        self.remote = ray.remote(max_retries=0, **resources)(train_next)
        # With `soft`, Ray may put it on another node, and if that one goes, what all tasks have said goes too.
        here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            ray.get_runtime_context().get_node_id(), soft=False
        )
        self.board = ray.remote(num_cpus=0, max_restarts=-1, scheduling_strategy=here)(MessageBoard).remote()
        ends = time.time() + work.claims.limit.ends - time.monotonic()
        self.setting = {
            "study": configuration.table(work.study),
            "folder": str(work.job.directory.path.resolve()),
            "runs": [run.fingerprint for run in work.job.runs],
            "largest": work.job.largest,
            "device": work.job.device.type,
            "save_every": work.save_every,
            "deterministic": work.deterministic,
            "ends": ends if math.isfinite(ends) else None,
            "directory": str(Path.cwd()),
            registry.VARIABLE: os.environ.get(registry.VARIABLE, ""),
        }
        self.tasks: list[_Task] = []
        self.running: dict[Any, int] = {}

    def drive(self) -> None:
        self.total = self.claims.left()
        with noticing_interrupts(lambda text: None) as interrupted:
            try:
                left = self.total
                while left:
                    before = self.claims.worked
                    for _ in range(left):
                        self._hand_out(_Task())
                    while self.running:
                        self._look()
                        if interrupted() or self.claims.limit.is_over:
                            self._stop()
                            raise KeyboardInterrupt
                    # More than at first, where fleets were too large and cut in two.
                    left = self.claims.left() if self.claims.worked > before else 0
            except UserError:
                for reference in self.running:
                    self.ray.cancel(reference, force=True, recursive=False)
                raise

    def _hand_out(self, task: _Task, after: str = "") -> None:
        reference = self.remote.remote(self.setting, self.board, len(self.tasks), after)
        self.running[reference] = len(self.tasks)
        self.tasks.append(task)

    def _look(self) -> None:
        """Passes on what tasks have said, and looks after those that ended."""
        ended, _ = self.ray.wait(list(self.running), timeout=SAY_EVERY)
        self._hear()
        for reference in ended:
            task = self.tasks[self.running.pop(reference)]
            try:
                took = self.ray.get(reference)
            except self.ray.exceptions.RayTaskError as error:
                if isinstance(error.cause, UserError):
                    raise error.cause from None
                raise RunError(f"a task of Ray failed: {_line(error.cause)}; {INSTALLED}") from error
            except self.ray.exceptions.RayError as error:
                self._replace(task, task.said or type(error).__name__)
                continue
            if took:
                self.claims.worked += 1
                task.listener.done()

    def _replace(self, task: _Task, reason: str) -> None:
        name = task.fleet.name if task.fleet else "a task that had not begun"
        if task.losses >= self.config.retries:
            again = "run the same command again to resume"
            raise RunError(f"{name} was lost {task.losses + 1} times, the last time: {reason}; {again}")
        task.listener.note(f"{name} was lost ({reason}); it resumes elsewhere")
        task.listener.done()
        self._hand_out(_Task(task.losses + 1), task.fleet.id if task.fleet else "")

    def _hear(self) -> None:
        try:
            said = self.ray.get(self.board.heard.remote())
        except self.ray.exceptions.RayActorError:
            return  # it begins anew
        for number, kind, values in said:
            task = self.tasks[number]
            if kind == "begun":
                task.fleet = FleetPlan(tuple(self.known[fingerprint] for fingerprint in values[0]))
                task.listener = self.work.listener(min(number, self.total - 1), self.total, task.fleet)
            elif kind == "died":
                task.said = values[0]
            else:
                getattr(task.listener, kind)(*values)

    def _stop(self) -> None:
        """Lets tasks save what they have reached."""
        for reference in self.running:
            self.ray.cancel(reference, recursive=False)
        while self.running:
            ended, _ = self.ray.wait(list(self.running), timeout=SAY_EVERY)
            for reference in ended:
                del self.running[reference]
        self._hear()


INSTALLED = "every node needs the same versions of Python, Ray and lengthwise as this machine"


class MessageBoard:
    """What tasks have said and nobody has read yet; and what they have learned about how long fleets take."""

    def __init__(self) -> None:
        self.said: list[Said] = []
        self.taken: list[tuple[float, float]] = []

    def say(self, said: list[Said]) -> None:
        self.said += said

    def heard(self) -> list[Said]:
        said, self.said = self.said, []
        return said

    def learn(self, taken: Sequence[tuple[float, float]] = ()) -> list[tuple[float, float]]:
        """What all tasks know so far: see `TimeLimit.taken`."""
        self.taken += taken
        return self.taken


def train_next(setting: dict[str, Any], board: Any, number: int, after: str) -> bool:
    """In a worker of Ray: takes a fleet that nobody works on and trains it. Returns whether there was one.

    `after`: the fleet of the task that it follows.
    """
    ray = importlib.import_module("ray")
    say = _Speaker(board, number)
    try:
        return _train_next(setting, ray, board, say, after)
    except UserError:
        raise
    except Exception as error:  # of a device, or ours: this process may be beyond repair, the next one need not be
        with suppress(ray.exceptions.RayActorError):
            ray.get(say.now("died", _line(error)))
        os._exit(1)
    finally:
        with suppress(Exception):  # of a cluster that is going away
            ray.get(say.now(), timeout=PATIENCE)  # else the driver may look before it has arrived, for the last time


def _train_next(setting: dict[str, Any], ray: Any, board: Any, say: "_Speaker", after: str) -> bool:
    folder = Path(setting["folder"])
    if not (folder / "study.json").exists():
        node = ray.util.get_node_ip_address()
        raise UserError(f"the node {node} does not see {folder}; name a folder that all nodes share with --out")
    os.environ[registry.VARIABLE] = setting[registry.VARIABLE]
    with suppress(OSError):  # files that the study names are found from where the command was given
        os.chdir(setting["directory"])
    if setting["deterministic"]:
        be_deterministic()
    every = study_from(setting["study"]).runs()
    wanted = set(setting["runs"])
    directory, device = StudyDirectory(folder), torch.device(setting["device"])
    minutes = math.inf if setting["ends"] is None else (setting["ends"] - time.time()) / 60
    limit, known = TimeLimit(minutes), []
    with suppress(ray.exceptions.RayActorError):
        limit.taken = list(known := ray.get(board.learn.remote()))
    runs = [run for run in every if run.fingerprint in wanted]
    claims = Claims(runs, directory, setting["largest"], device.type, every, limit)
    _wait_for(directory, after)
    with claims.next() as (_, fleet):
        if fleet is None:
            return False
        say.now("begun", [run.fingerprint for run in fleet.runs])
        say.last = 0.0  # the first steps are told at once
        listener = Listener(step=say.step, note=say.note, rows=say.rows)
        try:
            train_fleet(fleet, directory, device, listener, setting["save_every"], limit.ends)
        except KeyboardInterrupt:  # the time is up, or somebody asked; what was reached is saved
            return True
    board.learn.remote(limit.taken[len(known) :])
    return True


def _wait_for(directory: StudyDirectory, fleet: str) -> None:
    """Until nobody holds a fleet, for a while."""
    ends = time.monotonic() + PATIENCE
    while fleet and time.monotonic() < ends:
        with directory.lock():
            if fleet not in directory.held():
                return
        time.sleep(SAY_EVERY)


class _Speaker:
    """Tells the board, not too often."""

    def __init__(self, board: Any, number: int) -> None:
        self.board, self.number = board, number
        self.waiting: list[Said] = []
        self.last = 0.0

    def now(self, *said: Any) -> Any:
        """What waits, and a message, where there is one."""
        self.waiting += [(self.number, said[0], said[1:])] if said else []
        self.last, waiting, self.waiting = time.monotonic(), self.waiting, []
        return self.board.say.remote(waiting)

    def step(self, step: int, steps: int) -> None:
        if time.monotonic() - self.last > SAY_EVERY:
            self.now("step", step, steps)

    def note(self, text: str) -> None:
        self.now("note", text)

    def rows(self, run: str, rows: list[Row]) -> None:
        self.waiting.append((self.number, "rows", (run, rows)))


def _line(error: BaseException) -> str:
    return visible(" ".join(f"{type(error).__name__}: {error}".split()), 500)
