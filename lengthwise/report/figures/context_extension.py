"""Figures of extended models: perplexity by context, passkey accuracy by length and depth, head scales, entropy."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence

from lengthwise.report.figures.colour_bar import HEIGHT as BAR
from lengthwise.report.figures.colour_bar import colour_bar
from lengthwise.report.figures.drawing import (
    Figure,
    Scale,
    apart,
    element,
    labels,
    line,
    marks,
    path,
    shortened,
    text,
    upwards,
    width_of,
)
from lengthwise.report.figures.palette import DIVERGING, PALETTE, SHAPES, diverging, shade, text_on
from lengthwise.report.figures.panels import LegendEntry, Panel, Series, arranged, grid, lowered
from lengthwise.report.model.context_extension import (
    ExtensionRows,
    FittedLine,
    Row,
    family_words,
    line_words,
    times_words,
)

WIDTH, HEIGHT = 396.0, 240.0
LEFT, RIGHT, TOP, BOTTOM = 50.0, 214.0, 30.0, 200.0
"""Where the axes are; right of them is room for the names of the lines."""
LEAST = 0.8
"""The smallest ratio that is shown; what is beyond lies on the edge."""
TICKS = {
    2: (1, 1.2, 1.5, 2),
    5: (1, 1.5, 2, 3, 5),
    10: (1, 2, 5, 10),
    20: (1, 2, 5, 10, 20),
    50: (1, 2, 5, 10, 20, 50),
    100: (1, 2, 5, 10, 20, 50, 100),
}
"""The largest ratio that is shown, the least that all of a page's figures fit below -> what is written at the axis."""
EDGE = max(TICKS)
PLAIN = re.compile(r"head-scale for [\d.]+x")
TOGETHER = len(PALETTE)
"""Lines of a figure, each of a colour of its own."""


def ratio_figures(rows: ExtensionRows) -> list[Figure]:
    """Perplexity relative to 1x as trained, by context: one figure for each group of lines."""
    most = next((end for end in TICKS if highest_ratio(rows) <= end), EDGE)
    return [_ratios(rows, name, title, chosen, most) for name, title, chosen in _groups(rows) if chosen]


def highest_ratio(rows: ExtensionRows) -> float:
    """Of ours and the published ones."""
    places = [(each, times) for each in rows.lines for times in rows.times]
    ours = [rows.ratio(*place) for place in places]
    theirs = [found.ratio for place in places if (found := rows.published(*place))]
    return max([ratio for ratio in (*ours, *theirs) if ratio is not None], default=1.0)


def _groups(rows: ExtensionRows) -> list[tuple[str, str, list[str]]]:
    """Lines of the published table by what they are about, others by model, as many as a reader can distinguish."""
    lines = rows.lines
    if not {"none", "rotary"}.intersection(lines):
        return list(_by_model(rows, lines))
    plain = [each for each in lines if PLAIN.fullmatch(each)]
    found = [
        ("uniform", "One scale for all heads", [each for each in lines if each.startswith(("none", "uniform"))]),
        ("head-scale", "A scale for each head", [*(each for each in lines if each == "none"), *plain]),
    ]
    for each in plain:
        same = [each, f"layer-scale{each.removeprefix('head-scale')}"]
        ablated = [other for other in lines if other in same or other.startswith(f"{each}, ")]
        found.append((f"ablation-{each.split()[-1]}", f"Ablations of {each}", ablated if len(ablated) > 1 else []))
    rotary = ("rotary", "position-interpolation", "dynamic-ntk", "yarn")
    found.append(("rotary", "Rotary, not trained further", [each for each in lines if each in rotary]))
    trained = [each for each in lines if each.endswith(", trained")]
    found.append(("rotary-trained", "Rotary, trained further", trained))
    shown = {each for _, _, chosen in found for each in chosen}
    return [*found, *_by_model(rows, [each for each in lines if each not in shown])]


def _by_model(rows: ExtensionRows, lines: Sequence[str]) -> Iterator[tuple[str, str, list[str]]]:
    for family in rows.families:
        own = [each for each in lines if rows.family(each) == family]
        for number, first in enumerate(range(0, len(own), TOGETHER), start=1):
            more = f" ({number})" if len(own) > TOGETHER else ""
            yield f"{_plain(family)}-{number}", f"{family_words(family)}{more}", own[first : first + TOGETHER]


def _plain(name: str) -> str:
    return "".join(letter if letter.isalnum() else "-" for letter in name)


def _ratios(rows: ExtensionRows, name: str, title: str, lines: Sequence[str], most: int) -> Figure:
    x = Scale((0, max(1.0, math.log2(rows.times[-1]))), (LEFT, RIGHT))
    y = Scale((math.log(LEAST), math.log(most)), (BOTTOM, TOP))

    def place(times: float, ratio: float) -> tuple[float, float]:
        return x(math.log2(times)), y(math.log(min(max(ratio, LEAST), most)))

    body = [text(shortened(title, WIDTH - 12, 13), 4, 15, 13, weight=600)]
    for value in TICKS[most]:
        body.append(
            line(LEFT, y(math.log(value)), RIGHT, y(math.log(value)), stroke_opacity=0.35 if value == 1 else 0.12)
        )
    body.append(labels(((f"{value}", LEFT - 5, y(math.log(value)) + 4) for value in TICKS[most]), 10.5, "end"))
    ticks = [(times_words(each), x(math.log2(each)), BOTTOM + 15) for each in rows.times]
    kept = [tick for k, tick in enumerate(ticks) if float(rows.times[k]).is_integer() or len(ticks) < 5]
    body.append(labels(kept, 10.5, "middle"))
    body.append(text("context, in trained lengths", RIGHT, BOTTOM + 30, 10.5, "end", quiet=True))
    body.append(upwards("perplexity, 1x as trained = 1", 12, (TOP + BOTTOM) / 2, 10.5))
    ends, said = [], []
    for number, each in enumerate(lines):
        colour, shape = PALETTE[number % len(PALETTE)], SHAPES[number % len(SHAPES)]
        ours = [(times, ratio) for times in rows.times if (ratio := rows.ratio(each, times)) is not None]
        theirs = [(times, found.ratio) for times in rows.times if (found := rows.published(each, times))]
        stroke = {"fill": "none", "stroke": colour, "stroke_linejoin": "round"}
        if len(theirs) > 1:
            dashes = path(place(*point) for point in theirs)
            body.append(element("path", d=dashes, stroke_width=1.3, stroke_dasharray="5 3", **stroke))
        elif theirs:
            body.append(marks([place(*theirs[0])], shape, 3.4, "none", stroke=colour, stroke_width=0.4))
        if not ours:
            continue
        places = [place(*point) for point in ours]
        body.append(element("path", d=path(places), stroke_width=1.8, **stroke))
        body.append(marks(places, shape, 3, colour))
        ends.append((each, colour, shape, places[-1]))
        said.append(
            f"{line_words(each)}: " + ", ".join(f"{ratio:.3g} at {times_words(times)}" for times, ratio in ours)
        )
    heights = apart([end[1] for *_, end in ends], 13, TOP + 4, BOTTOM)
    for (each, colour, shape, end), height in zip(ends, heights, strict=True):
        leader = path([(end[0] + 4, end[1]), (RIGHT + 10, height)])
        body.append(element("path", d=leader, fill="none", stroke=colour, stroke_width=0.9, stroke_opacity=0.7))
        body.append(marks([(RIGHT + 15, height)], shape, 3, colour))
        words = shortened(_within(each, lines), WIDTH - RIGHT - 24, 10)
        body.append(text(words, RIGHT + 22, height + 3.6, 10))
    description = f"Perplexity relative to that at 1x as trained. {'; '.join(said)}."
    return Figure(
        f"perplexity-ratio-{name}", f"Perplexity by context: {title}", description, WIDTH, HEIGHT, "".join(body)
    )


def _within(name: str, lines: Sequence[str]) -> str:
    """A line's name without what all lines of its figure have in common."""
    whole = next((each for each in lines if PLAIN.fullmatch(each)), "")
    layers = whole.replace("head-scale", "layer-scale")
    if whole and all(each.startswith((whole, layers)) for each in lines):
        if name == layers:
            return "a scale for each layer"
        return line_words(name).removeprefix(line_words(whole)).removeprefix(", ") or "full"
    return name.removesuffix(", trained") if all(each.endswith(", trained") for each in lines) else name


def passkey_maps(rows: Sequence[Row]) -> list[tuple[str, Figure]]:
    """Line -> passkey accuracy: depth downwards, length to the right."""
    return [
        (each, _passkeys([row for row in rows if row["line"] == each], each))
        for each in dict.fromkeys(row["line"] for row in rows)
    ]


def _passkeys(rows: list[Row], name: str) -> Figure:
    lengths, depths = (sorted({row[key] for row in rows}) for key in ("length", "depth"))
    wide, tall, left, top = 44.0, 17.0, 44.0, 24.0
    body = [text(shortened(line_words(name), 300, 12), 4, 14, 12, weight=600)]
    body.append(labels(((f"{d:.0%}", left - 5, top + (i + 0.5) * tall + 4) for i, d in enumerate(depths)), 10.5, "end"))
    below = top + len(depths) * tall + 13
    body.append(labels(((f"{n:,}", left + (i + 0.5) * wide, below) for i, n in enumerate(lengths)), 10, "middle"))
    for length, depth in {(row["length"], row["depth"]): None for row in rows}:
        here = [row for row in rows if (row["length"], row["depth"]) == (length, depth)]  # of several seeds
        share = sum(row["correct"] for row in here) / sum(row["n"] for row in here)
        x, y = left + lengths.index(length) * wide, top + depths.index(depth) * tall
        colour = shade(share)
        body.append(element("rect", x=x + 0.5, y=y + 0.5, width=wide - 1, height=tall - 1, rx=2, fill=colour))
        body.append(text(f"{share:.1f}", x + wide / 2, y + tall / 2 + 3.6, 10, "middle", fill=text_on(colour)))
    means = [_mean([row["correct"] / row["n"] for row in rows if row["length"] == each]) for each in lengths]
    said = ", ".join(f"{mean:.2f} at {length:,} tokens" for length, mean in zip(lengths, means, strict=True))
    width = max(left + len(lengths) * wide + 4, min(width_of(line_words(name), 12) + 12, 312.0))
    return Figure(
        f"passkeys-{_plain(name)}",
        f"Passkey accuracy: {line_words(name)}",
        f"{line_words(name)}: passkey accuracy, mean over depths: {said}.",
        width,
        below + 8,
        "".join(body),
    )


def scale_maps(fits: Sequence[FittedLine]) -> Figure | None:
    """The learned scale of every head, mean over seeds; rows are layers."""
    known = _mean_scales(fits)
    if not known:
        return None
    every = [scale for _, scales_LH in known for row in scales_LH for scale in row]
    limit = max(1.01, *every, *(1 / scale for scale in every if scale > 0))
    layers, heads = max(len(scales) for _, scales in known), max(len(row) for _, scales in known for row in scales)
    wide, tall = (42.0, 20.0) if heads <= 16 else (max(6.0, 640 / heads), 12.0)
    bodies, said = [], []
    for name, scales_LH in known:
        body = [text(shortened(line_words(name), 36 + heads * wide, 12), 4, 14, 12, weight=600)]
        body.append(labels(((str(i + 1), 28, 22 + (i + 0.5) * tall + 4) for i in range(len(scales_LH))), 10.5, "end"))
        for i, row in enumerate(scales_LH):
            for j, scale in enumerate(row):
                colour = diverging(scale, limit)
                x, y = 34 + j * wide, 22 + i * tall
                body.append(element("rect", x=x + 1, y=y + 1, width=wide - 2, height=tall - 2, rx=2, fill=colour))
                if heads <= 16:
                    body.append(
                        text(f"{scale:.2f}", x + wide / 2, y + tall / 2 + 4, 11, "middle", fill=text_on(colour))
                    )
        bodies.append("".join(body))
        flat = [scale for row in scales_LH for scale in row]
        said.append(f"{line_words(name)}: {min(flat):.2f} to {max(flat):.2f}, mean {_mean(flat):.2f}")
    size = (46 + heads * wide, 22 + layers * tall + 16)
    columns = max(1, int(930 / size[0]))
    drawn = arranged("head-scales", "Learned head scales", f"{'; '.join(said)}.", bodies, size, [], columns)
    bar, wide = colour_bar(
        lambda share: shade(share, DIVERGING),
        [(0, f"{1 / limit:.2f}"), (0.5, "1"), (1, f"{limit:.2f}")],
        "scale of a head; rows: layers, columns: heads",
        4,
        0,
    )
    return lowered(drawn, bar, BAR + 10, wide + 8)


def _mean_scales(fits: Sequence[FittedLine]) -> list[tuple[str, list[list[float]]]]:
    found: dict[str, list[list[list[float]]]] = {}
    for fit in fits:
        if fit.scales_LH:
            found.setdefault(fit.line, []).append(fit.scales_LH)
    return [
        (line, [[_mean(heads) for heads in zip(*layers, strict=True)] for layers in zip(*several, strict=True)])
        for line, several in found.items()
    ]


LOOKED = {"bits": "Entropy, bits", "first": "Attention on the first token", "beyond": "Beyond the trained length"}


def look_figures(rows: ExtensionRows) -> list[Figure]:
    """Entropy, attention on the first token and beyond the trained length: means over heads, by context."""
    found: dict[tuple[str, float], list[Row]] = {}
    for row in rows.heads:
        found.setdefault((row["line"], row["times"]), []).append(row)
    watched = set(line for line, _ in found)
    figures = []
    for name, title, lines in _groups(rows):
        chosen = [line for line in lines if line in watched]
        if chosen:
            figures.append(_looks(f"heads-{name}", title, chosen, found))
    return figures


def _looks(name: str, title: str, lines: Sequence[str], found: Mapping[tuple[str, float], list[Row]]) -> Figure:
    times = sorted({each for line, each in found if line in lines})
    span = (0.0, max(1.0, math.log2(times[-1])))
    panels, signs, said = [], [], []
    for value, words in LOOKED.items():
        series = []
        for number, line_name in enumerate(lines):
            points: list[tuple[float, float]] = [
                (math.log2(each), _mean([row[value] for row in found[line_name, each]]))
                for each in times
                if (line_name, each) in found
            ]
            series.append(Series(points, PALETTE[number % len(PALETTE)], SHAPES[number % len(SHAPES)]))
            if value == "beyond":
                signs.append(LegendEntry(line_words(line_name), series[-1]))
                said.append(f"{line_words(line_name)}: {points[-1][1]:.2f} beyond the trained length at {times[-1]:g}x")
        top = max(0.01, *(height for each in series for _, height in each.points))
        panels.append(Panel(words, "doublings of the trained length", series, span, top))
    return grid(name, f"Where heads look: {title}", f"{'; '.join(said)}.", panels, signs, 3)


def entropy_figure(rows: Sequence[Row]) -> Figure | None:
    """Mean entropy of all heads by position, as trained and extended, below its bound."""
    known = [row for row in rows if "bits" in row]
    if not known:
        return None
    positions = sorted({row["position"] for row in known})
    bound = Series([(p, math.log2(p + 1)) for p in positions], dashes="2 3", opacity=0.7)
    lines, signs, said = [bound], [LegendEntry("at most", bound)], []
    for number, variant in enumerate(dict.fromkeys(row["variant"] for row in known)):
        own: dict[int, list[float]] = {}
        for row in known:
            if row["variant"] == variant:
                own.setdefault(row["position"], []).append(row["bits"])
        points: list[tuple[float, float]] = [(p, _mean(bits)) for p, bits in sorted(own.items())]
        lines.append(Series(points, PALETTE[number % len(PALETTE)]))
        signs.append(LegendEntry(variant, lines[-1]))
        said.append(f"{variant}: {points[-1][1]:.2f} bits at position {points[-1][0]:,}")
    top = math.log2(positions[-1] + 1)
    panel = Panel("Entropy of attention", "position", lines, (0, positions[-1]), top, up="bits")
    return grid(
        "entropy", "Entropy of attention by position, mean over heads", f"{'; '.join(said)}.", [panel], signs, 1
    )


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
