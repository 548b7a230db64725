"""A command that is given minutes: it begins what it can finish, saves the rest, and the next one resumes."""

from pathlib import Path
from typing import Any

import pytest
from conftest import small_study
from typer.testing import CliRunner

from lengthwise.cli.main import app
from lengthwise.errors import UserError
from lengthwise.executors import time_limit
from lengthwise.executors.claims import Claims
from lengthwise.executors.local import missing, prepare, run_study, unfinished_runs
from lengthwise.executors.time_limit import TimeLimit
from lengthwise.records.directory import StudyDirectory
from lengthwise.records.results import Results
from lengthwise.records.rows import collect, load_results
from lengthwise.runtime import Listener
from lengthwise.training.plan import FleetPlan


class Clock:
    """Stands still until it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        monkeypatch.setattr(time_limit.time, "monotonic", lambda: self.now)


def contents(folder: Path) -> dict[str, bytes]:
    chosen = [f for f in folder.rglob("*") if f.suffix in (".jsonl", ".safetensors")]
    return {str(f.relative_to(folder)): f.read_bytes() for f in chosen}


def test_a_fleet_is_cut_to_what_can_be_finished(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock(monkeypatch)
    runs = small_study(tasks=["copy.repeat"], encodings=["none"], seeds=[1, 2, 3, 4]).runs()
    fleet, limit = FleetPlan(tuple(runs)), TimeLimit(minutes=10)
    assert limit.part_of(fleet) is fleet  # nothing is known yet
    limit.learn(FleetPlan(tuple(runs[:2])), seconds=240)  # two minutes a run
    assert limit.part_of(fleet) is fleet
    clock.now += 250  # 350 s are left
    assert limit.part_of(fleet) == FleetPlan(tuple(runs[:2]))
    limit.learn(FleetPlan(tuple(runs[:1])), seconds=60)  # a faster one promises nothing
    assert limit.part_of(fleet) == FleetPlan(tuple(runs[:2]))
    clock.now += 240
    assert limit.part_of(fleet) is None and not limit.is_over
    clock.now += 110
    assert limit.part_of(fleet) is None and limit.is_over


def test_runs_of_other_lengths_are_expected_to_take_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    Clock(monkeypatch)
    short, long = (
        small_study(
            tasks=["copy.repeat"],
            encodings=["none"],
            seeds=[1],
            data__train_lengths=lengths,
            data__test_lengths=[70, 71],
        ).runs()
        for lengths in ([2, 4], [40, 60])
    )
    limit = TimeLimit(minutes=1)
    limit.learn(FleetPlan(tuple(short)), seconds=20)
    assert limit.part_of(FleetPlan(tuple(short))) and limit.part_of(FleetPlan(tuple(long))) is None


def test_starting_takes_small_fleets_as_long_as_large_ones() -> None:
    limit = TimeLimit(minutes=10)
    assert limit.expected(5.0) == 0.0, "nothing is known"
    limit.taken += [(10.0, 12.0), (200.0, 72.0), (10.0, 11.0), (100.0, 20.0)]
    assert limit.expected(10.0) == 12.0 and limit.expected(200.0) == 72.0
    assert limit.expected(105.0) == pytest.approx(42.0), "halfway between the slowest, whatever faster ones say"
    assert limit.expected(5.0) == pytest.approx(6.0) and limit.expected(400.0) == pytest.approx(144.0)


def test_what_was_begun_is_handed_out_whatever_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = small_study(tasks=["copy.repeat"], encodings=["none"], seeds=[1, 2])
    begun, fresh = FleetPlan(tuple(study.runs()[:1])), FleetPlan(tuple(study.runs()[1:]))
    limit = TimeLimit(minutes=1)
    limit.learn(begun, seconds=10_000)
    claims = Claims(study.runs(), StudyDirectory(tmp_path), 1, "cpu", limit=limit)
    with claims.next() as (_, fleet):
        assert fleet is None and claims.left() == 2
    folder = tmp_path / "fleets" / fresh.id
    folder.mkdir(parents=True)
    (folder / "fleet.json").write_text(f'{{"runs": ["{fresh.runs[0].fingerprint}"]}}')
    (folder / "state.safetensors").touch()
    with claims.next() as (_, fleet):
        assert fleet == fresh


def test_time_that_is_up_in_the_middle_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = small_study(seeds=[1])
    run_study(study, tmp_path / "whole", "cpu")
    clock = Clock(monkeypatch)

    def runs_out(step: int, steps: int) -> None:
        clock.now += 100

    assert run_study(study, tmp_path / "parts", "cpu", lambda *_: Listener(step=runs_out), minutes=1) == 1
    assert unfinished_runs(study, tmp_path / "parts") == 2
    assert list((tmp_path / "parts" / "fleets").glob("*/state.safetensors"))
    assert run_study(study, tmp_path / "parts", "cpu", minutes=1) == 2
    assert contents(tmp_path / "parts") == contents(tmp_path / "whole")


@pytest.mark.slow
def test_workers_are_asked_to_save_when_the_time_is_up(tmp_path: Path) -> None:
    study = small_study(seeds=[1], training__steps=1_000_000)
    stepped: list[int] = []
    limits: list[TimeLimit] = []
    claims = Claims.__init__

    def remembered(self: Claims, *words: Any) -> None:
        claims(self, *words)
        limits.append(self.limit)

    def runs_out(step: int, steps: int) -> None:
        stepped.append(step)
        limits[0].ends = 0.0  # the time is up once a worker has something to save

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Claims, "__init__", remembered)
        assert run_study(study, tmp_path, "cpu", lambda *_: Listener(step=runs_out), workers=2, minutes=60) == 2
    assert stepped and list((tmp_path / "fleets").glob("*/state.safetensors"))


def test_runs_that_are_finished_elsewhere_are_not_trained_again(tmp_path: Path, finished: tuple[Path, Results]) -> None:
    folder, results = finished
    collect(results, tmp_path / "shared")
    more = small_study(seeds=[1, 2, 3])
    assert [run.seed for run in missing(more.runs(), [tmp_path / "shared"])] == [3, 3]
    assert missing(more.runs(), [folder]) == missing(more.runs(), [tmp_path / "shared"])
    run_study(more, tmp_path / "rest", "cpu", finished_in=[tmp_path / "shared"])
    assert {run.description["seed"] for run in load_results(tmp_path / "rest").runs} == {3}
    assert unfinished_runs(more, tmp_path / "rest", finished_in=[folder]) == 0
    with pytest.raises(UserError, match="no such folder"):
        prepare(more, tmp_path / "rest", "cpu", finished_in=[tmp_path / "nowhere"])


def test_the_command_says_what_is_left(tmp_path: Path) -> None:
    words = ["run", "quickstart", "--device", "cpu", "--out", str(tmp_path), "--minutes", "0"]
    said = CliRunner().invoke(app, words)
    assert said.exit_code == 0 and "No time for more: 30 runs are left." in said.output
    assert not list(tmp_path.rglob("run.json"))
