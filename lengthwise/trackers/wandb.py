"""Weights & Biases: offline, for `wandb sync`, unless WANDB_MODE says online."""

import os
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lengthwise.door import visible
from lengthwise.errors import UserError, nearest
from lengthwise.records.directory import make_folder
from lengthwise.trackers.following import BY_LENGTH
from lengthwise.trackers.tracker import Curves, TrackedRun, Tracker, package

LENGTH = "test/length"
MODES = ("offline", "online", "shared", "disabled", "dryrun", "run")
COMPLETE = "complete"
"""A file in the folder of a run that is whole."""


class Wandb(Tracker):
    """Weights & Biases, offline unless WANDB_MODE says otherwise."""

    name = "wandb"

    def __init__(self, folder: Path, project: str) -> None:
        super().__init__(folder, project)
        self.wandb = package("wandb", "wandb")
        self.mode = os.environ.get("WANDB_MODE", "offline")
        if self.mode not in MODES:
            told = f"{nearest(self.mode, MODES)}" if self.mode else f"known: {', '.join(MODES)}"
            raise UserError(f"WANDB_MODE is {visible(self.mode, 60)!r}; {told}")

    def is_complete(self, run: TrackedRun) -> bool:
        return any((place / COMPLETE).exists() for place in self._places(run))

    def begin(self, run: TrackedRun) -> Curves:
        if self.mode == "offline":
            for place in self._places(run):
                shutil.rmtree(place)
        make_folder(self.folder)
        begun = self.wandb.init(
            project=_allowed(self.project),
            name=run.name,
            id=run.identity,
            config=dict(run.settings),
            dir=str(self.folder),
            mode=self.mode,
            resume="allow" if self.mode != "offline" else None,
            reinit="create_new",  # many runs at once in one process
            settings=self.wandb.Settings(silent=True, console="off", x_disable_stats=True, disable_git=True),
        )
        begun.define_metric(BY_LENGTH, step_metric=LENGTH)
        return _Run(begun)

    def where(self) -> str:
        return f"wandb sync {self.folder / 'wandb'}/offline-run-*" if self.mode == "offline" else "https://wandb.ai"

    def _places(self, run: TrackedRun) -> Iterator[Path]:
        yield from self.folder.glob(f"wandb/*run-*-{run.identity}")


class _Run(Curves):
    def __init__(self, run: Any) -> None:
        self.run, self.first = run, run.step
        """Steps before `first` are there already, online."""

    def log(self, step: int, values: Mapping[str, float]) -> None:
        if step >= self.first:
            self.run.log(dict(values), step=step)

    def finish(self, step: int, summary: Mapping[str, float], by_length: Mapping[int, float]) -> None:
        for number, (length, accuracy) in enumerate(by_length.items(), start=1):  # its steps only ever grow
            self.log(step + number, {LENGTH: length, BY_LENGTH: accuracy})
        self.run.summary.update(dict(summary))
        place = Path(self.run.dir).parent
        self.run.finish()
        (place / COMPLETE).touch()

    def pause(self) -> None:
        self.run.finish()


def _allowed(project: str) -> str:
    """Letters that the name of a project may not have are replaced."""
    return "".join("_" if letter in "/\\#?%:" else letter for letter in project)
