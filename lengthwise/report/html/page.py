"""One self-contained HTML page about a study; it loads nothing from anywhere."""

import json
from collections.abc import Iterable
from itertools import groupby
from pathlib import Path
from typing import Any

from lengthwise.errors import UserError
from lengthwise.records.budgets import budget_warnings
from lengthwise.records.comparison import Comparison
from lengthwise.records.completeness import missing
from lengthwise.records.equivalence import MARGIN
from lengthwise.records.files import replace
from lengthwise.records.findings import AnalysisRows
from lengthwise.records.outcomes import DEAD, DEAD_ERRORS, SATURATED, outcomes
from lengthwise.records.ranking import paired_differences, ranking, rankings
from lengthwise.records.rows import Results, RunResult
from lengthwise.records.validations import LAST, NOTICEABLE, mean_swing
from lengthwise.report.figures import gallery
from lengthwise.report.figures.layouts import layout_figure
from lengthwise.report.figures.length_curves import (
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Curves,
    curves_of,
    panel,
    shared_span,
)
from lengthwise.report.figures.palette import looks
from lengthwise.report.figures.step_curves import NEVER_CHOSEN, best_rules, steps_of, steps_panel, watched_examples
from lengthwise.report.html import attention_maps, failures
from lengthwise.report.html.findings import why_blocks
from lengthwise.report.model import agreement, phrases, reference, summaries, swings, why
from lengthwise.report.model.data_tables import seconds, tables
from lengthwise.report.model.settings import resolved_settings
from lengthwise.report.model.why_tables import VARIANTS

try:
    import jinja2
    from markupsafe import Markup
except ImportError as error:
    raise UserError(f"reports need {error.name}: pip install 'lengthwise[report]'") from error


BYTES = 4_800_000
"""Of a page at most: attention maps get what the rest leaves."""


def write_page(results: Results, path: Path, analysis: AnalysisRows | None = None) -> None:
    """Writes the report of `results` to `path`; `analysis`: what was found by looking into the runs."""
    summaries.require_runs(results)
    environment = templates()
    template = environment.get_template("page.html.jinja")
    found = why.relevant(results, analysis)
    shown = content(results, most_failures=failures.BYTES // 4 if found else failures.BYTES)
    of_task = environment.get_template("why_task.html.jinja")
    blocks = why_blocks(results, found, lambda task: of_task.render(**shown, found=task))
    shown["tables"] |= blocks.tables
    shown |= {"why_tasks": blocks.tasks, "why_blocks": blocks.blocks, "why_packed": blocks.packed}
    page = template.render(**shown, maps=None)
    if found.maps:
        left = BYTES - len(page.encode())
        page = template.render(**shown, maps=attention_maps.packed(results, found, left))
    replace(path, lambda partial: partial.write_text(page, encoding="utf-8"))


def templates() -> jinja2.Environment:
    """What is written in them is escaped; a name that they do not have is an error."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("lengthwise.report.html", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= phrases.FILTERS | {"embedded": embedded}
    return environment


def embedded(value: Any) -> Markup:
    """JSON that may stand between script tags."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029"))


def content(results: Results, most_failures: int) -> dict[str, Any]:
    """Everything that the page shows, but for what analyses found; `most_failures` in bytes."""
    every = [curves_of(results, task) for task in results.tasks]
    has_best = summaries.has_best(results)
    cells = {
        (task, encoding): _cells(results, task, encoding, has_best)
        for task in results.tasks
        for encoding in results.encodings
    }
    found = outcomes(results)
    differences = paired_differences(results)
    comparison, notes = reference.comparison(results), gallery.notes(results)
    return {
        "name": results.study.get("name", "study"),
        "summary": results.study.get("summary", ""),
        "missing": missing(results),
        "encodings": results.encodings,
        "tasks": [_task(results, curves, notes) for curves in every],
        "seeds": sorted({run.description["seed"] for run in results.runs}),
        "looks": looks(results.encodings),
        "ranking_figure": gallery.ranking_of(results),
        "rankings": rankings(results),
        "best_order": ranking(results, "best") if has_best else [],
        "published_ranks": reference.reciprocal_ranks(results),
        "published_curves": reference.has_curves(results),
        "why_nothing_published": reference.why_nothing(results),
        "outcomes": found,
        "limits": {"learned": summaries.LEARNED, "saturated": SATURATED, "dead": DEAD, "dead_errors": DEAD_ERRORS},
        "panels": _panels(results, every),
        "panels_span": shared_span(every),
        "axes": (LEFT, RIGHT, TOP, BOTTOM, WIDTH),
        "spread": summaries.spread_words(results),
        "spans_differ": len({curves.span for curves in every}) > 1,
        "during_training": _during_training(results),
        "swing_mark": swings.MARK,
        "swing_note": swings.note({key: each["unseen"] for key, each in cells.items()}),
        "heat_maps": gallery.heat_maps(results),
        "layout_figure": layout_figure(results),
        "cells": cells,
        "has_best": has_best,
        "comparison": comparison,
        "agreement": agreement,
        "margin": MARGIN,
        "compared": _compared(results, comparison) if comparison else [],
        "citation": reference.CITATION,
        "differences": differences,
        "differences_figure": gallery.differences_of(results),
        "task_differences": {
            each.encoding: gallery.task_differences(results, each.encoding, each.against) for each in differences
        },
        "has_scratchpads": results.has_scratchpads,
        "errors": {encoding: summaries.error_kinds(results, encoding) for encoding in results.encodings},
        "failures": failures.packed(results, most_failures),
        "scores": why.SCORES,
        "kind_names": why.KIND_NAMES,
        "variants": VARIANTS,
        "failure_lengths": sorted({failure["length"] for run in results.runs for failure in run.failures}),
        "runs": [_run(run, number) for number, run in enumerate(summaries.in_order(results))],
        "unfinished": results.unfinished,
        "warnings": budget_warnings(results),
        "settings": resolved_settings(results),
        "facts": [_facts(results, encoding) for encoding in results.encodings],
        "origin": _origin(results),
        "seconds": sum(map(seconds, results.runs)),
        "tables": {table.name: table.data() for table in tables(results, every)},
        "descriptions": [_description(run) for run in summaries.in_order(results)],
    }


def _panels(results: Results, every: list[Curves]) -> list[dict[str, Any]]:
    """Each task's curves on the axis that all share, and on its own."""
    shared = shared_span(every)
    return [
        {
            "curves": curves,
            "alike": panel(curves, results.encodings, shared),
            "own": panel(curves, results.encodings, curves.span) if curves.span != shared else None,
            "points": {(point.encoding, point.length): point for point in curves.points},
            "lengths": sorted({point.length for point in curves.points}),
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
                "steps": steps.steps,
                "values": {
                    curve.encoding: {"unseen": dict(curve.unseen), "validation": dict(curve.validation)}
                    for curve in steps.curves
                },
            }
            for steps in every
        ],
        "swings": {
            (task, encoding): mean_swing(results.of(task, encoding))
            for task in results.tasks
            for encoding in results.encodings
        },
        "last": LAST,
        "noticeable": NOTICEABLE,
        "never_chosen": NEVER_CHOSEN,
        "rules": best_rules(results),
        "watched": watched_examples(results),
    }


def _task(results: Results, curves: Curves, notes: dict[str, str]) -> dict[str, Any]:
    task = curves.task
    runs = [run for run in results.runs if run.description["task"] == task]
    first = runs[0].description
    cells = {name: summaries.cell(results, task, name, seen=True) for name in results.encodings}
    return {
        "name": task,
        "format": reference.name_and_format(results, task)[1],
        "settings": {key: value for key, value in first["settings"]["task"].items() if key != "name"},
        "train": first["train_lengths"],
        "test": first["test_lengths"],
        "n": sorted(set(summaries.examples_by_length(results, task).values())),
        "shared": summaries.shared(results, task),
        "chance": {seen: summaries.chance(results, task, seen) for seen in (True, False)},
        "longest_trained": curves.longest_trained,
        "unlearned": [(name, cell) for name, cell in cells.items() if cell and cell.unlearned],
        "note": notes.get(task, ""),
        "comparable": reference.comparable(results, task),
    }


def _cells(results: Results, task: str, encoding: str, has_best: bool) -> dict[str, Any]:
    return {
        "seen": summaries.cell(results, task, encoding, seen=True),
        "unseen": summaries.cell(results, task, encoding, seen=False),
        "text": summaries.cell(results, task, encoding, seen=False, measure="text"),
        "best": summaries.cell(results, task, encoding, seen=False, checkpoint="best") if has_best else None,
        "published": reference.cell(results, task, encoding),
    }


def _compared(results: Results, comparison: Comparison) -> list[dict[str, Any]]:
    """The rows of the table of ours and theirs."""
    cells = {(cell.title, cell.encoding): cell for cell in comparison.cells}
    correlations = {each.title: each.correlation for each in comparison.by_task}
    return [
        {
            "title": title,
            "correlation": correlations.get(title),
            "cells": [cells.get((title, e)) for e in results.encodings],
        }
        for title in dict.fromkeys(cell.title for cell in comparison.cells)
    ]


def _run(run: RunResult, number: int) -> dict[str, Any]:
    description = run.description
    return {
        "number": number,
        **{key: description[key] for key in ("name", "task", "encoding", "seed", "parameters", "started")},
        "device": description["hardware"]["device"],
        "seconds": seconds(run),
        "steps": run.finished.get("steps", "–"),
        "diverged_at": run.finished.get("diverged_at"),
        "learned": summaries.learned(run),
        "seen": run.accuracy("last", seen=True),
        "unseen": run.accuracy("last", seen=False),
    }


def _description(run: RunResult) -> dict[str, Any]:
    """What the browser of runs shows; validations are left out, since a table of the page has them all."""
    finished = {key: value for key, value in run.finished.items() if key != "validations"}
    return {**run.description, "finished": finished}


def _facts(results: Results, encoding: str) -> dict[str, Any]:
    """What an encoding turned out to be; facts that differ between its runs are all listed."""
    runs = [run for run in results.runs if run.description["encoding"] == encoding]

    def distinct(key: str) -> list[Any]:
        return list({json.dumps(run.description[key]): run.description[key] for run in runs}.values())

    return {
        "name": encoding,
        "layers": [_run_lengths(layers) for layers in distinct("encoding_of_each_layer")],
        "resolved": distinct("encoding_resolved"),
        "parameters": sorted(distinct("parameters")),
        "own": sorted(distinct("parameters_of_encoding")),
        "scale": distinct("attention_scale"),
        "seconds": sum(map(seconds, runs)),
        "runs": len(runs),
    }


def _run_lengths(layers: Iterable[str]) -> str:
    return ", ".join(f"{name} × {len(list(group))}" for name, group in groupby(layers))


def _origin(results: Results) -> list[tuple[str, list[str]]]:
    """Where the numbers come from; each fact with all the values that occur."""
    descriptions = [run.description for run in results.runs]

    def distinct(values: Iterable[Any]) -> list[str]:
        return list(dict.fromkeys(map(str, values)))

    started = sorted(description["started"] for description in descriptions)
    versions = list(dict.fromkeys(name for description in descriptions for name in description["versions"]))
    return [
        ("commit", distinct(description["commit"] for description in descriptions)),
        ("first run started", [started[0]]),
        ("last run started", [started[-1]]),
        ("device", distinct(description["hardware"]["device"] for description in descriptions)),
        ("processors", distinct(description["hardware"]["processors"] for description in descriptions)),
        ("machine", distinct(description["hardware"]["machine"] for description in descriptions)),
        *((name, distinct(description["versions"].get(name) for description in descriptions)) for name in versions),
    ]
