"""Maps of layers by heads: what each head of one run of each encoding does."""

from lengthwise.records.findings import AnalysisRows, Row, is_kind
from lengthwise.report.figures.colour_bar import HEIGHT as BAR
from lengthwise.report.figures.colour_bar import colour_bar
from lengthwise.report.figures.drawing import Figure, element, labels, shortened, text
from lengthwise.report.figures.palette import shade, text_on
from lengthwise.report.figures.panels import arranged, lowered
from lengthwise.report.model.grouping import grouped
from lengthwise.report.model.head_statistics import KIND_NAMES, SCORES, first_seeds

NUMBERED = 16
"""Cells of a map that have room for their numbers."""


def head_map_figures(analysis: AnalysisRows, task: str, encodings: list[str]) -> list[Figure]:
    """Layers by heads of one run of each encoding, once for each score."""
    rows = first_seeds(row for row in analysis.heads if row["task"] == task)
    group = "unseen" if any(row["group"] == "unseen" for row in rows) else "seen"
    chosen = [row for row in rows if row["group"] == group]
    known = [score for score in SCORES if any(row[score] is not None for row in chosen)]
    return [_head_maps(chosen, score, task, group, encodings) for score in known]


def _head_maps(rows: list[Row], score: str, task: str, group: str, encodings: list[str]) -> Figure:
    top = max(1.0, *(row[score] or 0.0 for row in rows)) if score == "tokens_back" else 1.0
    layers, heads = (max(row[name] for row in rows) for name in ("layer", "head"))
    numbered = layers * heads <= NUMBERED
    wide, tall = (40.0, 22.0) if numbered else (min(18.0, 208 / heads), 12.0)
    bodies, said = [], []
    for encoding in encodings:
        own = [row for row in rows if row["encoding"] == encoding]
        if not own:
            continue
        body = [text(shortened(encoding, 36 + heads * wide, 12), 4, 14, 12, weight=600)]
        rows_named, columns_named = (sorted({row[name] for row in own}) for name in ("layer", "head"))
        below = 22 + layers * tall + 13
        body.append(labels(((str(i), 30, 22 + (i - 0.5) * tall + 4) for i in rows_named), 10.5, "end"))
        body.append(labels(((str(i), 36 + (i - 0.5) * wide, below) for i in columns_named), 10, "middle"))
        body.append(_numbered(own, score, top, wide, tall) if numbered else _shaded(own, score, top, wide, tall))
        body.append(_frames(own, score, wide, tall))
        bodies.append("".join(body))
        strongest = sorted((row for row in own if row[score] is not None), key=lambda row: -row[score])[:3]
        said.append(
            f"{encoding}: " + ", ".join(f"layer {r['layer']} head {r['head']} {r[score]:.2f}" for r in strongest)
        )
    seeds = "/".join(map(str, sorted({row["seed"] for row in rows})))
    columns = max(1, int(830 / (48 + heads * wide)))
    name = SCORES[score]
    drawn = arranged(
        f"attention-heads-{score.replace('_', '-')}-{task}",
        f"{name[0].upper()}{name[1:]} of each head on {task}, {group} lengths, seed {seeds}",
        f"{name} of each head on {group} lengths; the three highest of each encoding: {'; '.join(said)}.",
        bodies,
        (48 + heads * wide, 22 + layers * tall + 24),
        [],
        columns,
    )
    words = "rows: layers, columns: heads" + ("; framed: heads of this kind" if score in KIND_NAMES else "")
    bar, width = colour_bar(shade, [(0, "0"), (1, f"{top:.3g}")], words, 4, 0)
    return lowered(drawn, bar, BAR + 10, width + 8)


def _numbered(rows: list[Row], score: str, top: float, wide: float, tall: float) -> str:
    body = []
    for row in rows:
        if row[score] is None:
            continue
        colour = shade(row[score] / top)
        x, y = 36 + (row["head"] - 1) * wide, 22 + (row["layer"] - 1) * tall
        body.append(element("rect", x=x + 1, y=y + 1, width=wide - 2, height=tall - 2, rx=2, fill=colour))
        words = f"{row[score]:.1f}" if score == "tokens_back" else f"{row[score]:.2f}"
        body.append(text(words, x + wide / 2, y + tall / 2 + 4, 11, "middle", fill=text_on(colour)))
    return "".join(body)


def _shaded(rows: list[Row], score: str, top: float, wide: float, tall: float) -> str:
    """Cells without numbers: one path for each of 21 shades."""
    places: dict[int, list[Row]] = grouped(
        (row for row in rows if row[score] is not None), lambda row: round(min(1.0, row[score] / top) * 20)
    )
    body = []
    for level, cells in sorted(places.items()):
        data = "".join(
            f"M{36 + (row['head'] - 1) * wide:.1f},{22 + (row['layer'] - 0.5) * tall:.1f}h{wide - 1:.1f}"
            for row in cells
        )
        body.append(element("path", d=data, stroke=shade(level / 20), stroke_width=tall - 1))
    return "".join(body)


def _frames(rows: list[Row], score: str, wide: float, tall: float) -> str:
    """Around heads of the kind that the score is of."""
    chosen = [row for row in rows if score in KIND_NAMES and is_kind(row, score)]
    data = "".join(
        f"M{36.5 + (row['head'] - 1) * wide:.1f},{22.5 + (row['layer'] - 1) * tall:.1f}"
        f"h{wide - 1:.1f}v{tall - 1:.1f}h{1 - wide:.1f}z"
        for row in chosen
    )
    return element("path", d=data, fill="none", stroke="#d9480f", stroke_width=2) if chosen else ""
