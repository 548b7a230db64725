"""TensorBoard: a folder of event files for each run."""

import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lengthwise.records.directory import make_folder
from lengthwise.records.files import write_json
from lengthwise.records.names import plain
from lengthwise.trackers.following import BY_LENGTH
from lengthwise.trackers.tracker import Curves, TrackedRun, Tracker, package

COMPLETE = "complete.json"


class TensorBoard(Tracker):
    """Event files for TensorBoard."""

    name = "tensorboard"

    def __init__(self, folder: Path, project: str) -> None:
        super().__init__(folder, project)
        package("tensorboard", "tensorboard")
        self.writer = package("torch.utils.tensorboard", "tensorboard").SummaryWriter

    def is_complete(self, run: TrackedRun) -> bool:
        return (self._place(run) / COMPLETE).exists()

    def begin(self, run: TrackedRun) -> Curves:
        place = self._place(run)
        if place.exists():
            shutil.rmtree(place)
        make_folder(place)
        return _Events(self.writer(str(place)), place, run)

    def where(self) -> str:
        return f"tensorboard --logdir {self.folder / 'tensorboard'}"

    def _place(self, run: TrackedRun) -> Path:
        return self.folder / "tensorboard" / f"{plain(run.name)}-{run.identity}"


class _Events(Curves):
    def __init__(self, writer: Any, place: Path, run: TrackedRun) -> None:
        self.writer, self.place = writer, place
        table = "".join(f"| {key} | {value} |\n" for key, value in run.flat().items())
        writer.add_text("settings", f"| setting | value |\n|---|---|\n{table}")

    def log(self, step: int, values: Mapping[str, float]) -> None:
        for key, value in values.items():
            self.writer.add_scalar(key, value, step)

    def finish(self, step: int, summary: Mapping[str, float], by_length: Mapping[int, float]) -> None:
        self.log(step, summary)
        for length, accuracy in by_length.items():
            self.log(length, {BY_LENGTH: accuracy})
        self.writer.close()
        write_json(self.place / COMPLETE, {})

    def pause(self) -> None:
        self.writer.close()
