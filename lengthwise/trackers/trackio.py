"""Trackio: its own local store, which `trackio show` reads (TRACKIO_DIR says where)."""

import contextlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lengthwise.trackers.following import BY_LENGTH
from lengthwise.trackers.tracker import Curves, TrackedRun, Tracker, package

COMPLETE = "complete"
"""Logged last."""


class Trackio(Tracker):
    """Trackio's local store."""

    name = "trackio"

    def __init__(self, folder: Path, project: str) -> None:
        super().__init__(folder, project)
        self.trackio = package("trackio", "trackio")
        self.storage = package("trackio.sqlite_storage", "trackio").SQLiteStorage

    def is_complete(self, run: TrackedRun) -> bool:
        return any(COMPLETE in row for row in self.storage.get_logs(self.project, _name(run)))

    def begin(self, run: TrackedRun) -> Curves:
        with contextlib.redirect_stdout(io.StringIO()):  # it says the same of every run
            if _name(run) in self.storage.get_runs(self.project):
                self.trackio.delete_run(self.project, _name(run))
            begun = self.trackio.init(project=self.project, name=_name(run), config=run.flat(), resume="never",
                                      embed=False, auto_log_gpu=False, auto_log_cpu=False)  # fmt: skip
        return _Run(begun)

    def where(self) -> str:
        return f'trackio show --project "{self.project}"'


class _Run(Curves):
    def __init__(self, run: Any) -> None:
        self.run = run

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.run.log(dict(values), step=step)

    def finish(self, step: int, summary: Mapping[str, float], by_length: Mapping[int, float]) -> None:
        for length, accuracy in by_length.items():
            self.log(length, {BY_LENGTH: accuracy})
        self.log(step, {**summary, COMPLETE: 1})
        self.pause()

    def pause(self) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            self.run.finish()


def _name(run: TrackedRun) -> str:
    return f"{run.name} {run.identity}"
