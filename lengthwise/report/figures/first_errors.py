"""Where answers first go wrong, as a figure."""

from collections.abc import Sequence

from lengthwise.report.figures.drawing import Figure, Scale, element, labels, line, shortened, text
from lengthwise.report.figures.palette import ERROR_COLOURS
from lengthwise.report.figures.panels import LEFT, RIGHT, LegendEntry, Series, arranged
from lengthwise.report.model.first_errors import FirstErrors
from lengthwise.report.model.summaries import ERROR_KINDS

LEVELS = 10
"""Shades of the places of first errors."""


def first_error_figure(every: Sequence[FirstErrors], task: str, encodings: list[str]) -> Figure:
    """For each encoding: kinds of first errors by length, and below in which tenth of the target they fall."""
    lengths = sorted({each.lengths[0] for each in every})
    longest_seen = max((each.lengths[0] for each in every if each.seen), default=lengths[0])
    bodies, said = [], []
    for encoding in encodings:
        own = [each for each in every if each.encoding == encoding]
        if not own:
            continue
        bodies.append(_panel(encoding, own, lengths, longest_seen))
        unseen = [each for each in own if not each.seen]
        wrong = sum(each.wrong for each in unseen)
        kinds = ", ".join(f"{sum(e.kinds[k] for e in unseen)} {k.replace('_', ' ')}" for k in ERROR_KINDS[1:])
        said.append(f"{encoding}: {wrong} of {sum(each.n for each in unseen)} wrong ({kinds})")
    legend = [
        LegendEntry(kind.replace("_", " "), Series([], colour, "m-3,-1.5h6v3h-6z", opacity=0.01))
        for kind, colour in ERROR_COLOURS.items()
    ]
    return arranged(
        f"first-errors-{task}",
        f"Where answers first go wrong on {task}, by length",
        f"Answers to unseen lengths on {task}. {'; '.join(said)}.",
        bodies,
        (RIGHT + 18, 196.0),
        legend,
    )


def _panel(encoding: str, rows: list[FirstErrors], lengths: list[int], longest_seen: int) -> str:
    wide = (RIGHT - LEFT) / len(lengths)
    column = {length: LEFT + i * wide for i, length in enumerate(lengths)}
    share, place = Scale((0, 1), (84, 26)), Scale((0, 10), (162, 96))
    body = [text(shortened(encoding, 250, 12), 4, 14, 12, weight=600)]
    shades: dict[int, list[str]] = {}
    bars: dict[str, list[str]] = {kind: [] for kind in ERROR_COLOURS}
    for each in rows:
        x, below = column[each.lengths[0]], 0.0
        for kind in ERROR_COLOURS:
            own = each.kinds[kind] / each.n
            if own:
                bars[kind].append(f"M{x + wide / 2:.1f},{share(below):.1f}V{share(below + own):.1f}")
            below += own
        for tenth, count in enumerate(each.parts):
            if count:
                level = max(1, round(LEVELS * count / each.n))
                shades.setdefault(level, []).append(f"M{x + 0.5:.1f},{place(tenth + 0.5):.1f}h{wide - 1:.1f}")
    body += [
        element("path", d="".join(each), stroke=ERROR_COLOURS[kind], stroke_width=wide - 1)
        for kind, each in bars.items()
        if each
    ]
    for level, cells in sorted(shades.items()):
        body.append(
            element("path", d="".join(cells), stroke="currentColor", stroke_opacity=0.08 + 0.9 * level / LEVELS,
                    stroke_width=place(0) - place(1) - 0.6)
        )  # fmt: skip
    body.append(line(LEFT, place(0), RIGHT, place(0), stroke_opacity=0.4))
    body.append(line(LEFT, place(10), RIGHT, place(10), stroke_opacity=0.14))
    if longest_seen in column and longest_seen != lengths[-1]:
        boundary = column[longest_seen] + wide
        body.append(line(boundary, 22, boundary, place(0), stroke_dasharray="4 3", stroke_opacity=0.6))
    body += [
        labels([("1", LEFT - 5, share(1) + 8), ("0", LEFT - 5, share(0) + 2)], 10.5, "end"),
        labels([("end", LEFT - 5, place(10) + 8), ("start", LEFT - 5, place(0))], 10.5, "end"),
        text("length", RIGHT, 190, 10.5, "end", quiet=True),
    ]
    every = max(1, round(24 / wide))
    shown = ((str(length), column[length] + wide / 2, 176.0) for length in lengths[::-1][::every])
    body.append(labels(shown, 10.5, "middle"))
    return "".join(body)
