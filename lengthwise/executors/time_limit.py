"""How long a command may train: what it can finish is begun, the rest is left for the next one."""

import math
import time
from dataclasses import dataclass, field

from lengthwise.study import Run
from lengthwise.training.plan import FleetPlan, measured_sizes


@dataclass
class TimeLimit:
    """When the time is up, training is saved and ends. Fleets are begun as far as they can be finished before.

    How long a fleet takes is known from those that were finished, start and tests included. Until the first is finished
    nothing is known, and whatever comes is begun.
    """

    minutes: float = math.inf
    seconds_per_token: float = 0.0
    """Of the slowest fleet that was finished; 0 where none was."""
    ends: float = field(init=False)
    """In seconds of `time.monotonic`."""

    def __post_init__(self) -> None:
        self.ends = time.monotonic() + 60 * self.minutes

    @property
    def is_over(self) -> bool:
        return time.monotonic() >= self.ends

    def part_of(self, fleet: FleetPlan) -> FleetPlan | None:
        """As many runs of a fleet that nobody has begun as can be finished; None for not even one."""
        left, runs = self.ends - time.monotonic(), list(fleet.runs)
        while runs and (left <= 0 or self.seconds_per_token * sum(map(_tokens, runs)) > left):
            runs.pop()
        return None if not runs else fleet if len(runs) == len(fleet.runs) else FleetPlan(tuple(runs))

    def learn(self, fleet: FleetPlan, seconds: float) -> None:
        """A fleet took so long, from being taken to its rows; the slowest is what others are expected to take."""
        self.seconds_per_token = max(self.seconds_per_token, seconds / sum(map(_tokens, fleet.runs)))


def _tokens(run: Run) -> float:
    """That it is trained on, nearly."""
    return run.training.steps * run.training.batch * float(measured_sizes(run)[0].mean())
