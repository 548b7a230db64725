"""Accuracy over training steps: on unseen lengths, which were only watched, and in validation, in distribution."""

import math

from lengthwise.records.results import Results
from lengthwise.records.validations import LAST
from lengthwise.report.figures.drawing import Figure, Point
from lengthwise.report.figures.palette import styles
from lengthwise.report.figures.panels import HEIGHT, WIDTH, LegendEntry, Panel, Series, draw, grid
from lengthwise.report.model.step_curves import NEVER_CHOSEN, StepCurves, steps_of

NAME = "accuracy-over-steps"

MOST_SHAPES = 13
"""On a line: enough to tell lines apart, not enough to hide them or to fill the page."""


def steps_panel(steps: StepCurves, encodings: list[str]) -> Figure:
    """One task, without a legend."""
    name, title = f"over-steps-{steps.task}", f"Exact match over training steps on {steps.task}"
    return Figure(name, title, spoken(steps), WIDTH, HEIGHT, draw(_panel(steps, encodings)))


def steps_figure(results: Results) -> Figure | None:
    """All tasks under one legend; None where no run watched unseen lengths."""
    every = steps_of(results)
    if not every:
        return None
    look = styles(results.encodings)
    shown = {curve.encoding for each in every for curve in each.curves}
    legend = [LegendEntry(encoding, Series([], *look[encoding])) for encoding in results.encodings if encoding in shown]
    legend += [
        LegendEntry("unseen lengths (watched), mean over seeds", Series([])),
        LegendEntry("each seed", _thin([])),
        LegendEntry("validation, in distribution", _dashed([])),
    ]
    panels = [_panel(steps, results.encodings) for steps in every]
    description = " ".join([NEVER_CHOSEN, *map(spoken, every)])
    return grid(NAME, "Exact match over training steps", description, panels, legend)


def spoken(steps: StepCurves) -> str:
    """What a screen reader says instead of the lines."""
    said = "; ".join(
        f"{curve.encoding} {curve.unseen[-1][1]:.2f}"
        + (f" (swing over the last {LAST} validations {curve.swing:.2f})" if curve.swing is not None else "")
        + (f", in distribution {curve.validation[-1][1]:.2f}" if curve.validation else "")
        for curve in steps.curves
        if curve.unseen
    )
    return f"Exact match on {steps.task} over training steps, at the end on unseen lengths: {said}."


def _panel(steps: StepCurves, encodings: list[str]) -> Panel:
    look = styles(encodings)
    lines = [_dashed(curve.validation, look[curve.encoding][0], curve.encoding) for curve in steps.curves]
    for curve in steps.curves:
        if len(curve.by_seed) > 1:
            lines += [_thin(series, look[curve.encoding][0], curve.encoding) for series in curve.by_seed.values()]
    every = math.ceil(len(steps.steps) / MOST_SHAPES)
    lines += [
        Series(curve.unseen, *look[curve.encoding], encoding=curve.encoding, every=every) for curve in steps.curves
    ]
    title, under = steps.heading
    drawn = [line for line in lines if line.points]
    return Panel(title, "training step", drawn, (0, steps.steps[-1]), 1.0, up="exact match", under=under)


def _thin(points: list[Point], colour: str = "currentColor", encoding: str = "") -> Series:
    return Series(points, colour, opacity=0.45, width=0.9, encoding=encoding, kind="seeds")


def _dashed(points: list[Point], colour: str = "currentColor", encoding: str = "") -> Series:
    return Series(points, colour, dashes="4 3", opacity=0.85, width=1.1, encoding=encoding, kind="validation")
