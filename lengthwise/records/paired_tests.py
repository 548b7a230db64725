"""Tests of paired differences, and the correction for making several of them; on plain numbers."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from lengthwise.records.statistics import EQUAL, ranks

MOST_ENUMERATED = 17
"""All 2^n signs are tried up to this n (the published battery has 17 tasks), and signs are drawn above it."""

DRAWN_SIGNS = 20_000


def sign_flip_test(differences: Sequence[float]) -> float:
    """Two-sided p-value of a paired permutation test of the mean difference.

    If the two sides of each pair could be exchanged, each difference could as well have the other sign: the share of
    all 2^n choices of signs whose mean is at least as far from 0 as the observed one. Up to 17 pairs all are tried,
    above that 20,000 are drawn, the observed one counted among them. Below 6 pairs it cannot be under 0.05.
    """
    array = np.asarray(differences, dtype=float)
    array = array[np.abs(array) > EQUAL]  # a tie is the same with either sign
    if not len(array):
        return 1.0
    observed = abs(array.sum()) - EQUAL * len(array)
    if len(array) <= MOST_ENUMERATED:
        sums = np.zeros(1)
        for value in array:
            sums = np.concatenate([sums + value, sums - value])
        return float((np.abs(sums) >= observed).mean())
    signs = _drawn_signs(len(array))
    return float((1 + (np.abs(signs @ array) >= observed).sum()) / (1 + DRAWN_SIGNS))


@lru_cache(maxsize=8)
def _drawn_signs(number: int) -> np.ndarray:
    """(DRAWN_SIGNS, number): the same for every test of as many pairs, and drawn once for all of them."""
    generator = np.random.Generator(np.random.PCG64(0))
    return 2.0 * generator.integers(2, size=(DRAWN_SIGNS, number)) - 1.0


def wilcoxon_test(differences: Sequence[float]) -> float:
    """Two-sided p-value of Wilcoxon's signed-rank test.

    The sizes of the differences give way to their ranks, so that a few large ones decide nothing alone: the
    permutation test above, of signed ranks. Zeros are dropped, equal sizes share the mean of their ranks. The
    distribution is that of these very ranks, exact up to 17 pairs and drawn above.
    """
    array = np.asarray(differences, dtype=float)
    array = array[np.abs(array) > EQUAL]
    # Sizes that differ by rounding alone are equal. Ranks count from the greatest; here the smallest is the first.
    sizes = np.round(np.abs(array) / EQUAL)
    return sign_flip_test((np.sign(array) * ranks(-sizes)).tolist())


def holm(p_values: Sequence[float]) -> list[float]:
    """The p-values of a family of tests, corrected for their number by Holm's step-down method (1979).

    If every hypothesis is rejected whose corrected value is at most 0.05, the chance of any false rejection in the
    family is at most 0.05.
    The smallest of m is multiplied by m, the next by m - 1 and so on; none is smaller than the one before it.
    """
    corrected = [0.0] * len(p_values)
    greatest = 0.0
    for tests_before, place in enumerate(sorted(range(len(p_values)), key=lambda place: p_values[place])):
        greatest = max(greatest, min(1.0, (len(p_values) - tests_before) * p_values[place]))
        corrected[place] = greatest
    return corrected
