"""Every figure of what analyses found, task by task."""

from dataclasses import dataclass

from lengthwise.records.findings import AnalysisRows
from lengthwise.records.rows import Results
from lengthwise.report.figures.attention import by_position_figures, distance_figure, reach_figure
from lengthwise.report.figures.drawing import Figure
from lengthwise.report.figures.failure_figures import anatomy_figure, probe_figure
from lengthwise.report.figures.head_maps import head_map_figures
from lengthwise.report.model import why


@dataclass(frozen=True)
class TaskFindings:
    """What was found on one task, and its figures; empty where an analysis was not made."""

    task: str
    comparisons: list[tuple[why.Comparison, Figure]]
    looks: list[why.LayerLooks]
    """Of unseen lengths, or of seen ones where there are no others."""
    reach: Figure | None
    by_position: list[Figure]
    head_maps: list[Figure]
    best: list[why.Probed]
    probes: Figure | None
    anatomy: list[why.Anatomy]
    """Seen and unseen lengths each together."""
    first_errors: Figure | None

    @property
    def figures(self) -> list[Figure]:
        single = [figure for figure in (self.reach, self.probes, self.first_errors) if figure]
        return [*(figure for _, figure in self.comparisons), *single, *self.by_position, *self.head_maps]


def findings(results: Results, analysis: AnalysisRows) -> list[TaskFindings]:
    """`analysis`: what is `relevant` to the results."""
    return [_findings(analysis, task, results.encodings) for task in why.analysed(results, analysis)]


def _findings(analysis: AnalysisRows, task: str, encodings: list[str]) -> TaskFindings:
    looks = why.layer_looks(analysis, task)
    looks = [each for each in looks if each.group == why.shown_group(looks)]
    best = why.best_layers(why.probed(analysis, task))
    by_length = why.anatomy(analysis, task, by_length=True)
    return TaskFindings(
        task,
        [(each, distance_figure(each, encodings)) for each in why.comparisons(analysis, task)],
        looks,
        reach_figure(looks, task, encodings) if looks else None,
        by_position_figures(looks, task, encodings) if looks else [],
        head_map_figures(analysis, task, encodings) if looks else [],
        best,
        probe_figure(best, task, encodings) if best else None,
        why.anatomy(analysis, task, by_length=False),
        anatomy_figure(by_length, task, encodings) if by_length else None,
    )
