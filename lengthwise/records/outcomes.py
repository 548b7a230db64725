"""What became of each run and task: not learned, not generalized, generalized; tasks saturated or at chance."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from lengthwise.door import visible
from lengthwise.errors import UserError
from lengthwise.records.results import Results, once
from lengthwise.records.run_result import RunResult

LEARNED = 0.9
"""A run below this accuracy on held-out prompts of its training lengths did not learn the task.

What it does on unseen lengths is then no failure to generalize. A run that learned, but stays below it on unseen
lengths, did not generalize.
"""

SATURATED = 0.99
"""A task on which every run of every encoding reaches this on unseen lengths no longer distinguishes encodings."""

AT_CHANCE = 0.01
"""A task on which no run is this far above chance on unseen lengths does not distinguish encodings either.

Guessers differ by luck: a run must also be `AT_CHANCE_ERRORS` standard errors of a guesser's mean above chance.
"""

AT_CHANCE_ERRORS = 3


@dataclass(frozen=True)
class Unlearned:
    """A run that did not learn its training lengths."""

    task: str
    encoding: str
    seed: int
    accuracy: float
    """On held-out prompts of training lengths."""


@dataclass(frozen=True)
class Tally:
    """The runs of one encoding: each is in exactly one of the last three."""

    encoding: str
    runs: int
    unlearned: int
    """Below LEARNED on training lengths: a failure in distribution."""
    ungeneralized: int
    """Learned, but below LEARNED on unseen lengths: a failure to generalize."""
    generalized: int


@dataclass(frozen=True)
class StudyOutcomes:
    saturated: list[str]
    """Tasks with every run at SATURATED or above on unseen lengths."""
    at_chance: list[str]
    """Tasks with no run above chance on unseen lengths by more than AT_CHANCE and by more than AT_CHANCE_ERRORS."""
    unlearned: list[Unlearned]
    tallies: list[Tally]


@once
def outcomes(results: Results, checkpoint: str = "last") -> StudyOutcomes:
    """Over all finished runs, also where other encodings or seeds of the task are missing."""
    require_checkpoint(results, checkpoint)
    by_task = {task: results.by_task[task] for task in results.tasks}
    return StudyOutcomes(
        [task for task, runs in by_task.items() if is_saturated(runs, checkpoint)],
        [task for task, runs in by_task.items() if is_dead(runs, checkpoint)],
        [
            Unlearned(task, encoding, run.description["seed"], run.accuracy(checkpoint, seen=True))
            for task in results.tasks
            for encoding in results.encodings
            for run in results.of(task, encoding)
            if not learned(run, checkpoint)
        ],
        [_tally(results, encoding, checkpoint) for encoding in results.encodings],
    )


def learned(run: RunResult, checkpoint: str = "last") -> bool:
    """Whether the run learned its training lengths."""
    return run.accuracy(checkpoint, seen=True) >= LEARNED


def is_saturated(runs: Iterable[RunResult], checkpoint: str = "last") -> bool:
    return all(run.accuracy(checkpoint, seen=False) >= SATURATED for run in runs)


def is_dead(runs: Iterable[RunResult], checkpoint: str = "last") -> bool:
    return all(run.accuracy(checkpoint, seen=False) <= chance(run) + margin(run) for run in runs)


def margin(run: RunResult) -> float:
    """How far above chance a guesser may come on unseen lengths by luck."""
    total = run.totals["last", False]
    return max(AT_CHANCE, AT_CHANCE_ERRORS * math.sqrt(total.variance / total.n**2))


def chance(run: RunResult) -> float:
    """Accuracy on unseen lengths of a guesser who knows the form of the answer and nothing else."""
    total = run.totals["last", False]
    return total.guessed / total.n


def require_checkpoint(results: Results, checkpoint: str) -> None:
    """Refuses what no number can be given for."""
    if not results.runs:
        raise UserError("no run is finished yet; `lengthwise run` resumes the study")
    for run in results.runs:
        kinds = {seen for at, seen in run.totals if at == checkpoint}
        if kinds != {True, False}:
            name = visible("/".join(str(run.description[key]) for key in ("task", "encoding", "seed")))
            what = "was not tested at" if not kinds else "has rows of seen or of unseen lengths only at"
            raise UserError(f"{name} {what} its {checkpoint} checkpoint; delete that run and `lengthwise run` again")


def _tally(results: Results, encoding: str, checkpoint: str) -> Tally:
    runs = results.by_encoding[encoding]
    good = [run for run in runs if learned(run, checkpoint)]
    generalized = sum(run.accuracy(checkpoint, seen=False) >= LEARNED for run in good)
    return Tally(encoding, len(runs), len(runs) - len(good), len(good) - generalized, generalized)
