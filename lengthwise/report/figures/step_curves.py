"""Accuracy over training steps: on unseen lengths, which were only watched, and in validation, in distribution."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from lengthwise.records.rows import Results, RunResult
from lengthwise.records.validations import LAST, mean_swing, validations
from lengthwise.report.figures.drawing import Figure, Place
from lengthwise.report.figures.palette import looks
from lengthwise.report.figures.panels import HEIGHT, WIDTH, Line, Panel, Sign, draw, grid

NAME = "accuracy-over-steps"

MOST_SHAPES = 13
"""On a line: enough to tell lines apart, not enough to hide them or to fill the page."""

NEVER_CHOSEN = "Unseen lengths were watched and never used to choose a checkpoint, a setting or the end of training."

RULES = {
    "earliest": "the first validation with the highest exact match in distribution",
    "latest": "the last validation with the highest exact match in distribution",
    "last": "the last validation",
}
"""Which checkpoint is the best one, by the setting `training.best`."""


@dataclass(frozen=True)
class StepCurve:
    """One encoding on one task during training; places are (step, exact match)."""

    encoding: str
    unseen: list[Place]
    """Mean over seeds on the sample of unseen lengths."""
    by_seed: dict[int, list[Place]]
    """The same for each seed."""
    validation: list[Place]
    """Mean over seeds in distribution."""
    swing: float | None


@dataclass(frozen=True)
class TaskSteps:
    """What the validations found on one task."""

    task: str
    curves: list[StepCurve]

    @property
    def steps(self) -> list[int]:
        """Every step of its curves, in order."""
        return sorted({int(step) for curve in self.curves for series in curve.by_seed.values() for step, _ in series})


def steps_of(results: Results) -> list[TaskSteps]:
    """Tasks with runs that watched unseen lengths; none for results of versions that kept no validations."""
    found = []
    for task in results.tasks:
        curves = [curve for encoding in results.encodings if (curve := _curve(encoding, results.of(task, encoding)))]
        if curves:
            found.append(TaskSteps(task, curves))
    return found


def _curve(encoding: str, runs: Sequence[RunResult]) -> StepCurve | None:
    by_seed = {run.description["seed"]: _series(run, "unseen") for run in runs}
    by_seed = {seed: series for seed, series in by_seed.items() if series}
    if not by_seed:
        return None
    watched = [run for run in runs if run.description["seed"] in by_seed]
    in_distribution = _mean(_series(run, "validation") for run in watched)
    return StepCurve(encoding, _mean(by_seed.values()), by_seed, in_distribution, mean_swing(watched))


def _series(run: RunResult, kind: Literal["validation", "unseen"]) -> list[Place]:
    found = ((each.step, getattr(each, kind)) for each in validations(run))
    return [(step, value) for step, value in found if value is not None]


def _mean(series: Iterable[list[Place]]) -> list[Place]:
    """The mean at each step that all have: a seed that ends early must not make the mean jump."""
    every = [dict(each) for each in series]
    shared = sorted(set.intersection(*(set(each) for each in every)))
    return [(step, sum(each[step] for each in every) / len(every)) for step in shared]


def steps_panel(steps: TaskSteps, encodings: list[str]) -> Figure:
    """One task, without a legend."""
    name, title = f"over-steps-{steps.task}", f"Exact match over training steps on {steps.task}"
    return Figure(name, title, spoken(steps), WIDTH, HEIGHT, draw(_panel(steps, encodings)))


def steps_figure(results: Results) -> Figure | None:
    """All tasks under one legend; None where no run watched unseen lengths."""
    every = steps_of(results)
    if not every:
        return None
    look = looks(results.encodings)
    shown = {curve.encoding for each in every for curve in each.curves}
    legend = [Sign(encoding, Line([], *look[encoding])) for encoding in results.encodings if encoding in shown]
    legend += [
        Sign("unseen lengths (watched), mean over seeds", Line([])),
        Sign("each seed", _thin([])),
        Sign("validation, in distribution", _dashed([])),
    ]
    panels = [_panel(steps, results.encodings) for steps in every]
    description = " ".join([NEVER_CHOSEN, *map(spoken, every)])
    return grid(NAME, "Exact match over training steps", description, panels, legend)


def spoken(steps: TaskSteps) -> str:
    """What a screen reader says instead of the lines."""
    said = "; ".join(
        f"{curve.encoding} {curve.unseen[-1][1]:.2f}"
        + (f" (swing over the last {LAST} validations {curve.swing:.2f})" if curve.swing is not None else "")
        + (f", in distribution {curve.validation[-1][1]:.2f}" if curve.validation else "")
        for curve in steps.curves
        if curve.unseen
    )
    return f"Exact match on {steps.task} over training steps, at the end on unseen lengths: {said}."


def best_rules(results: Results) -> list[str]:
    """The rules by which the runs chose their best checkpoint, in words."""
    names = (run.description["settings"]["training"].get("best") for run in results.runs)
    return [RULES.get(name, "the one with the highest exact match in distribution") for name in dict.fromkeys(names)]


def watched_examples(results: Results) -> list[int]:
    """How many examples of unseen lengths the runs watched, each number once."""
    return sorted({number for run in results.runs if (number := run.description.get("examples", {}).get("watched"))})


def _panel(steps: TaskSteps, encodings: list[str]) -> Panel:
    look = looks(encodings)
    lines = [_dashed(curve.validation, look[curve.encoding][0], curve.encoding) for curve in steps.curves]
    for curve in steps.curves:
        if len(curve.by_seed) > 1:
            lines += [_thin(series, look[curve.encoding][0], curve.encoding) for series in curve.by_seed.values()]
    every = math.ceil(len(steps.steps) / MOST_SHAPES)
    lines += [Line(curve.unseen, *look[curve.encoding], encoding=curve.encoding, every=every) for curve in steps.curves]
    return Panel(steps.task, "training step", [line for line in lines if line.points], (0, steps.steps[-1]), 1.0)


def _thin(points: list[Place], colour: str = "currentColor", encoding: str = "") -> Line:
    return Line(points, colour, opacity=0.45, width=0.9, encoding=encoding, kind="seeds")


def _dashed(points: list[Place], colour: str = "currentColor", encoding: str = "") -> Line:
    return Line(points, colour, dashes="4 3", opacity=0.85, width=1.1, encoding=encoding, kind="validation")
