"""Tasks, runs and where numbers come from, as tables."""

import json
from collections.abc import Iterable
from itertools import groupby
from typing import Any

from lengthwise.records.outcomes import LEARNED, outcomes
from lengthwise.records.results import Results
from lengthwise.records.run_result import RunResult
from lengthwise.report.model import phrases, reference, summaries
from lengthwise.report.model.accuracy_tables import task_notes
from lengthwise.report.model.numbers import rounded
from lengthwise.report.model.phrases import beside, decimals, plain, plural, span
from lengthwise.report.model.settings import resolved_settings
from lengthwise.report.model.table import (
    Cell,
    Column,
    Note,
    Table,
    TableRow,
    Value,
    Words,
    encoding_cell,
    number_cell,
    text_cell,
    value_columns,
    value_table,
)


def task_table(results: Results) -> Table:
    """What was trained on and tested."""
    found, notes = outcomes(results), task_notes(results)
    columns = (
        Column("task", "left", ("task",)),
        *value_columns("scratchpad"),
        Column("settings", "left", wide=True),
        Column("training lengths", fields=("first_trained", "last_trained")),
        Column("unseen lengths", fields=("first_unseen", "last_unseen")),
        Column("test examples per length"),
        Column("chance, unseen", fields=("chance",)),
        *value_columns("saturated", "at_chance", "published_lengths_alike"),
    )
    rows = []
    for task in results.tasks:
        about = results.by_task[task][0].description
        settings = {key: value for key, value in about["settings"]["task"].items() if key != "name"}
        small = [Note((Words(notes[task], "warning"),))] if task in notes else []
        guessed = summaries.chance(results, task, seen=False)
        flags: list[Value] = [task in found.saturated, task in found.at_chance, reference.comparable(results, task)]
        rows.append(
            TableRow(
                (
                    text_cell(task, "", *small),
                    Cell(values=(reference.name_and_format(results, task)[1],)),
                    text_cell(plain(settings)),
                    number_cell(span(about["train_lengths"]), *about["train_lengths"]),
                    number_cell(span(about["test_lengths"]), *about["test_lengths"]),
                    number_cell(span(set(summaries.examples_by_length(results, task).values()))),
                    number_cell(phrases.chance(guessed), rounded(guessed)),
                    *(Cell(values=(flag,)) for flag in flags),
                )
            )
        )
    return Table("tasks", "Tasks", columns, tuple(rows))


def run_table(results: Results) -> Table:
    """Every run with its provenance."""
    columns = (
        Column("run", "left", ("run", "task", "encoding", "seed", "fingerprint")),
        Column("unseen", fields=("unseen",)),
        Column("training lengths", fields=("training_lengths",)),
        Column("outcome", "left", ("outcome", "learned", "diverged_at")),
        Column("steps", fields=("steps", "best_step")),
        Column("parameters", fields=("parameters", "parameters_of_encoding")),
        Column("device", "left", ("device", "commit", "started")),
        Column("time", fields=("seconds",)),
    )
    rows = [_run(run, number, results) for number, run in enumerate(summaries.in_order(results))]
    return Table("runs", "Every finished run, last checkpoint", columns, tuple(rows))


def _run(run: RunResult, number: int, results: Results) -> TableRow:
    about, finished = run.description, run.finished
    seen, unseen = (run.accuracy("last", seen=kind) for kind in (True, False))
    learned, diverged = summaries.learned(run), finished.get("diverged_at")
    outcome = _outcome(learned, learned and unseen >= LEARNED, diverged is not None)
    said = outcome + (f" at step {diverged}" if diverged is not None else "")
    name = (about["name"], about["task"], about["encoding"], about["seed"], about["fingerprint"])
    # With a grid the columns beside it say the rest.
    facet = results.facets.get(about["task"])
    shown = f"{facet.task}/{about['encoding']}/seed-{about['seed']}" if facet else about["name"]
    cells = (
        Cell((Words(shown),), name, encoding=about["encoding"]),
        number_cell(decimals(unseen), rounded(unseen)),
        number_cell(beside(seen, LEARNED), rounded(seen)),
        Cell((Words(said, "warning" if outcome in ("diverged", "not learned") else ""),), (outcome, learned, diverged)),
        number_cell(str(finished.get("steps", "–")), finished.get("steps"), finished.get("best_step")),
        number_cell(f"{about['parameters']:,}", about["parameters"], about["parameters_of_encoding"]),
        Cell((Words(about["hardware"]["device"]),), (about["hardware"]["device"], about["commit"], about["started"])),
        number_cell(phrases.time(seconds(run)), round(seconds(run), 1)),
    )
    return TableRow(cells, data={"run": str(number), "outcome": outcome})


def _outcome(learned: bool, generalized: bool, diverged: bool) -> str:
    if diverged:
        return "diverged"
    return "generalized" if generalized else "learned, not generalized" if learned else "not learned"


def failure_values(results: Results) -> Table:
    """For programs: every example that was kept of those that went wrong."""
    return value_table(
        "failures",
        "Examples that went wrong",
        ["task", "encoding", "seed", "length", "kind", "first_error", "prompt", "target", "predicted"],
        [
            [run.description["task"], run.description["encoding"], run.description["seed"], failure["length"],
             failure["kind"], failure["first_error"], failure["prompt"], failure["target"],
             " ".join(failure["predicted"])]
            for run in summaries.in_order(results)
            for failure in run.failures
        ],
    )  # fmt: skip


def origin_table(results: Results) -> Table:
    """Code and machine; each fact with all the values that occur."""
    abouts = [run.description for run in results.runs]
    started = sorted(about["started"] for about in abouts)
    versions = dict.fromkeys(name for about in abouts for name in about["versions"])
    facts = {
        "commit": _distinct(about["commit"] for about in abouts),
        "first run started": _moment(started[0]),
        "last run started": _moment(started[-1]),
        "device": _distinct(about["hardware"]["device"] for about in abouts),
        "processors": _distinct(about["hardware"]["processors"] for about in abouts),
        "machine": _distinct(about["hardware"]["machine"] for about in abouts),
        "parameters": span(about["parameters"] for about in abouts),
        **{name: _distinct(about["versions"].get(name, "–") for about in abouts) for name in versions},
        "training time": phrases.time(sum(map(seconds, results.runs))),
    }
    return fact_table("Code and machine", facts)


def _moment(text: str) -> str:
    """`2026-11-19T04:05:27+00:00` without what nobody reads of it."""
    day, _, time = text.partition("T")
    return f"{day} {time[:5]} UTC" if time.endswith("+00:00") else text


def setting_tables(results: Results) -> list[Table]:
    """The settings of each section, as they were used."""
    return [
        fact_table(section.capitalize(), {key.replace("_", " "): plain(value) for key, value in settings.items()})
        for section, settings in resolved_settings(results).items()
        if settings  # models from elsewhere have none of training
    ]


def fact_table(title: str, facts: dict[str, str]) -> Table:
    """Names and what they are."""
    rows = (TableRow((text_cell(name), text_cell(value))) for name, value in facts.items())
    return Table("", title, (Column("fact", "left"), Column("value", "left", wide=True)), tuple(rows))


def encoding_table(results: Results) -> Table:
    """Encodings as they were built; facts that differ between runs are all listed."""
    columns = (
        Column("encoding", "left"),
        Column("layers", "left"),
        Column("resolved settings", "left", wide=True),
        *map(Column, ("attention scale", "parameters", "of the encoding", "training time")),
    )
    rows = []
    for encoding in results.encodings:
        runs = results.by_encoding[encoding]
        rows.append(
            TableRow(
                (
                    encoding_cell(encoding),
                    text_cell("; ".join(_run_lengths(each) for each in _all(runs, "encoding_of_each_layer"))),
                    text_cell("; ".join(_resolved(each) for each in _all(runs, "encoding_resolved"))),
                    number_cell(plain(_all(runs, "attention_scale"))),
                    number_cell(span(_all(runs, "parameters"))),
                    number_cell(span(_all(runs, "parameters_of_encoding"))),
                    Cell(
                        (Words(phrases.time(sum(map(seconds, runs)))),),
                        notes=(Note((Words(plural(len(runs), "run")),)),),
                    ),
                )
            )
        )
    return Table("", "Encodings as they were built", columns, tuple(rows))


def _resolved(settings: dict[str, Any]) -> str:
    """With the name of each encoding where there are several."""
    return "; ".join(f"{name}: {plain(own)}" if len(settings) > 1 else plain(own) for name, own in settings.items())


def seconds(run: RunResult) -> float:
    """Its share of the time of the runs that it was trained together with."""
    return run.finished["seconds_together"] / run.finished["trained_together"]


def _all(runs: list[RunResult], key: str) -> list[Any]:
    return list({json.dumps(run.description[key]): run.description[key] for run in runs}.values())


def _run_lengths(layers: Iterable[str]) -> str:
    return ", ".join(f"{name} × {len(list(group))}" for name, group in groupby(layers))


def _distinct(values: Iterable[Any]) -> str:
    return ", ".join(dict.fromkeys(map(str, values)))
