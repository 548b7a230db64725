"""The folder of a study and the folders of its runs: what is in them, and who may write.

runs/quickstart/
  study.json                      the settings that all its runs share
  lock                            held while someone looks what is left to do
  fleets/ID/                      unfinished work: fleet.json, state.safetensors, lock (held by who works on it)
  copy.repeat/none/seed-1-FINGERPRINT/    with a grid copy.repeat/none/layers=4/seed-1-FINGERPRINT/
    run.json                      before step 0: settings, commit, versions, hardware; later who else went on with it
    training.jsonl                loss and validation by step
    last.safetensors, best.safetensors
    rows.jsonl                    results by length
    failures.jsonl                some of the examples that went wrong
    finished.json                 written last: the run is complete
"""

import contextlib
import fcntl
import json
import os
import socket
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lengthwise import door
from lengthwise.errors import RunError, UserError
from lengthwise.records.files import STORAGE, read_json, storage_error, write_json
from lengthwise.records.names import places
from lengthwise.records.names import plain as plain
from lengthwise.records.schema import TableOf

GRID = "grid"
SECTIONS = ("model", "data", "training")
"""In study.json: settings that its runs vary, and those that all of them share."""

COLLECTED = "runs.jsonl"
"""In the folder of a collection of results; a study's folder has none."""


class RunDirectory:
    """One run's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # Made when they are asked for: there may be tens of thousands of folders.

    @property
    def description(self) -> Path:
        return self.path / "run.json"

    @property
    def training(self) -> Path:
        return self.path / "training.jsonl"

    @property
    def rows(self) -> Path:
        return self.path / "rows.jsonl"

    @property
    def failures(self) -> Path:
        return self.path / "failures.jsonl"

    @property
    def last(self) -> Path:
        return self.path / "last.safetensors"

    @property
    def best(self) -> Path:
        return self.path / "best.safetensors"

    @property
    def finished(self) -> Path:
        return self.path / "finished.json"

    @property
    def is_finished(self) -> bool:
        return os.path.exists(f"{self.path}/finished.json")  # noqa: PTH110 (Path takes three times as long)

    def begin(self, description: Mapping[str, Any]) -> None:
        """Makes the folder and describes the run, before its first step; anew where a file has changed since.

        Nothing was trained with it then: `training.plan.refuse_changed` has seen to that.
        """
        make_folder(self.path)
        if not self.description.exists() or (not self.is_finished and self.changed(description.get("outside", {}))):
            write_json(self.description, description)

    def refuse_other_precision(self, precision: str) -> None:
        """Refuses to resume a run in another precision: its numbers would be of neither."""
        earlier = door.read_json(self.description, _RUN)["precision"] if self.description.exists() else precision
        if earlier != precision:
            raise UserError(
                f"{self.path} was begun in {earlier}, and this device would resume it in {precision}; "
                "finish it on the device where it began, or choose another folder with --out"
            )

    def changed(self, outside: Mapping[str, str]) -> list[str]:
        """Which of these files from outside the package were others when it was begun, as far as it says."""
        if not outside or not self.description.exists():
            return []
        said = door.read_json(self.description, _RUN).get("outside", {})
        return [file for file, checksum in outside.items() if said.get(file, checksum) != checksum]

    def note_session(self, step: int, session: Mapping[str, Any]) -> None:
        """Adds to the description who resumes from `step`, where anything but the time differs from who did before."""
        described = door.read_json(self.description, _RUN)
        sessions = described.get("sessions", [])
        before = sessions[-1] if sessions else described
        if any(before.get(key) != value for key, value in session.items() if key != "started"):
            write_json(self.description, {**described, "sessions": [*sessions, {"step": step, **session}]})


class StudyDirectory:
    """A study's folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.fleets = path / "fleets"
        self._runs: dict[tuple[str, str, int, str, str], RunDirectory] = {}

    def run(self, task: str, label: str, seed: int, fingerprint: str, point: str = "") -> RunDirectory:
        """Where a run is, or will be; one that is there under the name that it would have had earlier stays there.

        `point`: its place in the study's grid, in one word.
        """
        key = task, label, seed, fingerprint, point
        if key not in self._runs:  # a study of thousands is looked through again and again
            named = places(self.path, task, label, *([point] if point else []))
            now, *earlier = (place / f"seed-{seed}-{fingerprint}" for place in named)
            self._runs[key] = RunDirectory(next((place for place in earlier if place.is_dir()), now))
        return self._runs[key]

    def runs(self) -> list[RunDirectory]:
        """In the order of their names, as of `*/*/seed-*/run.json`; with a grid `*/*/*/seed-*/run.json`."""
        found = [
            (task, encoding, *run)
            for task in _folders(str(self.path))
            for encoding in _folders(f"{self.path}/{task}")
            for run in _run_folders(f"{self.path}/{task}/{encoding}")
        ]
        return [RunDirectory(self.path.joinpath(*parts)) for parts in sorted(found)]

    @property
    def is_begun(self) -> bool:
        """Whether it holds runs, or work on them."""
        return bool(self.runs()) or self.fleets.exists()

    def refuse_collection(self) -> None:
        """Refuses to train where results were collected: whoever reads those would not see the runs."""
        if (self.path / COLLECTED).exists():
            raise UserError(f"{self.path} holds collected results ({COLLECTED}); choose another folder with --out")

    def refuse_incomplete(self, wanted: Iterable[RunDirectory]) -> None:
        """Refuses to take a run without its results for finished."""
        for directory in wanted:
            if directory.is_finished and not directory.rows.exists():
                raise RunError(
                    f"{directory.rows} is missing from a finished run; restore it, "
                    f"or delete {directory.path} and run again"
                )

    def refuse_doubles(self, wanted: Mapping[tuple[str, str, int, str], RunDirectory]) -> None:
        """Refuses a run where the folder has one of the same name with other settings: no table could hold both.

        `wanted`: by task, label, seed and place in the grid.
        """
        listed: dict[Path, dict[str, list[Path]]] = {}
        for (task, label, seed, point), directory in wanted.items():
            parts = (task, label, point) if point else (task, label)
            name = f"{'/'.join(parts)}/seed-{seed}"
            for place in places(self.path, *parts):
                if place not in listed:
                    listed[place] = _by_seed(place)
                for other in listed[place].get(f"seed-{seed}", ()):
                    # What were folders of one name earlier may hold runs of several.
                    if other.parent != directory.path and read_json(other).get("name", name) == name:
                        raise UserError(
                            f"{self.path} already holds {name} with other settings ({other.parent.name}); "
                            "choose another folder with --out, or delete that run"
                        )

    def refuse_other_settings(self, shared: Mapping[str, Any]) -> dict[str, Any] | None:
        """Refuses to mix runs of different settings in one folder: tables compare like with like.

        Returns what its study.json says, None where there is none yet.
        """
        file = self.path / "study.json"
        if not file.exists():
            return None
        earlier = door.read_json(file, _SHARED)
        if changed := changes(earlier, shared):
            raise UserError(
                f"{self.path} holds runs with other settings ({'; '.join(changed[:3])}); "
                "choose another folder with --out, or delete this one"
            )
        return earlier

    def agree(self, shared: Mapping[str, Any]) -> None:
        """Adds what is new to study.json; settings that differ are refused. To be asked under `lock`."""
        make_folder(self.path)
        for partial in self.path.glob(".study.json.*.partial"):  # left by a process that was killed while it wrote
            partial.unlink(missing_ok=True)
        file, earlier = self.path / "study.json", self.refuse_other_settings(shared)
        if earlier is None:
            write_json(file, shared)
            return
        write_json(file, joined(earlier, shared))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """For the moment in which someone looks what is left to do and takes a part of it; others wait."""
        make_folder(self.path)
        descriptor = _locked(self.path / "lock", patience=PATIENCE)
        if descriptor is None:
            raise UserError(f"{self.path} is in use by {_holder(self.path / 'lock')}; wait for it, or choose --out")
        try:
            yield
        finally:
            os.close(descriptor)

    def claim(self, fleet: str) -> "FleetClaim | None":
        """The right to work on a fleet, until it is given up or this process ends; None if another process has it."""
        make_folder(self.fleets / fleet)
        descriptor = _locked(self.fleets / fleet / "lock", patience=0)
        return None if descriptor is None else FleetClaim(descriptor)

    def held(self) -> set[str]:
        """Fleets that someone works on. To be asked under `lock`: a fleet cannot be claimed while it is looked at."""
        found = set()
        for file in self.fleets.glob("*/lock"):
            descriptor = _locked(file, patience=0)
            if descriptor is None:
                found.add(file.parent.name)
            else:
                os.close(descriptor)
        return found


_LISTS = ("tasks", "encodings", "seeds", "task_order", "encoding_order")
_SHARED = door.Object(
    allowed={
        **dict.fromkeys(SECTIONS, door.Object()), **dict.fromkeys(_LISTS, door.List()), GRID: TableOf(door.List())
    }
)  # fmt: skip
"""What study.json may be."""

_RUN = door.Object(
    needed={"precision": door.Text()}, allowed={"sessions": door.List(door.Object()), "outside": door.Object()}
)

PATIENCE = 60.0
"""Seconds that one waits for another process to look through the folder."""


@dataclass
class FleetClaim:
    descriptor: int

    def give_up(self) -> None:
        os.close(self.descriptor)


def _locked(file: Path, patience: float) -> int | None:
    """An open file that is locked; the system frees the lock when the process ends, however it ends."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise storage_error(error, file) from error
    began = time.monotonic()
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError:
            if time.monotonic() - began >= patience:
                os.close(descriptor)
                return None
            time.sleep(0.05)
    try:
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
    except OSError as error:  # a full disk, for one
        os.close(descriptor)
        raise storage_error(error, file) from error
    return descriptor


def _holder(file: Path) -> str:
    return file.read_text(errors="replace").strip() or "another process"


def _run_folders(path: str) -> Iterator[tuple[str, ...]]:
    """Of a task and encoding: the folders of its runs, within those of grid points where there is a grid."""
    for name in _folders(path):
        if name.startswith("seed-"):
            yield from [(name,)] if _is_begun(f"{path}/{name}") else []
        else:
            runs = (run for run in _folders(f"{path}/{name}") if run.startswith("seed-"))
            yield from ((name, run) for run in runs if _is_begun(f"{path}/{name}/{run}"))


def _is_begun(path: str) -> bool:
    return os.path.exists(f"{path}/run.json")  # noqa: PTH110 (Path takes three times as long)


def _folders(path: str) -> list[str]:
    """Names of the folders in a folder. A third of the time of `Path.glob`."""
    found = []
    try:
        with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(path) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):  # a link that leads nowhere
                    if entry.is_dir():
                        found.append(entry.name)
    except PermissionError as error:  # its runs would be missing from every table, without a word
        raise RunError(f"not allowed to read {path}; ask its owner, or give another folder") from error
    return found


def _by_seed(folder: Path) -> dict[str, list[Path]]:
    """`seed-1` -> the descriptions of its runs."""
    found: dict[str, list[Path]] = {}
    for file in folder.glob("seed-*/run.json"):
        found.setdefault(file.parent.name.rpartition("-")[0], []).append(file)
    return found


def make_folder(path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except FileExistsError as error:
        raise UserError(f"cannot make the folder {path}: there is a file of that name") from error
    except OSError as error:
        what = STORAGE.get(error.errno or 0, error.strerror)
        raise UserError(f"cannot make the folder {path}: {what}") from error
    except ValueError as error:
        raise UserError(f"{str(path)!r} is no name of a folder") from error


def joined(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> dict[str, Any]:
    """One description of a study from two that agree: what the later one adds to lists is added."""

    def both(first: Iterable[Any], second: Iterable[Any]) -> list[Any]:
        return list({json.dumps(item): item for item in (*first, *second)}.values())

    lists: dict[str, Any] = {key: both(earlier.get(key, []), later.get(key, [])) for key in _LISTS}
    if axes := earlier.get(GRID):
        lists[GRID] = {axis: both(values, later[GRID][axis]) for axis, values in axes.items()}
    return {**later, **earlier, **lists}


def changes(earlier: Mapping[str, Any], later: Mapping[str, Any]) -> list[str]:
    """Of what two studies say for all their runs, what is not the same, in words."""
    found = [
        f"{section}.{key} was {in_words(old)}, is {in_words(new)}"
        for section in SECTIONS
        for key, old, new in differences(earlier.get(section, {}), later.get(section, {}))
    ]
    axes = [", ".join(each.get(GRID) or ()) or "nothing" for each in (earlier, later)]
    return found + ([f"the grid varied {axes[0]}, varies {axes[1]}"] if axes[0] != axes[1] else [])


def in_words(value: Any) -> str:
    """A setting, as a message shows it."""
    return "unset" if value is None else door.visible(json.dumps(value), 60)


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    for key in sorted({*old, *new}):
        if old.get(key) != new.get(key):
            yield key, old.get(key), new.get(key)
