"""Tables for the terminal: accuracy overall, the ranking, accuracy by length."""

from collections.abc import Iterator

import numpy as np
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from lengthwise.records.outcomes import DEAD, DEAD_ERRORS, LEARNED, SATURATED, learned
from lengthwise.records.ranking import Place, Rankings, rankings
from lengthwise.records.rows import Measure, Results
from lengthwise.records.statistics import FEWEST_SEEDS, FEWEST_TASKS, Interval
from lengthwise.report.model import phrases
from lengthwise.report.model.summaries import Cell, cell, lengths, thinned
from lengthwise.report.model.swings import MARK, mark, note
from lengthwise.report.terminal.table import ForWidth, ending_alike, plain_table, stacked

MOST_LENGTHS = 16
"""Columns of lengths at most, however wide the terminal is."""

LENGTH = len(" 0.00")
"""Characters of a column of lengths."""


def ranking_table(results: Results, checkpoint: str = "last") -> Table:
    """Best first, with intervals; beside it the scores without tasks that tell nothing, and over what was learned."""
    found = rankings(results, checkpoint)
    places, known = found.everything, found.outcomes
    table = plain_table(f"Ranking on unseen lengths, {checkpoint} checkpoint")
    table.add_column("encoding")
    table.add_column(stacked("mean reciprocal rank"), justify="right")
    kinds = {"reciprocal_rank_interval": "other seeds", "interval_over_tasks": "other tasks"}
    given = [kind for kind in kinds if places and getattr(places[0], kind)]
    has_places = bool(places and places[0].places)
    if has_places:
        table.add_column("place", justify="right")
    for kind in given:
        is_range = places[0].is_range and kind == "reciprocal_rank_interval"
        table.add_column("range of\nthe seeds" if is_range else f"95 %,\n{kinds[kind]}", justify="right")
    for heading in ("mean rank", "mean accuracy"):
        table.add_column(stacked(heading), justify="right")
    beside: list[dict[str, float]] = []
    for heading, other, wanted in (
        ("rank score without †", found.informative, bool(known.saturated or known.dead)),
        ("rank score where all learned", found.learned, bool(known.unlearned)),
    ):
        if wanted and other:
            table.add_column(stacked(heading), justify="right")
            beside.append({place.encoding: place.reciprocal_rank for place in other})
    for place in places:
        table.add_row(
            Text(place.encoding),
            f"{place.reciprocal_rank:.2f}",
            *([phrases.places(place.places)] if has_places else []),
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
    yield f"over {counted(found.everything[0].columns, 'pair')} of task and seed; ties share their mean rank"
    if "reciprocal_rank_interval" not in given:
        yield f"no interval is given: some task has fewer than {FEWEST_SEEDS} seeds"
    elif "interval_over_tasks" not in given:
        yield f"no interval over other tasks is given: there are fewer than {FEWEST_TASKS} tasks"
    if any(place.open for place in found.everything):
        yield "a place such as 2.–3. is left open by the seeds: the difference of reciprocal ranks may be 0"
    for name, tasks, meaning in (
        ("saturated", known.saturated, f"every run at {SATURATED} or above on unseen lengths"),
        ("dead", known.dead, f"no run above chance by {DEAD} and {DEAD_ERRORS} standard errors"),
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


def length_tables(results: Results, checkpoint: str = "last") -> list[RenderableType]:
    """One for each task: encodings by as many lengths as the terminal has room for, mean exact match over seeds."""

    def fitted(task: str) -> ForWidth:
        return ForWidth(lambda width: _length_table(results, task, checkpoint, width))

    return [fitted(task) for task in results.tasks]


def _length_table(results: Results, task: str, checkpoint: str, width: int) -> Table:
    longest = results.train_length(task)
    every = lengths(results, task)
    names = max(map(len, ["encoding", *results.encodings]))
    room = (width - names - len("  │ ")) // LENGTH
    most = min(MOST_LENGTHS, room)
    seen, unseen, step = thinned([n for n in every if n <= longest], [n for n in every if n > longest], most)
    table = plain_table(f"{task}: exact match by length")
    table.add_column("encoding")
    for length in seen:
        table.add_column(str(length), justify="right", header_style="dim")
    table.add_column(Text("│", style="dim"))
    for length in unseen:
        table.add_column(str(length), justify="right", header_style="bold")
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
    unlearned = []
    for encoding in results.encodings:
        runs = results.of(task, encoding)
        if number := sum(not learned(run, checkpoint) for run in runs):
            unlearned.append(f"{encoding} ({number} of {counted(len(runs), 'seed')})")
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
    table = plain_table(f"{title}, training lengths → unseen lengths, {checkpoint} checkpoint")
    table.add_column("task")
    keys = [(task, encoding) for task in results.tasks for encoding in results.encodings]
    seen, unseen = ({key: cell(results, *key, kind, checkpoint, measure) for key in keys} for kind in (True, False))
    pairs: dict[tuple[str, str], Text] = {}
    for encoding in results.encodings:
        table.add_column(Text(encoding), justify="right")
        column = {(task, encoding): _pair(seen[task, encoding], unseen[task, encoding]) for task in results.tasks}
        pairs |= dict(zip(column, ending_alike(list(column.values()), MARK, len(encoding)), strict=True))
    for task in results.tasks:
        table.add_row(Text(task), *(pairs[task, encoding] for encoding in results.encodings))
    table.caption = "means over seeds"
    if any(each and each.unlearned for each in seen.values()):
        table.caption += (
            f"; * some seed stayed below {LEARNED} on the lengths it was trained on: it did not learn the task"
        )
    if said := note(unseen):
        table.caption += f"\n{said}"
    return table


def _pair(seen: Cell | None, unseen: Cell | None) -> Text:
    if seen is None or unseen is None:
        return Text("–", style="dim")
    unlearned, swings = Text("*" if seen.unlearned else "", style="yellow"), Text(mark(unseen), style="yellow")
    return Text.assemble(value(seen.mean), unlearned, Text("→", style="dim"), value(unseen.mean), swings)


def value(share: float) -> Text:
    return Text(f"{share:.2f}", style="green" if share >= LEARNED else "red" if share <= 0.05 else "")


def span(interval: Interval | None) -> str:
    return "–" if interval is None else f"{interval[0]:.2f} – {interval[1]:.2f}"


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"
