"""Small pictures of what a method does: lines over the distance, and which keys are seen."""

from collections.abc import Sequence
from itertools import groupby

from lengthwise.report.figures.drawing import Figure, Scale, element, labels, line, number, path, text
from lengthwise.report.figures.palette import PALETTE

INK = PALETTE[0]
WIDTH, HEIGHT = 300.0, 150.0
LEFT, RIGHT, TOP, BOTTOM = 44.0, 8.0, 10.0, 34.0
SQUARE = 4.5
FAINTEST = 0.35
"""How much ink the first of several lines has; the last has all of it."""


def lines_picture(
    name: str, title: str, across: str, first: float, lines: Sequence[Sequence[float]], dashed: Sequence[float] = ()
) -> Figure:
    """Lines over whole numbers from `first` on, which `across` names; `dashed`: something to compare them with."""
    every = [value for values in (*lines, dashed) for value in values]
    low, high = min(every), max(every)
    if high - low < 1e-9:
        low, high = low - 0.5, high + 0.5
    last = first + len(lines[0]) - 1
    x = Scale((first, last), (LEFT, WIDTH - RIGHT))
    y = Scale((low, high), (HEIGHT - BOTTOM, TOP))
    body = [line(LEFT, y(low), WIDTH - RIGHT, y(low), stroke_opacity=0.35)]
    if low < 0 < high:
        body.append(line(LEFT, y(0), WIDTH - RIGHT, y(0), stroke_opacity=0.35, stroke_dasharray="2,3"))
    ends = {low, high} | ({0.0} if low < 0 < high and min(high, -low) > 0.18 * (high - low) else set())
    body.append(labels([(_short(value), LEFT - 5, y(value) + 3.5) for value in sorted(ends)], 10, "end"))
    marks = [first + share * (last - first) for share in (0, 0.5, 1)]
    body.append(labels([(f"{mark:.0f}", x(mark), HEIGHT - BOTTOM + 13) for mark in marks], 10, "middle"))
    body.append(text(across, (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 5, 10.5, "middle", quiet=True))
    for index, values in enumerate(lines):
        share = FAINTEST + (1 - FAINTEST) * (index + 1) / len(lines) if len(lines) > 1 else 1.0
        body.append(_curve(values, first, x, y, stroke_opacity=share))
    if dashed:
        body.append(_curve(dashed, first, x, y, stroke="currentColor", stroke_opacity=0.7, stroke_dasharray="4,3"))
    return Figure(name, title, f"{title}: {_spoken(lines, first)}", WIDTH, HEIGHT, "".join(body))


def _curve(values: Sequence[float], first: float, x: Scale, y: Scale, **attributes: float | str) -> str:
    places = path((x(first + i), y(value)) for i, value in enumerate(values))
    stroke = attributes.pop("stroke", INK)
    return element("path", d=places, fill="none", stroke=stroke, stroke_width=1.6, **attributes)


def _spoken(lines: Sequence[Sequence[float]], first: float) -> str:
    last = first + len(lines[0]) - 1
    parts = [f"from {_short(values[0])} at {first:.0f} to {_short(values[-1])} at {last:.0f}" for values in lines]
    return "; ".join(dict.fromkeys(parts)) + "."


def _short(value: float) -> str:
    return f"{value:.3g}".replace("-", "−") if abs(value) >= 5e-4 else "0"


def mask_picture(name: str, title: str, seen: Sequence[Sequence[float]]) -> Figure:
    """Queries down, keys across: the more ink, the more of the heads see the key; `seen`: their share."""
    tokens = len(seen)
    left, top, side = 16.0, 16.0, SQUARE * tokens
    body = [text("keys", left + side / 2, 10, 10.5, "middle", quiet=True)]
    body.append(
        element(
            "text", "queries", transform=f"translate(10,{number(top + side / 2)})rotate(-90)", font_size=10.5,
            text_anchor="middle", fill="currentColor", fill_opacity=0.78,
        )
    )  # fmt: skip
    by_share: dict[float, list[str]] = {}
    for row, shares in enumerate(seen):
        for share, run in groupby(enumerate(shares), key=lambda each: round(each[1], 2)):
            if share > 0:
                first, *others = [column for column, _ in run]
                x, y = left + SQUARE * first, top + SQUARE * row
                wide = SQUARE * (1 + len(others))
                by_share.setdefault(share, []).append(
                    f"M{number(x)},{number(y)}h{number(wide)}v{number(SQUARE)}h{number(-wide)}z"
                )
    for share, parts in by_share.items():
        body.append(element("path", d="".join(parts), fill=INK, fill_opacity=0.15 + 0.85 * share))
    body.append(
        element("rect", x=left, y=top, width=side, height=side, fill="none", stroke="currentColor", stroke_opacity=0.35)
    )
    keys = [sum(share > 0 for share in shares) for shares in seen]
    said = f"{title}: the last of {tokens} queries sees {keys[-1]} keys, the first {keys[0]}."
    return Figure(name, title, said, left + side + 2, top + side + 4, "".join(body))
