"""Figures of attention by layer: distances between models, how far heads look, entropy by position."""

import math
from collections.abc import Sequence

from lengthwise.report.figures.drawing import Figure, Scale, element, labels, shortened, text, width_of
from lengthwise.report.figures.palette import shade, styles
from lengthwise.report.figures.panels import LegendEntry, Panel, Series, arranged, grid, lowered
from lengthwise.report.model.attention_distances import DistanceComparison, Distances
from lengthwise.report.model.head_statistics import LayerStatistics, shown_group


def distance_figure(comparison: DistanceComparison, encodings: list[str]) -> Figure:
    """Ours by layer; published values as dashes where they are of the same divergence, else in a panel of their own."""
    look, lines = styles(encodings), comparison.lines
    alike = comparison.variant == "distance-published"
    ours = [_distance_line(each.by_layer, look, each) for each in lines]
    theirs = [_distance_line(each.published, look, each, dashes="5 3") for each in lines if each.published]
    layers = max(layer for each in lines for layer in each.by_layer)
    greatest = max(max(each.by_layer.values()) for each in lines)
    published = [value for each in lines for value in each.published.values()]
    panels = [
        Panel(
            f"{comparison.task}: {'published variant' if alike else 'Jensen-Shannon, nats'}",
            "layer",
            [*ours, *theirs] if alike else ours,
            (0.8, layers + 0.2) if layers > 1 else (0, 2),
            1.05 * max([greatest, *published]) if alike else min(math.log(2), 1.15 * greatest),
            up="divergence" if alike else "nats",
        )
    ]
    if theirs and not alike:
        panels.append(
            Panel("Published, their divergence", "layer", theirs, (0.8, 12.2), 1.05 * max(published), up="divergence")
        )
    legend = [LegendEntry(each.label, _distance_line({}, look, each)) for each in lines]
    if theirs:
        legend.append(LegendEntry("published", Series([], dashes="5 3")))
    pairing = "same" if comparison.same_seed else "different"
    said = ", ".join(f"{each.label} {each.overall:.3f}" for each in lines)
    return grid(
        f"attention-{comparison.variant}-{pairing}-seeds-{comparison.task}",
        f"Distance of attention from {lines[0].reference} on {comparison.task}, {pairing} seeds",
        f"Distance of the nearest heads from those of {lines[0].reference}, mean over layers, nearest first: {said}.",
        panels,
        legend,
    )


def _distance_line(
    by_layer: dict[int, float], look: dict[str, tuple[str, str]], of: Distances, dashes: str = ""
) -> Series:
    points = [(float(layer), value) for layer, value in sorted(by_layer.items())]
    if of.encoding == of.reference:
        return Series(points, "currentColor", "" if dashes else "m-0.9,-0.9h1.8v1.8h-1.8z", dashes or "2 2", 0.8)
    colour, shape = look[of.encoding]
    return Series(points, colour, "" if dashes else shape, dashes)


def reach_figure(every: Sequence[LayerStatistics], task: str, encodings: list[str]) -> Figure:
    """How much attention falls how far back: a bar for each layer of each encoding."""
    group = shown_group(every)
    chosen = [each for each in every if each.group == group]
    edges = max((each.reach for each in chosen), key=len)
    colours = [shade(0.12 + 0.88 * i / max(1, len(edges) - 1)) for i in range(len(edges))]
    layers = max(each.layer for each in chosen)
    tall = max(8.0, min(16.0, 150 / layers))
    bodies = []
    shown = [encoding for encoding in encodings if any(each.encoding == encoding for each in chosen)]
    for encoding in shown:
        body, names = [text(shortened(encoding, 250, 12), 4, 14, 12, weight=600)], []
        bars: list[list[str]] = [[] for _ in colours]
        for each in (each for each in chosen if each.encoding == encoding):
            y, x = 22 + (each.layer - 1) * (tall + 2), Scale((0, 1), (36, 244))
            names.append((str(each.layer), 30.0, y + tall - 2))
            at = 0.0
            for bin_, (_, share) in enumerate(each.reach):
                if share > 0.002:
                    bars[bin_].append(f"M{x(at):.1f},{y + tall / 2:.1f}h{208 * share:.1f}")
                at += share
        bottom = 22 + layers * (tall + 2)
        body += [
            element("path", d="".join(each), stroke=colour, stroke_width=tall)
            for each, colour in zip(bars, colours, strict=True)
            if each
        ]
        body.append(labels(names, min(10.5, tall), "end"))
        body.append(labels(((f"{value:g}", 36 + 208 * value, bottom + 11) for value in (0, 0.5, 1)), 10.5, "middle"))
        bodies.append("".join(body))
    said = "; ".join(
        f"{name}: " + ", ".join(f"layer {e.layer} {e.scores['tokens_back']:.1f}" for e in chosen if e.encoding == name)
        for name in shown
    )
    drawn = arranged(
        f"attention-reach-{task}",
        f"How far heads look on {task}, {group} lengths",
        f"Mean distance in tokens that heads look back on {group} lengths, by layer: {said}.",
        bodies,
        (270.0, 22 + layers * (tall + 2) + 24),
        [],
    )
    return _with_bins(drawn, [edge for edge, _ in edges], colours)


def _with_bins(figure: Figure, edges: list[int], colours: list[str]) -> Figure:
    """With the legend of distances above."""
    firsts = [0, *(edge + 1 for edge in edges[:-1])]
    names = [f"{first}–{last}" if last > first else str(last) for first, last in zip(firsts, edges, strict=True)]
    words = "tokens back, layer by layer:"
    body, x, y = [text(words, 4, 13, 11, quiet=True)], 8 + width_of(words), 13.0
    for name, colour in zip(names, colours, strict=True):
        wide = 22 + width_of(name, 11)
        if x + wide > figure.width:
            x, y = 4.0, y + 18
        body.append(element("rect", x=x, y=y - 9, width=11, height=11, fill=colour))
        body.append(text(name, x + 15, y, 11))
        x += wide + 8
    return lowered(figure, "".join(body), y + 10)


def by_position_figures(every: Sequence[LayerStatistics], task: str, encodings: list[str]) -> list[Figure]:
    """Entropy and the share of the first token at each position: a line for each layer, and what even attention has."""
    group = shown_group(every)
    chosen = [each for each in every if each.group == group]
    look = styles(encodings)
    shown = [encoding for encoding in encodings if any(each.encoding == encoding for each in chosen)]
    bound = max((each.entropy_bound for each in chosen), key=len)
    even = [1 / (i + 1) for i in range(len(bound))]
    kinds = (
        ("entropy", "Entropy of attention", "nats", bound, "its bound, ln t", max(bound)),
        ("first", "Attention on the first token", "share", even, "even attention, 1/t", 1.0),
    )
    found = []
    for name, title, unit, limit, limit_name, top in kinds:
        panels = []
        for encoding in shown:
            own = [each for each in chosen if each.encoding == encoding]
            deepest = max(each.layer for each in own)
            lines = [_positions(limit, "currentColor", dashes="3 3", opacity=0.8)]
            for each in own:
                named = deepest <= 6 or each.layer in (1, deepest)
                opacity = 1.0 if deepest == 1 else 0.45 + 0.55 * (each.layer - 1) / (deepest - 1)
                lines.append(
                    _positions(_values(each, name), look[encoding][0], "", opacity, f"L{each.layer}" if named else "")
                )
            panels.append(Panel(encoding, "position", lines, (1, max(2, len(limit))), top, up=unit))
        said = "; ".join(
            f"{encoding} " + ", ".join(f"{_values(e, name)[-1]:.2f}" for e in chosen if e.encoding == encoding)
            for encoding in shown
        )
        found.append(
            grid(
                f"attention-{name}-{task}",
                f"{title} ({unit}) by position on {task}, {group} lengths",
                f"{title} ({unit}) at the last position of {group} lengths, layer by layer ({limit_name}: "
                f"{limit[-1]:.2f}): {said}.",
                panels,
                [
                    LegendEntry(limit_name, Series([], dashes="3 3", opacity=0.8)),
                    LegendEntry("layers, L1 pale, the last full", Series([])),
                ],
            )
        )
    return found


def _values(of: LayerStatistics, name: str) -> list[float]:
    return of.entropy if name == "entropy" else of.first


def _positions(values: list[float], colour: str, dashes: str = "", opacity: float = 1.0, end: str = "") -> Series:
    return Series([(float(i + 1), v) for i, v in enumerate(values)], colour, dashes=dashes, opacity=opacity, end=end)
