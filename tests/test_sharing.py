"""Several calls on one folder, at once or one after the other: no run is trained twice, and it is known by whom."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from conftest import small_study
from test_training import contents, interrupt_at

from lengthwise import door
from lengthwise.errors import RunError, UserError
from lengthwise.executors.local import run_study, unfinished_runs
from lengthwise.records import directory as directories
from lengthwise.records.directory import FleetClaim, StudyDirectory
from lengthwise.records.files import write_json
from lengthwise.records.results import Results
from lengthwise.records.rows import collect, load_results
from lengthwise.training import plan as planning
from lengthwise.training import trainer as training
from lengthwise.training.plan import FleetPlan, plan

BOTH = small_study(encodings=["none"])
ONE = small_study(encodings=["none"], seeds=[1])


def claimed(folder: Path) -> FleetClaim:
    """The only fleet that was begun, as if another process worked on it."""
    (fleet,) = (folder / "fleets").iterdir()
    claim = StudyDirectory(folder).claim(fleet.name)
    assert claim is not None
    return claim


@pytest.mark.parametrize("study, only", [(BOTH, "seed=1"), (ONE, ""), (BOTH, "")])
def test_a_run_that_others_train_is_not_trained_anew(tmp_path: Path, study: Any, only: str) -> None:
    """Whether the others train it with runs that were not asked for, or with runs that this study does not know."""
    interrupt_at(BOTH, tmp_path / "s", 18)
    before = contents(tmp_path / "s")
    claim = claimed(tmp_path / "s")
    assert run_study(study, tmp_path / "s", "cpu", only=only) == 0
    assert contents(tmp_path / "s") == before
    claim.give_up()


@pytest.mark.slow
def test_a_part_of_a_begun_fleet_goes_on_with_the_whole(tmp_path: Path) -> None:
    run_study(BOTH, tmp_path / "whole", "cpu")
    interrupt_at(BOTH, tmp_path / "s", 18)
    assert run_study(BOTH, tmp_path / "s", "cpu", only="seed=1") == 1
    assert contents(tmp_path / "s") == contents(tmp_path / "whole")
    assert load_results(tmp_path / "s").unfinished == []
    assert not list((tmp_path / "s/fleets").iterdir())


def test_a_part_that_is_finished_leaves_the_rest_alone(tmp_path: Path) -> None:
    study = small_study()
    interrupt_at(study, tmp_path / "s", 18)  # the first fleet: none
    before = contents(tmp_path / "s")
    assert run_study(study, tmp_path / "s", "cpu", only="encoding=alibi") == 1
    after = contents(tmp_path / "s")
    assert {name: after[name] for name in before} == before
    assert unfinished_runs(study, tmp_path / "s") == 2
    assert unfinished_runs(study, tmp_path / "s", "encoding=alibi") == 0


def test_a_fleet_waits_for_a_run_of_it_that_others_train(tmp_path: Path) -> None:
    """A smaller study cannot go on with a larger fleet, and begins its own."""
    directory = StudyDirectory(tmp_path)
    first, second = BOTH.runs()
    for fleet in (FleetPlan((first, second)), FleetPlan((first,))):
        directories.make_folder(directory.fleets / fleet.id)
        write_json(directory.fleets / fleet.id / "fleet.json", {"runs": [run.fingerprint for run in fleet.runs]})
    assert plan([first], directory, 10, "cpu") == [FleetPlan((first,))]
    claim = directory.claim(FleetPlan((first,)).id)
    assert claim is not None and directory.held() == {FleetPlan((first,)).id}
    assert plan([first, second], directory, 10, "cpu", held=directory.held()) == []
    claim.give_up()
    assert directory.held() == set()
    shutil.rmtree(directory.fleets / FleetPlan((first,)).id)
    assert plan([first], directory, 10, "cpu", study=[first, second]) == [FleetPlan((first, second))]


def test_a_fleet_that_is_finished_while_one_looks_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_at(BOTH, tmp_path / "s", 18)
    read = door.read_json

    def late(file: Path, schema: door.Schema) -> dict[str, Any]:
        shutil.rmtree(file.parent)
        return read(file, schema)

    monkeypatch.setattr(planning.door, "read_json", late)
    (fleet,) = plan(BOTH.runs(), StudyDirectory(tmp_path / "s"), 10, "cpu")
    assert len(fleet.runs) == 2


def test_a_finished_fleet_goes_while_nobody_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remove, removed = shutil.rmtree, []

    def watched(folder: Path) -> None:
        monkeypatch.setattr(directories, "PATIENCE", 0.0)
        with pytest.raises(UserError, match="in use"), StudyDirectory(tmp_path / "s").lock():
            pass
        removed.append(folder)
        remove(folder)

    monkeypatch.setattr(training.shutil, "rmtree", watched)
    run_study(ONE, tmp_path / "s", "cpu")
    assert len(removed) == 1 and not removed[0].exists()


def descriptions(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(directory.description.read_text()) for directory in StudyDirectory(folder).runs()]


def test_who_goes_on_with_a_run_is_written_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt_at(BOTH, tmp_path / "s", 8)
    begun = descriptions(tmp_path / "s")
    interrupt_at(BOTH, tmp_path / "s", 18)
    assert descriptions(tmp_path / "s") == begun, "the same code on the same machine"
    real = training.provenance
    monkeypatch.setattr(training, "provenance", lambda device: {**real(device), "commit": "another"})
    interrupt_at(BOTH, tmp_path / "s", 28)
    run_study(BOTH, tmp_path / "s", "cpu")
    for before, after in zip(begun, descriptions(tmp_path / "s"), strict=True):
        (session,) = after.pop("sessions")
        assert after == before
        assert session.pop("step") == 18 and session.pop("commit") == "another"
        assert session.keys() == {"started", "versions", "hardware"}
        assert session["hardware"] == before["hardware"]


def test_another_precision_is_refused(tmp_path: Path) -> None:
    interrupt_at(BOTH, tmp_path / "s", 18)
    for directory in StudyDirectory(tmp_path / "s").runs():
        write_json(directory.description, {**json.loads(directory.description.read_text()), "precision": "bf16"})
    before = contents(tmp_path / "s")
    with pytest.raises(UserError, match=r"begun in bf16, .* in fp32; finish it on the device where it began"):
        run_study(BOTH, tmp_path / "s", "cpu")
    assert contents(tmp_path / "s") == before


def test_collections_and_runs_do_not_share_a_folder(finished: tuple[Path, Results], tmp_path: Path) -> None:
    folder, results = finished
    before = contents(folder)
    with pytest.raises(UserError, match="is the folder of a study"):
        collect(results, folder)
    assert contents(folder) == before
    collect(results, tmp_path / "c")
    with pytest.raises(UserError, match="holds collected results"):
        run_study(small_study(), tmp_path / "c", "cpu")
    assert not list((tmp_path / "c").glob("*/"))
    shutil.copytree(folder, tmp_path / "c", dirs_exist_ok=True)
    with pytest.raises(UserError, match="holds run folders and collected results"):
        load_results(tmp_path / "c")


def test_a_finished_run_without_rows_is_not_finished_work(finished: tuple[Path, Results], tmp_path: Path) -> None:
    shutil.copytree(finished[0], tmp_path / "s")
    run = StudyDirectory(tmp_path / "s").runs()[0]
    run.rows.unlink()
    with pytest.raises(RunError, match=f"{run.rows} is missing"):
        load_results(tmp_path / "s")
    with pytest.raises(RunError, match=f"delete {run.path} and run again"):
        run_study(small_study(), tmp_path / "s", "cpu")
    shutil.rmtree(run.path)
    assert run_study(small_study(), tmp_path / "s", "cpu") == 1
    assert load_results(tmp_path / "s").unfinished == []
