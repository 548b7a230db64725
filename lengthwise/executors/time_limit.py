"""How long a command may train: what it can finish is begun, the rest is left for the next one."""

import math
import time
from dataclasses import dataclass, field

from lengthwise.study import Run
from lengthwise.training.plan import FleetPlan
from lengthwise.training.run_sizes import measured_sizes


@dataclass
class TimeLimit:
    """When the time is up, training is saved and ends. Fleets are begun as far as they can be finished before.

    How long a fleet takes is known from those that were finished, start and tests included. Until the first is finished
    nothing is known, and whatever comes is begun.
    """

    minutes: float = math.inf
    taken: list[tuple[float, float]] = field(default_factory=list)
    """Tokens that a finished fleet was trained on, and how many seconds it took."""
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
        while runs and (left <= 0 or self.expected(sum(map(_tokens, runs))) > left):
            runs.pop()
        return None if not runs else fleet if len(runs) == len(fleet.runs) else FleetPlan(tuple(runs))

    def learn(self, fleet: FleetPlan, seconds: float) -> None:
        """A fleet took so long, from being taken to its rows."""
        self.taken.append((sum(map(_tokens, fleet.runs)), seconds))

    def expected(self, tokens: float) -> float:
        """Seconds that a fleet with so many tokens takes at most, by the slowest ones.

        Starting takes a small fleet as long as a large one. So between two sizes it is what a line between the slowest
        of each says; beyond the largest, time grows as tokens do.
        """
        known = [(0.0, 0.0), *self.taken]
        if not self.taken or tokens > (largest := max(known)[0]):
            return self.expected(largest) * tokens / largest if self.taken else 0.0
        below, above = ([each for each in known if sign * (each[0] - tokens) >= 0] for sign in (-1, 1))
        return max(s if u == t else s + (v - s) * (tokens - t) / (u - t) for t, s in below for u, v in above)


def _tokens(run: Run) -> float:
    """That it is trained on, nearly."""
    return run.training.steps * run.training.batch * float(measured_sizes(run)[0].mean())
