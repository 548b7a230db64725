"""The ranking as a figure."""

from collections.abc import Mapping

from lengthwise.records.statistics import Interval
from lengthwise.report.figures.drawing import Figure, Scale, element, line, marks, shortened, text
from lengthwise.report.figures.estimates import Estimate, estimate_words, room
from lengthwise.report.figures.palette import styles


def ranking_figure(
    places: list[tuple[str, Estimate, Interval | None]],
    encodings: list[str],
    published: Mapping[str, float],
    spread: str = "95 % CI over seeds",
    called: str = "published",
) -> Figure:
    """Mean reciprocal rank with its intervals over seeds and over tasks, best first.

    The published one is a hollow circle. `spread`: what the interval over seeds is called; `called`: what the
    published ones are.
    """
    look = styles(encodings)
    left, width = room([encoding for encoding, _, _ in places]), 470
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
    said = ", ".join(f"{encoding} {estimate_words(estimate)}" for encoding, estimate, _ in places)
    return Figure(
        "ranking",
        "Mean reciprocal rank on unseen lengths",
        f"Mean reciprocal rank of each encoding with its {spread}, best first: {said or 'nothing to rank'}.",
        width,
        bottom + 40,
        "".join(body),
    )
