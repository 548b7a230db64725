"""Tables for the terminal: the ranking, accuracy by length, accuracy overall."""

from collections.abc import Iterator

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from lengthwise.records.outcomes import DEAD, LEARNED, SATURATED, learned
from lengthwise.records.ranking import Place, Rankings, rankings
from lengthwise.records.rows import Measure, Results
from lengthwise.records.statistics import FEWEST_SEEDS, FEWEST_TASKS, Interval
from lengthwise.report.summaries import Cell, cell, lengths, thinned

WIDTH = 100
"""Characters of a terminal that every table fits in."""

MOST_LENGTHS = 16
"""Columns of lengths that fit beside the names of encodings."""


def ranking_table(results: Results, checkpoint: str = "last") -> Table:
    """Best first, with intervals; beside it the scores without tasks that tell nothing, and over what was learned."""
    found = rankings(results, checkpoint)
    places, known = found.everything, found.outcomes
    table = plain_table(f"Ranking on unseen lengths, {checkpoint} checkpoint")
    table.padding = (0, 0)
    table.add_column("encoding", overflow="fold", min_width=10)
    table.add_column("mean reciprocal rank", justify="right", min_width=10)
    kinds = {"reciprocal_rank_interval": "other seeds", "interval_over_tasks": "other tasks"}
    given = [kind for kind in kinds if places and getattr(places[0], kind)]
    for kind in given:
        table.add_column(f"95 %, {kinds[kind]}", justify="right", min_width=len("0.00 – 0.00"))
    for heading in ("mean rank", "mean accuracy"):
        table.add_column(heading, justify="right")
    beside: list[dict[str, float]] = []
    for heading, other, wanted in (
        ("rank score without †", found.informative, bool(known.saturated or known.dead)),
        ("rank score where all learned", found.learned, bool(known.unlearned)),
    ):
        if wanted and other:
            table.add_column(heading, justify="right")
            beside.append({place.encoding: place.reciprocal_rank for place in other})
    for place in places:
        table.add_row(
            Text(place.encoding),
            f"{place.reciprocal_rank:.2f}",
            *(span(getattr(place, kind)) for kind in given),
            f"{place.rank:.2f}",
            value(place.accuracy),
            *(f"{scores[place.encoding]:.2f}" for scores in beside),
        )
    table.caption = "\n".join(_ranking_notes(found, given))
    return table


def _ranking_notes(found: Rankings, given: list[str]) -> Iterator[str]:
    if not found.everything:
        yield "no pair of task and seed is finished for all encodings yet"
        return
    known = found.outcomes
    yield f"over {found.everything[0].columns} pairs of task and seed; ties share their mean rank"
    if "reciprocal_rank_interval" not in given:
        yield f"no interval is given: some task has fewer than {FEWEST_SEEDS} seeds"
    elif "interval_over_tasks" not in given:
        yield f"no interval over other tasks is given: there are fewer than {FEWEST_TASKS} tasks"
    for name, tasks, meaning in (
        ("saturated", known.saturated, f"every run at {SATURATED} or above on unseen lengths"),
        ("dead", known.dead, f"no run more than {DEAD} above chance on unseen lengths"),
    ):
        yield (
            f"† {counted(len(tasks), 'task')} {name} ({meaning}): {', '.join(tasks)}" if tasks else f"no task is {name}"
        )
    if known.saturated or known.dead:
        yield _over(found.informative, "without them")
    if known.unlearned:
        yield _over(found.learned, "in which every encoding learned its training lengths")


def _over(places: list[Place], which: str) -> str:
    return f"{counted(places[0].columns if places else 0, 'pair')} of task and seed {which}"


def length_tables(results: Results, checkpoint: str = "last") -> list[Table]:
    """One for each task: encodings by lengths, mean exact match over seeds."""
    return [_length_table(results, task, checkpoint) for task in results.tasks]


def _length_table(results: Results, task: str, checkpoint: str) -> Table:
    longest = results.train_length(task)
    every = lengths(results, task)
    seen, unseen, step = thinned([n for n in every if n <= longest], [n for n in every if n > longest], MOST_LENGTHS)
    table = plain_table(f"{task}: exact match by length")
    table.padding = (0, 0)
    table.add_column("encoding", overflow="fold", max_width=WIDTH - 5 * (len(seen) + len(unseen)) - 6)
    for length in seen:
        table.add_column(str(length), justify="right", header_style="dim", no_wrap=True)
    table.add_column(Text("│", style="dim"), no_wrap=True)
    for length in unseen:
        table.add_column(str(length), justify="right", header_style="bold", no_wrap=True)
    for encoding in results.encodings:
        values = results.by_length(task, encoding, checkpoint)

        def shown(length: int, values: dict[int, list[float]] = values) -> Text:
            return value(float(np.mean(values[length]))) if length in values else Text("–", style="dim")

        table.add_row(Text(encoding), *map(shown, seen), Text("│", style="dim"), *map(shown, unseen))
    seeds = sorted({len(results.of(task, encoding)) for encoding in results.encodings})
    number = f"{seeds[0]} to {seeds[-1]} seeds" if len(seeds) > 1 else counted(seeds[0], "seed")
    table.caption = f"mean over {number}; lengths right of │ were never trained on"
    if step > 1:
        table.caption += f"; only every {_ordinal(step)} length is shown"
    unlearned = [
        f"{encoding} (seed {run.description['seed']})"
        for encoding in results.encodings
        for run in results.of(task, encoding)
        if not learned(run, checkpoint)
    ]
    if unlearned:
        table.caption += f"\nnot learned: {', '.join(unlearned)}"
    return table


def overall_tables(results: Results, checkpoint: str = "last") -> list[Table]:
    """Accuracy overall; with scratchpads the final answers and the whole texts apart."""
    if not results.has_scratchpads:
        return [overall_table(results, "Exact match", checkpoint=checkpoint)]
    return [
        overall_table(results, "Final answers", checkpoint=checkpoint),
        overall_table(results, "Whole texts with their scratchpads, exact match", "text", checkpoint),
    ]


def overall_table(results: Results, title: str, measure: Measure = "answer", checkpoint: str = "last") -> Table:
    """Tasks by encodings, accuracy on training lengths -> on unseen lengths."""
    table = plain_table(f"{title}, training lengths → unseen lengths")
    table.padding = (0, 0)
    table.add_column("task", overflow="fold")
    for encoding in results.encodings:
        table.add_column(Text(encoding), justify="right", overflow="fold", min_width=len("0.00*→0.00"))
    unlearned = False
    for task in results.tasks:
        texts = []
        for encoding in results.encodings:
            seen, unseen = (cell(results, task, encoding, kind, checkpoint, measure) for kind in (True, False))
            texts.append(_pair(seen, unseen) if seen and unseen else Text("–", style="dim"))
            unlearned = unlearned or bool(seen and seen.unlearned)
        table.add_row(Text(task), *texts)
    table.caption = "means over seeds"
    if unlearned:
        table.caption += (
            f"; * some seed stayed below {LEARNED} on the lengths it was trained on: it did not learn the task"
        )
    return table


def _pair(seen: Cell, unseen: Cell) -> Text:
    mark = Text("*" if seen.unlearned else "", style="yellow")
    return Text.assemble(value(seen.mean), mark, Text("→", style="dim"), value(unseen.mean))


def value(share: float) -> Text:
    return Text(f"{share:.2f}", style="green" if share >= LEARNED else "red" if share <= 0.05 else "")


def span(interval: Interval | None) -> str:
    return "–" if interval is None else f"{interval[0]:.2f} – {interval[1]:.2f}"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def plain_table(title: str) -> Table:
    return Table(
        title=Text(title), title_justify="left", title_style="bold", caption_justify="left", box=box.SIMPLE_HEAD
    )
