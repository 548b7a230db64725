"""Figures of what probes read and of where answers go wrong."""

from collections.abc import Sequence

from lengthwise.report.figures.drawing import Figure, Scale, element, labels, line, shortened, text
from lengthwise.report.figures.palette import ERRORS, looks
from lengthwise.report.figures.panels import LEFT, RIGHT, Line, Panel, Sign, arranged, grid
from lengthwise.report.model import why

LEVELS = 10
"""Shades of the places of first errors."""


def probe_figure(best: Sequence[why.Probed], task: str, encodings: list[str]) -> Figure:
    """Mean error by position, each encoding at the layer that reads best within the training length."""
    look, panels = looks(encodings), []
    for (target, probe), here in why.grouped(best, lambda each: (each.target, each.probe)).items():
        trained, last = here[0].trained_tokens, max(max(each.error_at) for each in here)
        control = [
            (span, why.mean_or_none(each.control[name] for each in here))
            for span, name in (((0, trained - 0.5), "within_error"), ((trained - 0.5, last), "beyond_error"))
        ]
        lines = [
            Line([(float(start), value), (float(end), value)], dashes="1 3", opacity=0.8)
            for (start, end), value in control
            if value is not None
        ]
        for each in here:
            points = [(float(position), error) for position, error in each.error_at.items()]
            lines.append(Line(points, look[each.encoding][0]))
        top = max(value for each in lines for _, value in each.points)
        # An estimate that runs away would press all others to the floor.
        top = min(top, 1.15 * max([1.0, *(value for _, value in control if value is not None)]))
        panels.append(
            Panel(f"{target}, {probe} probe", "position, tokens", lines, (0, last), top, trained - 0.5, "trained")
        )
    said = "; ".join(
        f"{each.encoding} ({each.target}, {each.probe}): {_error(each.within)} within, {_error(each.beyond)} beyond"
        for each in best
    )
    legend = [Sign(e, Line([], look[e][0])) for e in encodings if any(each.encoding == e for each in best)]
    legend.append(Sign("control, fitted to shuffled answers", Line([], dashes="1 3", opacity=0.8)))
    return grid(
        f"probes-{task}",
        f"Error of probes by position on {task}",
        f"Mean error in tokens within the training length and beyond: {said}.",
        panels,
        legend,
        columns=2,
    )


def _error(part: dict[str, float | None]) -> str:
    return "–" if part["error"] is None else f"{part['error']:.2f}"


def anatomy_figure(every: Sequence[why.Anatomy], task: str, encodings: list[str]) -> Figure:
    """For each encoding: kinds of first errors by length, and below in which tenth of the target they fall."""
    lengths = sorted({each.lengths[0] for each in every})
    longest_seen = max((each.lengths[0] for each in every if each.seen), default=lengths[0])
    bodies, said = [], []
    for encoding in encodings:
        own = [each for each in every if each.encoding == encoding]
        if not own:
            continue
        bodies.append(_anatomy(encoding, own, lengths, longest_seen))
        unseen = [each for each in own if not each.seen]
        wrong = sum(each.wrong for each in unseen)
        kinds = ", ".join(f"{sum(e.kinds[k] for e in unseen)} {k.replace('_', ' ')}" for k in why.ERRORS[1:])
        said.append(f"{encoding}: {wrong} of {sum(each.n for each in unseen)} wrong ({kinds})")
    legend = [
        Sign(kind.replace("_", " "), Line([], colour, "m-3,-1.5h6v3h-6z", opacity=0.01))
        for kind, colour in ERRORS.items()
    ]
    return arranged(
        f"first-errors-{task}",
        f"Where answers first go wrong on {task}, by length",
        f"Answers to unseen lengths on {task}. {'; '.join(said)}.",
        bodies,
        (270.0, 196.0),
        legend,
    )


def _anatomy(encoding: str, rows: list[why.Anatomy], lengths: list[int], longest_seen: int) -> str:
    wide = (RIGHT - LEFT) / len(lengths)
    column = {length: LEFT + i * wide for i, length in enumerate(lengths)}
    share, place = Scale((0, 1), (84, 26)), Scale((0, 10), (162, 96))
    body = [text(shortened(encoding, 250, 12), 4, 14, 12, weight=600)]
    shades: dict[int, list[str]] = {}
    bars: dict[str, list[str]] = {kind: [] for kind in ERRORS}
    for each in rows:
        x, below = column[each.lengths[0]], 0.0
        for kind in ERRORS:
            own = each.kinds[kind] / each.n
            if own:
                bars[kind].append(f"M{x + wide / 2:.1f},{share(below):.1f}V{share(below + own):.1f}")
            below += own
        for tenth, count in enumerate(each.parts):
            if count:
                level = max(1, round(LEVELS * count / each.n))
                shades.setdefault(level, []).append(f"M{x + 0.5:.1f},{place(tenth + 0.5):.1f}h{wide - 1:.1f}")
    body += [
        element("path", d="".join(each), stroke=ERRORS[kind], stroke_width=wide - 1)
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
