"""Tables for the terminal: the ranking, accuracy by length, accuracy overall."""

import numpy as np
from rich import box
from rich.table import Table
from rich.text import Text

from lengthwise.records.ranking import ranking
from lengthwise.records.rows import Measure, Results
from lengthwise.report.summaries import LEARNED, Cell, cell, lengths, thinned

WIDTH = 100
"""Characters of a terminal that every table fits in."""

MOST_LENGTHS = 16
"""Columns of lengths that fit beside the names of encodings."""


def ranking_table(results: Results) -> Table:
    """Best first, with intervals."""
    places = ranking(results)
    table = _table("Ranking on unseen lengths")
    for heading in ("encoding", "mean reciprocal rank", "95 % interval", "mean rank", "mean accuracy"):
        table.add_column(heading, justify="left" if heading == "encoding" else "right", overflow="fold")
    for place in places:
        low, high = place.reciprocal_rank_interval
        table.add_row(
            Text(place.encoding),
            f"{place.reciprocal_rank:.2f}",
            f"{low:.2f} – {high:.2f}",
            f"{place.rank:.2f}",
            _value(place.accuracy),
        )
    table.caption = (
        f"over {places[0].columns} pairs of task and seed"
        if places
        else "no pair of task and seed is finished for all encodings yet"
    )
    return table


def length_tables(results: Results) -> list[Table]:
    """One for each task: encodings by lengths, mean exact match over seeds."""
    return [_length_table(results, task) for task in results.tasks]


def _length_table(results: Results, task: str) -> Table:
    longest = results.train_length(task)
    every = lengths(results, task)
    seen, unseen, step = thinned([n for n in every if n <= longest], [n for n in every if n > longest], MOST_LENGTHS)
    table = _table(f"{task}: exact match by length")
    table.padding = (0, 0)
    table.add_column("encoding", overflow="fold", max_width=WIDTH - 5 * (len(seen) + len(unseen)) - 6)
    for length in seen:
        table.add_column(str(length), justify="right", header_style="dim", no_wrap=True)
    table.add_column(Text("│", style="dim"), no_wrap=True)
    for length in unseen:
        table.add_column(str(length), justify="right", header_style="bold", no_wrap=True)
    for encoding in results.encodings:
        values = results.by_length(task, encoding)

        def shown(length: int, values: dict[int, list[float]] = values) -> Text:
            return _value(float(np.mean(values[length]))) if length in values else Text("–", style="dim")

        table.add_row(Text(encoding), *map(shown, seen), Text("│", style="dim"), *map(shown, unseen))
    seeds = sorted({len(results.of(task, encoding)) for encoding in results.encodings})
    counted = f"{seeds[0]} to {seeds[-1]} seeds" if len(seeds) > 1 else f"{seeds[0]} seed{'s' if seeds[0] > 1 else ''}"
    table.caption = f"mean over {counted}; lengths right of │ were never trained on"
    if step > 1:
        table.caption += f"; only every {_ordinal(step)} length is shown"
    return table


def overall_tables(results: Results) -> list[Table]:
    """Accuracy overall; with scratchpads the final answers and the whole texts apart."""
    if not results.has_scratchpads:
        return [overall_table(results, "Exact match")]
    return [
        overall_table(results, "Final answers"),
        overall_table(results, "Whole texts with their scratchpads, exact match", "text"),
    ]


def overall_table(results: Results, title: str, measure: Measure = "answer") -> Table:
    """Tasks by encodings, accuracy on training lengths -> on unseen lengths."""
    table = _table(f"{title}, training lengths → unseen lengths")
    table.padding = (0, 0)
    table.add_column("task", overflow="fold")
    for encoding in results.encodings:
        table.add_column(Text(encoding), justify="right", overflow="fold", min_width=len("0.00*→0.00"))
    unlearned = False
    for task in results.tasks:
        texts = []
        for encoding in results.encodings:
            seen, unseen = (cell(results, task, encoding, seen=kind, measure=measure) for kind in (True, False))
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
    return Text.assemble(_value(seen.mean), mark, Text("→", style="dim"), _value(unseen.mean))


def _value(value: float) -> Text:
    return Text(f"{value:.2f}", style="green" if value >= LEARNED else "red" if value <= 0.05 else "")


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _table(title: str) -> Table:
    return Table(
        title=Text(title), title_justify="left", title_style="bold", caption_justify="left", box=box.SIMPLE_HEAD
    )
