"""Results of a grid, or of several studies, as tables and figures take them: every task at every point by itself."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from lengthwise.records.points import STUDY, axis_columns, point_words
from lengthwise.records.results import Facet, Results
from lengthwise.records.run_result import RunResult

BETWEEN = " · "
"""Between a task and the point of a grid, in the title of a facet."""

MOST_TASKS = 4
"""Tasks that a sentence names; further ones are counted."""
MOST_NAMED = 2
"""Facets of a task: more of them are counted, not named."""


def faceted(results: Results) -> Results:
    """The same without a grid. With one, a task at each point is a task: it has rows and panels of its own.

    Encodings are then compared at the same point. What is said over all tasks takes a task at several points for one
    task, as it does where a study names a task several times.
    """
    if results.facets or not results.axes:
        return results
    facets: dict[str, Facet] = {}
    for task in results.tasks:
        for part in results.by_point.values():
            for run in part.by_task.get(task, [])[:1]:
                facets[_title(run)] = Facet(task, _values(run), point_words(run.point))
    runs = [replace(run, description={**run.description, "task": _title(run)}) for run in results.runs]
    return replace(results, runs=runs, facets=facets)


def listed(results: Results, titles: Iterable[str]) -> str:
    """Tasks in words; facets of a task are counted where they are many."""
    if not results.facets:
        return ", ".join(titles)
    by_task: dict[str, list[str]] = {}
    for title in titles:
        by_task.setdefault(results.facets[title].task, []).append(title)
    every = Counter(results.facets[title].task for title in results.tasks)
    parts = [
        ", ".join(found) if len(found) <= MOST_NAMED else f"{task} at {len(found)} of {every[task]} points"
        for task, found in by_task.items()
    ]
    more = [f"{len(parts) - MOST_TASKS} more"] if len(parts) > MOST_TASKS + 1 else []
    return ", ".join([*parts[:MOST_TASKS], *more] if more else parts)


def heading(results: Results, task: str) -> tuple[str, str]:
    """The task that a title stands for, and the point of the grid that it is at."""
    facet = results.facets.get(task)
    return (facet.task, facet.words) if facet else (task, "")


def counted(results: Results) -> tuple[int, int]:
    """How many tasks there are, and how many points of a grid; one point where there is no grid."""
    tasks = {facet.task for facet in results.facets.values()} or set(results.tasks)
    return len(tasks), len({facet.words for facet in results.facets.values()}) or 1


def _title(run: RunResult) -> str:
    return BETWEEN.join(filter(None, (run.description["task"], point_words(run.point))))


def _values(run: RunResult) -> dict[str, str | int | float]:
    study = {STUDY: run.description[STUDY]} if STUDY in run.description else {}
    return {**study, **axis_columns(run.description.get("grid", {}))}
