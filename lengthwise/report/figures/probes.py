"""What probes read, as a figure: their error by position."""

from collections.abc import Sequence

from lengthwise.report.figures.drawing import Figure
from lengthwise.report.figures.palette import styles
from lengthwise.report.figures.panels import LegendEntry, Panel, Series, grid
from lengthwise.report.model.grouping import grouped, mean_or_none
from lengthwise.report.model.probes import Probed


def probe_figure(best: Sequence[Probed], task: str, encodings: list[str]) -> Figure:
    """Mean error by position, each encoding at the layer that reads best within the training length."""
    look, panels = styles(encodings), []
    for (target, probe), here in grouped(best, lambda each: (each.target, each.probe)).items():
        trained, last = here[0].trained_tokens, max(max(each.error_at) for each in here)
        control = [
            (span, mean_or_none(each.control[name] for each in here))
            for span, name in (((0, trained - 0.5), "within_error"), ((trained - 0.5, last), "beyond_error"))
        ]
        lines = [
            Series([(float(start), value), (float(end), value)], dashes="1 3", opacity=0.8)
            for (start, end), value in control
            if value is not None
        ]
        for each in here:
            points = [(float(position), error) for position, error in each.error_at.items()]
            lines.append(Series(points, look[each.encoding][0]))
        top = max(value for each in lines for _, value in each.points)
        # An estimate that runs away would press all others to the floor.
        usual = 1.15 * max([1.0, *(value for _, value in control if value is not None)])
        panels.append(
            Panel(
                f"{target}, {probe} probe",
                "position, tokens",
                lines,
                (0, last),
                top,
                trained - 0.5,
                "trained",
                up="error, tokens" + (" (log)" if top > usual else ""),
                is_logarithmic=top > usual,
            )
        )
    said = "; ".join(
        f"{each.encoding} ({each.target}, {each.probe}): {_error(each.within)} within, {_error(each.beyond)} beyond"
        for each in best
    )
    legend = [LegendEntry(e, Series([], look[e][0])) for e in encodings if any(each.encoding == e for each in best)]
    legend.append(LegendEntry("control, fitted to shuffled answers", Series([], dashes="1 3", opacity=0.8)))
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
