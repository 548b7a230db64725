"""The layouts of a task that a study varies: how many tokens its first word and its separator take."""

from collections.abc import Mapping
from dataclasses import dataclass

from lengthwise.records.results import Results
from lengthwise.report.model import summaries


@dataclass(frozen=True, order=True)
class Layout:
    prefix: int
    separator: int
    """Both in tokens; 0: as many as the task's words take."""


def layouts(results: Results) -> dict[str, dict[Layout, str]]:
    """Task without its layout -> layout -> its title; of tasks that a study has in several layouts."""
    found: dict[str, dict[Layout, str]] = {}
    for run in results.runs:
        settings = run.description["settings"]
        layout = Layout(settings["data"].get("prefix_tokens", 0), settings["data"].get("separator_tokens", 0))
        found.setdefault(settings["task"]["name"], {})[layout] = run.description["task"]
    return {task: dict(sorted(by_layout.items())) for task, by_layout in found.items() if len(by_layout) > 1}


def ahead(results: Results, titles: Mapping[Layout, str], first: str, second: str, least: float = 0.1) -> int:
    """In how many layouts of a task the first encoding is ahead of the second by more than `least`."""
    differences = []
    for title in titles.values():
        cells = [summaries.accuracy(results, title, encoding, seen=False) for encoding in (first, second)]
        if cells[0] and cells[1]:
            differences.append(cells[0].mean - cells[1].mean)
    return sum(difference > least for difference in differences)
