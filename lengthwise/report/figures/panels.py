"""Small panels of lines in a grid under one legend."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lengthwise.report.figures.drawing import (
    Figure,
    Point,
    Scale,
    apart,
    element,
    labels,
    line,
    marks,
    path,
    shortened,
    text,
    ticks,
    upwards,
    width_of,
)

WIDTH, HEIGHT = 300.0, 206.0
LEFT, RIGHT, TOP, BOTTOM = 52.0, 274.0, 30.0, 168.0
LEGEND = 26.0
"""Height of a row of the legend."""
MOST_POINTS = 120
"""Of a line without marks: one for every 2 pixels."""


@dataclass(frozen=True)
class Series:
    points: list[Point]
    colour: str = "currentColor"
    shape: str = ""
    """Of a mark at every point, see `every`."""
    dashes: str = ""
    opacity: float = 1.0
    end: str = ""
    """Words where it ends."""
    width: float = 1.7
    encoding: str = ""
    """Whose line it is, and of which kind: a page can hide them."""
    kind: str = ""
    every: int = 1
    """Marks are at every k-th point, counted back from the end."""


@dataclass(frozen=True)
class Panel:
    title: str
    across: str
    lines: list[Series]
    span: tuple[float, float]
    top: float
    """The greatest value of the axis that goes up; the least is 0."""
    boundary: float | None = None
    """Where training ends."""
    boundary_words: str = ""
    up: str = ""
    """What goes up."""
    is_logarithmic: bool = False
    """Whether the axis that goes up shows log(1 + value): for values of which a few are far above the others."""
    under: str = ""
    """Words below the title."""


@dataclass(frozen=True)
class LegendEntry:
    """An entry of a legend."""

    name: str
    line: Series


def grid(
    name: str, title: str, description: str, panels: Sequence[Panel], legend: Sequence[LegendEntry], columns: int = 3
) -> Figure:
    bodies = [draw(panel) for panel in panels]
    return arranged(name, title, description, bodies, (WIDTH, HEIGHT), legend, columns)


def arranged(
    name: str,
    title: str,
    description: str,
    bodies: Sequence[str],
    size: Point,
    legend: Sequence[LegendEntry],
    columns: int = 3,
) -> Figure:
    """Drawings of one size, at most `columns` in a row, under a legend."""
    across = min(columns, len(bodies))
    width = across * size[0]
    signs, tall = legend_row(legend, max(width, 2 * WIDTH))
    placed = [
        element("g", body, transform=f"translate({i % across * size[0]:.0f},{tall + i // across * size[1]:.0f})")
        for i, body in enumerate(bodies)
    ]
    return Figure(
        name,
        title,
        description,
        max(width, 2 * WIDTH) if legend else width,
        tall + math.ceil(len(bodies) / across) * size[1],
        signs + "".join(placed),
    )


def lowered(figure: Figure, above: str, height: float, width: float = 0.0) -> Figure:
    """The figure, and something of a height and width above it."""
    moved = element("g", figure.body, transform=f"translate(0,{height:.0f})")
    width = max(figure.width, width)
    return Figure(figure.name, figure.title, figure.description, width, figure.height + height, above + moved)


def legend_row(legend: Sequence[LegendEntry], width: float) -> tuple[str, float]:
    """The legend and its height; it goes on in a new row where there is no room."""
    if not legend:
        return "", 0.0
    body, x, y = [], 4.0, 14.0
    for sign in legend:
        wide = 28 + width_of(sign.name, 11) + 14
        if x + wide > width and x > 4:
            x, y = 4.0, y + LEGEND - 6
        body.append(_stroke(sign.line, [(x, y - 4), (x + 20, y - 4)]))
        if sign.line.shape:
            body.append(marks([(x + 10, y - 4)], sign.line.shape, 3.4, sign.line.colour))
        body.append(text(sign.name, x + 26, y, 11))
        x += wide
    return "".join(body), y + LEGEND - 14


def draw(panel: Panel) -> str:
    x, y = Scale(panel.span, (LEFT, RIGHT)), _upward(panel)
    marked = _powers(panel.top) if panel.is_logarithmic else steps(panel.top)
    body = [text(shortened(panel.title, WIDTH - 12, 12), 4, 14, 12, weight=600)]
    body += [text(shortened(panel.under, WIDTH - 12, 10), 4, 25, 10, quiet=True)] if panel.under else []
    if panel.boundary is not None:
        boundary = x(panel.boundary)
        body.append(
            element("rect", x=LEFT, y=TOP, width=boundary - LEFT, height=BOTTOM - TOP, fill="currentColor",
                    fill_opacity=0.05)
        )  # fmt: skip
        body.append(line(boundary, TOP - 4, boundary, BOTTOM, stroke_dasharray="4 3", stroke_opacity=0.6))
        near_end = boundary > LEFT + 0.6 * (RIGHT - LEFT)
        anchor = "end" if near_end else "start"
        body.append(text(panel.boundary_words, boundary + (-3 if near_end else 3), TOP + 5, 10, anchor, quiet=True))
    for value in marked:
        body.append(line(LEFT, y(value), RIGHT, y(value), stroke_opacity=0.14))
    body.append(labels(((f"{value:g}", LEFT - 5, y(value) + 4) for value in marked), 10.5, "end"))
    if panel.up:
        body.append(upwards(panel.up, 12, (TOP + BOTTOM) / 2, 10.5))
    body.append(labels(((str(value), x(value), BOTTOM + 15) for value in ticks(*panel.span, 7)), 10.5, "middle"))
    body.append(text(panel.across, RIGHT, BOTTOM + 29, 10.5, "end", quiet=True))
    for each in panel.lines:
        places = [(x(across), y(min(up, panel.top))) for across, up in thinned(each.points, bool(each.shape))]
        drawn = _stroke(each, places) + _marks(each, places)
        body.append(element("g", drawn, data_encoding=each.encoding) if each.encoding else drawn)
    ended = [each for each in panel.lines if each.end and each.points]
    heights = apart([y(min(each.points[-1][1], panel.top)) for each in ended], 10.5, TOP, BOTTOM)
    for each, height in zip(ended, heights, strict=True):
        body.append(text(each.end, x(each.points[-1][0]) + 4, height + 3.5, 10, quiet=True))
    return "".join(body)


def _upward(panel: Panel) -> Callable[[float], float]:
    if not panel.is_logarithmic:
        return Scale((0, panel.top), (BOTTOM, TOP))
    scale = Scale((0, math.log1p(panel.top)), (BOTTOM, TOP))
    return lambda value: scale(math.log1p(value))


def _powers(top: float) -> list[float]:
    """0 and about four powers of ten, or their triples, up to `top`."""
    found = [0.0, *(factor * 10.0**power for power in range(13) for factor in (1, 3) if factor * 10.0**power <= top)]
    return found if len(found) <= 6 else [value for value in found if not str(value).startswith("3")]


def thinned(points: list[Point], keep_all: bool) -> list[Point]:
    """Every k-th point and the last."""
    every = 1 if keep_all else math.ceil(len(points) / MOST_POINTS)
    return points if every == 1 else [*points[:-1:every], points[-1]]


def steps(top: float) -> list[float]:
    """Round numbers from 0 to at most `top`, about four of them."""
    power = 10.0 ** math.floor(math.log10(top / 4)) if top > 0 else 1.0
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= top / 4)
    return [round(i * step, 6) for i in range(int(top / step + 1e-6) + 1)]


def _marks(of: Series, places: list[Point]) -> str:
    return marks(places[::-1][:: of.every][::-1], of.shape, 3, of.colour) if of.shape else ""


def _stroke(of: Series, places: list[Point]) -> str:
    return element(
        "path",
        d=path(places),
        fill="none",
        stroke=of.colour,
        stroke_width=of.width,
        stroke_opacity=of.opacity if of.opacity < 1 else None,
        class_=of.kind or None,
        stroke_dasharray=of.dashes or None,
        stroke_linejoin="round",
    )


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
