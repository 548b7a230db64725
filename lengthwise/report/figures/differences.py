"""Paired differences from a baseline as a figure."""

from collections.abc import Mapping
from dataclasses import dataclass

from lengthwise.report.figures.drawing import Figure, Scale, dots, element, line, marks, shortened, text
from lengthwise.report.figures.estimates import Estimate, estimate_words, room
from lengthwise.report.figures.palette import styles


@dataclass(frozen=True)
class DifferenceRow:
    """How much better than the baseline an encoding is, overall and on each task."""

    encoding: str
    overall: Estimate
    by_task: Mapping[str, float]


def differences_figure(
    rows: list[DifferenceRow], baseline: str, encodings: list[str], spread: str = "95 % CI over seeds"
) -> Figure:
    """A dot for each task, a shape with its interval for their mean; `spread`: what the interval is called."""
    look = styles(encodings)
    left, width = room([row.encoding for row in rows]), 560
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
    said = ", ".join(f"{row.encoding} {estimate_words(row.overall, '+')}" for row in rows)
    return Figure(
        "paired-differences",
        f"Paired differences from {baseline}",
        f"Mean difference from {baseline} on unseen lengths with its {spread}: {said}.",
        width,
        bottom + 40,
        "".join(body),
    )
