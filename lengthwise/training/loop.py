"""The training loop: for tasks, for language models, for the scales of heads.

Steps are prepared, run, noted; now and then validated and saved. A training says what these mean.
"""

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from lengthwise.runtime import Listener
from lengthwise.training.interrupts import noticing_interrupts
from lengthwise.training.update import Measured

STEPS_AT_ONCE = {"cpu": 8, "cuda": 64}
"""Steps that are prepared together; between two such stretches training can be saved."""


class Reached(Protocol):
    """How far a training has come."""

    step: int
    """Updates done."""
    seconds: float
    """Spent so far, over all resumed parts."""


class Training(Protocol):
    """A training, as the loop sees it."""

    @property
    def reached(self) -> Reached: ...

    def prepare(self, first: int, end: int) -> Any:
        """All that is needed for the steps `first` to `end`; called in a thread beside, while others are run."""

    def update(self, steps: Any) -> Measured:
        """Several updates, perhaps still on their way."""

    def note(self, first: int, measured: Measured) -> None:
        """What the steps from `first` on have given."""

    def settle(self) -> None:
        """Afterwards the weights are those after the last step."""

    def validate(self) -> None: ...

    def save(self) -> None:
        """So that training can resume from here."""


@dataclass
class Loop:
    """How far, and how often what."""

    steps: int
    validate_every: int
    """Steps; the last one is always validated."""
    at_once: int
    """Steps of a stretch, at most; none goes beyond a validation."""
    save_every: float = 30.0
    """Seconds."""
    listener: Listener = field(default_factory=Listener)
    agree: Callable[[bool], bool] = bool
    """Whether any of several processes says yes; all must ask."""
    until: float = math.inf
    """When it is to be saved and stopped, in seconds of `time.monotonic`."""
    interrupted: Callable[[], bool] = lambda: False
    """Whether somebody asked while it trained, or the time is up; still true when training is over."""

    def train(self, training: Training) -> None:
        """Asked to stop, it saves and raises KeyboardInterrupt; after the last steps whoever called it must do so."""
        reached = training.reached
        started, seconds_before, saved = time.monotonic(), reached.seconds, time.monotonic()
        unread: tuple[int, Measured] | None = None
        with ThreadPoolExecutor(1) as beside, noticing_interrupts(self.listener.note, self.until) as self.interrupted:
            upcoming = beside.submit(training.prepare, reached.step, self._until(reached.step))
            while reached.step < self.steps:
                first, end = reached.step, self._until(reached.step)
                steps = upcoming.result()
                last = end == self.steps
                if not last:
                    upcoming = beside.submit(training.prepare, end, self._until(end))
                reached.step = end
                measured = training.update(steps)
                # What the steps before gave is read while the device is busy with these.
                if unread:
                    training.note(*unread)
                unread = (first, measured)
                stops = self.agree(self.interrupted()) and not last
                saves = self.agree(last or stops or time.monotonic() - saved >= self.save_every)
                validates = last or end % self.validate_every == 0
                if saves or validates:
                    training.note(*unread)
                    unread = None
                    training.settle()
                if validates:
                    training.validate()
                reached.seconds = seconds_before + time.monotonic() - started
                if saves:
                    training.save()
                    saved = time.monotonic()
                self.listener.step(end, self.steps)
                if stops:
                    raise KeyboardInterrupt

    def _until(self, step: int) -> int:
        """Where the stretch that begins at `step` ends."""
        return min(step + self.at_once, (step // self.validate_every + 1) * self.validate_every, self.steps)
