"""Hands out the fleets of a study one at a time, to any number of processes that share nothing but its folder."""

import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lengthwise.records.directory import Claim, StudyDirectory
from lengthwise.records.files import write_json
from lengthwise.study import Run
from lengthwise.training.plan import FleetPlan, plan, remove_finished, run_directory


class Claims:
    """What is left of a part of a study. Threads of one process may share it."""

    def __init__(
        self, runs: Sequence[Run], directory: StudyDirectory, largest: int, device: str, study: Sequence[Run] = ()
    ) -> None:
        """`study`: all its runs, where `runs` are a part of them: a fleet that was begun is taken whole."""
        self.runs, self.directory, self.largest, self.device, self.study = runs, directory, largest, device, study
        self._one_at_a_time = threading.Lock()
        self.worked = 0
        """Fleets that were handed out."""

    @contextmanager
    def next(self) -> Iterator[FleetPlan | None]:
        """A fleet that is this caller's alone for a while; None where there is nothing left that nobody works on."""
        fleet, claim = self._take()
        try:
            yield fleet
        finally:
            if claim is not None:
                claim.give_up()

    def left(self) -> int:
        """Fleets that are not finished and that nobody works on."""
        with self._one_at_a_time, self.directory.lock():
            remove_finished((*self.study, *self.runs), self.directory, self.directory.held())
            return len(self._plan())

    def _take(self) -> tuple[FleetPlan | None, Claim | None]:
        with self._one_at_a_time, self.directory.lock():
            for fleet in self._plan():
                claim = self.directory.claim(fleet.id)
                if claim is None:
                    continue
                if not all(run_directory(self.directory, run).is_finished for run in fleet.runs):
                    # From now on everyone sees that its runs are taken.
                    members = [run.fingerprint for run in fleet.runs]
                    write_json(self.directory.fleets / fleet.id / "fleet.json", {"runs": members})
                    self.worked += 1
                    return fleet, claim
                claim.give_up()  # another process finished it between our two looks
                shutil.rmtree(self.directory.fleets / fleet.id, ignore_errors=True)
        return None, None

    def _plan(self) -> list[FleetPlan]:
        return plan(self.runs, self.directory, self.largest, self.device, self.study, self.directory.held())
