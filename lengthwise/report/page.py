"""One self-contained HTML page about a study; it loads nothing from anywhere."""

import json
from collections.abc import Iterable, Mapping
from itertools import groupby
from pathlib import Path
from typing import Any

from lengthwise.errors import UserError
from lengthwise.records.files import replace
from lengthwise.records.ranking import ranking
from lengthwise.records.rows import Results, RunResult
from lengthwise.report import summaries
from lengthwise.report.figures import Point, curve_points, curves, looks, ranking_chart, themed

try:
    import jinja2
    import vl_convert
except ImportError as error:
    raise UserError(f"reports need {error.name}: pip install 'lengthwise[report]'") from error


def write_page(results: Results, path: Path) -> None:
    """Writes the report of `results` to `path`."""
    summaries.require_runs(results)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("lengthwise.report", ""),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"decimals": decimals, "chance": chance, "span": span, "plain": plain}
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("</script", "<\\/script")
    page = environment.get_template("page.html.jinja").render(**content(results), bundle=bundle)
    replace(path, lambda partial: partial.write_text(page, encoding="utf-8"))


def content(results: Results) -> dict[str, Any]:
    """Everything that the page shows."""
    places = ranking(results)
    points = {task: curve_points(results, task) for task in results.tasks}
    charts = {f"curves-{i}": _curves_on_page(results, task, points[task]) for i, task in enumerate(results.tasks)}
    if places:
        charts["ranking"] = _on_page(ranking_chart(results).properties(width="container"))
    has_best = summaries.has_best(results)
    first = results.runs[0].description["settings"]
    return {
        "name": results.study.get("name", "study"),
        "summary": results.study.get("summary", ""),
        "encodings": results.encodings,
        "tasks": [_task(results, task, points[task]) for task in results.tasks],
        "seeds": sorted({run.description["seed"] for run in results.runs}),
        "looks": looks(results.encodings),
        "charts": charts,
        "places": [(place, _learned(results, place.encoding)) for place in places],
        "has_scratchpads": results.has_scratchpads,
        "cells": {
            (task, encoding): _cells(results, task, encoding, has_best)
            for task in results.tasks
            for encoding in results.encodings
        },
        "has_best": has_best,
        "learned_from": summaries.LEARNED,
        "errors": {encoding: summaries.error_kinds(results, encoding) for encoding in results.encodings},
        "runs": len(results.runs),
        "unfinished": results.unfinished,
        "unlearned": [run.description["name"] for run in results.runs if not summaries.learned(run)],
        "diverged": [
            (run.description["name"], run.finished["diverged_at"])
            for run in results.runs
            if run.finished.get("diverged_at") is not None
        ],
        "settings": {section: first[section] for section in ("model", "data", "training")},
        "facts": [_facts(results, encoding) for encoding in results.encodings],
        "origin": _origin(results),
        "seconds": sum(map(_seconds, results.runs)),
    }


def _on_page(chart: Any) -> dict[str, Any]:
    return themed(chart, "currentColor", "transparent", "system-ui, sans-serif").to_dict()


def _curves_on_page(results: Results, task: str, points: list[Point]) -> dict[str, Any]:
    return {**_on_page(curves(results, task, points, on_page=True)), "datasets": {f"points of {task}": points}}


def _task(results: Results, task: str, points: list[Point]) -> dict[str, Any]:
    runs = [run for run in results.runs if run.description["task"] == task]
    first = runs[0].description
    cells = {name: summaries.cell(results, task, name, seen=True) for name in results.encodings}
    return {
        "name": task,
        "settings": {key: value for key, value in first["settings"]["task"].items() if key != "name"},
        "train": first["train_lengths"],
        "test": first["test_lengths"],
        "n": sorted({row["n"] for run in runs for row in run.rows}),
        "shared": summaries.shared(results, task),
        "chance": {seen: summaries.chance(results, task, seen) for seen in (True, False)},
        "longest_trained": results.train_length(task),
        "lengths": summaries.lengths(results, task),
        "points": {(point["encoding"], point["length"]): point for point in points},
        "unlearned": [(name, cell) for name, cell in cells.items() if cell and cell.unlearned],
    }


def _cells(results: Results, task: str, encoding: str, has_best: bool) -> dict[str, summaries.Cell | None]:
    cells = {
        "seen": summaries.cell(results, task, encoding, seen=True),
        "unseen": summaries.cell(results, task, encoding, seen=False),
        "text": summaries.cell(results, task, encoding, seen=False, measure="text"),
    }
    if has_best:
        cells["best"] = summaries.cell(results, task, encoding, seen=False, checkpoint="best")
    return cells


def _learned(results: Results, encoding: str) -> tuple[int, int]:
    """How many of the encoding's runs learned their training lengths, and how many there are."""
    runs = [run for run in results.runs if run.description["encoding"] == encoding]
    return sum(map(summaries.learned, runs)), len(runs)


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
        "seconds": sum(map(_seconds, runs)),
        "runs": len(runs),
    }


def _seconds(run: RunResult) -> float:
    """Its share of the time of the runs that it was trained together with."""
    return run.finished["seconds_together"] / run.finished["trained_together"]


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


def decimals(value: float, places: int = 2) -> str:
    return f"{value:.{places}f}"


def chance(value: float) -> str:
    return "below 0.001" if 0 < value < 0.001 else f"{value:.3f}"


def span(ends: Iterable[int]) -> str:
    """First and last of some numbers, or the one that they all are."""
    first, *others = sorted(ends)
    return f"{first:,} – {others[-1]:,}" if others and others[-1] != first else f"{first:,}"


def plain(value: Any) -> str:
    """A setting as a person would write it."""
    if value is None:
        return "the task's own"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key.replace('_', ' ')} {plain(part)}" for key, part in value.items()) or "–"
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value)) or "–"
    return f"{value:.6g}" if isinstance(value, float) else str(value)
