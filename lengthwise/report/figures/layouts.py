"""Accuracy by the layout of a task: how many tokens its first word and its separator take."""

from collections.abc import Mapping
from itertools import groupby

from lengthwise.records.results import Results
from lengthwise.report.figures.drawing import Figure, element, line, marks, text, width_of
from lengthwise.report.figures.heat_map import HeatCell, heat_cell
from lengthwise.report.figures.palette import styles
from lengthwise.report.model import summaries
from lengthwise.report.model.layouts import Layout, layouts

WIDE, TALL, GAP = 42.0, 24.0, 10.0
TITLE = 62.0
"""Height of what stands above the cells of a task."""
SEPARATOR = "tokens of its separator"


def layout_figure(results: Results) -> Figure | None:
    """One block a task: encodings down, layouts across. None for a study that does not vary the layout."""
    every = layouts(results)
    if not every:
        return None
    left = max(width_of(SEPARATOR, 10.5) + 10, *(width_of(encoding, 11.5) + 26 for encoding in results.encodings))
    body, y, width, said = [], 0.0, 0.0, []
    for task, titles in every.items():
        block, wide, words = _block(results, task, titles, left)
        body.append(element("g", block, transform=f"translate(0,{y:.0f})"))
        y += TITLE + TALL * len(results.encodings) + 16
        width = max(width, wide)
        said.append(words)
    return Figure(
        "accuracy-by-layout",
        "Exact match on unseen lengths by the layout of a task",
        "Mean over seeds, by tokens of the first word and of the separator. " + " ".join(said),
        width,
        y,
        "".join(body),
    )


def _block(results: Results, task: str, titles: Mapping[Layout, str], left: float) -> tuple[str, float, str]:
    """The drawing of a task, its width, and what it says."""
    look = styles(results.encodings)
    body = [text(task, 2, 15, 13, weight=600)]
    body.append(text(SEPARATOR, left - 8, TITLE - 8, 10.5, "end", quiet=True))
    for row, encoding in enumerate(results.encodings):
        y = TITLE + TALL * row
        colour, shape = look[encoding]
        body.append(marks([(left - 14, y + TALL / 2)], shape, 3.4, colour))
        body.append(text(encoding, left - 24, y + 16, 11.5, "end"))
    x, words = left, []
    for prefix, group in groupby(titles, key=lambda layout: layout.prefix):
        of_prefix = list(group)
        end = x + WIDE * len(of_prefix)
        tokens = "token" if prefix == 1 else "tokens"
        body.append(text(f"first word: {prefix or 'its own'} {tokens}", (x + end) / 2, 32, 10.5, "middle", quiet=True))
        body.append(line(x + 2, 38, end - 2, 38, stroke_opacity=0.3))
        for column, layout in enumerate(of_prefix):
            here = x + WIDE * column
            body.append(text(str(layout.separator or "own"), here + WIDE / 2, TITLE - 8, 11, "middle"))
            for row, encoding in enumerate(results.encodings):
                found = summaries.accuracy(results, titles[layout], encoding, seen=False)
                cell = HeatCell(found.mean, bool(found.unlearned)) if found else None
                body.append(heat_cell(cell, here, TITLE + TALL * row, WIDE, TALL))
                if found:
                    words.append(f"{encoding} {layout.prefix} + {layout.separator}: {found.mean:.2f}")
        x = end + GAP
    return "".join(body), x - GAP + 2, f"{task}: {', '.join(words)}."
