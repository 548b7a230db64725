"""Small multiples of accuracy by length: ours as lines, the published ones as dashes; all go up from 0 to 1."""

from lengthwise.records.results import Results
from lengthwise.report.figures.drawing import (
    Figure,
    Scale,
    apart,
    dots,
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
from lengthwise.report.model.length_curves import LengthCurves, curves_of
from lengthwise.report.model.summaries import require_runs, spread_words

WIDTH, HEIGHT = 362, 246
LEFT, RIGHT, TOP, BOTTOM = 44, 280, 44, 214
"""Where the axes are; right of them is room for the names of the lines."""
MOST_NAMES = 7
"""More lines than this cannot all be named where they end."""


def panel(curves: LengthCurves, encodings: list[str], span: tuple[float, float]) -> Figure:
    """One task; `span` is the first and the last length of its axis."""
    x, y = Scale(span, (LEFT, RIGHT)), Scale((0, 1), (BOTTOM, TOP))
    look = styles(encodings)
    shown = [encoding for encoding in encodings if curves.of(encoding)]
    body = [_axes(curves, x, y), _chance_line(curves, x, y)]
    for encoding in shown:
        body.append(_curve(curves, encoding, look[encoding], x, y))
    if len(shown) <= MOST_NAMES:
        body.append(_names(curves, shown, look, x, y))
    return Figure(
        f"by-length-{curves.task}",
        f"Exact match by length on {curves.task}",
        spoken(curves, shown),
        WIDTH,
        HEIGHT,
        "".join(body),
    )


def spoken(curves: LengthCurves, encodings: list[str]) -> str:
    """What a screen reader says instead of the curves."""
    ends = [(encoding, curves.of(encoding)[-1]) for encoding in encodings]
    said = ", ".join(f"{encoding} {end.mean:.2f} at length {end.length}" for encoding, end in ends)
    trained = f"Training ends at length {curves.longest_trained}."
    few = f" Some lengths have few examples, the fewest {curves.fewest}." if curves.few else ""
    return f"Exact match on {curves.task} by length. {trained} At the longest length: {said}.{few}"


def accuracy_by_length(results: Results, checkpoint: str = "last", columns: int = 3) -> Figure:
    """All tasks in one figure: accuracy from 0 to 1, and each task's own lengths."""
    require_runs(results)
    every = [curves_of(results, task, checkpoint) for task in results.tasks]
    panels = [panel(curves, results.encodings, curves.span) for curves in every]
    columns = min(columns, len(panels))
    has_published = any(any(curves.published.values()) for curves in every)
    key = legend(results.encodings, columns * WIDTH, has_published, spread_words(results))
    body = [key.body]
    for i, each in enumerate(panels):
        row, column = divmod(i, columns)
        body.append(element("g", each.body, transform=f"translate({column * WIDTH},{key.height + row * HEIGHT:.0f})"))
    rows = -(-len(panels) // columns)
    return Figure(
        "accuracy-by-length",
        f"Exact match by length: {results.study.get('name', 'study')}",
        " ".join(each.description for each in panels),
        columns * WIDTH,
        key.height + rows * HEIGHT,
        "".join(body),
    )


def legend(encodings: list[str], width: float, has_published: bool, spread: str) -> Figure:
    """What the lines mean; `spread`: what the shades are called."""
    look = styles(encodings)
    body, x, y = [], 14.0, 18.0
    for encoding in encodings:
        wide = 26 + 6.4 * len(encoding)
        if x + wide > width - 8 and x > 14:
            x, y = 14.0, y + 18
        colour, shape = look[encoding]
        body += [marks([(x, y - 4)], shape, 4.2, colour), text(encoding, x + 10, y, 12)]
        x += wide
    x, y = 14.0, y + 18
    ours = "mean over seeds" + (f"; shade: {spread}" if spread else "") + "; a dot for each seed"
    keys: list[tuple[str, str | None]] = [(ours, None), ("chance", "1 3")]
    if has_published:
        keys.insert(1, ("published", "5 3"))
    for words, dash in keys:
        wide = 34 + 5.7 * len(words)
        if x + wide > width - 8 and x > 14:
            x, y = 14.0, y + 16
        body += [line(x - 5, y - 4, x + 15, y - 4, 1.6, stroke_dasharray=dash), text(words, x + 21, y, 11, quiet=True)]
        x += wide
    return Figure("legend", "Legend", "", width, y + 12, "".join(body))


def _axes(curves: LengthCurves, x: Scale, y: Scale) -> str:
    task, point = curves.heading
    body = [text(shortened(task, 250, 13), LEFT, 12 if point else 15, 13, weight=600)]
    body += [text(shortened(point, WIDTH - LEFT - 4, 10.5), LEFT, 25, 10.5, quiet=True)] if point else []
    trained = min(x(curves.longest_trained + 0.5), RIGHT)
    body.append(
        element(
            "rect", x=LEFT, y=TOP, width=trained - LEFT, height=BOTTOM - TOP, fill="currentColor", fill_opacity=0.05
        )
    )
    for value in (0, 0.25, 0.5, 0.75, 1):
        body.append(line(LEFT, y(value), RIGHT, y(value), stroke_opacity=0.35 if value == 0 else 0.12))
        if value in (0, 0.5, 1):
            body.append(text(f"{value:g}", LEFT - 5, y(value) + 4, 11, "end", quiet=True))
    body.append(upwards("exact match", 11, (TOP + BOTTOM) / 2, 10.5))
    for length in ticks(*x.domain, 8):
        body.append(line(x(length), BOTTOM, x(length), BOTTOM + 4, stroke_opacity=0.35))
        body.append(text(str(length), x(length), BOTTOM + 16, 11, "middle", quiet=True))
    body.append(text("length", RIGHT, BOTTOM + 29, 11, "end", quiet=True))
    if curves.few:
        body.append(text(f"fewest examples at a length: {curves.fewest}", LEFT, BOTTOM + 29, 10, quiet=True))
    body.append(line(trained, TOP - 3, trained, BOTTOM, stroke_dasharray="4 3", stroke_opacity=0.6))
    near_end = trained > LEFT + 0.72 * (RIGHT - LEFT)
    words = f"trained to {curves.longest_trained}"
    body.append(text(words, trained + (-2 if near_end else 2), TOP - 7, 10, "end" if near_end else "start", quiet=True))
    return "".join(body)


def _chance_line(curves: LengthCurves, x: Scale, y: Scale) -> str:
    chance = dict(sorted({point.length: point.chance for point in curves.points}.items()))
    places = path((x(length), y(value)) for length, value in chance.items())
    return element(
        "path",
        d=places,
        fill="none",
        stroke="currentColor",
        stroke_width=1.4,
        stroke_opacity=0.6,
        stroke_dasharray="1 3",
    )


def _curve(curves: LengthCurves, encoding: str, look: tuple[str, str], x: Scale, y: Scale) -> str:
    colour, shape = look
    points = curves.of(encoding)
    line_of = {"fill": "none", "stroke": colour, "stroke_linejoin": "round"}
    body = []
    published = [(x(n), y(v)) for n, v in sorted(curves.published[encoding].items()) if x.domain[0] <= n <= x.domain[1]]
    if published:
        dashes = element("path", d=path(published), stroke_width=1.3, stroke_dasharray="5 3", **line_of)
        body.append(element("g", dashes, class_="published"))
    bands = [(x(point.length), *map(y, point.interval)) for point in points if point.interval]
    if bands:
        outline = [(place, high) for place, _, high in bands] + [(place, low) for place, low, _ in reversed(bands)]
        body.append(element("path", d=path(outline) + "Z", fill=colour, fill_opacity=0.14))
    if any(len(point.by_seed) > 1 for point in points):
        seeds = dots((x(point.length), y(value)) for point in points for value in point.by_seed)
        body.append(
            element("path", d=seeds, stroke=colour, stroke_width=2.4, stroke_linecap="round", stroke_opacity=0.5)
        )
    body.append(element("path", d=path((x(p.length), y(p.mean)) for p in points), stroke_width=1.8, **line_of))
    # A shape every dozen units or so, counted back from the end: enough to tell lines apart, not enough to hide them.
    every = max(1, round(13 / max(0.1, x(1) - x(0))))
    body.append(marks(((x(p.length), y(p.mean)) for p in points[::-1][::every]), shape, 2.7, colour))
    return element("g", "".join(body), data_encoding=encoding)


def _names(curves: LengthCurves, encodings: list[str], look: dict[str, tuple[str, str]], x: Scale, y: Scale) -> str:
    """Each line's name where it ends."""
    ends = [curves.of(encoding)[-1] for encoding in encodings]
    places = apart([y(end.mean) for end in ends], 12, TOP + 4, BOTTOM - 8)  # above the axis, not on it
    column = max(x(end.length) for end in ends) + 14
    body = []
    for encoding, end, place in zip(encodings, ends, places, strict=True):
        colour, shape = look[encoding]
        leader = [(x(end.length) + 4, y(end.mean)), (column - 6, place)]
        name = [
            element("path", d=path(leader), fill="none", stroke=colour, stroke_width=0.9, stroke_opacity=0.7),
            marks([(column, place)], shape, 3, colour),
            text(shortened(encoding, WIDTH - column - 8, 10.5), column + 7, place + 3.8, 10.5),
        ]
        body.append(element("g", "".join(name), data_encoding=encoding))
    return "".join(body)
