"""Results of several folders side by side: which of them may be compared, and who is which method.

Runs of a task may be compared where all but the encoding is the same: settings of task, model, data and training. Those
of the first folder that has the task are the reference; runs with others make a board of their own, with what differs
in words. Tasks share a board only where what is not a task's own is as the first folder has it. A method that two
folders call the same and that is not the same run by run is distinguished by its folder.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from lengthwise.door import visible
from lengthwise.errors import UserError
from lengthwise.records.budgets import SECTIONS
from lengthwise.records.columns import Columns, columns
from lengthwise.records.earlier import in_full
from lengthwise.records.ranking import open_places, rank_columns
from lengthwise.records.results import Results
from lengthwise.records.run_result import RunResult
from lengthwise.records.statistics import Interval, interval_over_seeds, ranks

OF_TASKS = ("data.train_lengths", "data.test_lengths", "data.test_at")
"""Settings that belong to a task, beside those of its own section."""


@dataclass(frozen=True)
class Standing:
    """Where a method stands on its board."""

    method: str
    rank: float | None
    """Mean over pairs of task and seed; None where it is not ranked, since pairs are missing."""
    places: tuple[int, int] | None
    """First and last place by mean rank that the seeds leave open."""
    accuracy: float
    """Mean over its pairs of task and seed: those that are ranked, or all it has."""
    interval: Interval | None
    """95 % CI over seeds."""
    tasks: int


@dataclass(frozen=True)
class Board:
    """Methods that were trained and tested alike."""

    differs: tuple[str, ...]
    """What is set otherwise than on the first board."""
    results: Results
    sources: Mapping[str, tuple[str, ...]]
    """Method -> names of the folders that its runs are from."""
    standings: tuple[Standing, ...] = field(default=())
    """Best first: by mean rank, then those that are not ranked by mean accuracy."""
    pairs: int = 0
    """Of task and seed, that methods are ranked over."""
    left_out: Mapping[tuple[str, str], int] = field(default_factory=dict)
    """(folder, method) -> runs that an earlier folder has too, with other numbers: those of the earlier one count."""


def boards(parts: Sequence[Results]) -> list[Board]:
    """The reference first. `parts`: one for each folder, their names as they may be shown."""
    names = source_names([part.folders[0] if part.folders else Path("results") for part in parts])
    # Points of a grid are on boards of their own, since their settings differ; the board says how.
    every = [(_without_grid(run), name) for part, name in zip(parts, names, strict=True) for run in part.runs]
    if not every:
        raise UserError("no run is finished yet; `lengthwise run` resumes a study")
    study = {
        "name": " + ".join(dict.fromkeys(str(part.study.get("name", "study")) for part in parts)),
        **{key: _joined(part.study.get(key, []) for part in parts) for key in ("task_order", "encoding_order")},
    }
    return [_board(group, study) for group in _groups(every, _references(parts)) if group.runs]


def _without_grid(run: RunResult) -> RunResult:
    about = {key: value for key, value in run.description.items() if key != "grid"}
    return replace(run, description=about) if "grid" in run.description else run


MOST_NAMED = 3
"""Tasks whose settings differ: more are counted, not named."""


def differing(first: Results, other: Results) -> tuple[str, ...]:
    """What the runs of `other` have set otherwise than those of `first`, in words; nothing where they may be compared.

    What one of them varies in a grid is no difference.
    """
    reference = _references([first, other])
    varied = {*first.axes, *other.axes}
    found: dict[str, dict[str, None]] = {}
    for run in other.runs:
        for words in _differences(run, reference[run.description["task"]]):
            if words.partition(" ")[0] not in varied:
                found.setdefault(words, {})[run.description["task"]] = None
    return tuple(
        words if set(tasks) == set(other.tasks) else f"{_named_tasks(other, list(tasks))}: {words}"
        for words, tasks in found.items()
    )


def _named_tasks(results: Results, titles: list[str]) -> str:
    """A few by their names; of a study that says something else of every task all of them would fill a page."""
    if len(titles) > MOST_NAMED:
        return f"{len(titles)} of {len(results.tasks)} tasks"
    return ", ".join(results.facets[title].task if title in results.facets else title for title in titles)


@dataclass
class _Group:
    """Runs that go onto one board."""

    differs: tuple[str, ...]
    """Settings that are not of the task."""
    of_tasks: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Task -> settings of the task, lengths among them, that differ; one choice for all runs of it."""
    runs: list[tuple[RunResult, str]] = field(default_factory=list)

    @property
    def words(self) -> tuple[str, ...]:
        own = (f"{task}: {each}" for task, words in self.of_tasks.items() for each in words)
        return (*self.differs, *own)


def _groups(runs: list[tuple[RunResult, str]], reference: Mapping[str, Mapping[str, Any]]) -> list[_Group]:
    """The first has all that is as the reference has it."""
    groups = [_Group(())]
    for run, source in runs:
        task = run.description["task"]
        differs = list(_differences(run, reference[task]))
        of_task = tuple(words for words in differs if _is_of_task(words.partition(" ")[0]))
        others = tuple(words for words in differs if words not in of_task)
        for group in (*groups[: not differs], *groups[1:]):
            if group.differs == others and group.of_tasks.get(task, of_task) == of_task:
                break
        else:
            group = _Group(others)
            groups.append(group)
        group.of_tasks[task] = of_task
        group.runs.append((run, source))
    return groups


def source_names(folders: Sequence[Path]) -> list[str]:
    """The last part of each path, or as many parts as it takes to tell them apart."""
    whole = [folder.resolve() for folder in folders]
    for parts in range(1, max(len(path.parts) for path in whole) + 1):
        names = [visible("/".join(path.parts[-parts:])) for path in whole]
        if len(set(names)) == len(set(whole)):
            break
    return names


def _board(group: _Group, study: dict[str, Any]) -> Board:
    once, left_out = _each_once(group.runs)
    named = list(_told_apart(once))
    sources: dict[str, dict[str, None]] = defaultdict(dict)
    for run, source in named:
        sources[run.description["encoding"]][source] = None
    results = Results([run for run, _ in named], [], study)
    of_methods = {method: tuple(found) for method, found in sources.items()}
    board = Board(group.words, results, of_methods, left_out=left_out)
    ranked = _ranked_columns(results)
    return replace(board, standings=tuple(_standings(results, ranked)), pairs=len(ranked))


def _each_once(runs: list[tuple[RunResult, str]]) -> tuple[list[tuple[RunResult, str]], dict[tuple[str, str], int]]:
    """A run that was collected is still the same run; one of another version of somebody's file is not.

    Also how many are left out with other numbers, as (folder, method) -> runs: another device rounds otherwise.
    """
    found: dict[str, tuple[RunResult, str]] = {}
    left_out: Counter[tuple[str, str]] = Counter()
    for run, source in runs:
        key = json.dumps([run.description["fingerprint"], run.description.get("outside", {})], sort_keys=True)
        kept, _ = found.setdefault(key, (run, source))
        if kept.totals != run.totals:
            left_out[source, run.description["encoding"]] += 1
    return list(found.values()), dict(left_out)


def _told_apart(runs: list[tuple[RunResult, str]]) -> Iterator[tuple[RunResult, str]]:
    """With the folder behind the name of a method that an earlier folder has with other settings, or has trained too
    with the same seed of the same task."""
    made: dict[str, dict[str, str]] = defaultdict(dict)
    cells: dict[str, dict[tuple[str, int], str]] = defaultdict(dict)
    apart: set[tuple[str, str]] = set()
    for run, source in runs:
        about = run.description
        label, cell = about["encoding"], (about["task"], about["seed"])
        definition = json.dumps(about["settings"]["encoding"], sort_keys=True)
        first = next(iter(made[label].values()), definition)
        made[label].setdefault(source, definition)
        if definition != first or cells[label].setdefault(cell, source) != source:
            apart.add((label, source))
        if made[label][source] != definition:
            raise UserError(
                f"{source} has two methods that are called {label!r}, with different settings; give one of them a label"
            )
    for run, source in runs:
        label = run.description["encoding"]
        if (label, source) in apart:
            run = replace(run, description={**run.description, "encoding": f"{label} · {source}"})
        yield run, source


# Settings


def _settings(run: RunResult) -> dict[str, Any]:
    """Of all that must be the same, `section.name` -> value; lengths and precision as they came to be."""
    about = run.description
    settings = in_full(about["settings"])
    found = {f"{section}.{name}": value for section in SECTIONS for name, value in settings.get(section, {}).items()}
    found |= {f"data.{name}": about[name] for name in ("train_lengths", "test_lengths")}
    if "precision" in about:
        found["training.precision"] = about["precision"]
    return found


def _references(parts: Sequence[Results]) -> dict[str, dict[str, Any]]:
    """Task -> the settings that most runs of it have in the first folder that has it.

    A study may train its tasks in different ways. A task that the first folder lacks must have been trained in one of
    these ways: where it was not, the most usual one is in its reference, and its runs go onto another board.
    """
    found: dict[str, dict[str, Any]] = {}
    ways: list[dict[str, Any]] = []
    for number, part in enumerate(parts):
        for task, runs in part.by_task.items():
            if task not in found:
                settings = _most_common([_settings(run) for run in runs])
                way = {name: value for name, value in settings.items() if not _is_of_task(name)}
                if number == 0:
                    ways.append(way)
                elif way not in ways:
                    settings = {name: settings[name] for name in settings if _is_of_task(name)} | _most_common(ways)
                found[task] = settings
    return found


def _is_of_task(name: str) -> bool:
    return name.startswith("task.") or name in OF_TASKS


def _most_common(tables: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """As JSON has it."""
    (most, _), *_ = Counter(json.dumps(each, sort_keys=True) for each in tables).most_common(1)
    return json.loads(most)


def _differences(run: RunResult, reference: Mapping[str, Any]) -> Iterator[str]:
    """In words, such as: training.steps 300, not 5000."""
    own = json.loads(json.dumps(_settings(run)))
    for name in sorted({*own, *reference}):
        if own.get(name) != reference.get(name):
            yield f"{name} {_value(own, name)}, not {_value(reference, name)}"


def _value(settings: Mapping[str, Any], name: str) -> str:
    value = settings.get(name)
    if value is None:
        return "unset"
    if value == "":
        return "empty"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _joined(orders: Iterator[list[str]]) -> list[str]:
    return list(dict.fromkeys(name for order in orders for name in order))


# Who is before whom


def _ranked_columns(results: Results) -> Columns:
    """Of the pairs of task and seed that at least half of the methods have, and the methods that have all of these:
    one method on a few tasks must not take the other tasks from everybody's ranking."""
    pairs = {
        method: {(run.description["task"], run.description["seed"]) for run in runs}
        for method, runs in results.by_encoding.items()
    }
    counted = Counter(pair for own in pairs.values() for pair in own)
    wanted = {pair for pair, number in counted.items() if 2 * number >= len(pairs)}
    complete = [method for method in results.encodings if wanted <= pairs[method]]
    tasks = [task for task in results.tasks if any(task == name for name, _ in wanted)]
    return columns(results, tasks=tasks, encodings=complete)


def _standings(results: Results, ranked: Columns) -> list[Standing]:
    found: list[Standing] = []
    if ranked.tables:
        intervals = interval_over_seeds(ranked.tables)
        left_open = open_places([-ranks(table) for table in ranked.tables])
        for place in rank_columns(ranked):
            number = ranked.encodings.index(place.encoding)
            found.append(
                Standing(
                    place.encoding,
                    place.rank,
                    left_open[number] if left_open else None,
                    place.accuracy,
                    intervals[number] if intervals else None,
                    len(ranked.tasks),
                )
            )
        found.sort(key=lambda each: each.rank or 0)
    others = []
    for method in results.encodings:
        if method not in {each.method for each in found}:
            own = columns(results, encodings=[method])
            intervals = interval_over_seeds(own.tables)
            mean = float(np.concatenate(own.tables).mean())
            others.append(Standing(method, None, None, mean, intervals[0] if intervals else None, len(own.tasks)))
    return [*found, *sorted(others, key=lambda each: -each.accuracy)]
