"""Counts of agreement beside predictors that ignore the encoding, and correlations without task means."""

import csv
import gzip
import itertools
import json
import math
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_equivalence import slow_upper_tail

from lengthwise.records.agreement import Pair, baselines, counts
from lengthwise.records.comparison import Comparison, compare
from lengthwise.records.correlations import correlations
from lengthwise.records.published import DATA, Score
from lengthwise.records.rows import load_results

BATTERY = Path(__file__).parent.parent / "results/battery-small-symbols"


def pair(ours: float, published: float, deviation: float | None = 0.01, chance: float = 0.0) -> Pair:
    seeds = 1 if deviation is None else 3
    return Pair(Score(ours, deviation, seeds), Score(published, deviation, seeds), chance)


def test_every_cell_is_counted_once() -> None:
    cells = [
        pair(0.5, 0.5),  # equivalent and close
        pair(0.5, 0.58, 0.05),  # undecided and close
        pair(0.5, 0.9),  # different
        pair(0.5, 0.65, 0.1),  # undecided
        pair(0.5, 0.52, None),  # no verdict, close
        pair(0.0, 0.01),  # floor
        pair(0.5, 0.5, chance=0.5),  # floor
        pair(0.99, 1.0),  # ceiling
    ]
    found = counts(cell.judgement for cell in cells)
    assert (found.informative, found.floor, found.ceiling, found.judged) == (5, 2, 1, 8)
    assert (found.equivalent, found.undecided, found.different, found.no_verdict) == (1, 2, 1, 1)
    assert found.close == 3 and found.equivalent_of_all == 4 and found.close_of_all == 6


def test_task_means_by_hand() -> None:
    """Published 0.5 and 0.6 in one task, 0.1 and 0.9 in another: their means are 0.55 and 0.5."""
    found = baselines({"x": [pair(0.5, 0.5), pair(0.6, 0.6)], "y": [pair(0.1, 0.1), pair(0.9, 0.9)]})
    assert found is not None and found.tasks == 2
    assert (found.ours.equivalent, found.ours.close) == (4, 4)
    assert (found.task_means.equivalent, found.task_means.different, found.task_means.close) == (2, 2, 2)
    assert baselines({}) is None


def test_task_means_are_judged_on_the_cells_of_ours() -> None:
    """Ours and theirs are both at the floor in the second cell, where the task mean of 0.4 is wrong."""
    found = baselines({"x": [pair(0.8, 0.8), pair(0.0, 0.0)]})
    assert found is not None
    assert (found.ours.informative, found.ours.floor, found.ours.equivalent) == (1, 1, 1)
    assert (found.task_means.informative, found.task_means.floor, found.task_means.equivalent) == (1, 1, 0)
    assert (found.ours.equivalent_of_all, found.task_means.equivalent_of_all) == (2, 0)


def test_task_means_have_our_spread() -> None:
    ours = Pair(Score(0.5, 0.2, 3), Score(0.5, 0.01, 3), 0.0)
    found = baselines({"x": [ours, ours]})
    assert found is not None and found.task_means == found.ours and found.ours.undecided == 2


def test_a_perfect_reproduction_is_the_best_permutation() -> None:
    """Five encodings that are far apart: any exchange of two loses two cells."""
    task = [pair(value, value) for value in (0.1, 0.3, 0.5, 0.7, 0.9)]
    found = baselines({"x": task, "y": task})
    assert found is not None and found.permuted is not None
    assert found.permuted.permutations == 119 and found.permuted.p_equivalent == found.permuted.p_close == 1 / 120
    assert found.ours.equivalent == 10
    # Of 120 permutations each leaves every cell in place in 24: 5 * 24 in all, less the 5 of ours, in two tasks.
    assert found.permuted.equivalent == pytest.approx(2 * (5 * 24 - 5) / 119)


def test_what_does_not_depend_on_the_encoding_is_no_agreement() -> None:
    """Every encoding has the same accuracy: all permutations agree as well as ours, and so do the task means."""
    found = baselines({"x": [pair(0.5, 0.5)] * 4})
    assert found is not None and found.permuted is not None
    assert found.permuted.p_equivalent == found.permuted.p_close == 1.0
    assert found.ours.equivalent == found.task_means.equivalent == found.permuted.equivalent == 4


def test_informative_cells_are_decided_anew_for_each_permutation() -> None:
    """Ours are right, 0.0 and 0.9; exchanged, the cell that was floor against floor is different."""
    found = baselines({"x": [pair(0.0, 0.0), pair(0.9, 0.9)]})
    assert found is not None and found.permuted is not None
    assert found.ours.informative == 1 and found.permuted.informative == 2.0
    assert found.permuted.equivalent == 0.0 and found.permuted.p_equivalent == 1 / 2
    alone = baselines({"x": [pair(0.5, 0.5)]})
    assert alone is not None and alone.permuted is None, "one encoding cannot be exchanged"


shares = st.integers(0, 20).map(lambda number: number / 20)


@given(st.lists(st.lists(st.tuples(shares, shares), min_size=3, max_size=3), min_size=1, max_size=3))
def test_permutations_are_those_of_a_slow_loop(tasks: list[list[tuple[float, float]]]) -> None:
    found = baselines({str(i): [pair(*values) for values in task] for i, task in enumerate(tasks)})
    assert found is not None and found.permuted is not None
    numbers = []
    for order in itertools.permutations(range(3)):
        permuted = [pair(task[order[i]][0], task[i][1]) for task in tasks for i in range(3)]
        numbers.append(counts(each.judgement for each in permuted))
    assert found.ours == numbers[0]
    for name in ("equivalent", "close", "equivalent_of_all", "close_of_all"):
        values = [getattr(each, name) for each in numbers]
        assert getattr(found.permuted, name) == pytest.approx(sum(values[1:]) / 5)
        assert getattr(found.permuted, f"p_{name}") == sum(value >= values[0] for value in values) / 6


def test_a_predictor_that_ignores_the_encoding_has_no_residual_correlation() -> None:
    """It says the mean of each task: a high plain correlation, and nothing left without the means."""
    theirs = {"easy": [0.9, 0.8, 1.0], "hard": [0.1, 0.3, 0.2], "hardest": [0.0, 0.1, 0.02]}
    by_task = {task: [(float(np.mean(values)), value) for value in values] for task, values in theirs.items()}
    found = correlations([cell for cells in by_task.values() for cell in cells], by_task)
    assert found.plain is not None and found.plain > 0.9
    assert found.residual_spearman is None and found.residual_pearson is None and found.residual_cells == 9


@given(st.lists(st.lists(st.tuples(shares, shares), min_size=3, max_size=3), min_size=1, max_size=4), st.randoms())
def test_residuals_do_not_depend_on_how_hard_a_task_is(tasks: list[list[tuple[float, float]]], random) -> None:
    by_task = {str(i): task for i, task in enumerate(tasks)}
    shifts = {name: (random.choice([0.0, 0.25, 3.0]), random.choice([0.0, 0.5])) for name in by_task}
    shifted = {name: [(a + shifts[name][0], b + shifts[name][1]) for a, b in task] for name, task in by_task.items()}
    before, after = correlations([], by_task), correlations([], shifted)
    assert (before.residual_spearman is None) == (after.residual_spearman is None)
    if before.residual_spearman is not None:
        assert after.residual_spearman == pytest.approx(before.residual_spearman)
        assert after.residual_pearson == pytest.approx(before.residual_pearson)
        assert -1 - 1e-9 <= before.residual_spearman <= 1 + 1e-9


def test_a_reversed_order_within_tasks_is_seen_behind_the_tasks() -> None:
    by_task = {"easy": [(0.9, 0.8), (0.8, 0.9), (0.85, 0.85)], "hard": [(0.2, 0.1), (0.1, 0.2), (0.15, 0.15)]}
    found = correlations([cell for cells in by_task.values() for cell in cells], by_task)
    assert found.plain is not None and found.plain > 0.4
    assert found.residual_spearman == pytest.approx(-1) and found.residual_pearson == pytest.approx(-1)


class Battery:
    """The committed rows and the published table, read and judged by the test alone."""

    def __init__(self) -> None:
        sums: dict[tuple[str, str, str, int], list[float]] = defaultdict(lambda: [0, 0, 0])
        for line in gzip.decompress((BATTERY / "rows.jsonl.gz").read_bytes()).splitlines():
            row = json.loads(line)
            if row["checkpoint"] == "last" and not row["seen"]:
                total = sums[row["task"], row["encoding"], row["run"], row["seed"]]
                for place, value in enumerate((row["correct"], row["n"], row["chance"] * row["n"])):
                    total[place] += value
        self.by_seed: dict[tuple[str, str], dict[int, float]] = defaultdict(dict)
        self.chance: dict[str, float] = {}
        for (task, encoding, _, seed), (correct, n, chance) in sums.items():
            self.by_seed[task, encoding][seed] = correct / n
            self.chance[task] = chance / n
        with (DATA / "nope_accuracy_overall.csv").open() as file:
            rows = list(csv.DictReader(file))
        self.published = {
            (row["task"], row["encoding"]): (float(row["ood_accuracy_mean"]), float(row["ood_accuracy_sd"]))
            for row in rows
        }
        self.ours = {
            key: (float(np.mean(list(seeds.values()))), float(np.std(list(seeds.values()), ddof=1)))
            for key, seeds in self.by_seed.items()
        }
        self.tasks = sorted({task for task, _ in self.ours})
        self.encodings = sorted({encoding for _, encoding in self.ours})

    def tells(self, task: str, ours: float, theirs: float) -> bool:
        """Whether not both are at the floor, or both at the ceiling."""
        low, high = (-1.0, 0.05) if self.chance[task] <= 0.05 else (self.chance[task] - 0.05, self.chance[task] + 0.05)
        at_floor = low <= min(ours, theirs) and max(ours, theirs) <= high
        return not at_floor and min(ours, theirs) < 0.95


def slow_verdict(ours: tuple[float, float], theirs: tuple[float, float]) -> str:
    """By one-sided tests of three seeds against three, their p-values by integration."""
    difference, parts = ours[0] - theirs[0], (ours[1] ** 2 / 3, theirs[1] ** 2 / 3)
    if sum(parts) == 0:
        return "equivalent" if abs(difference) <= 0.1 else "different"
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / 2 + parts[1] ** 2 / 2)
    p = [slow_upper_tail((0.1 + side * difference) / math.sqrt(sum(parts)), freedom) for side in (-1, 1)]
    return "equivalent" if max(p) <= 0.05 else "different" if max(p) > 0.95 else "undecided"


@pytest.fixture(scope="module")
def battery() -> Battery:
    return Battery()


@pytest.fixture(scope="module")
def found() -> Comparison:
    return compare(load_results(BATTERY))


@pytest.mark.slow
def test_battery_counts_computed_again(battery: Battery, found: Comparison) -> None:
    informative = {
        key for key in battery.ours if battery.tells(key[0], battery.ours[key][0], battery.published[key][0])
    }
    verdicts = {key: slow_verdict(battery.ours[key], battery.published[key]) for key in battery.ours}
    close = {key for key in battery.ours if abs(battery.ours[key][0] - battery.published[key][0]) <= 0.1}
    assert {(cell.task, cell.encoding): cell.verdict for cell in found.shared} == verdicts
    assert {(cell.task, cell.encoding) for cell in found.shared if cell.informative} == informative
    assert {(cell.task, cell.encoding) for cell in found.shared if cell.close} == close
    number = {v: sum(verdicts[key] == v for key in informative) for v in ("equivalent", "undecided", "different")}
    assert found.counts is not None
    assert number == {"equivalent": 8, "undecided": 35, "different": 20}
    assert number == {name: getattr(found.counts, name) for name in number}
    assert (found.counts.informative, found.counts.close) == (len(informative), len(close & informative)) == (63, 26)
    assert (found.counts.floor, found.counts.ceiling) == (19, 3)
    of_all = sum(verdict == "equivalent" for verdict in verdicts.values()), len(close)
    assert (found.counts.equivalent_of_all, found.counts.close_of_all) == of_all == (29, 48)


def test_battery_baselines_computed_again(battery: Battery, found: Comparison) -> None:
    """The predictor that ignores the encoding has more informative cells right than these results have."""
    assert found.baselines is not None and found.baselines.permuted is not None and found.baselines.tasks == 17
    ours, theirs, predicted = battery.ours, battery.published, {}
    for task in battery.tasks:
        mean = sum(theirs[task, encoding][0] for encoding in battery.encodings) / 5
        predicted |= {(task, encoding): (mean, ours[task, encoding][1]) for encoding in battery.encodings}
    right = {key for key in ours if slow_verdict(predicted[key], theirs[key]) == "equivalent"}
    close = {key for key in ours if abs(predicted[key][0] - theirs[key][0]) <= 0.1}
    informative = {key for key in ours if battery.tells(key[0], ours[key][0], theirs[key][0])}
    means = found.baselines.task_means
    assert (means.equivalent, means.close) == (len(right & informative), len(close & informative)) == (11, 34)
    assert (means.equivalent_of_all, means.close_of_all) == (len(right), len(close)) == (15, 40)

    def agree(own: tuple[str, str], other: tuple[str, str]) -> tuple[bool, bool]:
        """Whether a result of ours is equivalent and close to a published one, and informative."""
        tells = battery.tells(own[0], ours[own][0], theirs[other][0])
        close = abs(ours[own][0] - theirs[other][0]) <= 0.1
        return tells and slow_verdict(ours[own], theirs[other]) == "equivalent", tells and close

    table = {
        (t, a, b): agree((t, a), (t, b)) for t in battery.tasks for a in battery.encodings for b in battery.encodings
    }
    numbers = []
    for order in itertools.permutations(battery.encodings):
        cells = [table[t, a, b] for t in battery.tasks for a, b in zip(order, battery.encodings, strict=True)]
        numbers.append([sum(cell[place] for cell in cells) for place in (0, 1)])
    permuted = found.baselines.permuted
    assert [permuted.equivalent, permuted.close] == pytest.approx(np.mean(numbers[1:], axis=0).tolist())
    p = [sum(each[place] >= numbers[0][place] for each in numbers) / 120 for place in (0, 1)]
    assert [permuted.p_equivalent, permuted.p_close] == pytest.approx(p)
    assert [round(value, 1) for value in (permuted.equivalent, permuted.close)] == [5.2, 17.1]
    assert [round(value, 3) for value in p] == [0.042, 0.042]


def test_battery_correlations_computed_again(battery: Battery, found: Comparison) -> None:
    """0.73 is Spearman's without task means, 0.75 Pearson's."""
    sides = [
        np.array([[side[t, e][0] for e in battery.encodings] for t in battery.tasks])
        for side in (battery.ours, battery.published)
    ]
    left = [np.round(side - side.mean(axis=1, keepdims=True), 12).ravel() for side in sides]

    def rank(values: np.ndarray) -> np.ndarray:
        return np.array([(values < value).sum() + ((values == value).sum() + 1) / 2 for value in values])

    def correlation(first: np.ndarray, second: np.ndarray) -> float:
        return float(np.corrcoef(first, second)[0, 1])

    expected = [correlation(*(rank(side.ravel()) for side in sides)), correlation(*map(rank, left)), correlation(*left)]
    each = found.correlations
    assert [each.plain, each.residual_spearman, each.residual_pearson] == pytest.approx(expected)
    assert [round(value, 2) for value in expected] == [0.78, 0.73, 0.75] and each.residual_cells == 85
