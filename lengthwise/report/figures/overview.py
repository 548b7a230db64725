"""The other figures of a study: the ranking, the heat maps of accuracies, paired differences."""

from collections.abc import Mapping
from dataclasses import dataclass

from lengthwise.records.statistics import Interval
from lengthwise.report.figures.drawing import Figure, Scale, dots, element, line, marks, shortened, text, width_of
from lengthwise.report.figures.palette import DARK_SCALE, looks, shade, text_on

Estimate = tuple[float, Interval | None]
"""A mean and its interval, where there are seeds enough for one."""


def ranking_figure(
    places: list[tuple[str, Estimate, Interval | None]],
    encodings: list[str],
    published: Mapping[str, float],
    spread: str = "95 % interval",
    called: str = "published",
) -> Figure:
    """Mean reciprocal rank with its intervals for other seeds and for other tasks, best first.

    The published one is a hollow circle. `spread`: what the interval for other seeds is called; `called`: what the
    published ones are.
    """
    look = looks(encodings)
    left, width = _room([encoding for encoding, _, _ in places]), 470
    x = Scale((0, 1), (left, width - 16))
    bottom = 14 + 28 * len(places)
    body = []
    for value in (0, 0.2, 0.4, 0.6, 0.8, 1):
        body.append(line(x(value), 6, x(value), bottom, stroke_opacity=0.14))
        body.append(text(f"{value:g}", x(value), bottom + 15, 11, "middle", quiet=True))
    body.append(text("mean reciprocal rank", width - 16, bottom + 32, 11, "end", quiet=True))
    for i, (encoding, (mean, interval), over_tasks) in enumerate(places):
        y = 22 + 28 * i
        colour, shape = look[encoding]
        body.append(text(shortened(encoding, left - 12, 12), left - 10, y + 4, 12, "end"))
        if encoding in published:
            body.append(
                element("circle", cx=x(published[encoding]), cy=y, r=6, fill="none", stroke="currentColor",
                        stroke_width=1.3, stroke_opacity=0.75)
            )  # fmt: skip
        if over_tasks:
            body.append(line(x(over_tasks[0]), y, x(over_tasks[1]), y, 1, stroke=colour))
        if interval:
            body.append(line(x(interval[0]), y, x(interval[1]), y, 3.2, stroke=colour))
        body.append(marks([(x(mean), y)], shape, 4.6, colour))
    if any(encoding in published for encoding, _, _ in places):
        body.append(
            element("circle", cx=left + 6, cy=bottom + 28, r=5, fill="none", stroke="currentColor", stroke_opacity=0.75)
        )
        body.append(text(called, left + 16, bottom + 32, 11, quiet=True))
    said = ", ".join(f"{encoding} {_words(estimate)}" for encoding, estimate, _ in places)
    return Figure(
        "ranking",
        "Mean reciprocal rank on unseen lengths",
        f"Mean reciprocal rank of each encoding with its {spread} for other seeds, best first: "
        f"{said or 'nothing to rank'}.",
        width,
        bottom + 40,
        "".join(body),
    )


@dataclass(frozen=True)
class HeatCell:
    """One cell of a heat map."""

    value: float
    marked: bool = False
    """Some run did not learn the task."""


def heat_map(
    name: str,
    title: str,
    cells: Mapping[tuple[str, str], HeatCell],
    tasks: list[str],
    encodings: list[str],
    notes: Mapping[str, str],
) -> Figure:
    """Tasks by encodings, a number on the colour of each cell; `notes`: words behind the name of a task."""
    look = looks(encodings)
    labels = {task: f"{task} · {notes[task]}" if task in notes else task for task in tasks}
    left = min(210.0, max(width_of(label, 11.5) for label in labels.values()) + 10)
    wide = max(48.0, min(92.0, max(width_of(encoding, 10.5) for encoding in encodings) + 8))
    top, tall = 56, 24
    body = [text(title, 2, 15, 13, weight=600)]
    for column, encoding in enumerate(encodings):
        x = left + wide * (column + 0.5)
        colour, shape = look[encoding]
        body.append(marks([(x, 34)], shape, 3.6, colour))
        body.append(text(shortened(encoding, wide, 10.5), x, 50, 10.5, "middle"))
    for row, task in enumerate(tasks):
        y = top + tall * row
        body.append(text(shortened(labels[task], left - 8, 11.5), left - 7, y + 16, 11.5, "end"))
        for column, encoding in enumerate(encodings):
            cell = cells.get((task, encoding))
            body.append(heat_cell(cell, left + wide * column, y, wide, tall))
    bottom = top + tall * len(tasks)
    width = max(left + wide * len(encodings) + 2, 1.2 * width_of(title, 13))  # one column is narrower than the title
    if any(cell.marked for cell in cells.values()):
        words = "△ some seed did not learn its training lengths"
        body.append(text(words, 2, bottom + 17, 10.5, quiet=True))
        bottom, width = bottom + 18, max(width, width_of(words, 10.5) + 4)
    description = f"{title}: {_spoken(cells, tasks, encodings)}"
    return Figure(name, title, description, width, bottom + 6, "".join(body))


def heat_cell(cell: HeatCell | None, x: float, y: float, wide: float, tall: float) -> str:
    if cell is None:
        return text("–", x + wide / 2, y + 16, 11.5, "middle", quiet=True)
    colour, dark = shade(cell.value), shade(cell.value, DARK_SCALE)
    words = f"{cell.value:.2f}" + (" △" if cell.marked else "")
    # A line of paper between cells. A page in the dark takes the other colours; a file of its own is on white paper.
    body = element("rect", x=x + 1, y=y + 1, width=wide - 2, height=tall - 2, rx=2, fill=colour, class_="ground")
    body += text(words, x + wide / 2, y + 16, 11.5, "middle", fill=text_on(colour))
    style = f"--light:{colour};--dark:{dark};--on-light:{text_on(colour)};--on-dark:{text_on(dark)}"
    return element("g", body, class_="heat", style=style)


def _spoken(cells: Mapping[tuple[str, str], HeatCell], tasks: list[str], encodings: list[str]) -> str:
    rows = (
        f"{task}: " + ", ".join(f"{name} {cells[task, name].value:.2f}" for name in encodings if (task, name) in cells)
        for task in tasks
    )
    return "; ".join(rows) + "."


def side_by_side(name: str, title: str, figures: list[Figure]) -> Figure:
    """Several figures as one."""
    body, x = [], 0.0
    for each in figures:
        body.append(element("g", each.body, transform=f"translate({x:.0f},0)"))
        x += each.width + 24
    return Figure(
        name,
        title,
        " ".join(each.description for each in figures),
        x - 24,
        max(f.height for f in figures),
        "".join(body),
    )


@dataclass(frozen=True)
class DifferenceRow:
    """How much better than the baseline an encoding is, overall and on each task."""

    encoding: str
    overall: Estimate
    by_task: Mapping[str, float]


def differences_figure(
    rows: list[DifferenceRow], baseline: str, encodings: list[str], spread: str = "95 % interval"
) -> Figure:
    """A dot for each task, a shape with its interval for their mean; `spread`: what the interval is called."""
    look = looks(encodings)
    left, width = _room([row.encoding for row in rows]), 560
    x = Scale((-1, 1), (left, width - 16))
    bottom = 26 + 34 * len(rows)
    body = [
        text(f"← {baseline} is better", x(0) - 8, 12, 11, "end", quiet=True),
        text(f"better than {baseline} →", x(0) + 8, 12, 11, quiet=True),
    ]
    for value in (-1, -0.5, 0, 0.5, 1):
        body.append(line(x(value), 20, x(value), bottom, stroke_opacity=0.6 if value == 0 else 0.14))
        body.append(text(f"{value:+g}" if value else "0", x(value), bottom + 15, 11, "middle", quiet=True))
    words = "difference in exact match on unseen lengths, same task and seed"
    body.append(text(words, width - 16, bottom + 32, 11, "end", quiet=True))
    for i, row in enumerate(rows):
        y = 42 + 34 * i
        colour, shape = look[row.encoding]
        mean, interval = row.overall
        tasks = dots((x(value), y) for value in row.by_task.values())
        body += [
            text(shortened(row.encoding, left - 12, 12), left - 10, y + 4, 12, "end"),
            element("path", d=tasks, stroke=colour, stroke_width=6, stroke_linecap="round", stroke_opacity=0.3),
            line(x(interval[0]), y, x(interval[1]), y, 2.4, stroke=colour) if interval else "",
            marks([(x(mean), y)], shape, 5, colour),
        ]
    said = ", ".join(f"{row.encoding} {_words(row.overall, '+')}" for row in rows)
    return Figure(
        "paired-differences",
        f"Paired differences from {baseline}",
        f"Mean difference from {baseline} on unseen lengths with its {spread}: {said}.",
        width,
        bottom + 40,
        "".join(body),
    )


def _room(names: list[str]) -> float:
    """For names left of an axis."""
    return min(180.0, max((width_of(name, 12) for name in names), default=0) + 24)


def _words(estimate: Estimate, sign: str = "") -> str:
    mean, interval = estimate
    ends = f" ({interval[0]:{sign}.2f} to {interval[1]:{sign}.2f})" if interval else ""
    return f"{mean:{sign}.2f}{ends}"
