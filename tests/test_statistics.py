"""Correlations and intervals against formulas, enumeration and simulation."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.records.statistics import interval_over_seeds, interval_over_tasks, is_range, pearson, spearman

few = st.lists(st.sampled_from([0.0, 0.1, 0.5, 0.9]), min_size=3, max_size=8)


def slow_spearman(first: list[float], second: list[float]) -> float:
    """Mean of the ranks over all orders of equals would be the same; here by counting, then Pearson's formula."""

    def rank(values: list[float], v: float) -> float:
        return sum(w < v for w in values) + (sum(w == v for w in values) + 1) / 2

    a, b = ([rank(values, v) for v in values] for values in (first, second))
    mean = (len(a) + 1) / 2
    top = sum((x - mean) * (y - mean) for x, y in zip(a, b, strict=True))
    return top / math.sqrt(sum((x - mean) ** 2 for x in a) * sum((y - mean) ** 2 for y in b))


def test_spearman_by_hand() -> None:
    assert spearman([1, 2, 3, 4, 5], [5, 6, 7, 8, 7]) == pytest.approx(0.8207826816681233)  # a textbook example
    assert spearman([0.1, 0.2, 0.9], [10, 20, 30]) == pytest.approx(1)
    assert spearman([0.1, 0.2, 0.9], [3, 2, 1]) == pytest.approx(-1)
    # Without ties: 1 - 6 sum d^2 / (n (n^2 - 1)); d = 1, -1, 1, -1.
    assert spearman([1, 2, 3, 4], [2, 1, 4, 3]) == pytest.approx(1 - 6 * 4 / (4 * 15))


def test_spearman_says_when_there_is_no_order() -> None:
    assert spearman([1, 2], [1, 2]) is None
    assert spearman([1, 1, 1], [1, 2, 3]) is None
    with pytest.raises(ValueError, match="cannot be paired"):
        spearman([1, 2, 3], [1, 2])


@given(few, st.randoms())
def test_spearman_is_that_of_a_slow_one(first: list[float], random) -> None:
    second = [random.choice([0.0, 0.3, 1.0]) for _ in first]
    if len(set(first)) == 1 or len(set(second)) == 1:
        assert spearman(first, second) is None
    else:
        assert spearman(first, second) == pytest.approx(slow_spearman(first, second))


def test_pearson_by_hand() -> None:
    assert pearson([1, 2, 3], [2, 4, 6]) == pytest.approx(1)
    # Deviations -1, 0, 1 and -4/3, -1/3, 5/3: 3 / sqrt(2 * 42/9).
    assert pearson([1, 2, 3], [0, 1, 3]) == pytest.approx(3 / math.sqrt(2 * 42 / 9))
    assert pearson([1, 2], [1, 2]) is None and pearson([0.1] * 3, [1, 2, 3]) is None
    with pytest.raises(ValueError, match="cannot be paired"):
        pearson([1, 2, 3], [1, 2])


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=3, max_size=8))
def test_pearson_is_that_of_numpy(pairs: list[tuple[int, int]]) -> None:
    first, second = ([float(pair[side]) for pair in pairs] for side in (0, 1))
    if len(set(first)) == 1 or len(set(second)) == 1:
        assert pearson(first, second) is None
    else:
        assert pearson(first, second) == pytest.approx(float(np.corrcoef(first, second)[0, 1]))


def test_few_seeds_or_tasks_give_no_interval() -> None:
    three, two = np.random.default_rng(0).random((3, 2)), np.random.default_rng(1).random((2, 2))
    assert interval_over_seeds([]) is None and interval_over_tasks([]) is None
    assert interval_over_seeds([three, two]) is None
    assert interval_over_tasks([three, three, two]) is None
    assert interval_over_tasks([three, three]) is None
    assert interval_over_seeds([three]) is not None and interval_over_tasks([three] * 3) is not None


def test_few_seeds_of_one_task_have_a_range_and_no_interval() -> None:
    for seeds in (3, 4, 5):
        values = np.linspace(0.2, 0.8, seeds)[:, None]
        assert is_range(1, seeds) and interval_over_seeds([values]) == [(pytest.approx(0.2), pytest.approx(0.8))]
    assert not is_range(1, 6) and not is_range(2, 3)
    ((low, high),) = interval_over_seeds([np.linspace(0.2, 0.8, 6)[:, None]]) or []
    assert 0.2 < low < high < 0.8
    ((low, high),) = interval_over_seeds([np.array([[0.2], [0.5], [0.8]])] * 4) or []
    assert 0.2 < low < high < 0.8


def test_interval_over_seeds_is_that_of_all_resamples() -> None:
    """Two of three seeds, drawn again in each of two tasks: 81 equally likely means."""
    first, second = np.array([[0.1], [0.52], [0.93]]), np.array([[0.0], [0.07], [0.31]])
    pairs = list(itertools.product(range(3), repeat=2))
    means = sorted((first[list(a)].mean() + second[list(b)].mean()) / 2 for a in pairs for b in pairs)
    found = interval_over_seeds([first, second])
    assert found is not None
    low, high = found[0]
    # 2,000 draws of 81: the quantile is met within one part in a hundred.
    assert np.quantile(means, 0.013) <= low <= np.quantile(means, 0.037)
    assert np.quantile(means, 0.963) <= high <= np.quantile(means, 0.987)


def test_tasks_weigh_by_their_columns() -> None:
    found = interval_over_seeds([np.full((3, 1), 1.0), np.full((6, 1), 0.0)])
    assert found is not None and found[0] == pytest.approx((1 / 3, 1 / 3))


def test_interval_over_seeds_covers_what_it_says() -> None:
    """17 tasks x 3 seeds with known means, 400 times; drawing 3 of 3 seeds would cover 0.89 of them."""
    generator = np.random.default_rng(0)
    truth = generator.random((17, 1))
    hits = []
    for _ in range(400):
        found = interval_over_seeds(list(truth[:, None] + 0.1 * generator.normal(size=(17, 3, 1))))
        assert found is not None
        hits.append(found[0][0] <= truth.mean() <= found[0][1])
    assert 0.92 <= np.mean(hits) <= 0.98


def test_interval_over_tasks_covers_the_mean_of_all_tasks() -> None:
    """12 tasks drawn from many whose mean is 0.5: an interval over seeds alone would miss it most of the time."""
    generator = np.random.default_rng(0)
    hits, narrow = [], []
    for _ in range(100):
        tables = list(0.5 + 0.2 * generator.normal(size=(12, 1, 1)) + 0.05 * generator.normal(size=(12, 3, 1)))
        over_tasks, over_seeds = interval_over_tasks(tables), interval_over_seeds(tables)
        assert over_tasks is not None and over_seeds is not None
        hits.append(over_tasks[0][0] <= 0.5 <= over_tasks[0][1])
        narrow.append(over_seeds[0][0] <= 0.5 <= over_seeds[0][1])
    assert np.mean(hits) >= 0.87
    assert np.mean(narrow) < 0.5
