"""The statistics behind every claim: ranks, correlations, bootstrap intervals; on plain arrays.

S seeds of one task, E encodings (or any other quantities side by side), R resamples.
"""

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

Interval = tuple[float, float]

FEWEST_SEEDS = 3
"""With fewer seeds in some task an interval says more about luck than about spread, and is not given."""

SEEDS_OF_A_TASK = 6
"""With fewer seeds of a single task the range from the least to the greatest takes the place of a 95 % interval.

The range of n values holds the median of what they are drawn from with probability 1 - 2 ** (1 - n): 0.75 for three
seeds, 0.97 for six. No method gets more out of fewer without assuming how seeds are spread.
"""

FEWEST_TASKS = 3
"""With fewer tasks nothing can be said of tasks in general."""

RESAMPLES = 2000

EQUAL = 1e-12
"""Accuracies that differ by less are the same share of examples, and a tie."""


def ranks(values: np.ndarray) -> np.ndarray:
    """Rank of each entry along the last axis, 1 for the greatest; ties get the mean of the ranks they share."""
    flat = values.reshape(math.prod(values.shape[:-1]), values.shape[-1])
    found = np.empty(flat.shape)
    for row, ranked in zip(flat, found, strict=True):
        ordered = np.sort(row)
        below, up_to = (np.searchsorted(ordered, row, side) for side in ("left", "right"))
        ranked[:] = len(row) - up_to + (up_to - below + 1) / 2  # those above, and the middle of the equals
    return found.reshape(values.shape)


def spearman(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Rank correlation: the correlation of the ranks, ties averaged.

    None with fewer than three pairs, or where one side is the same everywhere and has no order.
    """
    return pearson(*(ranks(np.asarray(values, dtype=float)).tolist() for values in (first, second)))


def pearson(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Correlation of the values themselves; None with fewer than three pairs, or where one side is constant."""
    if len(first) != len(second):
        raise ValueError(f"{len(first)} values cannot be paired with {len(second)}")
    if len(first) < 3:
        return None
    a, b = (np.asarray(values, dtype=float) for values in (first, second))
    if np.ptp(a) == 0 or np.ptp(b) == 0:
        return None
    a, b = a - a.mean(), b - b.mean()
    return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))


def interval_over_seeds(tables: Sequence[np.ndarray], level: float = 0.95) -> list[Interval] | None:
    """95 % CI over seeds of the mean over all columns: for claims about exactly these tasks.

    `tables`: for each task its columns (S, E). Stratified bootstrap: within each task seeds are drawn again, the tasks
    stay. Of S seeds S - 1 are drawn, which makes the spread of the resampled means that of the true ones (Rao and Wu
    1988); drawing S makes it too small by (S - 1) / S, a third at three seeds. Percentiles. Fewer than six seeds of a
    single task: their range, which is to be called so (`is_range`). None where some task has fewer than three seeds.
    """
    if not tables or min(len(table) for table in tables) < FEWEST_SEEDS:
        return None
    if is_range(len(tables), len(tables[0])):
        low_E, high_E = tables[0].min(axis=0), tables[0].max(axis=0)
        return [(float(low), float(high)) for low, high in zip(low_E, high_E, strict=True)]
    return _percentiles(_resampled_means(tables), level)


def surely_greater(tables: Sequence[np.ndarray], level: float = 0.95) -> np.ndarray | None:
    """(E, E), whether the interval over seeds of the first column minus the second is above 0, for all pairs.

    None as in `interval_over_seeds`. Means are resampled once for all columns: the mean of a difference is the
    difference of means, so time and memory do not grow with the number of pairs but in its last step.
    """
    if not tables or min(len(table) for table in tables) < FEWEST_SEEDS:
        return None
    number = tables[0].shape[1]
    if is_range(len(tables), len(tables[0])):
        lowest = [(tables[0][:, [i]] - tables[0]).min(axis=0) for i in range(number)]
        return np.array(lowest) > EQUAL
    means_RE = _resampled_means(tables)
    found = np.zeros((number, number), dtype=bool)
    for i in range(number - 1):
        low_E, high_E = np.quantile(means_RE[:, [i]] - means_RE[:, i + 1 :], _ends(level), axis=0)
        found[i, i + 1 :], found[i + 1 :, i] = low_E > EQUAL, high_E < -EQUAL
    return found


def _resampled_means(tables: Sequence[np.ndarray]) -> np.ndarray:
    """(R, E): means over all columns, with seeds drawn again within each task."""
    times = _times_of_seeds(tuple(map(len, tables)))
    if len(tables) == 1:
        return times[0] @ tables[0] / (len(tables[0]) - 1)
    total_RE = np.zeros((RESAMPLES, tables[0].shape[1]))
    for times_RS, table_SE in zip(times, tables, strict=True):
        total_RE += times_RS @ table_SE * (len(table_SE) / (len(table_SE) - 1))
    return total_RE / sum(map(len, tables))


# What is drawn depends on nothing but the numbers of seeds: it is drawn once for all pairs and cells of a table.


@lru_cache(maxsize=16)
def _times_of_seeds(seeds: tuple[int, ...]) -> list[np.ndarray]:
    """Of each task with so many seeds (R, S): how often each seed is drawn."""
    generator = np.random.Generator(np.random.PCG64(0))
    return [_times(generator.integers(number, size=(RESAMPLES, number - 1)), number) for number in seeds]


@lru_cache(maxsize=4)
def _times_of_tasks(seeds: tuple[int, ...]) -> list[tuple[int, np.ndarray, np.ndarray]]:
    """Of tasks with so many seeds, of which as many less one are drawn again and again: a task, the resamples that
    draw it (C) at one time, and how often they draw each of its seeds (C, S)."""
    generator = np.random.Generator(np.random.PCG64(0))
    tasks_RT = generator.integers(len(seeds), size=(RESAMPLES, len(seeds) - 1))
    found = []
    for tasks_R in tasks_RT.T:
        for task, number in enumerate(seeds):
            chosen = np.flatnonzero(tasks_R == task)
            if len(chosen):
                drawn = generator.integers(number, size=(len(chosen), number))
                found.append((task, chosen, _times(drawn, number)))
    return found


def _times(drawn_RD: np.ndarray, number: int) -> np.ndarray:
    """(R, number): how often each was drawn, as floats."""
    places = drawn_RD + number * np.arange(len(drawn_RD))[:, None]
    return np.bincount(places.ravel(), minlength=number * len(drawn_RD)).reshape(-1, number).astype(float)


def is_range(tasks: int, seeds: int) -> bool:
    """Whether what stands for an interval over seeds is no more than the range of the seeds."""
    return tasks == 1 and seeds < SEEDS_OF_A_TASK


def interval_over_tasks(tables: Sequence[np.ndarray], level: float = 0.95) -> list[Interval] | None:
    """95 % CI over tasks and seeds of the mean over all columns: for claims about tasks in general.

    `tables`: for each task its columns (S, E). Of T tasks T - 1 are drawn again, and within each drawn task its seeds.
    The spread between tasks already holds that between seeds, so the two stages err on the wide side; percentiles of
    few tasks err on the narrow one. None with fewer than three tasks, or where some task has fewer than three seeds.
    """
    if len(tables) < FEWEST_TASKS or min(len(table) for table in tables) < FEWEST_SEEDS:
        return None
    total_RE = np.zeros((RESAMPLES, tables[0].shape[1]))
    columns_R = np.zeros(RESAMPLES)
    for task, chosen, times_CS in _times_of_tasks(tuple(map(len, tables))):
        total_RE[chosen] += times_CS @ tables[task]
        columns_R[chosen] += len(tables[task])
    return _percentiles(total_RE / columns_R[:, None], level)


def _percentiles(means_RE: np.ndarray, level: float) -> list[Interval]:
    low_E, high_E = np.quantile(means_RE, _ends(level), axis=0)
    return [(float(low), float(high)) for low, high in zip(low_E, high_E, strict=True)]


def _ends(level: float) -> list[float]:
    return [(1 - level) / 2, (1 + level) / 2]
