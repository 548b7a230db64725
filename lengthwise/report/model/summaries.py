"""What reports say of a study: means with intervals, runs that did not learn, kinds of errors."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lengthwise.errors import UserError
from lengthwise.records.outcomes import LEARNED as LEARNED
from lengthwise.records.outcomes import learned, require_checkpoint
from lengthwise.records.results import Results
from lengthwise.records.row_table import column
from lengthwise.records.run_result import Measure, RunResult
from lengthwise.records.statistics import FEWEST_SEEDS, SEEDS_OF_A_TASK, Interval, interval_over_seeds, is_range
from lengthwise.records.validations import LAST, exceeds, mean_swing

ERROR_KINDS = ("correct", "wrong_symbol", "stopped_early", "ran_on")
"""What can become of an answer, its first error if there is one."""


@dataclass(frozen=True)
class Accuracy:
    """Accuracy of one encoding on one task, over seeds."""

    mean: float
    interval: Interval | None
    """Over seeds: 95 % CI from six seeds up, the range of three to five; None with fewer."""
    by_seed: dict[int, float]
    unlearned: list[int]
    """Seeds whose run did not learn its training lengths."""
    swing: float | None = None
    """Mean over seeds of how far this accuracy ranges over the last validations; None where that is not known."""

    @property
    def swings(self) -> bool:
        """Whether it moves more between validations than the seeds are apart: such a number is marked."""
        return exceeds(self.swing, self.interval)

    @property
    def description(self) -> str:
        """Every seed and the swing, for people who look closer."""
        seeds = ", ".join(
            f"seed {seed}: {value:.3f}" + (" (not learned)" if seed in self.unlearned else "")
            for seed, value in self.by_seed.items()
        )
        return seeds + ("" if self.swing is None else f"; swing over the last {LAST} validations: {self.swing:.3f}")


def accuracy(
    results: Results, task: str, encoding: str, seen: bool, checkpoint: str = "last", measure: Measure = "answer"
) -> Accuracy | None:
    """None where no run is finished."""
    runs = results.of(task, encoding)
    if not runs:
        return None
    by_seed = {run.description["seed"]: run.accuracy(checkpoint, seen, measure) for run in runs}
    unlearned = [run.description["seed"] for run in runs if not learned(run, checkpoint)]
    # Training watches whole texts on unseen lengths: final answers beside a scratchpad are another measure.
    watched = not seen and (measure == "text" or not any(run.has_answers for run in runs))
    swing = mean_swing(runs) if watched else None
    return Accuracy(*mean_and_interval(list(by_seed.values())), by_seed, unlearned, swing)


def mean_and_interval(values: list[float]) -> tuple[float, Interval | None]:
    """Over the seeds of one task: see `spread_words` for what the interval is to be called."""
    intervals = interval_over_seeds([np.array(values)[:, None]])
    return float(np.mean(values)), intervals[0] if intervals else None


def means_and_intervals(values: Sequence[list[float]]) -> list[tuple[float, Interval | None]]:
    """The same for several cells: at once where they have as many seeds, which is quicker."""
    if len(set(map(len, values))) != 1:
        return [mean_and_interval(each) for each in values]
    table_SE = np.array(values).T
    intervals: Sequence[Interval | None] = interval_over_seeds([table_SE]) or [None] * len(values)
    return [(float(np.mean(each)), interval) for each, interval in zip(values, intervals, strict=True)]


def spread_words(results: Results) -> str:
    """What the interval of a single cell is; nothing where no cell has one."""
    seeds = {len(results.of(task, encoding)) for task in results.tasks for encoding in results.encodings}
    kinds = {is_range(1, number) for number in seeds if number >= FEWEST_SEEDS}
    if len(kinds) > 1:
        return f"range of the seeds (from {SEEDS_OF_A_TASK} seeds up: 95 % CI)"
    return "".join("range of the seeds" if kind else "95 % CI" for kind in kinds)


def in_order(results: Results) -> list[RunResult]:
    """The runs by task, encoding and seed, as the study declares them."""

    tasks, encodings = ({name: i for i, name in enumerate(names)} for names in (results.tasks, results.encodings))

    def place(run: RunResult) -> tuple[int, int, int]:
        about = run.description
        return tasks[about["task"]], encodings[about["encoding"]], about["seed"]

    return sorted(results.runs, key=place)


def require_runs(results: Results) -> None:
    if not results.runs:
        raise UserError("no run is finished yet, so there is nothing to show; `lengthwise run` resumes the study")
    require_checkpoint(results, "last")


def has_best(results: Results) -> bool:
    """Whether every run was also tested at the checkpoint that did best in validation."""
    return all(any(at == "best" for at, _ in run.totals) for run in results.runs)


def lengths(results: Results, task: str) -> list[int]:
    return sorted({length for run in results.by_task[task] for length in column(run.rows, "length")})


def chance(results: Results, task: str, seen: bool) -> float:
    """Mean exact match of a guesser who knows the form of the answer and nothing else."""
    every = [run.totals["last", seen] for run in results.by_task[task]]
    return sum(total.guessed for total in every) / sum(total.n for total in every)


def error_kinds(results: Results, encoding: str, checkpoint: str = "last") -> dict[str, float]:
    """Shares of the test examples of unseen lengths, the mean over tasks of the mean over seeds.

    Every example is in exactly one of the four. Tasks weigh the same, however many examples they have, as they do in
    mean accuracies.
    """
    by_task = []
    for task in results.tasks:
        by_seed = []
        for run in results.of(task, encoding):
            n = run.totals[checkpoint, False].n
            by_seed.append([run.total(kind, checkpoint, seen=False) / n for kind in ERROR_KINDS])
        if by_seed:
            by_task.append(np.mean(by_seed, axis=0))
    return dict(zip(ERROR_KINDS, np.mean(by_task, axis=0).tolist(), strict=True))


def examples_by_length(results: Results, task: str) -> dict[int, int]:
    """Length -> the fewest test examples that a run has of it; several buckets may share a length."""
    found: dict[int, int] = {}
    for run in results.by_task[task]:
        for length, (_, n) in run.counts_by_length("last").items():
            found[length] = min(n, found.get(length, n))
    return found


def examples(results: Results, task: str, seen: bool) -> int:
    """Test examples that a run has, the fewest of all runs."""
    return min(run.totals["last", seen].n for run in results.by_task[task])


def thinned(seen: list[int], unseen: list[int], most: int) -> tuple[list[int], list[int], int]:
    """Every k-th length of each kind, counted back from its longest, and the first unseen one; at most `most` remain,
    or the three that matter most. Also k."""
    every = 1
    while True:
        kept_seen, kept_unseen = seen[::-1][::every][::-1], unseen[::-1][::every][::-1]
        if kept_unseen and kept_unseen[0] != unseen[0]:
            kept_unseen = [unseen[0], *kept_unseen]
        if len(kept_seen) + len(kept_unseen) <= max(3, most):
            return kept_seen, kept_unseen, every
        every += 1


def shared(results: Results, task: str) -> int:
    """Test examples of lengths whose examples training and test share, in one run."""
    run = results.by_task[task][0]
    lengths = set(run.description.get("lengths_with_shared_examples", []))
    return sum(n for length, (_, n) in run.counts_by_length("last").items() if length in lengths)
