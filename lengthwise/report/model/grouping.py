"""Grouping rows and taking means of what is known."""

from collections.abc import Callable, Hashable, Iterable
from typing import Any, TypeVar

import numpy as np

Key = TypeVar("Key", bound=Hashable)


def grouped(items: Iterable[Any], key: Callable[[Any], Key]) -> dict[Key, list[Any]]:
    found: dict[Key, list[Any]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found


def mean(values: Iterable[float]) -> float:
    return float(np.mean(list(values)))


def mean_or_none(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return mean(known) if known else None
