"""Accuracy by length and by training step as tables, task by task."""

from collections.abc import Sequence

import numpy as np

from lengthwise.records.outcomes import learned
from lengthwise.records.results import Results
from lengthwise.records.validations import validations
from lengthwise.report.model import summaries
from lengthwise.report.model.accuracy_tables import by_encoding
from lengthwise.report.model.length_curves import LengthCurves
from lengthwise.report.model.numbers import accuracy_words, ends, known, rounded
from lengthwise.report.model.phrases import plural
from lengthwise.report.model.step_curves import StepCurves
from lengthwise.report.model.table import MISSING, Cell, Table, TableRow, Words, value_table


def length_table(
    results: Results,
    task: str,
    checkpoint: str = "last",
    most: int | None = None,
    encodings: Sequence[str] | None = None,
) -> Table:
    """Mean exact match at each length; `most`: so many lengths at most, every k-th one; `encodings`: only these."""
    shown = results.encodings if encodings is None else encodings
    longest, every = results.train_length(task), summaries.lengths(results, task)
    seen, unseen = [n for n in every if n <= longest], [n for n in every if n > longest]
    seen, unseen, step = summaries.thinned(seen, unseen, most or len(every))
    values = {encoding: results.by_length(task, encoding, checkpoint) for encoding in shown}
    rows = []
    for length in (*seen, *unseen):
        words = (Words(str(length)), *([] if length <= longest else [Words(" (unseen)", "spoken")]))
        cells = (
            Cell((accuracy_words(float(np.mean(found[length]))),)) if length in found else MISSING
            for found in values.values()
        )
        ruled = bool(seen) and length == seen[-1]
        rows.append(TableRow((Cell(words), *cells), ruled=ruled))
    return Table(
        "by-length",
        f"{task}: exact match by length",
        by_encoding("length", shown),
        tuple(rows),
        tuple(_notes(results, shown, task, checkpoint, step)),
        task=task,
    )


def _notes(results: Results, shown: Sequence[str], task: str, checkpoint: str, step: int) -> list[str]:
    seeds = sorted({len(results.of(task, encoding)) for encoding in shown})
    number = f"{seeds[0]} to {seeds[-1]} seeds" if len(seeds) > 1 else plural(seeds[0], "seed")
    notes = [f"mean over {number}; trained to length {results.train_length(task)}"]
    if step > 1:
        notes[0] += f"; only every {_ordinal(step)} length is shown, and the first unseen one; `show --csv` has all"
    if len(shown) < len(results.encodings):
        notes.append(f"the {len(shown)} best of {len(results.encodings)} encodings; `lengthwise report` has all")
    unlearned = []
    for encoding in shown:
        runs = results.of(task, encoding)
        if failed := sum(not learned(run, checkpoint) for run in runs):
            unlearned.append(f"{encoding} ({failed} of {plural(len(runs), 'seed')})")
    return [*notes, f"not learned: {', '.join(unlearned)}"] if unlearned else notes


def step_table(results: Results, steps: StepCurves) -> Table:
    """Mean exact match at each validation, on unseen lengths and in distribution."""
    values = {curve.encoding: (dict(curve.unseen), dict(curve.validation)) for curve in steps.curves}
    rows = []
    for step in steps.steps:
        cells = []
        for encoding in results.encodings:
            unseen, validation = values.get(encoding, ({}, {}))
            words = (Words(f"{unseen[step]:.2f} / {validation[step]:.2f}"),) if step in unseen else MISSING.words
            cells.append(Cell(words))
        rows.append(TableRow((Cell((Words(str(step)),)), *cells)))
    title = f"Exact match on {steps.task}: unseen lengths / validation, mean over seeds"
    return Table("validations", title, by_encoding("step", results.encodings), tuple(rows), task=steps.task)


def length_values(every: list[LengthCurves]) -> Table:
    """For programs: a row for each task, encoding and length."""
    return value_table(
        "by-length",
        "Accuracy by length, last checkpoint",
        ["task", "encoding", "length", "trained", "n", "mean", "low", "high", "by_seed", "chance", "published"],
        [
            [curves.task, point.encoding, point.length, point.length <= curves.longest_trained, point.n,
             rounded(point.mean), *ends(point.interval),
             " ".join(f"{value:.3g}" for value in point.by_seed), rounded(point.chance),
             point.published]
            for curves in every
            for point in curves.points
        ],
    )  # fmt: skip


def validation_values(results: Results) -> Table:
    """For programs: every validation of every run, in distribution and on the sample of unseen lengths."""
    return value_table(
        "validations",
        "Exact match at each validation: in distribution, and on a sample of unseen lengths",
        ["task", "encoding", "seed", "step", "validation", "unseen"],
        [
            [run.description["task"], run.description["encoding"], run.description["seed"], each.step,
             rounded(each.validation), known(each.unseen)]
            for run in summaries.in_order(results)
            for each in validations(run)
        ],
    )  # fmt: skip


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
