"""Rows on disk: results are read from the folders of runs, or from one that they were collected into, and collected."""

import gc
import operator
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lengthwise.door import ANY_OBJECT, Object, visible
from lengthwise.errors import RunError, UserError
from lengthwise.records.directory import COLLECTED, GRID, RunDirectory, StudyDirectory, make_folder
from lengthwise.records.failure_files import FailureFile, RunFailures
from lengthwise.records.files import REMEDY, iterate_rows, read_json, reading_error, write_json, write_rows
from lengthwise.records.findings import read_all_findings, write_packed_findings
from lengthwise.records.packed import fitting, is_there, write_fitting
from lengthwise.records.points import axis_columns
from lengthwise.records.results import Results
from lengthwise.records.row_files import rows_by_run
from lengthwise.records.row_pieces import Pieces
from lengthwise.records.row_table import Row, column, distinct
from lengthwise.records.run_result import RunResult
from lengthwise.records.schema import CHECKPOINTS, DESCRIPTION, FINISHED, NAME, RUN, STUDY, refuse_newer
from lengthwise.records.sharing import Shared

ROWS = "rows.jsonl"
FAILURES = "failures.jsonl"
ANALYSIS = "analysis"
STUDY_FILE = "study.json"
UNFINISHED_RUN = Object({"name": NAME})
UNFINISHED = "unfinished"
"""In the study.json of a collection: the names of runs that were not finished."""


def load_results(path: Path) -> Results:
    """The results in a study's folder, or in one that they were collected into."""
    try:
        with collector_paused():
            next(path.iterdir(), None)  # a folder that may not be read must not look like an empty one
            return _load(path)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"no such folder: {path}; it is made by `lengthwise run`") from None
    except OSError as error:
        raise reading_error(error, path) from None
    except ValueError:  # a null in it
        raise UserError(f"{str(path)!r} is no name of a folder") from None


def read_run(directory: RunDirectory) -> RunResult:
    """One finished run."""
    return _Reader().read(directory)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Python looks for cycles among all objects, again and again while there come to be more of them; results have
    none, and reading and showing many of them takes half as long again with it."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _load(path: Path) -> Results:
    directories = StudyDirectory(path).runs()
    if (path / COLLECTED).exists():
        if directories:
            raise UserError(f"{path} holds run folders and collected results ({COLLECTED}); move one of them elsewhere")
        return _read_collection(path)
    if not directories:
        raise UserError(f"{path} holds no runs; {_instead(path)}")
    are_finished = [directory.is_finished for directory in directories]  # asked once: runs may end meanwhile
    reader = _Reader()
    finished = [reader.read(directory) for directory, done in zip(directories, are_finished, strict=True) if done]
    unfinished = [
        read_json(directory.description, UNFINISHED_RUN)["name"]
        for directory, done in zip(directories, are_finished, strict=True)
        if not done
    ]
    _refuse_doubles(path, finished)
    return Results(finished, unfinished, _study(path) if (path / STUDY_FILE).exists() else {"name": path.name}, (path,))


def _instead(path: Path) -> str:
    """What to do with a folder that is of something else."""
    if (path / "table.json").exists() or any(path.glob("*/table.json")):
        return f"it is of extended models: lengthwise extend report {path}"
    if (path / "config.json").exists():
        return f"it is a model: lengthwise evaluate {path} --task copy.words asks it a task's questions"
    return "name the folder that `lengthwise run` wrote, such as runs/quickstart"


def _study(path: Path) -> Row:
    """Of a folder that this version can read."""
    file = path / STUDY_FILE
    study = read_json(file, STUDY)
    refuse_newer(study, str(file))
    return study


def collect(results: Results, path: Path, failures_of_a_length: int | None = None) -> None:
    """Writes the results into a few small files, for sharing; `load_results` reads them like a study's folder.

    What analyses found in the same runs goes along, where the results were read from a folder that has it.
    `failures_of_a_length`: examples of failures that are kept of each run and length; None for all there are.
    """
    if StudyDirectory(path).is_begun:
        raise UserError(f"{path} is the folder of a study with its runs; collect its results into another one")
    # All that is to be read is read before anything is written.
    number, found = sum(len(run.failures) for run in results.runs), _findings(results)
    make_folder(path)
    unfinished = {UNFINISHED: results.unfinished} if results.unfinished else {}
    write_json(path / STUDY_FILE, {**results.study, **unfinished})
    write_rows(path / COLLECTED, [{"description": run.description, "finished": run.finished} for run in results.runs])
    write_fitting(path / ROWS, results._every_row())
    failures = (failure for run in results.runs for failure in _some(run.failures, failures_of_a_length))
    if number or is_there(path / FAILURES):  # none of an earlier collection may stay
        write_fitting(path / FAILURES, failures)
    write_packed_findings(path / ANALYSIS, found)


def _findings(results: Results) -> dict[str, list[Row]]:
    runs = {run.description["fingerprint"] for run in results.runs}
    found: dict[str, list[Row]] = {}
    for folder in results.folders:
        for kind, rows in read_all_findings(folder / ANALYSIS, runs).items():
            known = found.setdefault(kind, [])
            known += [row for row in rows if row not in known] if known else rows
    return found


def _some(failures: Iterable[Row], of_a_length: int | None) -> Iterator[Row]:
    seen: Counter[int] = Counter()
    for failure in failures:
        seen[failure["length"]] += 1
        if of_a_length is None or seen[failure["length"]] <= of_a_length:
            yield failure


def _read_collection(path: Path) -> Results:
    study = _study(path)
    unfinished = study.pop(UNFINISHED, [])
    file = fitting(path / ROWS)
    rows, reader = rows_by_run(file), _Reader()
    failures = FailureFile(path / FAILURES)
    runs = []
    for line, found in enumerate(iterate_rows(path / COLLECTED, schema=ANY_OBJECT), start=1):
        run = reader.shared.checked(found, RUN, f"{path / COLLECTED}:{line}")
        description = run["description"]
        fingerprint = description["fingerprint"]
        reader.refuse_other(file, description, rows.get(fingerprint, []))
        runs.append(RunResult(description, run["finished"], rows[fingerprint], RunFailures(failures, fingerprint)))
    if len({run.description["fingerprint"] for run in runs}) < len(runs):
        raise RunError(f"{path / COLLECTED} holds a run twice; restore it, or collect again")
    if len(rows) > len(runs):
        raise RunError(f"{path / COLLECTED} lacks runs that have rows; restore it, or collect again")
    _refuse_doubles(path, runs)
    return Results(runs, unfinished, study, (path,))


class _Reader:
    """Reads runs one after the other; what they say alike is looked at once."""

    def __init__(self) -> None:
        self.shared, self.pieces = Shared(), Pieces()
        self._judged: tuple[Sequence[Any], ...] = ((),) * 4
        """Columns of the run before, which were found to be whole; runs that say the same share them."""

    def read(self, directory: RunDirectory) -> RunResult:
        description = self.shared.read(directory.description, DESCRIPTION)
        file, fingerprint = directory.rows, description["fingerprint"]
        found = rows_by_run(file, self.pieces)
        rows = found.get(fingerprint, [])
        if len(found) > 1 or (found and not rows):
            raise RunError(f"{file} has rows of another run than {fingerprint}; restore it, or run it again")
        self.refuse_other(file, description, rows)
        failures = RunFailures(FailureFile(directory.failures), fingerprint)
        return RunResult(description, self.shared.read(directory.finished, FINISHED), rows, failures)

    def refuse_other(self, file: Path, description: Row, rows: Sequence[Row]) -> None:
        """Refuses the rows of a run where some are missing: both checkpoints are judged on the same examples; and
        those that say another task, encoding or seed than the run does."""
        judged = tuple(column(rows, key) for key in ("checkpoint", "seen", "length", "n"))
        if not rows or not (all(map(operator.is_, judged, self._judged)) or _judged_alike(*judged)):
            raise RunError(f"{file} lacks rows of {visible(description['name'])}; {REMEDY}")
        self._judged = judged
        said = {key: description[key] for key in ("task", "encoding", "seed")} | axis_columns(description.get(GRID, {}))
        for key, value in said.items():
            if distinct(rows, key) != {value}:
                raise RunError(
                    f"{file} has rows of {visible(description['name'])} with another {key} than the run's; "
                    "restore it, or run it again"
                )


def _judged_alike(*columns: Sequence[Any]) -> bool:
    """Whether both checkpoints have the same rows, in any order; by checkpoint, seen, length and n."""
    judged: dict[str, list[tuple[bool, int, int]]] = {checkpoint: [] for checkpoint in CHECKPOINTS}
    for checkpoint, *row in zip(*columns, strict=True):
        judged[checkpoint].append((row[0], row[1], row[2]))
    last, best = judged["last"], judged["best"]
    return last == best or sorted(last) == sorted(best)


def _refuse_doubles(path: Path, runs: list[RunResult]) -> None:
    seen: dict[str, str] = {}
    for run in runs:
        name, fingerprint = run.description["name"], run.description["fingerprint"]
        if name in seen:
            raise UserError(
                f"{path} holds two runs called {name} with different settings ({seen[name]}, {fingerprint}); "
                "move one of them elsewhere"
            )
        seen[name] = fingerprint
