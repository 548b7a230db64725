"""Every figure of a study, made from its results."""

from lengthwise.records.findings import AnalysisRows
from lengthwise.records.ranking import paired_differences, ranking
from lengthwise.records.results import Results
from lengthwise.report.figures.differences import DifferenceRow, differences_figure
from lengthwise.report.figures.drawing import Figure
from lengthwise.report.figures.findings import every_finding_figure
from lengthwise.report.figures.heat_map import HeatCell, heat_map
from lengthwise.report.figures.layouts import layout_figure
from lengthwise.report.figures.length_curves import accuracy_by_length, panel
from lengthwise.report.figures.operand_grid import grid_figure
from lengthwise.report.figures.panels import side_by_side
from lengthwise.report.figures.ranking import ranking_figure
from lengthwise.report.figures.step_curves import steps_figure
from lengthwise.report.model import reference, summaries
from lengthwise.report.model.accuracy_tables import task_notes
from lengthwise.report.model.difference_tables import task_differences
from lengthwise.report.model.length_curves import curves_of
from lengthwise.report.model.operand_grid import operand_grids
from lengthwise.report.model.phrases import spread_heading


def figures(results: Results, analysis: AnalysisRows | None = None) -> list[Figure]:
    """For papers: each a file of its own."""
    summaries.require_runs(results)
    every = [curves_of(results, task) for task in results.tasks]
    found = [accuracy_by_length(results), *([during_training] if (during_training := steps_figure(results)) else [])]
    found += [panel(curves, results.encodings, curves.span) for curves in every]
    found += [grid_figure(grid, results.encodings) for grid in operand_grids(results)]
    maps = heat_maps(results)
    found.append(side_by_side("heat-map", "Exact match on unseen lengths", maps) if len(maps) > 1 else maps[0])
    found += [figure for figure in (layout_figure(results), ranking_of(results), differences_of(results)) if figure]
    return found + every_finding_figure(results, analysis or AnalysisRows())


def ranking_of(results: Results) -> Figure | None:
    """None while no pair of task and seed is finished for all encodings."""
    found = ranking(results)
    if not found:
        return None
    places = [
        (place.encoding, (place.reciprocal_rank, place.reciprocal_rank_interval), place.interval_over_tasks)
        for place in found
    ]
    published = reference.reciprocal_ranks(results)
    spread = spread_heading(found[0].is_range)
    return ranking_figure(places, results.encodings, published.scores, spread, published.called)


def heat_maps(results: Results) -> list[Figure]:
    """Ours, and the published one of the same tasks where there is one."""
    ours: dict[tuple[str, str], HeatCell] = {}
    published: dict[tuple[str, str], HeatCell] = {}
    for task in results.tasks:
        for encoding in results.encodings:
            if cell := summaries.accuracy(results, task, encoding, seen=False):
                ours[task, encoding] = HeatCell(cell.mean, bool(cell.unlearned))
            if theirs := reference.cell(results, task, encoding):
                published[task, encoding] = HeatCell(theirs.mean)
    widest = 480.0 if results.facets else 210.0
    maps = [
        heat_map(
            *("heat-map-ours", "Ours, unseen lengths"),
            *(ours, results.tasks, results.encodings, task_notes(results), widest),
        )
    ]
    if published:
        encodings = [encoding for encoding in results.encodings if any(key[1] == encoding for key in published)]
        title = "Published, unseen lengths"
        maps.append(heat_map("heat-map-published", title, published, results.tasks, encodings, {}, widest))
    return maps


def differences_of(results: Results) -> Figure | None:
    """None where there is nothing to pair."""
    differences = paired_differences(results)
    if not differences:
        return None
    baseline = differences[0].against
    rows = [
        DifferenceRow(each.encoding, (each.mean, each.interval), task_differences(results, each.encoding, baseline))
        for each in differences
    ]
    return differences_figure(rows, baseline, results.encodings, spread_heading(differences[0].is_range))
