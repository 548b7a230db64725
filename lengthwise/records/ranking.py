"""Which encoding is best overall: ranks within each task and seed, averaged, with intervals; and paired differences."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lengthwise.records.columns import Columns, columns
from lengthwise.records.outcomes import StudyOutcomes, outcomes
from lengthwise.records.paired_tests import holm, sign_flip_test, wilcoxon_test
from lengthwise.records.results import Results, once
from lengthwise.records.statistics import (
    EQUAL,
    Interval,
    interval_over_seeds,
    interval_over_tasks,
    is_range,
    ranks,
    surely_greater,
)

BASELINE = "none"
"""What every encoding is compared with, where a study has it."""


@dataclass(frozen=True)
class Place:
    """One encoding in the ranking."""

    encoding: str
    reciprocal_rank: float
    reciprocal_rank_interval: Interval | None
    """95 % CI over seeds, on these tasks; None where some task has fewer than three seeds."""
    interval_over_tasks: Interval | None
    """95 % CI over tasks and seeds; None with fewer than three tasks or seeds."""
    rank: float
    accuracy: float
    columns: int
    """(task, seed) pairs that it is ranked in."""
    places: tuple[int, int] | None
    """First and last rank that the seeds leave open: below every encoding that is surely better, above every one that
    is surely worse. Sure is what the interval over seeds of the paired difference of reciprocal ranks says if it does
    not include 0. None without intervals.
    """
    is_range: bool
    """Whether the interval over seeds is the range of a few seeds of a single task."""

    @property
    def open(self) -> bool:
        """Whether the seeds leave its place open."""
        return self.places is not None and self.places[0] != self.places[1]


@dataclass(frozen=True)
class Rankings:
    """The ranking over all columns, and over those that tell more. Empty lists where no column is left."""

    everything: list[Place]
    informative: list[Place]
    """Without tasks that are saturated or at chance."""
    learned: list[Place]
    """Only columns in which every encoding learned its training lengths."""
    outcomes: StudyOutcomes


@dataclass(frozen=True)
class PValues:
    """Two-sided paired tests of a difference between two encodings."""

    over_columns: float
    """Permutation test, every column a pair: could the two be the same in every one of them?

    Tasks that favour one or the other make it large, even where their mean is sure and `interval` is narrow.
    """
    over_tasks: float
    """The same with the mean of each task as a pair: would the mean difference hold for other tasks?"""
    wilcoxon: float
    """Wilcoxon's signed-rank test with the mean of each task as a pair: a few tasks with large differences do not
    decide it.
    """


@dataclass(frozen=True)
class Difference:
    """One encoding minus another, paired over the (task, seed) that both have: same data, same order of batches."""

    encoding: str
    against: str
    mean: float
    interval: Interval | None
    """95 % CI over seeds, on these tasks; None where some task has fewer than three seeds."""
    interval_over_tasks: Interval | None
    """95 % CI over tasks and seeds; None with fewer than three tasks or seeds."""
    is_range: bool
    """Whether `interval` is the range of a few seeds of a single task."""
    wins: int
    ties: int
    losses: int
    p: PValues
    corrected: PValues
    """The same, corrected by Holm's method for all encodings that are compared with `against`."""
    columns: int
    tasks: int


def ranking(
    results: Results,
    checkpoint: str = "last",
    tasks: Sequence[str] | None = None,
    encodings: Sequence[str] | None = None,
) -> list[Place]:
    """Best first. The paper's score: the mean over (task, seed) of 1 / rank by accuracy on unseen lengths.

    Where the paper gave ties to the first row, ties share their mean rank here. Columns in which an encoding is
    missing are left out for all. `tasks`, `encodings`: only these, ranked among themselves.
    """
    if tasks is None and encodings is None:
        return _ranking(results, checkpoint)
    return rank_columns(columns(results, checkpoint, tasks, encodings))


@once
def _ranking(results: Results, checkpoint: str) -> list[Place]:
    return rank_columns(columns(results, checkpoint))


@once
def rankings(results: Results, checkpoint: str = "last") -> Rankings:
    """The ranking with and without tasks that tell nothing, and over what was learned by all."""
    found = outcomes(results, checkpoint)
    everything = columns(results, checkpoint)
    over_all = _ranking(results, checkpoint)

    def ranked(part: Columns) -> list[Place]:  # often nothing is left out, and the same columns are ranked the same
        return over_all if len(part) == len(everything) else rank_columns(part)

    informative, learned = everything.without({*found.saturated, *found.at_chance}), everything.learned()
    return Rankings(over_all, ranked(informative), ranked(learned), found)


def rank_columns(chosen: Columns) -> list[Place]:
    """Best first; equals in the order of the study."""
    tables = chosen.tables
    if not tables:
        return []
    rank_tables = [ranks(table) for table in tables]
    reciprocal = [1 / table for table in rank_tables]
    over_seeds, over_tasks = _intervals(chosen, reciprocal)
    mean_reciprocal, mean_rank, mean_accuracy = (
        np.concatenate(each).mean(axis=0) for each in (reciprocal, rank_tables, tables)
    )
    left_open = open_places(reciprocal)
    places = [
        Place(
            encoding,
            float(mean_reciprocal[i]),
            over_seeds[i] if over_seeds else None,
            over_tasks[i] if over_tasks else None,
            float(mean_rank[i]),
            float(mean_accuracy[i]),
            len(chosen),
            left_open[i] if left_open else None,
            _has_range(chosen),
        )
        for i, encoding in enumerate(chosen.encodings)
    ]
    return sorted(places, key=lambda place: -place.reciprocal_rank)


def open_places(scores: list[np.ndarray]) -> list[tuple[int, int]] | None:
    """Of each encoding, first and last place, from the tables (S, E) of scores of all, of which more is better.

    None where there are too few seeds.
    """
    number = scores[0].shape[1]
    better_EE = surely_greater(scores) if number > 1 else None
    if better_EE is None:
        return None
    return [(1 + int(better_EE[:, own].sum()), number - int(better_EE[own].sum())) for own in range(number)]


@once
def paired_differences(results: Results, checkpoint: str = "last", against: str | None = None) -> list[Difference]:
    """Accuracy on unseen lengths of every encoding minus that of `against`.

    By default the baseline of the results, else `none`, else the first.

    Encodings that share no (task, seed) with it are left out.
    """
    encodings = results.encodings
    wanted = [name for name in (against, results.baseline, BASELINE) if name in encodings]
    baseline = wanted[0] if wanted else encodings[0]
    pairs = [columns(results, checkpoint, encodings=[encoding, baseline]) for encoding in encodings]
    pairs = [shared for shared in pairs if len(shared) and shared.encodings[0] != baseline]
    p_values = [_p_values(shared) for shared in pairs]
    return [_difference(*each) for each in zip(pairs, p_values, _corrected(p_values), strict=True)]


def _difference(shared: Columns, p: PValues, corrected: PValues) -> Difference:
    """First encoding minus second."""
    encoding, against = shared.encodings
    tables = _gaps(shared)
    over_seeds, over_tasks = _intervals(shared, tables)
    every, by_name = np.concatenate(tables)[:, 0], shared.by_name(tables)
    wins, losses = int((every > EQUAL).sum()), int((every < -EQUAL).sum())
    return Difference(
        encoding,
        against,
        float(every.mean()),
        over_seeds[0] if over_seeds else None,
        over_tasks[0] if over_tasks else None,
        _has_range(shared),
        wins,
        len(every) - wins - losses,
        losses,
        p,
        corrected,
        len(every),
        len(by_name),
    )


def _gaps(shared: Columns) -> list[np.ndarray]:
    """For each task its differences (S, 1), first encoding minus second."""
    return [table[:, :1] - table[:, 1:] for table in shared.tables]


def _p_values(shared: Columns) -> PValues:
    tables = _gaps(shared)
    by_task = [float(table.mean()) for table in shared.by_name(tables)]
    every = np.concatenate(tables)[:, 0].tolist()
    return PValues(sign_flip_test(every), sign_flip_test(by_task), wilcoxon_test(by_task))


def _corrected(p_values: list[PValues]) -> list[PValues]:
    """For their number, each kind of test by itself."""
    kinds = ([p.over_columns for p in p_values], [p.over_tasks for p in p_values], [p.wilcoxon for p in p_values])
    return [PValues(*each) for each in zip(*map(holm, kinds), strict=True)]


def _has_range(chosen: Columns) -> bool:
    return is_range(len(chosen.tasks), len(chosen))


def _intervals(chosen: Columns, tables: list[np.ndarray]) -> tuple[list[Interval] | None, list[Interval] | None]:
    """Over seeds; over tasks and seeds, where one task at several settings is one task."""
    over_seeds = interval_over_seeds(tables)
    return over_seeds, interval_over_tasks(chosen.by_name(tables)) if over_seeds else None
