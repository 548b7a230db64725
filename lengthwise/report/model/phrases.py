"""Values as people write them."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lengthwise.records.published import Score
from lengthwise.records.published_ratios import PublishedRatio


def decimals(value: float, places: int = 2) -> str:
    return f"{value:.{places}f}"


def known(value: float | None) -> str:
    """A number that may be missing, or far below all others."""
    if value is None:
        return "–"
    text = f"{value:.2f}".replace("-", "−")
    return "< −9" if value < -9 else "0.00" if text == "−0.00" else text


def signed(value: float, limit: float | None = None) -> str:
    """With as many decimals as it takes to tell its size from the limit, if one is given."""
    text = (f"{value:+.2f}" if limit is None else beside(value, limit, "+")).replace("-", "−")
    return text if text[1:] != "0.00" else "0.00"


def plus_minus(value: float, limit: float | None = None) -> str:
    """The same in letters that every terminal has, with a sign before 0.00 too."""
    text = f"{value:+.2f}" if limit is None else beside(value, limit, "+")
    return text if float(text) else "+0.00"  # never -0.00


def spread(figure: Score) -> str:
    """Standard deviation and number of seeds."""
    return f"± {figure.deviation:.2f} ({figure.seeds})" if figure.deviation is not None else f"({figure.seeds})"


def places(ends: Iterable[int] | None) -> str:
    """The rank of an encoding, or the first and last that are possible; nothing where it is not known."""
    if ends is None:
        return ""
    first, last = ends
    return f"{first}." if first == last else f"{first}.–{last}."


def beside(value: float, limit: float, sign: str = "") -> str:
    """Two decimals, or as many as it takes to tell the size of the value from the limit; four at most."""
    for places in (2, 3):
        if abs(value) == limit or f"{abs(value):.{places}f}" != f"{limit:.{places}f}":
            return f"{value:{sign}.{places}f}"
    return f"{value:{sign}.4f}"


def chance(value: float) -> str:
    return "below 0.001" if 0 < value < 0.001 else f"{value:.3f}"


def probability(value: float) -> str:
    return "< 0.001" if value < 0.001 else f"{value:.3f}"


def interval(ends: Iterable[float] | None, signs: bool = False) -> str:
    """Both ends of an interval; with `signs`, of differences."""
    if ends is None:
        return "–"
    first, last = ends
    return f"{signed(first)} to {signed(last)}" if signs else f"{first:.2f} – {last:.2f}"


def spread_heading(is_range: bool) -> str:
    """The heading of a column of intervals over seeds."""
    return "range of the seeds" if is_range else "95 % CI over seeds"


OVER_TASKS = "95 % CI over tasks"
"""The heading of a column of intervals over tasks."""


def span(ends: Iterable[int]) -> str:
    """First and last of some numbers, or the one that they all are."""
    first, *others = sorted(ends)
    return f"{first:,} – {others[-1]:,}" if others and others[-1] != first else f"{first:,}"


def plain(value: Any) -> str:
    """A setting as a person would write it."""
    if value is None:
        return "the task's own"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key.replace('_', ' ')} {plain(part)}" for key, part in value.items()) or "–"
    if isinstance(value, list | tuple):
        return ", ".join(map(plain, value)) or "–"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def ratio(value: float) -> str:
    """Of two perplexities."""
    return f"{value:.2f}" if value < 10 else f"{value:.0f}" if value < 1000 else f"{value:.0e}"


def published_ratio(found: PublishedRatio | None) -> str:
    """A dash where nothing was published."""
    return "-" if found is None else f"{'> ' if found.at_least else ''}{ratio(found.ratio)}"


def perplexity(value: float) -> str:
    return f"{value:.2f}" if value < 1000 else f"{value:,.0f}" if value < 1e6 else f"{value:.1e}"


def listed(words: Sequence[str]) -> str:
    """`a, b and c`."""
    *others, last = words
    return f"{', '.join(others)} and {last}" if others else last


def plural(count: int, word: str) -> str:
    return f"{count:,} {word}" if count == 1 else f"{count:,} {word}s"


FILTERS = {function.__name__: function for function in (decimals, places, beside, span, plural)}
"""For the templates of pages."""
