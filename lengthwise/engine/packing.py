"""Several examples in one row, so that hardly a token is padding.

Shape letter: E examples.
"""

from bisect import bisect_left, insort
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Placement:
    """Where each example goes."""

    row_E: np.ndarray
    offset_E: np.ndarray
    """Its first token's place in the row."""
    segment_E: np.ndarray
    """Its number within the row, from 1."""


def pack(size_E: np.ndarray, row_width: int) -> Placement:
    """Best fit, largest first: each example goes where it leaves the least room, else into a new row."""
    if size_E.max() > row_width:
        raise ValueError(f"an example of {size_E.max()} tokens does not fit into rows of {row_width}")
    row, offset, segment = (np.zeros(len(size_E), dtype=np.int64) for _ in range(3))
    rooms: list[tuple[int, int]] = []  # (room left, row), ascending
    members: list[int] = []
    for example in np.argsort(-size_E, kind="stable"):
        size = int(size_E[example])
        fit = bisect_left(rooms, (size, -1))
        if fit == len(rooms):
            room, chosen = row_width, len(members)
            members.append(0)
        else:
            room, chosen = rooms.pop(fit)
        row[example], offset[example] = chosen, row_width - room
        members[chosen] += 1
        segment[example] = members[chosen]
        insort(rooms, (room - size, chosen))
    return Placement(row, offset, segment)


def unpacked(size_E: np.ndarray) -> Placement:
    """Each example in a row of its own."""
    index = np.arange(len(size_E))
    return Placement(index, np.zeros_like(index), np.ones_like(index))
