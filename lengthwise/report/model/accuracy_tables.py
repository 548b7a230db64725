"""Accuracies of tasks by encodings as tables: on unseen and training lengths, at both checkpoints, how they swing."""

from collections.abc import Callable, Sequence

from lengthwise.records.outcomes import LEARNED, outcomes
from lengthwise.records.results import Results
from lengthwise.records.run_result import Measure
from lengthwise.records.validations import LAST, mean_swing
from lengthwise.report.model import reference, summaries, swings
from lengthwise.report.model.numbers import accuracy_words, ends, known, rounded
from lengthwise.report.model.phrases import chance, decimals
from lengthwise.report.model.summaries import Accuracy
from lengthwise.report.model.table import (
    MISSING,
    Cell,
    Column,
    Note,
    Table,
    TableRow,
    Value,
    Words,
    text_cell,
    value_table,
)

MOST_SEEDS = 5
"""Seeds that a cell shows one by one."""


def accuracy_table(results: Results, seen: bool, checkpoint: str = "last") -> Table:
    """Mean, interval and seeds of every task and encoding, on training lengths or on unseen ones."""
    notes, found = task_notes(results), {}
    rows = []
    for task in results.tasks:
        own = {e: summaries.accuracy(results, task, e, seen, checkpoint) for e in results.encodings}
        found |= {(task, encoding): accuracy for encoding, accuracy in own.items()}
        guessed = chance(summaries.chance(results, task, seen))
        small = [Note((Words(f"chance {guessed}"),))]
        if not seen and task in notes:
            small.append(Note((Words(notes[task], "warning"),)))
        rows.append(TableRow((text_cell(task, "", *small), *map(_accuracy, own.values()))))
    spread = summaries.spread_words(results)
    said = [
        f"mean over seeds{f' ({spread})' if spread else ''}; * some seed stayed below {LEARNED} on its training "
        "lengths: it did not learn the task"
    ]
    if swung := swings.note(found):
        said.append(swung)
    title = f"Exact match on {'training' if seen else 'unseen'} lengths, {checkpoint} checkpoint"
    return Table("accuracies", title, by_encoding("task", results.encodings), tuple(rows), tuple(said))


def _accuracy(found: Accuracy | None) -> Cell:
    if found is None:
        return MISSING
    notes = [Note((Words(f"{found.interval[0]:.2f} – {found.interval[1]:.2f}"),))] if found.interval else []
    if 1 < len(found.by_seed) <= MOST_SEEDS:
        seeds = " · ".join(map(decimals, found.by_seed.values()))
        notes.append(Note((Words("seeds: ", "spoken"), Words(seeds)), detail=True))
    if found.unlearned:
        alone = len(found.by_seed) == 1
        words = "not learned" if alone else f"{len(found.unlearned)} of {len(found.by_seed)} not learned"
        notes.append(Note((Words(words, "warning"),), sign="*"))
    return Cell(
        (Words(f"{found.mean:.2f}", "main"), *swings.marked(found)),
        notes=tuple(notes),
        share=found.mean,
        hatched=bool(found.unlearned),
        description=found.description,
    )


def pair_tables(results: Results, checkpoint: str = "last") -> list[Table]:
    """Training lengths and unseen ones in one cell; with scratchpads the final answers and the whole texts apart."""
    if not results.has_scratchpads:
        return [pair_table(results, "Exact match", checkpoint=checkpoint)]
    return [
        pair_table(results, "Final answers", checkpoint=checkpoint),
        pair_table(results, "Whole texts with their scratchpads, exact match", "text", checkpoint),
    ]


def pair_table(results: Results, title: str, measure: Measure = "answer", checkpoint: str = "last") -> Table:
    """Tasks by encodings, accuracy on training lengths -> on unseen lengths."""
    keys = [(task, encoding) for task in results.tasks for encoding in results.encodings]
    seen, unseen = (
        {key: summaries.accuracy(results, *key, kind, checkpoint, measure) for key in keys} for kind in (True, False)
    )
    notes = ["means over seeds"]
    if any(each and each.unlearned for each in seen.values()):
        notes[0] += f"; * some seed stayed below {LEARNED} on the lengths it was trained on: it did not learn the task"
    if said := swings.note(unseen):
        notes.append(said)
    return Table(
        "accuracies",
        f"{title}, training lengths → unseen lengths, {checkpoint} checkpoint",
        by_encoding("task", results.encodings),
        _rows(results, lambda task, encoding: _pair(seen[task, encoding], unseen[task, encoding])),
        tuple(notes),
    )


def _pair(seen: Accuracy | None, unseen: Accuracy | None) -> Cell:
    if seen is None or unseen is None:
        return MISSING
    unlearned = (Words("*", "mark"),) if seen.unlearned else ()
    return Cell(
        (accuracy_words(seen.mean), *unlearned, Words("→", "quiet"), accuracy_words(unseen.mean),
         *swings.marked(unseen))
    )  # fmt: skip


def checkpoint_table(results: Results) -> Table:
    """Unseen lengths at the last checkpoint and at the best one."""

    def cell(task: str, encoding: str) -> Cell:
        last, best = (
            summaries.accuracy(results, task, encoding, seen=False, checkpoint=each) for each in ("last", "best")
        )
        if last is None or best is None:
            return MISSING
        words = (
            Words(f"{last.mean:.2f}"), *swings.marked(last), Words(" / ", "quiet"),
            Words(f"{best.mean:.2f}"), *swings.marked(best),
        )  # fmt: skip
        return Cell(words, description=f"best: {best.description}")

    title = "Exact match on unseen lengths: last checkpoint / best checkpoint"
    return Table("", title, by_encoding("task", results.encodings), _rows(results, cell))


def swing_table(results: Results) -> Table:
    """How far accuracy on unseen lengths ranges over the last validations."""

    def cell(task: str, encoding: str) -> Cell:
        moved = mean_swing(results.of(task, encoding))
        if moved is None:
            return MISSING
        found = summaries.accuracy(results, task, encoding, seen=False)
        mark = (Words(swings.MARK, "mark"),) if found and found.swings else ()
        return Cell((Words(f"{moved:.3f}"), *mark))

    title = f"Swing of exact match on unseen lengths over the last {LAST} validations, mean over seeds"
    return Table("accuracies", title, by_encoding("task", results.encodings), _rows(results, cell))


def scratchpad_table(results: Results) -> Table:
    """Final answers and whole texts."""
    rows = []
    for task in results.tasks:
        name, scratchpad = reference.name_and_format(results, task)
        said = results.facets[task].task if task in results.facets else task
        cells = (_answer_and_text(results, task, encoding) for encoding in results.encodings)
        rows.append(TableRow((text_cell(task if said == name else f"{task} ({name})"), text_cell(scratchpad), *cells)))
    first, *others = by_encoding("task", results.encodings)
    return Table(
        "scratchpads",
        "Unseen lengths, last checkpoint: final answer / whole text",
        (first, Column("scratchpad", "left"), *others),
        tuple(rows),
        names=2,
    )


def _answer_and_text(results: Results, task: str, encoding: str) -> Cell:
    answer, text = _both(results, task, encoding)
    if answer is None or text is None:
        return MISSING
    published = reference.cell(results, task, encoding)
    notes = (Note((Words(f"published {published.mean:.2f}"),)),) if published else ()
    return Cell((Words(f"{answer.mean:.2f}"), Words(" / ", "quiet"), Words(f"{text.mean:.2f}")), notes=notes)


def _both(results: Results, task: str, encoding: str) -> tuple[Accuracy | None, Accuracy | None]:
    return (
        summaries.accuracy(results, task, encoding, seen=False),
        summaries.accuracy(results, task, encoding, seen=False, measure="text"),
    )


def by_encoding(first: str, encodings: Sequence[str]) -> tuple[Column, ...]:
    """A column of names, then one for each encoding."""
    return (Column(first, "left"), *(Column(encoding, encoding=encoding) for encoding in encodings))


def _rows(results: Results, cell: Callable[[str, str], Cell]) -> tuple[TableRow, ...]:
    return tuple(
        TableRow((text_cell(task), *(cell(task, encoding) for encoding in results.encodings))) for task in results.tasks
    )


def task_notes(results: Results) -> dict[str, str]:
    """Tasks that no longer distinguish encodings, and why."""
    found = outcomes(results)
    return dict.fromkeys(found.saturated, "saturated") | dict.fromkeys(found.at_chance, "at chance")


# For programs: a row for each task and encoding.


def accuracy_values(results: Results) -> Table:
    """Unseen and training lengths, last and best checkpoint, and the published number."""
    has_best = summaries.has_best(results)
    rows: list[list[Value]] = []
    for task in results.tasks:
        guessed = summaries.chance(results, task, seen=False)
        unseen_n, seen_n = (summaries.examples(results, task, kind) for kind in (False, True))
        for encoding in results.encodings:
            unseen = summaries.accuracy(results, task, encoding, seen=False)
            seen = summaries.accuracy(results, task, encoding, seen=True)
            if unseen is None or seen is None:
                continue
            best = summaries.accuracy(results, task, encoding, seen=False, checkpoint="best") if has_best else None
            published = reference.cell(results, task, encoding)
            rows.append(
                [task, reference.name_and_format(results, task)[1], encoding, len(unseen.by_seed), unseen_n,
                 rounded(unseen.mean), *ends(unseen.interval), _joined(unseen.by_seed),
                 known(mean_swing(results.of(task, encoding))), seen_n, rounded(seen.mean), _joined(seen.by_seed),
                 len(unseen.unlearned), rounded(best.mean) if best else None, rounded(guessed),
                 published.mean if published else None, published.deviation if published else None,
                 published.seeds if published else None,
                 rounded(unseen.mean - published.mean) if published else None]
            )  # fmt: skip
    return value_table(
        "accuracies",
        "Accuracy of each encoding on each task",
        ["task", "scratchpad", "encoding", "seeds", "n", "unseen", "low", "high", "unseen_by_seed", "swing",
         "training_lengths_n", "training_lengths", "training_lengths_by_seed",
         "seeds_not_learned", "unseen_best_checkpoint", "chance", "published",
         "published_deviation", "published_seeds", "difference"],
        rows,
    )  # fmt: skip


def shown_accuracies(results: Results, checkpoint: str = "last") -> Table:
    """What `lengthwise show` says of each task and encoding, at one checkpoint."""
    rows: list[list[Value]] = []
    for task in results.tasks:
        for encoding in results.encodings:
            seen, unseen = (summaries.accuracy(results, task, encoding, kind, checkpoint) for kind in (True, False))
            if seen and unseen:
                rows.append(
                    [task, encoding, checkpoint, len(unseen.by_seed), rounded(seen.mean), rounded(unseen.mean),
                     *ends(unseen.interval), _joined(unseen.by_seed), known(unseen.swing), len(unseen.unlearned),
                     rounded(summaries.chance(results, task, seen=False))]
                )  # fmt: skip
    return value_table(
        "accuracies",
        "Accuracy of each encoding on each task",
        ["task", "encoding", "checkpoint", "seeds", "training_lengths", "unseen", "low", "high", "unseen_by_seed",
         "swing", "seeds_not_learned", "chance"],
        rows,
    )  # fmt: skip


def scratchpad_values(results: Results) -> Table:
    """Final answers and whole texts apart."""
    rows: list[list[Value]] = []
    for task in results.tasks:
        name, scratchpad = reference.name_and_format(results, task)
        for encoding in results.encodings:
            answer, text = _both(results, task, encoding)
            published = reference.cell(results, task, encoding)
            if answer and text:
                rows.append(
                    [task if results.facets else name, scratchpad, encoding, rounded(answer.mean),
                     *ends(answer.interval), rounded(text.mean), published.mean if published else None]
                )  # fmt: skip
    return value_table(
        "scratchpads",
        "Scratchpads: final answers and whole texts on unseen lengths",
        ["task", "scratchpad", "encoding", "answers", "low", "high", "whole_texts", "published"],
        rows,
    )


def _joined(by_seed: dict[int, float]) -> str:
    return " ".join(f"{value:.4g}" for value in by_seed.values())
