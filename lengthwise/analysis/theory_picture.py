"""The theorems drawn: what the head and the feed-forward layer write at each position, and logits by distance."""

from collections.abc import Sequence
from dataclasses import dataclass

from lengthwise.analysis import theory
from lengthwise.report.figures.drawing import Figure, Point, Scale, dots, element, line, path, text, ticks, width_of
from lengthwise.report.figures.palette import PALETTE

WIDTH, HEIGHT = 380, 270
LEFT, RIGHT, TOP, BOTTOM = 42, 360, 62, 230
"""Where a panel's axes are; above them are its title and the names of what is drawn."""
MOST_DOTS = 128
"""Longer series are thinned out evenly."""


@dataclass(frozen=True)
class TheoremSeries:
    name: str
    colour: str
    points: Sequence[Point]
    as_line: bool = False


@dataclass(frozen=True)
class TheoremPanel:
    title: str
    below: str
    """The name of the horizontal axis."""
    series: Sequence[TheoremSeries]


def absolute_figure(length: int, vocabulary_rows: int, seed: int = 0) -> Figure:
    """Theorem 1, as constructed and where it breaks."""
    t = range(1, length + 1)
    shown = ((theory.FP64, "constructed"), (theory.IGNORED, "norms ignored"), (theory.NO_FIRST_TOKEN, "no first token"))
    inverse = [TheoremSeries("1/t", "currentColor", _pairs(t, [1 / each for each in t]), as_line=True)]
    position = [TheoremSeries("t", "currentColor", _pairs(t, t), as_line=True)]
    for (case, name), colour in zip(shown, (PALETTE[0], PALETTE[1], PALETTE[3]), strict=True):
        inverse_T, position_T = theory.absolute_readings(length, vocabulary_rows, case, seed)
        inverse.append(TheoremSeries(name, colour, _pairs(t, inverse_T.tolist())))
        position.append(TheoremSeries(name, colour, _pairs(t, position_T.tolist())))
    return _figure(
        "theory-absolute",
        "A decoder without position encoding writes absolute position",
        f"For positions 1 to {length}: the attention head writes 1/t and the feed-forward layer t. Without a first "
        f"token that can be told from the others they write 0 and {2 * length - 1} everywhere.",
        [
            TheoremPanel("What the attention head writes", "position t", inverse),
            TheoremPanel("What the feed-forward layer writes", "position t", position),
        ],
    )


def relative_figure(length: int, vocabulary_rows: int, seed: int = 0) -> Figure:
    """Theorem 2: the logits of the last query in the second layer, with and without the first token."""
    distance = range(length - 1, -1, -1)
    panels = []
    for case, title in ((theory.FP64, "With the first token"), (theory.NO_FIRST_TOKEN, "Without it")):
        model = theory.relative_decoder(length, vocabulary_rows, case, seed)
        tokens_BT = theory.tokens(length, vocabulary_rows, case.first_token, seed)
        *_, (_, logits_TS, content_TS) = theory.logit_parts(model, 1, theory.residual_stream(model, tokens_BT)[1])
        series = [
            TheoremSeries("-(t - i)", "currentColor", _pairs(distance, [-each for each in distance]), as_line=True),
            TheoremSeries("logit", PALETTE[1], _pairs(distance, logits_TS[-1].tolist())),
            TheoremSeries("logit - content", PALETTE[0], _pairs(distance, (logits_TS - content_TS)[-1].tolist())),
        ]
        panels.append(TheoremPanel(title, "distance t - i", series))
    return _figure(
        "theory-relative",
        "Logits of a decoder without position encoding that fall with distance",
        f"The logits of the last of {length} tokens in the second layer: less their content they are -(t - i), and 0 "
        "without a first token that can be told from the others.",
        panels,
    )


def _pairs(x: Sequence[int], y: Sequence[float]) -> list[Point]:
    return list(zip(map(float, x), y, strict=True))


def _figure(name: str, title: str, description: str, panels: Sequence[TheoremPanel]) -> Figure:
    drawn = "".join(element("g", _draw(panel), transform=f"translate({i * WIDTH},0)") for i, panel in enumerate(panels))
    return Figure(name, title, description, WIDTH * len(panels), HEIGHT, drawn)


def _draw(panel: TheoremPanel) -> str:
    xs = [x for each in panel.series for x, _ in each.points]
    ys = [0.0, *(y for each in panel.series for _, y in each.points)]
    across = Scale((min(xs), max(xs)), (LEFT, RIGHT))
    up = Scale((min(ys), max(ys)), (BOTTOM, TOP))
    parts = [text(panel.title, LEFT, 18, size=13, weight=600), text(panel.below, RIGHT, HEIGHT - 8, anchor="end")]
    parts += [text(str(x), across(x), BOTTOM + 15, anchor="middle", quiet=True) for x in ticks(min(xs), max(xs), 6)]
    for y in ticks(min(ys), max(ys), 6):
        parts.append(line(LEFT, up(y), RIGHT, up(y), stroke_opacity=0.15))
        parts.append(text(str(y), LEFT - 6, up(y) + 4, anchor="end", quiet=True))
    at = float(LEFT)
    for each in panel.series:
        places = [(across(x), up(y)) for x, y in each.points[:: -(-len(each.points) // MOST_DOTS)]]
        look: dict[str, float | str] = {"stroke": each.colour, "fill": "none", "stroke_linecap": "round"}
        width = 1.0 if each.as_line else 4.5
        parts.append(element("path", d=path(places) if each.as_line else dots(places), stroke_width=width, **look))
        sample = path([(at, 38), (at + 12, 38)]) if each.as_line else dots([(at + 6, 38)])
        parts.append(element("path", d=sample, stroke_width=width, **look))
        parts.append(text(each.name, at + 17, 42))
        at += 30 + width_of(each.name)
    return "".join(parts)
