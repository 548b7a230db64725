"""Our results beside the published ones as tables: cell by cell, agreement, correlations, the order of encodings."""

from collections.abc import Iterable, Iterator, Sequence

from lengthwise.records.agreement import Counts
from lengthwise.records.comparison import ComparedCell, Comparison
from lengthwise.records.equivalence import MARGIN, Verdict
from lengthwise.records.published import Score
from lengthwise.records.results import Results
from lengthwise.report.model import agreement, phrases, summaries, swings
from lengthwise.report.model.accuracy_tables import by_encoding
from lengthwise.report.model.numbers import digits, ends, known, rounded
from lengthwise.report.model.phrases import decimals, plural, signed
from lengthwise.report.model.summaries import Accuracy
from lengthwise.report.model.table import (
    MISSING,
    Cell,
    Column,
    Note,
    Table,
    TableRow,
    Tone,
    Value,
    Words,
    encoding_cell,
    heading_row,
    number_cell,
    text_cell,
    value_table,
)

TONES: dict[Verdict, Tone] = {Verdict.equivalent: "good", Verdict.undecided: "unsure", Verdict.different: "bad"}
SIGNS = {Verdict.equivalent: "=", Verdict.undecided: "?", Verdict.different: "≠"}
UNLEARNED = "* some seed did not learn its training lengths: no failure to generalize"


def cell_table(results: Results, comparison: Comparison) -> Table:
    """Every cell that both sides have, below each other: room for everything that is known of it."""
    shared, judged = comparison.shared, bool(comparison.judged)
    found = _accuracies(results, comparison)
    seeds = [_same_seeds(cell.ours for cell in shared), _same_seeds(cell.published for cell in shared)]
    columns = [Column("task and encoding", "left")]
    for name, number in zip(("ours", "published"), seeds, strict=True):
        columns.append(Column(f"{name}, {plural(number, 'seed') if number else '(seeds)'}"))
    columns.append(Column(f"difference, {agreement.INTERVAL}" if judged else "difference"))
    rows, before = [], ""
    for cell in shared:
        if not (cell.ours and cell.published):
            continue
        if cell.title != before:
            rows.append(heading_row(cell.title))
        cells = [
            Cell((Words(f"  {cell.encoding}"),), encoding=cell.encoding),
            Cell(
                (Words(_score(cell.ours, not seeds[0])), *([Words("*", "mark")] if cell.unlearned else []),
                 *_swing(found[cell.title, cell.encoding]))
            ),
            number_cell(_score(cell.published, not seeds[1])),
            number_cell(_difference(cell)),
        ]  # fmt: skip
        rows.append(TableRow((*cells, *([Cell((_verdict(cell),))] if judged else []))))
        before = cell.title
    notes = [*agreement.verdict_notes(comparison), *([UNLEARNED] if any(cell.unlearned for cell in shared) else [])]
    notes += [said] if (said := swings.note(found)) else []
    return Table(
        "comparison",
        f"Accuracy on unseen lengths, {comparison.checkpoint} checkpoint: mean ± standard deviation",
        (*columns, *([Column("verdict", "left")] if judged else [])),
        tuple(rows),
        tuple(notes),
    )


def comparison_table(results: Results, comparison: Comparison) -> Table:
    """The same with encodings side by side: ours / published."""
    cells = {(cell.title, cell.encoding): cell for cell in comparison.cells}
    correlations = {each.title: each.correlation for each in comparison.by_task}
    accuracies = _accuracies(results, comparison)
    rows = []
    for title in dict.fromkeys(cell.title for cell in comparison.cells):
        found = correlations.get(title)
        said = "no rank correlation" if found is None else f"rank correlation {found:.2f}"
        name = text_cell(title, "", Note((Words(said),), detail=True))
        both = (
            _both(cells.get((title, encoding)), accuracies.get((title, encoding))) for encoding in results.encodings
        )
        rows.append(TableRow((name, *both)))
    notes = []
    if comparison.judged:
        signs = ", ".join(f"{sign} {verdict}" for verdict, sign in SIGNS.items())
        notes = [f"{signs}; no sign: not informative, or no verdict", *agreement.verdict_notes(comparison)]
    notes += [swung] if (swung := swings.note(accuracies)) else []
    judged = f", the difference with its {agreement.INTERVAL}, and the verdict" if comparison.counts else ""
    return Table(
        "comparison",
        f"Unseen lengths: ours / published, each with its standard deviation over seeds (their number){judged}",
        by_encoding("task", results.encodings),
        tuple(rows),
        tuple(notes),
    )


def _accuracies(results: Results, comparison: Comparison) -> dict[tuple[str, str], Accuracy | None]:
    """(title, encoding) -> our accuracy on unseen lengths, which knows how it swings between validations."""
    return {
        (cell.title, cell.encoding): summaries.accuracy(
            results, cell.title, cell.encoding, False, comparison.checkpoint
        )
        for cell in comparison.shared
    }


def _swing(found: Accuracy | None) -> tuple[Words, ...]:
    return swings.marked(found) if found else ()


def _both(cell: ComparedCell | None, accuracy: Accuracy | None) -> Cell:
    if cell is None or not (cell.ours or cell.published):
        return MISSING
    ours, theirs = (decimals(each.mean) if each else "–" for each in (cell.ours, cell.published))
    pair = (Words(ours), *_swing(accuracy), Words(" / ", "quiet"), Words(theirs))
    if not (cell.ours and cell.published) or cell.difference is None:
        return Cell(pair)
    notes = [Note((Words(f"{phrases.spread(cell.ours)} / {phrases.spread(cell.published)}"),), detail=True)]
    if cell.informative is None:
        notes.append(Note((Words(f"{signed(cell.difference)}, not judged"),), detail=True))
    else:
        interval = f" ({' to '.join(signed(end, MARGIN) for end in cell.interval)})" if cell.interval else ""
        notes.append(Note((Words(signed(cell.difference, MARGIN) + interval),), detail=True))
        sign = f" {SIGNS[cell.verdict]}" if cell.verdict and cell.informative else ""
        sign += "†" if sign and cell.borrowed_deviation else ""
        notes.append(Note((_verdict(cell),), sign, detail=True))
    if cell.unlearned:
        words = Words(f"{len(cell.unlearned)} of {cell.ours.seeds} not learned", "warning")
        notes.append(Note((words,), detail=True))
    return Cell(pair, notes=tuple(notes))


def _verdict(cell: ComparedCell) -> Words:
    if cell.extreme:
        return Words(cell.extreme.value, "quiet")
    if cell.verdict is None:
        return Words("–", "quiet")
    return Words(cell.verdict.value + ("†" if cell.borrowed_deviation else ""), TONES[cell.verdict])


def agreement_table(comparison: Comparison) -> Table:
    """How many cells agree, beside what predictors that ignore the encoding would get."""
    if comparison.counts is None:
        raise ValueError("no cell is judged")
    informative = plural(comparison.counts.informative, "informative cell")
    columns = (Column("results", "left"), *map(Column, agreement.headings(comparison.counts)))
    rows = (TableRow((text_cell(name), *map(number_cell, cells))) for name, cells in agreement.rows(comparison))
    title = f"Agreement with the published results, of {informative}"
    return Table("agreement", title, columns, tuple(rows), tuple(agreement.notes(comparison)))


def correlation_table(comparison: Comparison) -> Table:
    found = comparison.correlations
    by_task = [(each.title, each.correlation, each.encodings) for each in comparison.by_task]
    overall = [
        ("all cells", found.plain, len(comparison.shared)),
        ("all, task means removed", found.residual_spearman, found.residual_cells),
        ("  the same, Pearson", found.residual_pearson, found.residual_cells),
    ]
    rows = [
        TableRow((text_cell(name), number_cell(_correlation(value)), number_cell(str(cells))), ruled=i == len(by_task))
        for i, (name, value, cells) in enumerate((*by_task, *overall), start=1)
    ]
    notes = [
        "task means removed: each accuracy minus the mean over the encodings of its task, on both sides; tasks that "
        "have every encoding"
    ]
    if None in (found.plain, found.residual_spearman, *(value for _, value, _ in by_task)):
        notes.append("–: fewer than three cells, or no order among them on one side")
    columns = (Column("task", "left"), Column("correlation"), Column("cells"))
    return Table("", "Rank correlation with published (Spearman)", columns, tuple(rows), tuple(notes))


def order_table(comparison: Comparison) -> Table:
    """Mean reciprocal ranks and ranks, ours at both checkpoints; only encodings and tasks that both sides have."""
    order, here, other = comparison.order, comparison.checkpoint, comparison.other_checkpoint
    scores: dict[str, Sequence[float | None]] = {
        "ours": [each.ours for each in order],
        "other": [each.at_other for each in order],
        "these": [each.published_here for each in order],
        "all": [each.published for each in order],
    }
    shown = {name: bool(order) and None not in values for name, values in scores.items()}
    columns = (
        Column("encoding", "left", ("encoding",)),
        Column(f"ours, {here}", fields=_order_fields(here), shown=shown["ours"]),
        Column(f"ours, {other}", fields=_order_fields(other), shown=shown["other"]),
        Column("published, these tasks", fields=("published_these_tasks",), shown=shown["these"]),
        Column("published, all 17 tasks", fields=("published_all_tasks",), shown=shown["all"]),
    )
    rows = [
        TableRow(
            (
                encoding_cell(each.encoding),
                _place(scores["ours"], i, each.places, known(each.ours), *(each.places or (None, None))),
                _place(
                    scores["other"], i, each.places_at_other, known(each.at_other),
                    *(each.places_at_other or (None, None)),
                ),
                _place(scores["these"], i, None, rounded(each.published_here)),
                _place(scores["all"], i, None, each.published),
            )
        )
        for i, each in enumerate(order)
    ]  # fmt: skip
    notes = ["these tasks: from the published means, a task a column; all tasks: as published, over 51 columns"]
    if any(each.places and each.places[0] != each.places[1] for each in order):
        notes.append(SHARED)
    if any(each.ours is not None and each.places is None for each in order):
        notes.append("ours: too few seeds to distinguish them")
    if all(each.ours is None for each in order):
        notes.append("ours: no pair of task and seed is finished for all encodings yet")
    title = "Order of the encodings by mean reciprocal rank"
    return Table("order", title, columns, tuple(rows), tuple(notes))


SHARED = "2.–3.: the rank is undecided; the 95 % CI over seeds of the paired difference of reciprocal ranks includes 0"


def _order_fields(checkpoint: str) -> tuple[str, ...]:
    return tuple(f"ours_{checkpoint}{ending}" for ending in ("", "_from_rank", "_to_rank"))


def _place(scores: Sequence[float | None], number: int, open_places: Iterable[int] | None, *values: Value) -> Cell:
    """A score and its rank, or the first and last that are possible."""
    score = scores[number]
    if score is None:
        return Cell(MISSING.words, values)
    above = 1 + sum((other or 0.0) > score for other in scores)
    return Cell((Words(f"{score:.2f}"),), values, (Note((Words(phrases.places(open_places) or f"{above}."),)),))


# For programs.


def comparison_values(comparison: Comparison) -> Table:
    """Every cell that both sides have."""
    return value_table(
        "comparison",
        "Accuracy on unseen lengths beside the published one",
        ["task", "scratchpad", "encoding", "ours", "deviation", "seeds", "seeds_not_learned", "published",
         "published_deviation", "published_seeds", "chance", "difference", "low", "high", "borrowed_deviation",
         "verdict", "close", "informative"],
        [
            [cell.title, cell.scratchpad, cell.encoding, rounded(cell.ours.mean), known(cell.ours.deviation),
             cell.ours.seeds, len(cell.unlearned), cell.published.mean, cell.published.deviation, cell.published.seeds,
             known(cell.chance), known(cell.difference), *ends(cell.interval), cell.borrowed_deviation,
             cell.verdict, cell.close, cell.informative]
            for cell in comparison.shared
            if cell.ours and cell.published
        ],
    )  # fmt: skip


def agreement_values(comparison: Comparison) -> Table:
    """How many cells agree, and what predictors that ignore the encoding would get."""
    return value_table(
        "agreement",
        "Cells that agree with the published ones, beside predictors that ignore the encoding",
        ["results", "tasks", "judged", "floor", "ceiling", "informative", "equivalent", "undecided", "different",
         "no_verdict", "close", "equivalent_of_all", "close_of_all"],
        list(_agreement_rows(comparison)),
    )  # fmt: skip


def _agreement_rows(comparison: Comparison) -> Iterator[list[Value]]:
    def row(name: str, tasks: int, counts: Counts) -> list[Value]:
        return [name, tasks, counts.judged, counts.floor, counts.ceiling, counts.informative, counts.equivalent,
                counts.undecided, counts.different, counts.no_verdict, counts.close, counts.equivalent_of_all,
                counts.close_of_all]  # fmt: skip

    if comparison.counts:
        yield row("ours", len({cell.title for cell in comparison.judged}), comparison.counts)
    if found := comparison.baselines:
        yield row("ours, tasks with every encoding", found.tasks, found.ours)
        yield row("task means", found.tasks, found.task_means)
        if permuted := found.permuted:
            nothing: list[Value] = [None, None]
            yield ["permuted encodings, mean", found.tasks, found.ours.judged, *nothing, rounded(permuted.informative),
                   rounded(permuted.equivalent), *nothing, None, rounded(permuted.close),
                   rounded(permuted.equivalent_of_all), rounded(permuted.close_of_all)]  # fmt: skip
            yield ["permuted encodings, p", found.tasks, None, *nothing, None, digits(permuted.p_equivalent), *nothing,
                   None, digits(permuted.p_close), digits(permuted.p_equivalent_of_all),
                   digits(permuted.p_close_of_all)]  # fmt: skip


def _same_seeds(scores: Iterable[Score | None]) -> int | None:
    """The number of seeds that all of them have; None where they differ."""
    numbers = {score.seeds for score in scores if score}
    return numbers.pop() if len(numbers) == 1 else None


def _score(score: Score, with_seeds: bool) -> str:
    spread = f" ± {score.deviation:.2f}" if score.deviation is not None else ""
    return f"{score.mean:.2f}{spread}{f' ({score.seeds})' if with_seeds else ''}"


def _difference(cell: ComparedCell) -> str:
    """With its interval; numbers near the margin have the digits that tell on which side they are."""
    if cell.difference is None:
        return "–"
    if cell.informative is None:
        return phrases.plus_minus(cell.difference)
    ends = f" ({' – '.join(phrases.plus_minus(end, MARGIN) for end in cell.interval)})" if cell.interval else ""
    return f"{phrases.plus_minus(cell.difference, MARGIN)}{ends}"


def _correlation(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}"
