"""Verdicts on a reproduced number: Student's t, Welch's interval, equivalence, cells that tell nothing."""

import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.records.equivalence import Extreme, Verdict, difference_interval, extreme, judge, verdict
from lengthwise.records.published import Score
from lengthwise.records.student_t import (
    regularized_incomplete_beta,
    student_t_probability,
    student_t_quantile,
)

TABLE = {
    (0.95, 1): 6.314, (0.95, 2): 2.920, (0.95, 3): 2.353, (0.95, 4): 2.132, (0.95, 10): 1.812, (0.95, 30): 1.697,
    (0.975, 1): 12.706, (0.975, 5): 2.571, (0.975, 20): 2.086, (0.995, 2): 9.925, (0.9, 8): 1.397, (0.95, 1000): 1.646,
}  # fmt: skip
"""Probability, degrees of freedom -> t, as printed in the back of textbooks."""


def slow_upper_tail(t: float, freedom: float) -> float:
    """P(T > t) by Simpson's rule: with t = sqrt(freedom) tan(angle) the density is a power of a cosine."""
    start = math.atan(t / math.sqrt(freedom))

    def area(first: float) -> float:
        angles = np.linspace(first, math.pi / 2, 4001)
        values = np.maximum(np.cos(angles), 0) ** (freedom - 1)
        weights = np.array([1, *([4, 2] * 1999), 4, 1])
        return float((values * weights).sum() * (angles[1] - angles[0]) / 3)

    return area(start) / area(-math.pi / 2)


@pytest.mark.parametrize(("asked", "t"), TABLE.items())
def test_quantiles_are_those_of_printed_tables(asked: tuple[float, int], t: float) -> None:
    assert student_t_quantile(*asked) == pytest.approx(t, abs=5.1e-4)
    assert student_t_quantile(1 - asked[0], asked[1]) == pytest.approx(-t, abs=5.1e-4)


def test_one_and_two_degrees_of_freedom_have_formulas() -> None:
    """One: tan(pi (p - 1/2)). Two: (2p - 1) sqrt(2 / (4p (1 - p)))."""
    for p in (0.5, 0.6, 0.9, 0.95, 0.999, 0.01):
        assert student_t_quantile(p, 1) == pytest.approx(math.tan(math.pi * (p - 0.5)), rel=1e-9, abs=1e-12)
        assert student_t_quantile(p, 2) == pytest.approx((2 * p - 1) * math.sqrt(2 / (4 * p * (1 - p))), rel=1e-9)


@given(st.floats(2, 60), st.floats(-8, 8))
def test_probabilities_are_areas_under_the_density(freedom: float, t: float) -> None:
    assert 1 - student_t_probability(t, freedom) == pytest.approx(slow_upper_tail(t, freedom), abs=1e-6)


@given(st.floats(0.5, 200), st.floats(0.001, 0.999))
def test_a_quantile_has_its_probability(freedom: float, probability: float) -> None:
    assert student_t_probability(student_t_quantile(probability, freedom), freedom) == pytest.approx(probability)


def test_the_incomplete_beta_function_by_hand() -> None:
    assert regularized_incomplete_beta(0.3, 1, 1) == pytest.approx(0.3)  # uniform
    assert regularized_incomplete_beta(0.3, 2, 1) == pytest.approx(0.09)
    assert regularized_incomplete_beta(0.3, 1, 2) == pytest.approx(1 - 0.7**2)
    assert [regularized_incomplete_beta(x, 2, 3) for x in (0.0, 1.0)] == [0.0, 1.0]
    for wrong in (0.0, 1.0, 2.0):
        with pytest.raises(ValueError, match="between 0 and 1"):
            student_t_quantile(wrong, 3)
    with pytest.raises(ValueError, match="above 0"):
        student_t_quantile(0.9, 0)


def of_seeds(*values: float) -> Score:
    return Score(statistics.mean(values), statistics.stdev(values) if len(values) > 1 else None, len(values))


def test_the_interval_is_welchs() -> None:
    """Means 0.3 and 0.6, variances 0.01 and 0.03, three seeds each; two seeds against five."""
    low, high = difference_interval(of_seeds(0.2, 0.3, 0.4), of_seeds(0.5, 0.5, 0.8)) or (0, 0)
    freedom = (0.01 / 3 + 0.03 / 3) ** 2 / ((0.01 / 3) ** 2 / 2 + (0.03 / 3) ** 2 / 2)
    assert freedom == pytest.approx(3.2)
    half = (high - low) / 2
    assert (low + high) / 2 == pytest.approx(-0.3)
    assert slow_upper_tail(half / math.sqrt(0.04 / 3), freedom) == pytest.approx(0.05, abs=1e-6)

    ours, theirs = (0.1, 0.3), (0.4, 0.5, 0.5, 0.6, 0.9)
    low, high = difference_interval(of_seeds(*ours), of_seeds(*theirs)) or (0, 0)
    parts = np.var(ours, ddof=1) / 2, np.var(theirs, ddof=1) / 5
    freedom = sum(parts) ** 2 / (parts[0] ** 2 / 1 + parts[1] ** 2 / 4)
    assert (low + high) / 2 == pytest.approx(0.2 - 0.58)
    assert slow_upper_tail((high - low) / 2 / math.sqrt(sum(parts)), freedom) == pytest.approx(0.05, abs=1e-5)


def test_a_single_seed_borrows_the_deviation_of_the_other_side() -> None:
    """Then it is Student's interval for one more observation: t with n - 1 degrees of freedom, s sqrt(1 + 1/n)."""
    theirs = Score(0.6, 0.05, 3)
    half = 2.919985580 * 0.05 * math.sqrt(1 + 1 / 3)
    assert difference_interval(Score(0.5, None, 1), theirs) == pytest.approx((-0.1 - half, -0.1 + half))
    assert difference_interval(theirs, Score(0.5, None, 1)) == pytest.approx((0.1 - half, 0.1 + half))
    assert judge(Score(0.5, None, 1), theirs, 0.0).borrowed_deviation
    assert not judge(Score(0.5, 0.01, 2), theirs, 0.0).borrowed_deviation


def test_without_deviations_there_is_no_verdict_and_with_zeros_the_interval_is_a_point() -> None:
    alone = judge(Score(0.5, None, 1), Score(0.45, None, 1), 0.0)
    assert alone.interval is None and alone.verdict is None and alone.close and not alone.borrowed_deviation
    for ours in (Score(0.5, 0.0, 3), Score(0.5, None, 1)):
        point = judge(ours, Score(0.4, 0.0, 3), 0.0)
        assert point.interval == pytest.approx((0.1, 0.1)) and point.verdict == Verdict.equivalent and point.close
    assert judge(Score(0.51, 0.0, 3), Score(0.4, 0.0, 3), 0.0).verdict == Verdict.different


figures = st.builds(Score, st.floats(0, 1), st.floats(0.001, 0.5), st.integers(2, 6))


@given(figures, figures)
def test_swapping_the_sides_flips_the_signs(ours: Score, theirs: Score) -> None:
    there, back = judge(ours, theirs, 0.0), judge(theirs, ours, 0.0)
    assert there.difference == -back.difference and there.interval is not None
    assert back.interval == pytest.approx((-there.interval[1], -there.interval[0]))
    assert (there.verdict, there.close, there.extreme) == (back.verdict, back.close, back.extreme)


@given(figures, figures)
def test_equivalent_is_what_two_one_sided_tests_say(ours: Score, theirs: Score) -> None:
    """Schuirmann's test at 0.05, its p-values by integration; and different by the tests of the other direction."""
    parts = [(f.deviation or 0) ** 2 / f.seeds for f in (ours, theirs)]
    error = math.sqrt(sum(parts))
    freedom = sum(parts) ** 2 / sum(p**2 / (f.seeds - 1) for p, f in zip(parts, (ours, theirs), strict=True))
    difference = ours.mean - theirs.mean
    below, above = (slow_upper_tail((0.1 + side * difference) / error, freedom) for side in (-1, 1))
    found = judge(ours, theirs, 0.0).verdict
    if min(abs(p - level) for p in (below, above) for level in (0.05, 0.95)) < 1e-4:
        return  # the integral is not exact enough to decide
    expected = Verdict.equivalent if max(below, above) < 0.05 else Verdict.undecided
    assert found == (Verdict.different if max(below, above) > 0.95 else expected)


@given(st.floats(0, 1), st.integers(2, 6), st.integers(2, 6))
def test_the_same_number_with_a_small_spread_is_equivalent(mean: float, own: int, other: int) -> None:
    assert judge(Score(mean, 0.005, own), Score(mean, 0.005, other), 0.0).verdict == Verdict.equivalent
    far = mean + 0.2 if mean < 0.5 else mean - 0.2
    assert judge(Score(mean, 0.005, own), Score(far, 0.005, other), 0.0).verdict == Verdict.different


def test_a_large_spread_decides_nothing() -> None:
    """What the old rule took for agreement: a difference of 0.29 within twice the pooled deviation."""
    found = judge(Score(0.48, 0.30, 3), Score(0.77, 0.05, 3), 0.0)
    assert found.verdict == Verdict.undecided and not found.close and found.informative


def test_verdicts_at_the_edges() -> None:
    cases = {
        (-0.1, 0.1): Verdict.equivalent,
        (-0.100001, 0.0): Verdict.undecided,
        (0.0, 0.100001): Verdict.undecided,
        (0.1, 0.3): Verdict.undecided,
        (0.100001, 0.3): Verdict.different,
        (-0.3, -0.100001): Verdict.different,
        (-0.5, 0.5): Verdict.undecided,
    }
    assert {interval: verdict(interval) for interval in cases} == cases
    assert judge(Score(0.4, 0.1, 3), Score(0.3, 0.1, 3), 0.0).close  # 0.4 - 0.3 is a little more than 0.1
    assert not judge(Score(0.401, 0.1, 3), Score(0.3, 0.1, 3), 0.0).close


def test_cells_at_the_floor_and_at_the_ceiling_tell_nothing() -> None:
    assert extreme(0.0, 0.05, 0.0) == extreme(0.05, 0.0, 0.04) == Extreme.floor
    assert extreme(0.0, 0.051, 0.0) is None and extreme(0.051, 0.0, 0.0) is None
    assert extreme(0.95, 1.0, 0.0) == Extreme.ceiling and extreme(0.94, 1.0, 0.0) is None
    # A coin is right half of the time: there the floor is, and 0 is as far from it as 1.
    assert extreme(0.5, 0.55, 0.5) == extreme(0.45, 0.5, 0.5) == Extreme.floor
    assert extreme(0.0, 0.0, 0.5) is None and extreme(0.5, 0.56, 0.5) is None and extreme(0.5, 0.5, 0.0) is None
    assert extreme(0.12, 0.08, 0.1) == Extreme.floor and extreme(0.0, 0.1, 0.1) is None
    assert judge(Score(0.0, 0.0, 3), Score(0.0, 0.0, 3), 0.0).informative is False


@pytest.mark.slow
def test_the_interval_covers_what_it_says() -> None:
    """Three seeds of known spreads against three: at least nine times out of ten, and not always."""
    generator = np.random.default_rng(0)
    hits = []
    for _ in range(1500):
        ours, theirs = generator.normal(0.4, 0.1, 3), generator.normal(0.5, 0.05, 3)
        low, high = difference_interval(of_seeds(*ours.tolist()), of_seeds(*theirs.tolist())) or (0, 0)
        hits.append(low <= -0.1 <= high)
    assert 0.88 <= np.mean(hits) <= 0.94
