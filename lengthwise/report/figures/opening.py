"""The picture that a page opens with: accuracy by length of every encoding."""

from dataclasses import dataclass

from lengthwise.report.figures.drawing import (
    Figure,
    Scale,
    apart,
    element,
    line,
    marks,
    path,
    shortened,
    text,
    ticks,
    upwards,
)
from lengthwise.report.figures.palette import styles
from lengthwise.report.model.opening import Opening


@dataclass(frozen=True)
class Frame:
    """The size of the picture and where its axes are; right of them is room for the names of the lines."""

    width: float
    height: float
    left: float
    right: float
    top: float
    bottom: float
    ticks: int
    """At most so many on the axis of lengths, and about as many marks on a line."""
    trained: str
    longer: str
    """What is said of the two sides of the border."""


WIDE = Frame(860, 380, 52, 700, 26, 332, 14, "lengths of training", "longer than any in training")
NARROW = Frame(358, 300, 40, 240, 26, 252, 7, "training", "longer")
"""For a phone, on which letters of the wide one could not be read."""


def opening_figure(found: Opening, encodings: list[str], frame: Frame = WIDE) -> Figure:
    """Every encoding's line, named where it ends; the order of names is that of the ends."""
    places = [place for place, _ in next(iter(found.points.values()))]
    x, y = Scale((places[0], places[-1]), (frame.left, frame.right)), Scale((0, 1), (frame.bottom, frame.top))
    look = styles(encodings)
    body = [_axes(found, x, y, frame)]
    shown = [encoding for encoding in encodings if encoding in found.points]
    ends = [y(found.points[encoding][-1][1]) for encoding in shown]
    gap = min(17.0, (frame.bottom - frame.top) / max(1, len(shown) - 1))
    heights = apart(ends, gap, frame.top, frame.bottom)
    right = frame.right
    for encoding, end, height in zip(shown, ends, heights, strict=True):
        colour, shape = look[encoding]
        drawn = [(x(place), y(mean)) for place, mean in found.points[encoding]]
        every = max(1, len(drawn) // frame.ticks)
        size = min(12.5, 0.8 * gap)
        parts = [
            element("path", d=path(drawn), fill="none", stroke=colour, stroke_width=2.4, stroke_linejoin="round"),
            marks(drawn[::-1][::every], shape, 4, colour),
            line(right + 6, end, right + 14, height, 0.9, stroke=colour, stroke_opacity=0.7),
            marks([(right + 20, height)], shape, min(4.0, 0.3 * gap), colour),
            text(shortened(encoding, frame.width - right - 30, size), right + 28, height + 0.36 * size, size),
        ]
        body.append(element("g", "".join(parts), data_encoding=encoding))
    title = f"Accuracy by length, {'mean over tasks' if len(found.tasks) > 1 else found.tasks[0]}"
    name = "opening" if frame is WIDE else "opening-narrow"
    return Figure(name, title, spoken(found), frame.width, frame.height, "".join(body))


def spoken(found: Opening) -> str:
    """What a screen reader says instead."""
    ends = {encoding: points[-1] for encoding, points in found.points.items()}
    place = next(iter(ends.values()))[0]
    said = ", ".join(f"{encoding} {mean:.2f}" for encoding, (_, mean) in ends.items())
    return f"Exact match by {found.across}; training ends at {found.boundary:g}. At {place:.3g}: {said}."


def _axes(found: Opening, x: Scale, y: Scale, frame: Frame) -> str:
    left, right, top, bottom = frame.left, frame.right, frame.top, frame.bottom
    # Lengths are whole numbers: the last of training lies on its side of the border.
    boundary = x(found.boundary if found.is_relative else found.boundary + 0.5)
    body = [
        element(
            "rect", x=left, y=top, width=boundary - left, height=bottom - top, fill="currentColor", fill_opacity=0.05
        )
    ]
    for value in (0, 0.25, 0.5, 0.75, 1):
        body.append(line(left, y(value), right, y(value), stroke_opacity=0.35 if value == 0 else 0.12))
        body.append(text(f"{value:g}", left - 7, y(value) + 4, 12, "end", quiet=True))
    for value, words in _marked(found, x, frame.ticks):
        body.append(line(x(value), bottom, x(value), bottom + 5, stroke_opacity=0.35))
        body.append(text(words, x(value), bottom + 19, 12, "middle", quiet=True))
    body.append(text(found.across, right, bottom + 38, 12, "end", quiet=True))
    body.append(upwards("exact match", 11 if frame is NARROW else 14, (top + bottom) / 2, 12))
    body.append(line(boundary, top - 6, boundary, bottom, 1.2, stroke_dasharray="4 3", stroke_opacity=0.7))
    body.append(text(frame.trained, boundary - 7, top - 10, 12, "end", quiet=True))
    body.append(text(frame.longer, boundary + 7, top - 10, 12, quiet=True))
    return "".join(body)


def _marked(found: Opening, x: Scale, most: int) -> list[tuple[float, str]]:
    """Places of the axis that are named."""
    if not found.is_relative:
        return [(value, str(value)) for value in ticks(*x.domain, most)]
    quarters = range(int(4 * x.domain[0]) + 1, int(4 * x.domain[1] + 1e-9) + 1)
    step = max(1, len(quarters) // (most - 4))
    return [(number / 4, f"{number / 4:g}×") for number in quarters if number % step == 0]
