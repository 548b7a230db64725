"""One self-contained HTML page about a study; it loads nothing from anywhere."""

import json
import math
from pathlib import Path
from typing import Any

from lengthwise.errors import UserError
from lengthwise.records.asked import asked
from lengthwise.records.budgets import budget_warnings
from lengthwise.records.completeness import missing
from lengthwise.records.facets import counted, faceted
from lengthwise.records.files import replace
from lengthwise.records.findings import AnalysisRows
from lengthwise.records.losses import losses
from lengthwise.records.merging import told_apart
from lengthwise.records.outcomes import AT_CHANCE, AT_CHANCE_ERRORS, SATURATED, outcomes
from lengthwise.records.ranking import paired_differences, ranking, rankings
from lengthwise.records.results import Results
from lengthwise.records.run_result import RunResult
from lengthwise.records.validations import LAST, NOTICEABLE
from lengthwise.report.figures import gallery
from lengthwise.report.figures.findings import finding_figures
from lengthwise.report.figures.layouts import layout_figure
from lengthwise.report.figures.length_curves import BOTTOM, LEFT, RIGHT, TOP, WIDTH, panel
from lengthwise.report.figures.opening import NARROW, opening_figure
from lengthwise.report.figures.operand_grid import grid_panels
from lengthwise.report.figures.palette import styles
from lengthwise.report.figures.step_curves import steps_panel
from lengthwise.report.html import attention_maps, failures
from lengthwise.report.html.findings import finding_blocks
from lengthwise.report.html.table import Styles, sign, to_html
from lengthwise.report.model import agreement, phrases, reference, summaries, swings
from lengthwise.report.model.accuracy_tables import (
    accuracy_table,
    checkpoint_table,
    scratchpad_table,
    swing_table,
    task_notes,
)
from lengthwise.report.model.attention_distances import VARIANTS
from lengthwise.report.model.axis_columns import with_axes
from lengthwise.report.model.data_tables import data_tables
from lengthwise.report.model.difference_tables import difference_table, task_difference_table
from lengthwise.report.model.displayed import displayed, displayed_findings
from lengthwise.report.model.finding_tables import distance_table, first_error_table, probe_table, statistics_table
from lengthwise.report.model.findings import TaskFindings, relevant
from lengthwise.report.model.length_curves import LengthCurves, curves_of, shared_span
from lengthwise.report.model.length_tables import length_table, step_table
from lengthwise.report.model.opening import opening, opening_sentences
from lengthwise.report.model.operand_grid import operand_grids
from lengthwise.report.model.outcome_tables import error_table, outcome_table
from lengthwise.report.model.page_part import MOST_RUNS, left_out, page_part
from lengthwise.report.model.published_tables import agreement_table, comparison_table, order_table
from lengthwise.report.model.ranking_table import ranking_table
from lengthwise.report.model.run_tables import encoding_table, origin_table, run_table, setting_tables, task_table
from lengthwise.report.model.step_curves import NEVER_CHOSEN, best_rules, steps_of, watched_examples
from lengthwise.report.model.table import Table
from lengthwise.report.table_files import write_tables

try:
    import jinja2
    from markupsafe import Markup
except ImportError as error:
    raise UserError(f"reports need {error.name}: pip install 'lengthwise[report]'") from error


BYTES = 4_800_000
"""Of a page at most: attention maps get what the rest leaves."""
LARGEST, FEWEST_RUNS = 5_000_000, 20
"""Bytes of a page: where it would have more, it has fewer runs, down to so many."""


def write_page(results: Results, path: Path, analysis: AnalysisRows | None = None) -> None:
    """Writes the report of `results` to `path`; `analysis`: what was found by looking into the runs."""
    summaries.require_runs(results)
    results, analysis = faceted(displayed(results)), displayed_findings(analysis or AnalysisRows())
    most, folder = MOST_RUNS, path.with_name(f"{path.stem}-tables")
    while True:
        part = page_part(results, most)
        page = rendered(part, analysis, results, left_out(part, results, folder.name))
        if len(page.encode()) <= LARGEST or most <= FEWEST_RUNS:
            break
        most = min(most, len(part.runs)) // 2
    if part is not results:
        write_tables(results, relevant(results, analysis), folder)
    replace(path, lambda partial: partial.write_text(page, encoding="utf-8"))


def rendered(results: Results, analysis: AnalysisRows | None, whole: Results, told: str = "") -> str:
    """The page about some runs; `whole`: all that are ranked, `told`: what is left out."""
    environment = templates(styles(whole.encodings))
    template = environment.get_template("page.html.jinja")
    found = relevant(results, analysis)
    shown = content(results, most_failures=failures.BYTES // 4 if found else failures.BYTES)
    if whole is not results:
        shown |= {"missing": missing(whole), "runs": len(whole.runs), "rankings": rankings(whole)}
        shown |= {"ranking_figure": gallery.ranking_of(whole)}
        shown["shown"]["ranking"] = ranking_table(whole)
        shown["tables"]["ranking"] = ranking_table(whole).data
    shown["left_out"] = told
    of_task = environment.get_template("why_task.html.jinja")
    blocks = finding_blocks(results, found, lambda task: of_task.render(**shown, **_findings(task, found, results)))
    shown["tables"] |= blocks.tables
    shown |= {"why_tasks": blocks.tasks, "why_blocks": blocks.blocks, "why_packed": blocks.packed}
    page = template.render(**shown, maps=None)
    if found.maps:
        left = BYTES - len(page.encode())
        page = template.render(**shown, maps=attention_maps.packed(results, found, left))
    return page


def templates(signs: Styles) -> jinja2.Environment:
    """What is written in them is escaped; a name that they do not have is an error. `signs`: of encodings."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("lengthwise.report.html", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )

    def table(shown: Table, **options: Any) -> Markup:
        return Markup(to_html(shown, signs, **options))

    def sign_of(encoding: str) -> Markup:
        return Markup(sign(encoding, signs))

    environment.filters |= phrases.FILTERS | {"embedded": embedded}
    functions: dict[str, Any] = environment.globals
    functions.update(table=table, sign=sign_of)
    return environment


def embedded(value: Any) -> Markup:
    """JSON that may stand between script tags; what is no finite number is null, as JSON has no other word for it."""
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(_finite(value), ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def content(results: Results, most_failures: int) -> dict[str, Any]:
    """Everything that the page shows, but for what analyses found; `most_failures` in bytes."""
    every = [curves_of(results, task) for task in results.tasks]
    has_best = summaries.has_best(results)
    differences, comparison = paired_differences(results), reference.comparison(results)
    return {
        "name": results.study.get("name", "study"),
        "summary": results.study.get("summary", ""),
        "missing": missing(results),
        "told_apart": told_apart(results),
        "encodings": results.encodings,
        "tasks": [_task(results, curves) for curves in every],
        "counted": counted(results),
        "seeds": sorted({run.description["seed"] for run in results.runs}),
        "runs": len(results.runs),
        "shown": _tables(results),
        "opening": _opening(results, every),
        "ranking_figure": gallery.ranking_of(results),
        "rankings": rankings(results),
        "best_order": ranking(results, "best") if has_best else [],
        "published_ranks": reference.reciprocal_ranks(results),
        "published_curves": reference.has_curves(results),
        "why_nothing_published": reference.why_nothing(results),
        "outcomes": outcomes(results),
        "limits": {
            "learned": summaries.LEARNED,
            "saturated": SATURATED,
            "at_chance": AT_CHANCE,
            "at_chance_errors": AT_CHANCE_ERRORS,
        },
        "panels": _panels(results, every),
        "panels_span": shared_span(every),
        "operand_grids": [(grid.task, grid_panels(grid, results.encodings)) for grid in operand_grids(results)],
        "axes": (LEFT, RIGHT, TOP, BOTTOM, WIDTH),
        "spread": summaries.spread_words(results),
        "spans_differ": len({curves.span for curves in every}) > 1,
        "during_training": _during_training(results),
        "swing_mark": swings.MARK,
        "swing_note": _swing_note(results),
        "heat_maps": gallery.heat_maps(results),
        "layout_figure": layout_figure(results),
        "has_best": has_best,
        "comparison": comparison,
        "agreement": agreement,
        "citation": reference.CITATION,
        "differences": differences,
        "differences_figure": gallery.differences_of(results),
        "has_scratchpads": results.has_scratchpads,
        "failures": failures.packed(results, most_failures),
        "failure_lengths": sorted({failure["length"] for run in results.runs for failure in run.failures}),
        "unfinished": results.unfinished,
        "warnings": budget_warnings(results),
        "tables": {table.name: table.data for table in data_tables(results, every, keep_titles=True)},
        "descriptions": [_description(run) for run in summaries.in_order(results)],
        "losses": _losses(results),
        "asked": asked(results),
    }


def _tables(results: Results) -> dict[str, Any]:
    """Every table that the page shows in one place; those that there is nothing for are left out."""
    comparison = reference.comparison(results)
    found: dict[str, Any] = {
        "ranking": ranking_table(results),
        "outcomes": outcome_table(results),
        "tasks": task_table(results),
        "unseen": accuracy_table(results, seen=False),
        "training": accuracy_table(results, seen=True),
        "errors": error_table(results),
        "runs": run_table(results),
        "origin": origin_table(results),
        "settings": setting_tables(results),
        "encodings": encoding_table(results),
        "differences": difference_table(results),
        "task_differences": task_difference_table(results),
        "swings": swing_table(results),
    }
    if summaries.has_best(results):
        found["checkpoints"] = checkpoint_table(results)
    if results.has_scratchpads:
        found["scratchpads"] = scratchpad_table(results)
    if comparison:
        found |= {"comparison": comparison_table(results, comparison), "order": order_table(comparison)}
    if comparison and comparison.counts:
        found["agreement"] = agreement_table(comparison)
    return {
        name: with_axes(each, results, keep_titles=name == "runs") if isinstance(each, Table) else each
        for name, each in found.items()
    }


def _findings(found: TaskFindings, analysis: AnalysisRows, results: Results) -> dict[str, Any]:
    """What the block of one task shows."""
    drawn = finding_figures(found, analysis, results.encodings)
    return {
        "found": found,
        "drawn": drawn,
        "variants": VARIANTS,
        "distances": [
            (each, distance_table(each), figure)
            for each, figure in zip(found.comparisons, drawn.distances, strict=True)
        ],
        "statistics": statistics_table(found.task, found.statistics) if found.statistics else None,
        "probes": probe_table(found.task, found.best) if found.best else None,
        "first_errors": first_error_table(found.task, found.first_errors) if found.first_errors else None,
    }


def _opening(results: Results, every: list[LengthCurves]) -> dict[str, Any] | None:
    found = opening(results.encodings, every)
    if found is None:
        return None
    return {
        "figure": opening_figure(found, results.encodings),
        "narrow": opening_figure(found, results.encodings, NARROW),
        "sentences": opening_sentences(results, found),
        "tasks": found.tasks,
        "relative": found.is_relative,
    }


def _panels(results: Results, every: list[LengthCurves]) -> list[dict[str, Any]]:
    """Each task's curves on the axis that all share, and on its own."""
    shared = shared_span(every)
    return [
        {
            "curves": curves,
            "alike": panel(curves, results.encodings, shared),
            "own": panel(curves, results.encodings, curves.span) if curves.span != shared else None,
            "table": length_table(results, curves.task),
        }
        for curves in every
    ]


def _during_training(results: Results) -> dict[str, Any] | None:
    """What validations found; None where no run watched unseen lengths."""
    every = steps_of(results)
    if not every:
        return None
    return {
        "panels": [
            {
                "task": steps.task,
                "drawing": steps_panel(steps, results.encodings),
                "table": step_table(results, steps),
            }
            for steps in every
        ],
        "last": LAST,
        "noticeable": NOTICEABLE,
        "never_chosen": NEVER_CHOSEN,
        "rules": best_rules(results),
        "watched": watched_examples(results),
    }


def _swing_note(results: Results) -> str:
    keys = [(task, encoding) for task in results.tasks for encoding in results.encodings]
    return swings.note({key: summaries.accuracy(results, *key, seen=False) for key in keys})


def _task(results: Results, curves: LengthCurves) -> dict[str, Any]:
    task = curves.task
    found = {name: summaries.accuracy(results, task, name, seen=True) for name in results.encodings}
    return {
        "name": task,
        "shared": summaries.shared(results, task),
        "unlearned": [(name, each) for name, each in found.items() if each and each.unlearned],
        "note": task_notes(results).get(task, ""),
    }


def _losses(results: Results) -> list[Any]:
    """Of every run in the order of the page; null where its log is not there."""
    found = losses(results.folders)
    return [found.get(run.description["fingerprint"]) for run in summaries.in_order(results)]


def _description(run: RunResult) -> dict[str, Any]:
    """What the browser of runs shows; validations are left out, since a table of the page has them all."""
    finished = {key: value for key, value in run.finished.items() if key != "validations"}
    return {**run.description, "finished": finished}
