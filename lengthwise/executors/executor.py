"""What an executor is: it is given the work of a study, and sees to it that the fleets are trained somewhere.

An executor is one file of this folder, named after it: a class with a `name`, perhaps a `Config`, and `execute`.
"""

import dataclasses
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch

from lengthwise import configuration, registry
from lengthwise.executors.claims import Claims
from lengthwise.records.directory import StudyDirectory
from lengthwise.runtime import Listener
from lengthwise.study import Run, Study
from lengthwise.training.plan import FleetPlan

Watch = Callable[[int, int, FleetPlan], Listener]
"""Given the number of a fleet, the number of fleets and its plan: who watches its training."""


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


@dataclass(frozen=True)
class Work:
    """What an executor is given. `claims` hands out the fleets, here or, made anew from the same runs, elsewhere."""

    study: Study
    job: Job
    claims: Claims
    watch: Watch | None = None
    save_every: float = 30.0
    """Seconds between saved states."""
    deterministic: bool = False
    command: Sequence[str] = ()
    """The words after `lengthwise` that do a part of this work in another process that sees the same folder, without
    those about device, workers and time; empty where no command asked."""
    say: Callable[[str], None] = print
    """To the user, about what was done instead of training."""

    def listener(self, number: int, total: int, fleet: FleetPlan) -> Listener:
        """Who watches fleet `number` of `total`, so far as is known."""
        return self.watch(number, max(total, number + 1), fleet) if self.watch else Listener()


class Executor:
    """Where fleets are trained. The only truth is the study's folder; nothing else is shared or returned."""

    name: ClassVar[str]
    elsewhere: ClassVar[bool] = False
    """Whether others train: this machine then needs no GPU."""
    hands_over: ClassVar[bool] = False
    """Whether the work goes on after `execute` has returned; then whoever does it prepares the folder, too."""

    @dataclass(frozen=True)
    class Config:
        pass

    def __init__(self, config: Any = None) -> None:
        self.config: Any = self.Config() if config is None else config

    def device(self, wanted: str) -> str:
        """The device for which fleets are planned, given the one that was asked for (`auto`, `cpu`, `cuda:1`)."""
        return wanted

    def execute(self, work: Work) -> None:
        """Trains what is left, and returns when nothing is that nobody works on.

        Asked to stop (Ctrl-C, SIGTERM), or when the time is up, it has what was reached saved and raises
        KeyboardInterrupt. An error of one fleet stops the others and is raised.
        """
        raise NotImplementedError


def make_executor(name: str, assignments: Iterable[str] = ()) -> Executor:
    """By its name, with settings such as `address=auto`. What is a text needs no quotes: `time=30`, `time=04:00:00`."""
    cls = registry.executors.get(name)
    texts = {field.name for field in dataclasses.fields(cls.Config) if field.type is str}
    table = configuration.override({}, [_quoted(each, texts) for each in assignments])
    return cls(configuration.read(cls.Config, table, f"--executor {cls.name}"))


def _quoted(assignment: str, texts: set[str]) -> str:
    name, equals, value = assignment.partition("=")
    is_bare = name.strip() in texts and equals and not value.strip().startswith(("'", '"'))
    return f"{name}={json.dumps(value.strip())}" if is_bare else assignment
