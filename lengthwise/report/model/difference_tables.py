"""Paired differences between encodings as tables: overall with tests, and on each task."""

import dataclasses

import numpy as np

from lengthwise.records.ranking import Difference, paired_differences
from lengthwise.records.results import Results
from lengthwise.records.statistics import FEWEST_SEEDS
from lengthwise.report.model import phrases
from lengthwise.report.model.numbers import digits, ends, rounded
from lengthwise.report.model.phrases import plural, probability, signed
from lengthwise.report.model.table import (
    MISSING,
    Column,
    Note,
    Table,
    TableRow,
    Words,
    encoding_cell,
    number_cell,
    text_cell,
    value_cells,
    value_columns,
)


def difference_table(results: Results, checkpoint: str = "last") -> Table:
    """Every encoding against `none`, or against the first one, with p-values corrected for their number."""
    found = paired_differences(results, checkpoint)
    has_seeds, has_tasks = (any(getattr(each, kind) for each in found) for kind in ("interval", "interval_over_tasks"))
    uncorrected = ("p_over_pairs", "p_over_tasks", "p_wilcoxon_over_tasks")
    columns = (
        Column("encoding", "left", ("encoding",)),
        *value_columns("against"),
        Column("mean", fields=("mean",)),
        Column(phrases.spread_heading(any(each.is_range for each in found)), fields=("low", "high"), shown=has_seeds),
        Column(phrases.OVER_TASKS, fields=("low_over_tasks", "high_over_tasks"), shown=has_tasks),
        Column("wins/ ties/ losses", fields=("wins", "ties", "losses")),
        *value_columns(*uncorrected),
        *(
            Column(heading, fields=(f"holm_{name}",))
            for heading, name in zip(("p, pairs", "p, tasks", "p, Wilcoxon"), uncorrected, strict=True)
        ),
        *value_columns("comparisons", "pairs", "tasks"),
    )
    rows = [
        TableRow(
            (
                encoding_cell(each.encoding, _counts(each)),
                *value_cells([each.against]),
                number_cell(signed(each.mean), rounded(each.mean), tone="main"),
                number_cell(phrases.interval(each.interval, signs=True), *ends(each.interval)),
                number_cell(phrases.interval(each.interval_over_tasks, signs=True), *ends(each.interval_over_tasks)),
                number_cell(f"{each.wins}/{each.ties}/{each.losses}", each.wins, each.ties, each.losses),
                *value_cells(map(digits, dataclasses.astuple(each.p))),
                *(number_cell(probability(p), digits(p)) for p in dataclasses.astuple(each.corrected)),
                *value_cells([len(found), each.columns, each.tasks]),
            )
        )
        for each in found
    ]
    against = found[0].against if found else ""
    title = f"Accuracy on unseen lengths minus that of {against}, same task and seed, {checkpoint} checkpoint"
    return Table("paired-differences", title, columns, tuple(rows), _notes(found, has_seeds))


def _counts(each: Difference) -> Note:
    return Note((Words(f"{plural(each.columns, 'pair')}, {plural(each.tasks, 'task')}"),), detail=True)


def _notes(found: list[Difference], has_seeds: bool) -> tuple[str, ...]:
    if not found:
        return ()
    columns, tasks = (max(getattr(each, name) for each in found) for name in ("columns", "tasks"))
    said = [
        f"p: two-sided permutation tests that exchange the two within each of {plural(columns, 'pair')} of task and "
        f"seed, or within each of {plural(tasks, 'task')}; Wilcoxon's signed-rank test over tasks; corrected for "
        f"{plural(len(found), 'comparison')} (Holm)"
    ]
    if not has_seeds:
        said.append(f"no interval is given: some task has fewer than {FEWEST_SEEDS} seeds")
    return tuple(said)


def task_difference_table(results: Results) -> Table:
    """Mean difference on each task."""
    found = paired_differences(results)
    by_encoding = {each.encoding: task_differences(results, each.encoding, each.against) for each in found}
    columns = (
        Column("task", "left"),
        *(Column(encoding, encoding=encoding) for encoding in by_encoding),
    )
    rows = [
        TableRow(
            (
                text_cell(task),
                *(number_cell(signed(own[task])) if task in own else MISSING for own in by_encoding.values()),
            )
        )
        for task in results.tasks
    ]
    against = found[0].against if found else ""
    return Table("", f"Mean difference from {against} on each task", columns, tuple(rows))


def task_differences(results: Results, encoding: str, baseline: str) -> dict[str, float]:
    """Task -> mean over the seeds that both have of how much better than the baseline the encoding is."""
    accuracies = results.accuracies()
    found = {}
    for task in results.tasks:
        own, other = accuracies.get((task, encoding), {}), accuracies.get((task, baseline), {})
        if seeds := own.keys() & other.keys():
            found[task] = float(np.mean([own[seed] - other[seed] for seed in seeds]))
    return found
