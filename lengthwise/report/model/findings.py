"""What analyses found in the runs of a report, task by task."""

from collections.abc import Mapping
from dataclasses import dataclass

from lengthwise.errors import RunError
from lengthwise.records.findings import AnalysisRows, Row
from lengthwise.records.results import Results
from lengthwise.report.model.attention_distances import DistanceComparison, comparisons
from lengthwise.report.model.first_errors import FirstErrors, first_errors
from lengthwise.report.model.head_statistics import LayerStatistics, layer_statistics, shown_group
from lengthwise.report.model.probes import Probed, best_layers, probed


@dataclass(frozen=True)
class TaskFindings:
    """What was found on one task; empty where an analysis was not made."""

    task: str
    comparisons: list[DistanceComparison]
    statistics: list[LayerStatistics]
    """Of unseen lengths, or of seen ones where there are no others."""
    best: list[Probed]
    """Of each encoding, target and probe the layer that reads best."""
    first_errors: list[FirstErrors]
    """Seen and unseen lengths each together."""


def findings(results: Results, analysis: AnalysisRows) -> list[TaskFindings]:
    """`analysis`: what is `relevant` to the results."""
    return [task_findings(analysis, task) for task in analysed(results, analysis)]


def task_findings(analysis: AnalysisRows, task: str) -> TaskFindings:
    statistics = layer_statistics(analysis, task)
    group = shown_group(statistics)
    return TaskFindings(
        task,
        comparisons(analysis, task),
        [each for each in statistics if each.group == group],
        best_layers(probed(analysis, task)),
        first_errors(analysis, task, by_length=False),
    )


def relevant(results: Results, analysis: AnalysisRows | None) -> AnalysisRows:
    """The rows about the runs of the report, in the study's order; its numbers are of the last checkpoint."""
    runs = {run.description["fingerprint"]: run.description for run in results.runs}
    found = (analysis or AnalysisRows()).of_runs(runs)
    if results.facets:
        found = _in_facets(found, results, runs)
    tasks, encodings = ({name: i for i, name in enumerate(names)} for names in (results.tasks, results.encodings))

    def place(row: Row) -> tuple[int, int, int]:
        about = runs[row["run"]]
        if any(row[key] != about[key] for key in ("task", "encoding", "seed")):
            raise RunError(f"what was found in {about['name']} is about another task, encoding or seed; analyze again")
        return tasks[row["task"]], encodings[row["encoding"]], row["seed"]

    kinds = found.distances, found.heads, found.probes, found.failures, found.maps
    return AnalysisRows(*(sorted(rows, key=place) for rows in kinds))


def _in_facets(found: AnalysisRows, results: Results, runs: Mapping[str, Row]) -> AnalysisRows:
    """Rows that say the task of a run say its facet instead; those of another task stay as they are."""

    def row(each: Row) -> Row:
        title = runs[each["run"]]["task"]
        return {**each, "task": title} if each["task"] == results.facets[title].task else each

    kinds = found.distances, found.heads, found.probes, found.failures, found.maps
    return AnalysisRows(*([row(each) for each in rows] for rows in kinds))


def analysed(results: Results, analysis: AnalysisRows) -> list[str]:
    """Tasks that something was found about, in the study's order."""
    kinds = analysis.distances, analysis.heads, analysis.probes, analysis.failures
    found = {row["task"] for rows in kinds for row in rows}
    return [task for task in results.tasks if task in found]
