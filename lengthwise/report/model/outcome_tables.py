"""What became of the runs, what each encoding was given, and how answers go wrong, as tables."""

from lengthwise.records.asked import asked
from lengthwise.records.budgets import budget_warnings, budgets
from lengthwise.records.outcomes import LEARNED, outcomes
from lengthwise.records.results import Results
from lengthwise.report.model import summaries
from lengthwise.report.model.numbers import rounded
from lengthwise.report.model.phrases import beside
from lengthwise.report.model.table import Cell, Column, Table, TableRow, Words, encoding_cell, number_cell

MOST_NAMED = 12
"""Runs that a note names; further ones are counted."""


def outcome_table(results: Results, checkpoint: str = "last") -> Table:
    """Failures in distribution apart from failures to generalize."""
    found = outcomes(results, checkpoint)
    headings = ("runs", "generalized", "learned, not generalized", "not learned")
    rows = [
        TableRow(
            (
                encoding_cell(tally.encoding),
                *(
                    number_cell(str(count), count)
                    for count in (tally.runs, tally.generalized, tally.ungeneralized, tally.unlearned)
                ),
            )
        )
        for tally in found.tallies
    ]
    notes = [f"learned: {LEARNED} or more on held-out prompts of training lengths; generalized: also on unseen lengths"]
    if found.unlearned:
        named = [
            f"{run.task}/{run.encoding}/seed-{run.seed} {beside(run.accuracy, LEARNED)}" for run in found.unlearned
        ]
        more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
        notes.append(f"not learned: {', '.join(named[:MOST_NAMED])}{more}")
    columns = (Column("encoding", "left"), *map(Column, headings))
    return Table("", "What became of the runs", columns, tuple(rows), tuple(notes))


def budget_table(results: Results) -> Table:
    """What each encoding was given, and warnings where that is not the same. Models from elsewhere are left out."""
    elsewhere = asked(results)
    headings = ("runs", "steps", "batch", "learning rate", "examples shown", "parameters", "of the encoding")
    rows = [
        TableRow(
            (
                encoding_cell(each.encoding),
                number_cell(str(each.runs)),
                *(
                    number_cell(_values(values))
                    for values in (each.steps, each.batch, each.learning_rate, each.examples, each.parameters,
                                   each.parameters_of_encoding)
                ),
            )
        )
        for each in budgets(results)
        if each.encoding not in elsewhere
    ]  # fmt: skip
    warnings = budget_warnings(results)
    notes = [f"warning: {warning}" for warning in warnings] or [
        "the same task, model, data and training settings and the same seeds for every encoding"
    ]
    columns = (Column("encoding", "left"), *map(Column, headings))
    return Table("", "Budgets", columns, tuple(rows), tuple(notes), warned=bool(warnings))


def _values(values: list[int] | list[float]) -> str:
    """All of a few values, or the first and the last of many."""
    shown = [f"{value:,}" if isinstance(value, int) else f"{value:g}" for value in values]
    return f"{shown[0]} – {shown[-1]}" if len(shown) > 2 else " ".join(shown) or "–"


def error_table(results: Results) -> Table:
    """What becomes of answers to unseen lengths."""
    rows = []
    for encoding in results.encodings:
        shares = summaries.error_kinds(results, encoding).values()
        cells = (Cell((Words(f"{share:.2f}"),), (rounded(share),), share=share) for share in shares)
        rows.append(TableRow((encoding_cell(encoding), *cells)))
    return Table(
        "errors",
        "Answers to unseen lengths, last checkpoint",
        (Column("encoding", "left", ("encoding",)), *error_columns(fields=True)),
        tuple(rows),
        ("shares of the test examples of each task, the mean over tasks and seeds",),
    )


def error_columns(fields: bool = False) -> tuple[Column, ...]:
    """A column for each thing that can become of an answer; `fields`: for programs too."""
    return tuple(
        Column(kind.replace("_", " "), swatch=kind, fields=(kind,) if fields else ()) for kind in summaries.ERROR_KINDS
    )
