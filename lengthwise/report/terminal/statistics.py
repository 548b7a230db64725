"""Tables for the terminal: what became of the runs, paired differences, budgets."""

from rich.table import Table
from rich.text import Text

from lengthwise.records.budgets import budget_warnings, budgets
from lengthwise.records.outcomes import LEARNED, outcomes
from lengthwise.records.ranking import paired_differences
from lengthwise.records.rows import Results
from lengthwise.records.statistics import FEWEST_SEEDS
from lengthwise.report.model.phrases import beside
from lengthwise.report.terminal.results import counted, span
from lengthwise.report.terminal.table import plain_table, stacked

MOST_NAMED = 12
"""Runs that a caption names; further ones are counted."""


def statistics_tables(results: Results, checkpoint: str = "last") -> list[Table]:
    """All of this module, those that have rows."""
    tables = outcome_table(results, checkpoint), difference_table(results, checkpoint), budget_table(results)
    return [table for table in tables if table.row_count]


def outcome_table(results: Results, checkpoint: str = "last") -> Table:
    """Failures in distribution apart from failures to generalize."""
    found = outcomes(results, checkpoint)
    table = plain_table("What became of the runs")
    table.add_column("encoding")
    for heading in ("runs", "not learned", "learned, not generalized", "generalized"):
        table.add_column(stacked(heading), justify="right")
    for tally in found.tallies:
        table.add_row(
            Text(tally.encoding), *map(str, (tally.runs, tally.unlearned, tally.ungeneralized, tally.generalized))
        )
    table.caption = (
        f"learned: {LEARNED} or more on held-out prompts of training lengths; generalized: also on unseen lengths"
    )
    if found.unlearned:
        named = [
            f"{run.task}/{run.encoding}/seed-{run.seed} {beside(run.accuracy, LEARNED)}" for run in found.unlearned
        ]
        more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
        table.caption += f"\nnot learned: {', '.join(named[:MOST_NAMED])}{more}"
    return table


def difference_table(results: Results, checkpoint: str = "last") -> Table:
    """Every encoding against `none`, or against the first one."""
    found = paired_differences(results, checkpoint)
    against = found[0].against if found else ""
    table = plain_table(f"Accuracy on unseen lengths minus that of {against}, same task and seed")
    has_seeds, has_tasks = (any(getattr(each, kind) for each in found) for kind in ("interval", "interval_over_tasks"))
    table.add_column("encoding")
    table.add_column("mean", justify="right")
    seeds_heading = "range of\nthe seeds" if any(each.is_range for each in found) else "95 %,\nother seeds"
    for heading, has in ((seeds_heading, has_seeds), ("95 %,\nother tasks", has_tasks)):
        if has:
            table.add_column(heading, justify="right")
    for heading in ("won/\ntied/\nlost", "p\nby pair", "p\nby task", "p,\nWilcoxon"):
        table.add_column(heading, justify="right")
    for each in found:
        table.add_row(
            Text(each.encoding),
            f"{each.mean:+.2f}",
            *([span(each.interval)] if has_seeds else []),
            *([span(each.interval_over_tasks)] if has_tasks else []),
            f"{each.wins}/{each.ties}/{each.losses}",
            *map(_p, (each.corrected.over_columns, each.corrected.over_tasks, each.corrected.wilcoxon)),
        )
    if found:
        columns, tasks = (max(getattr(each, name) for each in found) for name in ("columns", "tasks"))
        table.caption = (
            f"p: permutation tests that exchange the two within each of {counted(columns, 'pair')} of task and seed, "
            f"or within each of {counted(tasks, 'task')}; Wilcoxon's signed-rank test over tasks; corrected for "
            f"{counted(len(found), 'comparison')} (Holm)"
        )
        if not has_seeds:
            table.caption += f"\nno interval is given: some task has fewer than {FEWEST_SEEDS} seeds"
    return table


def budget_table(results: Results) -> Table:
    """What each encoding was given, and warnings where that is not the same."""
    table = plain_table("Budgets")
    table.add_column("encoding")
    headings = ("runs", "steps", "batch", "learning rate", "examples shown", "weights", "of the encoding")
    for heading in headings:
        table.add_column(stacked(heading), justify="right")
    for budget in budgets(results):
        table.add_row(
            Text(budget.encoding),
            str(budget.runs),
            *map(
                _values,
                (
                    *(budget.steps, budget.batch, budget.learning_rate),
                    *(budget.examples, budget.parameters, budget.parameters_of_encoding),
                ),
            ),
        )
    warnings = budget_warnings(results)
    table.caption = (
        Text("\n".join(f"warning: {warning}" for warning in warnings), style="yellow")
        if warnings
        else "the same task, model, data and training settings and the same seeds for every encoding"
    )
    return table


def _values(values: list[int] | list[float]) -> str:
    """All of a few values, or the first and the last of many."""
    shown = [f"{value:,}" if isinstance(value, int) else f"{value:g}" for value in values]
    return f"{shown[0]} –\n{shown[-1]}" if len(shown) > 2 else " ".join(shown) or "–"


def _p(value: float) -> str:
    return f"{value:.3f}" if value >= 0.001 else "<0.001"
