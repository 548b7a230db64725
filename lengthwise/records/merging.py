"""Results from several folders as one: parts of a study that were run apart, or several studies side by side.

Parts of one study become one: its runs, each once. Different studies stay apart: `study` is an axis of the results, so
that no number is made of the runs of two of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lengthwise.errors import UserError
from lengthwise.records.asked import lengths_taken
from lengthwise.records.boards import differing, source_names
from lengthwise.records.completeness import missing
from lengthwise.records.directory import changes, joined
from lengthwise.records.points import STUDY
from lengthwise.records.results import Results
from lengthwise.records.rows import load_results
from lengthwise.records.run_result import RunResult


def _name(part: Results) -> str:
    return " and ".join(map(str, part.folders))


def merge(parts: Sequence[Results]) -> Results:
    """All runs, each once, of one study.

    Runs of one name must be the same run: the same settings, so the same fingerprint.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    found: dict[str, tuple[RunResult, Results]] = {}
    for part in parts:
        for run in part.runs:
            name, fingerprint = run.description["name"], run.description["fingerprint"]
            before = found.setdefault(name, (run, part))
            if before[0].description["fingerprint"] != fingerprint:
                raise UserError(
                    f"{_name(before[1])} and {_name(part)} both hold {name}, with different settings "
                    f"({before[0].description['fingerprint']}, {fingerprint}); results of one study can be put together"
                )
    unfinished = {name for part in parts for name in part.unfinished} - found.keys()
    folders = tuple(folder for part in parts for folder in part.folders)
    study = first.study
    for part in parts[1:]:
        if not changes(study, part.study):
            study = joined(study, part.study)
    return Results([run for run, _ in found.values()], sorted(unfinished), study, folders)


@dataclass(frozen=True)
class Comparability:
    """How far the numbers of a study may be compared with those of the first."""

    study: str
    first: str
    differs: tuple[str, ...]
    """What is set otherwise, in words; nothing where they may be compared."""
    varied: tuple[str, ...] = ()
    """Settings that a grid varies, which tables name beside every number."""

    @property
    def words(self) -> str:
        if not self.differs:
            but = f", but for {', '.join(self.varied)}" if self.varied else ""
            return f"{self.study} was trained and tested as {self.first}{but}: their numbers may be compared"
        return f"{self.study} is not to be compared with {self.first}: {'; '.join(self.differs)}"


def load_together(folders: Sequence[Path]) -> Results:
    """The results in all these folders."""
    return together([load_results(folder) for folder in folders])


def together(parts: Sequence[Results]) -> Results:
    """Folders of one study as one; different studies side by side, with the axis `study`."""
    groups: list[list[Results]] = []
    for part in parts:
        group = next((group for group in groups if _is_one_study(group, part)), None)
        if group is None:
            groups.append([part])
        else:
            group.append(part)
    for group in groups:
        _refuse_other_numbers(group)
    studies = [merge(group) for group in groups]
    if len(studies) == 1:
        return studies[0]
    named = dict(zip(_study_names(studies), studies, strict=True))
    grid = _axes(studies)
    runs = [_of_study(run, name, list(grid)) for name, study in named.items() for run in study.runs]
    orders = {
        key: list(dict.fromkeys(each for study in studies for each in study.study.get(key, [])))
        for key in ("task_order", "encoding_order")
    }
    return Results(
        runs,
        [f"{name}/{each}" for name, study in named.items() for each in study.unfinished],
        {"name": " + ".join(named), **orders, "grid": grid},
        tuple(folder for study in studies for folder in study.folders),
        {name: study.study for name, study in named.items()},
    )


def _refuse_other_numbers(parts: Sequence[Results]) -> None:
    """Refuses a run that was trained twice, as on two machines, with other numbers: one of them would be dropped."""
    found: dict[str, tuple[RunResult, Results]] = {}
    for part in parts if len(parts) > 1 else ():
        for run in part.runs:
            other, before = found.setdefault(run.description["fingerprint"], (run, part))
            if other is not run and [*other.rows] != [*run.rows]:
                raise UserError(
                    f"{_name(before)} and {_name(part)} both hold {run.description['name']}, with different results; "
                    "leave one folder out, or delete the run in one of them"
                )


def comparability(results: Results) -> list[Comparability]:
    """Of every study but the first, where results are of several."""
    parts = {
        name: replace(results, runs=[run for run in results.runs if run.description[STUDY] == name])
        for name in results.axes.get(STUDY, [])
    }
    first, *others = parts
    varied = tuple(axis for axis in results.axes if axis != STUDY)
    return [Comparability(name, first, differing(parts[first], parts[name]), varied) for name in others]


def told_apart(results: Results) -> list[str]:
    """What has to be known before numbers are read side by side: of several studies, and of models from elsewhere."""
    if STUDY not in results.axes:
        return lengths_taken(results)
    return [*(each.words for each in comparability(results)), *_missing(results), *lengths_taken(results)]


def _missing(results: Results) -> Iterator[str]:
    for name, study in results.studies.items():
        runs = [run for run in results.runs if run.description[STUDY] == name]
        if partial := missing(replace(results, runs=runs, study=study)):
            yield f"{name}: {partial.words}"


def _is_one_study(group: Sequence[Results], part: Results) -> bool:
    """Whether they have one name and the same settings, and no run of one name is another run."""
    first = group[0]
    if first.study.get("name") != part.study.get("name") or changes(first.study, part.study):
        return False
    known = {run.description["name"]: run.description["fingerprint"] for each in group for run in each.runs}
    return all(known.get(name, mark) == mark for name, mark in _fingerprints(part))


def _fingerprints(part: Results) -> list[tuple[str, str]]:
    return [(run.description["name"], run.description["fingerprint"]) for run in part.runs]


def _study_names(studies: Sequence[Results]) -> list[str]:
    """What each is called; of one name, each with its folder."""
    names = [str(study.study.get("name", "study")) for study in studies]
    sources = source_names([study.folders[0] for study in studies])
    return [
        name if names.count(name) == 1 else f"{name} · {source}" for name, source in zip(names, sources, strict=True)
    ]


def _of_study(run: RunResult, study: str, axes: Sequence[str]) -> RunResult:
    """`axes`: what any of the studies varies; those that vary it not have one value of it."""
    about = {**run.description, "name": f"{study}/{run.description['name']}", STUDY: study}
    if axes:
        about["grid"] = {axis: _setting(run, axis) for axis in axes if _setting(run, axis) is not None}
    return replace(run, description=about)


def _setting(run: RunResult, axis: str) -> Any:
    section, _, name = axis.partition(".")
    return run.description.get("settings", {}).get(section, {}).get(name)


def _axes(studies: Sequence[Results]) -> dict[str, list[Any]]:
    """The grids of all of them, so that values stay in their order."""
    found: dict[str, list[Any]] = {}
    for study in studies:
        for axis, values in study.study.get("grid", {}).items():
            known = found.setdefault(axis, [])
            known += [value for value in values if value not in known]
    return found
