"""Every figure of what analyses found, task by task."""

from dataclasses import dataclass

from lengthwise.records.findings import AnalysisRows
from lengthwise.records.results import Results
from lengthwise.report.figures.attention import by_position_figures, distance_figure, reach_figure
from lengthwise.report.figures.drawing import Figure
from lengthwise.report.figures.first_errors import first_error_figure
from lengthwise.report.figures.head_maps import head_map_figures
from lengthwise.report.figures.probes import probe_figure
from lengthwise.report.model.findings import TaskFindings, findings
from lengthwise.report.model.first_errors import first_errors


@dataclass(frozen=True)
class FindingFigures:
    """Of one task; empty where an analysis was not made."""

    distances: list[Figure]
    """One for each comparison."""
    reach: Figure | None
    by_position: list[Figure]
    head_maps: list[Figure]
    probes: Figure | None
    first_errors: Figure | None

    @property
    def every(self) -> list[Figure]:
        single = [figure for figure in (self.reach, self.probes, self.first_errors) if figure]
        return [*self.distances, *single, *self.by_position, *self.head_maps]


def finding_figures(found: TaskFindings, analysis: AnalysisRows, encodings: list[str]) -> FindingFigures:
    task, heads = found.task, found.statistics
    by_length = first_errors(analysis, task, by_length=True)
    return FindingFigures(
        [distance_figure(each, encodings) for each in found.comparisons],
        reach_figure(heads, task, encodings) if heads else None,
        by_position_figures(heads, task, encodings) if heads else [],
        head_map_figures(analysis, task, encodings) if heads else [],
        probe_figure(found.best, task, encodings) if found.best else None,
        first_error_figure(by_length, task, encodings) if by_length else None,
    )


def every_finding_figure(results: Results, analysis: AnalysisRows) -> list[Figure]:
    """`analysis`: what is relevant to the results."""
    return [
        figure
        for found in findings(results, analysis)
        for figure in finding_figures(found, analysis, results.encodings).every
    ]
