"""Hands out the fleets of a study one at a time, to any number of processes that share nothing but its folder."""

import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lengthwise.executors.time_limit import TimeLimit
from lengthwise.records.directory import FleetClaim, StudyDirectory
from lengthwise.records.files import write_json
from lengthwise.study import Run
from lengthwise.training.plan import FleetPlan, plan, remove_finished, run_directory


class Claims:
    """What is left of a part of a study. Threads of one process may share it."""

    def __init__(
        self,
        runs: Sequence[Run],
        directory: StudyDirectory,
        largest: int,
        device: str,
        study: Sequence[Run] = (),
        limit: TimeLimit | None = None,
    ) -> None:
        """`study`: all its runs, where `runs` are a part of them: a fleet that was begun is taken whole. `limit`: what
        cannot be finished within it is not handed out, unless it was begun earlier."""
        self.runs, self.directory, self.largest, self.device, self.study = runs, directory, largest, device, study
        self.limit = limit or TimeLimit()
        self._one_at_a_time = threading.Lock()
        self.worked = 0
        """Fleets that were handed out."""

    @contextmanager
    def next(self) -> Iterator[tuple[int, FleetPlan | None]]:
        """A fleet that is this caller's alone for a while, and how many were handed out before it.

        None where there is nothing left that nobody works on.
        """
        number, fleet, claim = self._take()
        taken, is_new = time.monotonic(), fleet is not None and not self._has_state(fleet)
        try:
            yield number, fleet
            if fleet is not None and is_new:
                self.limit.learn(fleet, time.monotonic() - taken)
        finally:
            if claim is not None:
                claim.give_up()

    def left(self) -> int:
        """Fleets that are not finished and that nobody works on."""
        with self._one_at_a_time, self.directory.lock():
            remove_finished((*self.study, *self.runs), self.directory, self.directory.held())
            return len(self._plan())

    def _take(self) -> tuple[int, FleetPlan | None, FleetClaim | None]:
        with self._one_at_a_time, self.directory.lock():
            for planned in self._plan():
                fleet = planned if self._has_state(planned) else self.limit.part_of(planned)
                if fleet is None or self.limit.is_over:
                    continue
                claim = self.directory.claim(fleet.id)
                if claim is None:
                    continue
                if not all(run_directory(self.directory, run).is_finished for run in fleet.runs):
                    # From now on everyone sees that its runs are taken.
                    members = [run.fingerprint for run in fleet.runs]
                    write_json(self.directory.fleets / fleet.id / "fleet.json", {"runs": members})
                    self.worked += 1
                    return self.worked - 1, fleet, claim
                claim.give_up()  # another process finished it between our two looks
                shutil.rmtree(self.directory.fleets / fleet.id, ignore_errors=True)
        return self.worked, None, None

    def _has_state(self, fleet: FleetPlan) -> bool:
        return any((self.directory.fleets / fleet.id).glob("*.safetensors"))

    def _plan(self) -> list[FleetPlan]:
        return plan(self.runs, self.directory, self.largest, self.device, self.study, self.directory.held())
