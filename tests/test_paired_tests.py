"""Paired tests against enumeration, tables and formulas, and their correction for the number of comparisons."""

import itertools
import math
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.records.paired_tests import DRAWN_SIGNS, holm, sign_flip_test, wilcoxon_test
from lengthwise.records.ranking import paired_differences
from lengthwise.records.rows import load_results

BATTERY = Path(__file__).parent.parent / "results/battery-small-symbols"


@given(st.lists(st.sampled_from([-0.5, -0.25, 0.0, 0.125, 0.375]), min_size=1, max_size=8))
def test_sign_flips_are_enumerated(differences: list[float]) -> None:
    observed = abs(sum(differences))
    flips = list(itertools.product([1, -1], repeat=len(differences)))
    means = [abs(sum(s * d for s, d in zip(signs, differences, strict=True))) for signs in flips]
    assert sign_flip_test(differences) == pytest.approx(sum(m >= observed - 1e-9 for m in means) / len(flips))


def test_sign_flips_by_hand_and_by_drawing() -> None:
    assert sign_flip_test([]) == 1.0
    assert sign_flip_test([0.0, 0.0]) == 1.0
    assert sign_flip_test([0.1] * 6) == pytest.approx(2 / 64)
    assert sign_flip_test([0.1] * 6 + [0.0] * 50) == pytest.approx(2 / 64)
    assert sign_flip_test([0.1] * 40) == pytest.approx(1 / (1 + DRAWN_SIGNS))  # never 0
    # With equal sizes the sum of signs is binomial: 26 of 40 against 14, or further apart.
    exact = 2 * sum(math.comb(40, k) for k in range(26, 41)) / 2**40
    assert sign_flip_test([0.1] * 26 + [-0.1] * 14) == pytest.approx(exact, abs=0.01)


def slow_wilcoxon(differences: list[float]) -> float:
    """Twice the smaller tail of the sum of positive ranks, counted by adding one rank after the other."""
    kept = [round(value, 9) for value in differences if abs(value) > 1e-9]
    sizes = [abs(value) for value in kept]
    doubled = [2 * sum(s < size for s in sizes) + sum(s == size for s in sizes) + 1 for size in sizes]  # twice the rank
    ways = Counter({0: 1})
    for rank in doubled:
        ways += Counter({total + rank: number for total, number in ways.items()})
    positive = sum(rank for rank, value in zip(doubled, kept, strict=True) if value > 0)
    low, high = (
        sum(number for total, number in ways.items() if side * total <= side * positive) / 2 ** len(kept)
        for side in (1, -1)
    )
    return min(1.0, 2 * min(low, high))


@given(st.lists(st.sampled_from([-0.5, -0.3, -0.1, 0.0, 0.1, 0.2, 0.3]), max_size=12))
def test_wilcoxon_is_that_of_counting(differences: list[float]) -> None:
    assert wilcoxon_test(differences) == pytest.approx(slow_wilcoxon(differences))
    assert wilcoxon_test([-value for value in differences]) == pytest.approx(wilcoxon_test(differences))


def test_wilcoxon_by_hand() -> None:
    assert wilcoxon_test([]) == wilcoxon_test([0.0, 0.0]) == 1.0
    assert wilcoxon_test([0.1, 0.2, 0.3, 0.4, 0.5, 0.6]) == pytest.approx(2 / 64)
    assert wilcoxon_test([0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.0]) == pytest.approx(2 / 64)
    # Ten pairs, negative ranks 3 and 5: 25 of 1,024 sums are at most 8 (the 5 % point of printed tables).
    assert wilcoxon_test([1, 2, -3, 4, -5, 6, 7, 8, 9, 10]) == pytest.approx(2 * 25 / 1024)
    # Two equal sizes share rank 1.5: of the eight sums of signed ranks only +-6 are as far from 0 as 6, not +-3 and 0.
    assert wilcoxon_test([0.1, 0.1, 0.3]) == pytest.approx(2 / 8)
    # 0.3 - 0.2 and 0.1 are equal, although not in floating point: ranks 1.5 and 1.5, so that +1.5 - 1.5 is 0.
    assert wilcoxon_test([0.3 - 0.2, -0.1]) == 1.0


def test_a_few_large_differences_decide_the_mean_but_not_the_ranks() -> None:
    differences = [5.0, 3.0, 2.0, -0.1, -0.1, -0.1, 0.1, -0.1, 0.1]
    assert sign_flip_test(differences) < wilcoxon_test(differences)


def test_many_pairs_are_drawn() -> None:
    """Forty of the same size: the sum of signs is binomial. Of different sizes: nearly normal."""
    exact = 2 * sum(math.comb(40, k) for k in range(26, 41)) / 2**40
    assert wilcoxon_test([0.1] * 26 + [-0.1] * 14) == pytest.approx(exact, abs=0.01)
    differences = [rank / 100 * (-1 if rank % 3 == 0 else 1) for rank in range(1, 41)]
    total = sum(rank * (-1 if rank % 3 == 0 else 1) for rank in range(1, 41))
    normal = math.erfc(total / math.sqrt(sum(rank**2 for rank in range(1, 41))) / math.sqrt(2))
    assert wilcoxon_test(differences) == pytest.approx(normal, abs=0.01)


def test_holm_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.6]) == [1.0, 1.0] and holm([0.02]) == [0.02] and holm([]) == []


@given(
    st.lists(st.integers(0, 100).map(lambda n: n / 100), max_size=8), st.integers(1, 99).map(lambda n: n / 100 + 0.001)
)
def test_holm_rejects_what_its_steps_reject(p_values: list[float], level: float) -> None:
    """Step down: while the smallest of the m that are left is at most level / m, reject it and go on."""
    left, rejected = sorted(range(len(p_values)), key=lambda place: p_values[place]), set()
    while left and p_values[left[0]] <= level / len(left):
        rejected.add(left.pop(0))
    assert {place for place, p in enumerate(holm(p_values)) if p <= level} == rejected


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_is_between_no_correction_and_bonferronis(p_values: list[float]) -> None:
    for p, corrected in zip(p_values, holm(p_values), strict=True):
        assert p <= corrected <= min(1.0, p * len(p_values)) + 1e-12
    assert [p for _, p in sorted(zip(p_values, holm(p_values), strict=True))] == sorted(holm(p_values))


def test_battery_p_values_computed_again() -> None:
    """t5 against none: 0.04 with the sizes of differences, 0.13 with their ranks."""
    results = load_results(BATTERY)
    accuracies = results.accuracies()

    def by_task(encoding: str) -> list[float]:
        gaps = []
        for task in results.tasks:
            own, other = accuracies[task, encoding], accuracies[task, "none"]
            gaps.append(sum(own[seed] - other[seed] for seed in own) / len(own))
        return gaps

    found = {each.encoding: each for each in paired_differences(results)}
    assert set(found) == {"t5", "alibi", "rotary", "sinusoidal"}
    for encoding, each in found.items():
        assert each.p.wilcoxon == pytest.approx(slow_wilcoxon(by_task(encoding)))
    assert round(found["t5"].p.over_tasks, 2) == 0.04 and round(found["t5"].p.wilcoxon, 2) == 0.13
    for kind in ("over_columns", "over_tasks", "wilcoxon"):
        ordered = sorted(found.values(), key=lambda each: getattr(each.p, kind))
        stepped = [(4 - step) * getattr(each.p, kind) for step, each in enumerate(ordered)]
        expected = [max(stepped[: step + 1]) for step in range(4)]
        assert [getattr(each.corrected, kind) for each in ordered] == pytest.approx(expected)
    assert round(found["t5"].corrected.wilcoxon, 2) == 0.13, "the largest of four is not multiplied"
    assert round(found["alibi"].corrected.over_tasks, 4) == 0.0067
