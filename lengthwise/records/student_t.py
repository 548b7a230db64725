"""Student's t distribution: its probabilities and quantiles, without SciPy, which the core does not depend on."""

import math
from functools import cache

SMALL = 1e-300
"""In place of a 0 that a continued fraction would divide by."""

PRECISION = 1e-15

MOST_TERMS = 10_000
"""More than any number of degrees of freedom up to ten million needs; without it a nan would never end."""


@cache
def student_t_quantile(probability: float, freedom: float) -> float:
    """The t below which a variable with `freedom` degrees of freedom, whole or not, is with this probability."""
    if not 0 < probability < 1:
        raise ValueError(f"a quantile is asked for a probability between 0 and 1, not {probability}")
    if probability < 0.5:
        return -student_t_quantile(1 - probability, freedom)
    low, high = 0.0, 1.0
    while student_t_probability(high, freedom) < probability:
        low, high = high, 2 * high
    while high - low > PRECISION * high:
        middle = (low + high) / 2
        if middle in (low, high):  # neighbours: no number lies between them
            break
        low, high = (middle, high) if student_t_probability(middle, freedom) < probability else (low, middle)
    return (low + high) / 2


def student_t_probability(t: float, freedom: float) -> float:
    """The probability of a value up to t."""
    if not freedom > 0:
        raise ValueError(f"degrees of freedom are above 0, not {freedom}")
    beyond = regularized_incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5) / 2
    return 1 - beyond if t > 0 else beyond


def regularized_incomplete_beta(x: float, a: float, b: float) -> float:
    """I_x(a, b): the probability of a value up to x under the beta distribution with parameters a and b."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # where the continued fraction converges slowly
        return 1 - regularized_incomplete_beta(1 - x, b, a)
    log_front = a * math.log(x) + b * math.log1p(-x) - math.log(a)
    log_front += math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return math.exp(log_front) / _continued_fraction(x, a, b)


def _continued_fraction(x: float, a: float, b: float) -> float:
    """1 + d1 / (1 + d2 / (1 + ...)), DLMF 8.17.22, evaluated from the front (modified Lentz)."""
    value = numerator = 1.0
    denominator = 0.0
    for term in range(1, MOST_TERMS):
        m, odd = divmod(term, 2)
        if odd:
            d = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            d = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        denominator = 1 / (1 + d * denominator or SMALL)
        numerator = 1 + d / numerator or SMALL
        value *= numerator * denominator
        if abs(numerator * denominator - 1) < PRECISION:
            return value
    raise ValueError(f"the incomplete beta function of {x}, {a}, {b} did not converge")
