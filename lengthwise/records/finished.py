"""Which runs of a study's folder are finished, and what they are called."""

from pathlib import Path

from lengthwise.errors import UserError
from lengthwise.records.directory import RunDirectory, StudyDirectory
from lengthwise.records.files import read_json
from lengthwise.records.schema import DESCRIPTION


def finished_directories(path: Path) -> list[RunDirectory]:
    """Those of a folder that `lengthwise run` wrote; one at least."""
    if not path.is_dir():
        raise UserError(f"no such folder: {path}; it is made by `lengthwise run`")
    directories = StudyDirectory(path).runs()
    if not directories:
        hint = "; collected results have no weights" if (path / "runs.jsonl").exists() else ""
        raise UserError(f"{path} holds no runs to look into{hint}; name the folder that `lengthwise run` wrote")
    finished = [directory for directory in directories if directory.is_finished]
    if not finished:
        raise UserError(f"no run in {path} is finished yet; `lengthwise run` resumes it")
    return finished


def finished_names(path: Path) -> dict[str, list[str]]:
    """`task`, `encoding` and `seed` -> what finished runs have of them."""
    found = [read_json(directory.description, DESCRIPTION) for directory in finished_directories(path)]
    return {key: list(dict.fromkeys(str(each[key]) for each in found)) for key in ("task", "encoding", "seed")}
