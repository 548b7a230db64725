"""Trackers hold what the rows say, once, whoever was killed in the middle; read back from what they wrote."""

import json
import math
import os
import signal
import struct
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from conftest import small_study
from typer.testing import CliRunner

from lengthwise.cli.main import app
from lengthwise.errors import RunError, UserError
from lengthwise.executors.local import run_study
from lengthwise.records.directory import StudyDirectory
from lengthwise.runtime import Listener
from lengthwise.trackers import tracker as trackers
from lengthwise.trackers.following import following, track, tracked_run
from lengthwise.trackers.tracker import Curves, TrackedRun, Tracker, make_tracker

Points = dict[str, list[tuple[int, float]]]
"""Metric -> its steps and values, in order."""
STUDY = small_study(seeds=list(range(1, 8)))


@pytest.fixture(scope="module")
def fourteen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tracked") / "small"
    run_study(STUDY, folder, "cpu")
    return folder


def expected(run: Path) -> Points:
    """From the files of a run, by hand."""
    found: Points = {}
    logged = [json.loads(line) for line in (run / "training.jsonl").read_text().splitlines()]
    names = {
        "loss": "loss",
        "gradient_norm": "gradient_norm",
        "learning_rate": "learning_rate",
        "validation_exact_match": "validation/accuracy",
        "validation_token_accuracy": "validation/token_accuracy",
        "unseen_exact_match": "unseen/accuracy",
    }
    for row in logged:
        for key in row.keys() & names.keys():
            found.setdefault(names[key], []).append((row["step"], row[key]))
    rows = [json.loads(line) for line in (run / "rows.jsonl").read_text().splitlines()]
    rows = [row for row in rows if row["checkpoint"] == "last"]
    found["test/accuracy"] = sorted((row["length"], row["correct"] / row["n"]) for row in rows)
    for seen, name in ((True, "test/seen_accuracy"), (False, "test/unseen_accuracy")):
        some = [row for row in rows if row["seen"] == seen]
        found[name] = [(30, sum(row["correct"] for row in some) / sum(row["n"] for row in some))]
    return found


class Remembered(Tracker):
    """A tracker in memory, whose runs may end with an error after some points."""

    name = "remembered"

    def __init__(self, fails_after: float = math.inf) -> None:
        super().__init__(Path(), "p")
        self.points: dict[str, Points] = {}
        self.complete: set[str] = set()
        self.fails_after = fails_after

    def is_complete(self, run: TrackedRun) -> bool:
        return run.identity in self.complete

    def begin(self, run: TrackedRun) -> Curves:
        assert run.identity not in self.complete
        self.points[run.identity] = {}
        return RememberedCurves(self, run.identity)

    def where(self) -> str:
        return "memory"


class RememberedCurves(Curves):
    def __init__(self, tracker: Remembered, identity: str) -> None:
        self.tracker, self.identity = tracker, identity

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.tracker.fails_after -= 1
        if self.tracker.fails_after < 0:
            raise RunError("no network")
        for key, value in values.items():
            self.tracker.points[self.identity].setdefault(key, []).append((step, value))

    def finish(self, step: int, summary: Mapping[str, float], by_length: Mapping[int, float]) -> None:
        self.log(step, summary)
        for length, accuracy in by_length.items():
            self.log(length, {"test/accuracy": accuracy})
        self.tracker.complete.add(self.identity)

    def pause(self) -> None: ...


def identity(run: Path) -> str:
    return tracked_run(json.loads((run / "run.json").read_text())).identity


def assert_holds(held: Mapping[str, Points], folder: Path, near: float = 0.0) -> None:
    runs = [directory.path for directory in StudyDirectory(folder).runs()]
    assert held.keys() == {identity(run) for run in runs}
    for run in runs:
        ours, theirs = expected(run), held[identity(run)]
        assert theirs.keys() == ours.keys()
        for name, points in ours.items():
            assert [step for step, _ in theirs[name]] == [step for step, _ in points], name
            values = [value for _, value in points]
            assert [value for _, value in theirs[name]] == pytest.approx(values, rel=near, abs=near, nan_ok=True), name


def test_each_point_is_passed_on_once(fourteen: Path) -> None:
    tracker = Remembered(fails_after=100)
    with pytest.raises(RunError, match="no network"):
        track(fourteen, tracker)
    assert 0 < len(tracker.complete) < 14
    before, tracker.fails_after = len(tracker.complete), math.inf
    assert track(fourteen, tracker) == (14, before)
    assert track(fourteen, tracker, follow=True) == (14, 14)
    assert_holds(tracker.points, fourteen)


def test_a_run_is_followed_while_it_is_trained_and_after_it_was_interrupted(tmp_path: Path) -> None:
    """Steps that are trained again after an interruption are not passed on again."""
    from test_training import interrupt_at

    study, tracker = small_study(seeds=[1], encodings=["none"]), Remembered()
    interrupt_at(study, tmp_path / "s", 18)
    from lengthwise.trackers.following import Follower

    follower = Follower(tmp_path / "s", tracker)
    assert not follower.update()
    (points,) = tracker.points.values()
    steps = [step for step, _ in points["loss"]]
    assert steps and max(steps) < 30 and "test/accuracy" not in points
    run_study(study, tmp_path / "s", "cpu", lambda *_: Listener(rows=lambda run, rows: follower.update() and None))
    assert follower.update()
    assert_holds(tracker.points, tmp_path / "s")


def test_a_tracker_that_fails_stops_no_training(tmp_path: Path) -> None:
    warnings: list[str] = []
    study = small_study(seeds=[1], encodings=["none"])
    with following(tmp_path / "s", Remembered(fails_after=0), warnings.append) as listener:
        assert run_study(study, tmp_path / "s", "cpu", lambda *_: listener) == 1
    assert warnings == [
        f"the tracker stopped (no network); `lengthwise track {tmp_path / 's'} --to remembered` resumes it"
    ]


def read_tensorboard(folder: Path) -> dict[str, Points]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found: dict[str, Points] = {}
    for place in (folder / "tensorboard").iterdir():
        events = EventAccumulator(str(place), size_guidance={"scalars": 0}).Reload()
        scalars = {tag: [(each.step, each.value) for each in events.Scalars(tag)] for tag in events.Tags()["scalars"]}
        found["-".join(place.name.split("-")[-2:])] = scalars
    return found


def read_mlflow(folder: Path) -> dict[str, Points]:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    runs = client.search_runs([client.get_experiment_by_name("small").experiment_id])
    assert {run.info.status for run in runs} == {"FINISHED"} and len(runs) == 14
    assert {run.data.params["model.width"] for run in runs} == {"16"}
    return {
        run.data.tags["lengthwise.identity"]: {
            name: sorted((each.step, each.value) for each in client.get_metric_history(run.info.run_id, name))
            for name in run.data.metrics
        }
        for run in runs
    }


def read_trackio(folder: Path) -> dict[str, Points]:
    from trackio.sqlite_storage import SQLiteStorage

    found: dict[str, Points] = {}
    for name in SQLiteStorage.get_runs("small"):
        assert SQLiteStorage.get_run_config("small", name)["model.width"] == 16
        points = found.setdefault(name.split(" ")[-1], {})
        for row in SQLiteStorage.get_logs("small", name):
            for key in row.keys() - {"step", "timestamp", "complete"}:
                points.setdefault(key, []).append((row["step"], row[key]))
        for values in points.values():
            values.sort()
    return found


def read_wandb(folder: Path) -> dict[str, Points]:
    """The package has no reader in Python: blocks of 32 KiB after a header, as LevelDB logs, of its own messages."""
    from wandb.proto.wandb_internal_pb2 import Record

    found: dict[str, Points] = {}
    for file in (folder / "wandb").glob("offline-run-*/run-*.wandb"):
        data, place, parts, points = file.read_bytes(), 7, b"", Points()
        while place + 7 <= len(data):
            if (room := 32768 - place % 32768) < 7:
                place += room
                continue
            _, size, kind = struct.unpack("<IHB", data[place : place + 7])
            parts += data[place + 7 : place + 7 + size]
            place += 7 + size
            if kind not in (1, 4):  # whole, or the last part
                continue
            record, parts = Record.FromString(parts), b""
            items = record.history.item if record.HasField("history") else ()
            row = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
            for key in row.keys() - {"_step", "_runtime", "_timestamp", "test/length"}:
                points.setdefault(key, []).append((row.get("test/length", row["_step"]), float(row[key])))
            for item in record.summary.update if record.HasField("summary") else ():
                if (key := item.key or item.nested_key[0]) in ("test/seen_accuracy", "test/unseen_accuracy"):
                    points[key] = [(30, json.loads(item.value_json))]
        name = file.stem.removeprefix("run-")
        assert name not in found
        found[name] = points
    return found


READERS: dict[str, Callable[[Path], dict[str, Points]]] = {
    "tensorboard": read_tensorboard,
    "wandb": read_wandb,
    "trackio": read_trackio,
    "mlflow": read_mlflow,
}
KILLED = """
import os, signal, sys
from pathlib import Path
from lengthwise import registry
from lengthwise.trackers.following import track
from lengthwise.trackers.tracker import make_tracker

tracker, count = make_tracker(sys.argv[1], Path(sys.argv[3]), "small"), 0
begin = tracker.begin

def begun(run):
    global count
    count += 1
    curves = begin(run)
    log = curves.log
    def logs(step, values):
        if count == 4 and step > 20:
            os.kill(os.getpid(), signal.SIGKILL)
        log(step, values)
    curves.log = logs
    return curves

tracker.begin = begun
track(Path(sys.argv[2]), tracker)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_real_trackers_hold_what_the_rows_say(
    name: str, fourteen: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("WANDB_MODE", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    words = [sys.executable, "-c", KILLED, name, str(fourteen), str(tmp_path)]
    assert subprocess.run(words, capture_output=True).returncode == -signal.SIGKILL
    again = ["track", str(fourteen), "--to", name, "--dir", str(tmp_path)]
    first, second = (CliRunner().invoke(app, again) for _ in range(2))
    assert first.exit_code == second.exit_code == 0, first.output + second.output
    assert "14 finished runs" in first.output and "3 of them were before" in first.output
    assert "14 of them were before" in second.output
    # TensorBoard keeps 32 bits of a number.
    assert_holds(READERS[name](tmp_path), fourteen, near=1e-6 if name == "tensorboard" else 1e-12)


@pytest.mark.slow
def test_run_logs_while_it_trains(tmp_path: Path) -> None:
    changes = ["training.steps=4", "seeds=[1]", "encodings=['none']", "tasks=['copy.repeat']"]
    words = [word for change in changes for word in ("--set", change)]
    done = CliRunner().invoke(app, ["run", "quickstart", "--device", "cpu", "--out", str(tmp_path), *words,
                                    "--log", "tensorboard"])  # fmt: skip
    assert done.exit_code == 0, done.output
    assert f"The runs are in tensorboard: tensorboard --logdir {tmp_path / 'tensorboard'}\n" in done.output
    (points,) = read_tensorboard(tmp_path).values()
    assert [step for step, _ in points["loss"]] == [1, 2, 3, 4] and len(points["test/accuracy"]) > 10


def test_what_is_wrong_is_told(tmp_path: Path, fourteen: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="unknown tracker 'wandbb'; did you mean 'wandb'"):
        make_tracker("wandbb", tmp_path, "p")
    with pytest.raises(UserError, match="holds no runs"):
        track(tmp_path, Remembered())
    monkeypatch.setenv("WANDB_MODE", "offlne")
    with pytest.raises(UserError, match="WANDB_MODE is 'offlne'; did you mean 'offline'"):
        make_tracker("wandb", tmp_path, "p")
    for name in READERS:
        monkeypatch.setitem(sys.modules, {"tensorboard": "tensorboard"}.get(name, name), None)
        with pytest.raises(UserError, match=rf"pip install 'lengthwise\[{name}\]'"):
            make_tracker(name, tmp_path, "p")
    assert not list(tmp_path.iterdir())
    assert trackers.package("json", "json") is json and os.environ
