"""Mirrors the runs of a folder in a tracker: reads what training has written, passes on what is new.

Folders are the only truth. Nothing of this is in the way of training, any machine may train, and what was trained
before anyone thought of a tracker can be shown too.
"""

import hashlib
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lengthwise.door import Object, visible
from lengthwise.errors import UserError
from lengthwise.records.directory import COLLECTED, RunDirectory, StudyDirectory
from lengthwise.records.files import MissingFile, read_json, read_rows
from lengthwise.records.rows import load_results, read_run
from lengthwise.records.run_result import RunResult
from lengthwise.records.schema import DESCRIPTION
from lengthwise.runtime import Listener, Row
from lengthwise.trackers.tracker import Curves, TrackedRun, Tracker

NAMES = {
    "loss": "loss",
    "gradient_norm": "gradient_norm",
    "learning_rate": "learning_rate",
    "validation_exact_match": "validation/accuracy",
    "validation_token_accuracy": "validation/token_accuracy",
    "unseen_exact_match": "unseen/accuracy",
}
"""Fields of training.jsonl, and what they are called in a tracker."""
COLLECTED_NAMES = {"validation": "validation/accuracy", "unseen": "unseen/accuracy"}
BY_LENGTH = "test/accuracy"
"""Accuracy by length: its steps are lengths."""
LOOK_EVERY = 5.0
"""Seconds between two looks at a folder that is followed."""


@dataclass
class _Followed:
    """A run on its way into the tracker."""

    curves: Curves
    last: int = -1
    """The step that was passed on last."""


class Follower:
    """Passes on what is new in a folder each time it is asked."""

    def __init__(self, folder: Path, tracker: Tracker) -> None:
        self.folder, self.tracker = folder, tracker
        self.complete: set[Path] = set()
        self.written = 0
        """Runs that were completed here; the others were before."""
        self._followed: dict[Path, _Followed] = {}

    def update(self) -> bool:
        """Whether all runs that have begun are complete in the tracker, and there are some."""
        directories = StudyDirectory(self.folder).runs()
        for directory in directories:
            if directory.path not in self.complete:
                self._pass_on(directory)
        return bool(directories) and len(self.complete) == len(directories)

    def close(self) -> None:
        for followed in self._followed.values():
            followed.curves.pause()
        self._followed.clear()

    def _pass_on(self, directory: RunDirectory) -> None:
        finished = directory.is_finished  # asked first: nothing is written after it
        if directory.path not in self._followed:
            run = tracked_run(read_json(directory.description, DESCRIPTION))
            if finished and self.tracker.is_complete(run):
                self.complete.add(directory.path)
                return
            self._followed[directory.path] = _Followed(self.tracker.begin(run))
        followed = self._followed[directory.path]
        try:
            steps = by_step(read_rows(directory.training))
        except MissingFile:
            steps = {}
        # A step may get another row, of its validation, as long as no later step has one.
        for step in sorted(steps) if finished else sorted(steps)[:-1]:
            if step > followed.last:
                followed.curves.log(step, steps[step])
                followed.last = step
        if finished:
            result = read_run(directory)
            followed.curves.finish(max(followed.last, 0), summary(result), accuracies(result))
            self.complete.add(directory.path)
            self.written += 1
            del self._followed[directory.path]


def track(folder: Path, tracker: Tracker, follow: bool = False) -> tuple[int, int]:
    """Mirrors all runs of a study's folder, or of collected results; with `follow` until all runs are finished.

    Returns how many runs are complete in the tracker, and how many of them were before.
    """
    if (folder / COLLECTED).exists():
        return _track_collection(folder, tracker)
    if not StudyDirectory(folder).runs():
        load_results(folder)  # says what is wrong with the folder
    follower = Follower(folder, tracker)
    try:
        while not (follower.update() and _is_over(folder)) and follow:
            time.sleep(LOOK_EVERY)
    finally:
        follower.close()
    return len(follower.complete), len(follower.complete) - follower.written


def _is_over(folder: Path) -> bool:
    """Whether no fleet is left over that somebody trains or will resume."""
    return not any(StudyDirectory(folder).fleets.glob("*/fleet.json"))


def _track_collection(folder: Path, tracker: Tracker) -> tuple[int, int]:
    """Collected results have validations and tests, and no losses."""
    results, before = load_results(folder), 0
    for result in results.runs:
        run = tracked_run(result.description)
        if tracker.is_complete(run):
            before += 1
            continue
        curves, last = tracker.begin(run), 0
        for row in sorted(result.finished.get("validations", []), key=lambda row: row["step"]):
            last = row["step"]
            curves.log(last, {name: row[key] for key, name in COLLECTED_NAMES.items() if row.get(key) is not None})
        curves.finish(last, summary(result), accuracies(result))
    return len(results.runs), before


def project_of(folder: Path) -> str:
    """The study's name, where the folder says it."""
    file = folder / "study.json"
    found = read_json(file, Object()).get("name") if file.exists() else None
    return visible(str(found or folder.resolve().name), 100)


def tracked_run(description: Row) -> TrackedRun:
    begun = hashlib.sha256(str(description["started"]).encode()).hexdigest()[:6]
    facts = {key: description[key] for key in ("task", "encoding", "seed", "parameters", "commit", "started")}
    settings: dict[str, Any] = {**description["settings"], "run": facts}
    return TrackedRun(f"{description['fingerprint']}-{begun}", visible(description["name"], 200), settings)


def by_step(rows: list[Row]) -> dict[int, dict[str, float]]:
    """What training.jsonl says, by step: losses and validations of a step come together."""
    found: dict[int, dict[str, float]] = {}
    for row in rows:
        values = {name: float(row[key]) for key, name in NAMES.items() if isinstance(row.get(key), int | float)}
        if type(row.get("step")) is int and values:
            found.setdefault(row["step"], {}).update(values)
    return found


def accuracies(result: RunResult) -> dict[int, float]:
    """Length -> accuracy of the weights at the end."""
    counts = result.counts_by_length("last")
    return {length: counts[length][0] / counts[length][1] for length in sorted(counts)}


def summary(result: RunResult) -> dict[str, float]:
    kinds = {True: "test/seen_accuracy", False: "test/unseen_accuracy"}
    return {name: result.accuracy("last", seen) for seen, name in kinds.items() if ("last", seen) in result.totals}


@contextmanager
def following(folder: Path, tracker: Tracker, warn: Any) -> Iterator[Listener]:
    """Within, a thread follows the folder whenever the listener hears of rows; what goes wrong there stops no training.

    `warn`: is told, at the end, what went wrong.
    """
    wake, ends, wrong = threading.Event(), threading.Event(), list[BaseException]()
    follower = Follower(folder, tracker)

    def follow() -> None:
        try:
            while not ends.is_set():
                wake.wait()
                wake.clear()
                follower.update()
                ends.wait(LOOK_EVERY)  # not at every row
            follower.update()
        except Exception as error:  # of a network, of a package: training goes on
            wrong.append(error)
        finally:
            follower.close()

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield Listener(rows=lambda run, rows: wake.set())
    finally:
        ends.set()
        wake.set()
        thread.join()
        if wrong:
            said = visible(" ".join(str(wrong[0]).split()), 300)
            kind = "" if isinstance(wrong[0], UserError) else f"{type(wrong[0]).__name__}: "
            warn(f"the tracker stopped ({kind}{said}); `lengthwise track {folder} --to {tracker.name}` resumes it")
