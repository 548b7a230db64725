"""Accuracy over training steps as data: on unseen lengths, which were only watched, and in validation."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from lengthwise.records.facets import heading
from lengthwise.records.results import Results
from lengthwise.records.run_result import RunResult
from lengthwise.records.validations import mean_swing, validations

Step = tuple[float, float]
"""A training step, and exact match there."""

NEVER_CHOSEN = "Unseen lengths were watched and never used to choose a checkpoint, a setting or the end of training."

RULES = {
    "earliest": "the first validation with the highest exact match in distribution",
    "latest": "the last validation with the highest exact match in distribution",
    "last": "the last validation",
}
"""Which checkpoint is the best one, by the setting `training.best`."""


@dataclass(frozen=True)
class StepCurve:
    """One encoding on one task during training."""

    encoding: str
    unseen: list[Step]
    """Mean over seeds on the sample of unseen lengths."""
    by_seed: dict[int, list[Step]]
    """The same for each seed."""
    validation: list[Step]
    """Mean over seeds in distribution."""
    swing: float | None


@dataclass(frozen=True)
class StepCurves:
    """What the validations found on one task."""

    task: str
    curves: list[StepCurve]
    heading: tuple[str, str] = ("", "")
    """The task, and the point of a grid that it is at."""

    @property
    def steps(self) -> list[int]:
        """Every step of its curves, in order."""
        return sorted({int(step) for curve in self.curves for series in curve.by_seed.values() for step, _ in series})


def steps_of(results: Results) -> list[StepCurves]:
    """Tasks with runs that watched unseen lengths; none for results of versions that kept no validations."""
    found = []
    for task in results.tasks:
        curves = [curve for encoding in results.encodings if (curve := _curve(encoding, results.of(task, encoding)))]
        if curves:
            found.append(StepCurves(task, curves, heading(results, task)))
    return found


def _curve(encoding: str, runs: Sequence[RunResult]) -> StepCurve | None:
    by_seed = {run.description["seed"]: _series(run, "unseen") for run in runs}
    by_seed = {seed: series for seed, series in by_seed.items() if series}
    if not by_seed:
        return None
    watched = [run for run in runs if run.description["seed"] in by_seed]
    in_distribution = _mean(_series(run, "validation") for run in watched)
    return StepCurve(encoding, _mean(by_seed.values()), by_seed, in_distribution, mean_swing(watched))


def _series(run: RunResult, kind: Literal["validation", "unseen"]) -> list[Step]:
    found = ((each.step, getattr(each, kind)) for each in validations(run))
    return [(step, value) for step, value in found if value is not None]


def _mean(series: Iterable[list[Step]]) -> list[Step]:
    """The mean at each step that all have: a seed that ends early must not make the mean jump."""
    every = [dict(each) for each in series]
    shared = sorted(set.intersection(*(set(each) for each in every)))
    return [(step, sum(each[step] for each in every) / len(every)) for step in shared]


def best_rules(results: Results) -> list[str]:
    """The rules by which the runs chose their best checkpoint, in words."""
    names = (run.description["settings"]["training"].get("best") for run in results.runs)
    return [RULES.get(name, "the one with the highest exact match in distribution") for name in dict.fromkeys(names)]


def watched_examples(results: Results) -> list[int]:
    """How many examples of unseen lengths the runs watched, each number once."""
    return sorted({number for run in results.runs if (number := run.description.get("examples", {}).get("watched"))})
