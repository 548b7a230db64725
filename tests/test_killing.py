"""Commands killed before one of their file operations end, when they are run again, as if nothing had been."""

import os
from pathlib import Path

import killing
import pytest

from lengthwise.leftovers import clear_leftovers, clear_leftovers_of, remove_empty

NOWHERE = Path("world")
NAMES = [command.name for command in killing.commands(NOWHERE)]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return killing.make_world(tmp_path_factory.mktemp("killing") / "world")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_killed_and_run_again_it_leaves_the_same_files(name: str, world: Path, tmp_path: Path) -> None:
    command = next(each for each in killing.commands(world) if each.name == name)
    count = killing.undisturbed(command, world, tmp_path / "undisturbed")
    assert count > 2, "else the hook sees nothing"
    for moments in killing.moments_of(count, 2):
        killing.kill(command, world, tmp_path / "undisturbed", tmp_path / "killed", moments)


@pytest.mark.slow
def test_the_child_dies_before_the_operation_that_it_was_told(world: Path, tmp_path: Path) -> None:
    words = ("dataset", "copy.repeat", "--out", "examples", "--set", "symbols=4", "--all")
    assert killing.call(words, tmp_path / "first", kill_at=1)[0] == -9
    assert not list((tmp_path / "first").iterdir())
    assert killing.call(words, tmp_path / "third", kill_at=3)[0] == -9
    (left,) = (tmp_path / "third" / "examples").iterdir()
    assert left.name.endswith(".partial")


def test_a_difference_is_seen(tmp_path: Path) -> None:
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "a.json").write_text('{"seconds": 1, "x": 2}')
    killing.compare(tmp_path / "one", tmp_path / "other", "")
    (tmp_path / "other" / "a.json").write_text('{"seconds": 3, "x": 2}')
    killing.compare(tmp_path / "one", tmp_path / "other", "")
    (tmp_path / "other" / "a.json").write_text('{"seconds": 1, "x": 3}')
    with pytest.raises(AssertionError, match=r"a\.json differs"):
        killing.compare(tmp_path / "one", tmp_path / "other", "")
    (tmp_path / "other" / ".b.json.7.partial").touch()
    with pytest.raises(AssertionError, match="left behind"):
        killing.compare(tmp_path / "one", tmp_path / "other", "")


def test_only_what_dead_processes_were_writing_is_removed(tmp_path: Path) -> None:
    gone, alive = 2**22 + 1, os.getpid()  # Linux has no process beyond 2^22
    kept = [f".a.{alive}.partial", f"a.{gone}.partial", ".a.partial", ".a.x.partial", "a"]
    for name in (*kept, f".a.{gone}.partial", f".b.{gone}.partial"):
        (tmp_path / name).touch()
    (tmp_path / f".c.{gone}.partial").mkdir()
    (tmp_path / f".c.{gone}.partial" / "inside").touch()
    clear_leftovers_of(tmp_path / "b")
    assert {path.name for path in tmp_path.iterdir()} == {*kept, f".a.{gone}.partial", f".c.{gone}.partial"}
    clear_leftovers(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == set(kept)
    clear_leftovers(tmp_path / "nowhere")


def test_folders_are_removed_as_far_as_they_are_empty(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    (tmp_path / "a" / "file").touch()
    remove_empty(tmp_path / "a" / "b" / "c", tmp_path)
    assert [path.name for path in (tmp_path / "a").iterdir()] == ["file"]
    remove_empty(tmp_path / "nowhere", tmp_path)
    assert tmp_path.exists()
