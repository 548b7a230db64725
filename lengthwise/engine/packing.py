"""Several examples in one row, so that hardly a token is padding.

Shape letters: M batches, E examples of a batch, R rows.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Placement:
    """Where each example of each batch goes."""

    row_ME: np.ndarray
    offset_ME: np.ndarray
    """Its first token's place in the row."""
    segment_ME: np.ndarray
    """Its number within the row, from 1."""

    @property
    def rows_M(self) -> np.ndarray:
        """How many rows each batch needs."""
        return self.row_ME.max(axis=1, initial=-1) + 1


def pack(size_ME: np.ndarray, row_width: int) -> Placement:
    """Best fit, largest first: each example goes where it leaves the least room, else into a new row.

    Many batches at once: the loop is over the examples of a batch, each step places one in every batch.
    """
    if size_ME.size and size_ME.max() > row_width:
        raise ValueError(f"an example of {size_ME.max()} tokens does not fit into rows of {row_width}")
    batches, examples = size_ME.shape
    order_ME = np.argsort(-size_ME, axis=1, kind="stable")
    row, offset, segment = (np.zeros((batches, examples), dtype=np.int64) for _ in range(3))
    room = np.full((batches, examples), row_width, dtype=np.int64)  # of every row, also of those not yet begun
    members = np.zeros_like(room)
    used = np.zeros(batches, dtype=np.int64)
    batch = np.arange(batches)
    # Rows that are not begun rank behind all others, the first of them first.
    behind = row_width + 1 + np.arange(examples)
    for place in range(examples):
        example = order_ME[:, place]
        size = size_ME[batch, example]
        begun = np.arange(place + 1) < used[:, None]
        open_rooms = room[:, : place + 1]
        rank = np.where(begun, open_rooms, behind[: place + 1])
        chosen = np.where(open_rooms >= size[:, None], rank, np.iinfo(np.int64).max).argmin(axis=1)
        row[batch, example] = chosen
        offset[batch, example] = row_width - room[batch, chosen]
        members[batch, chosen] += 1
        segment[batch, example] = members[batch, chosen]
        room[batch, chosen] -= size
        used = np.maximum(used, chosen + 1)
    return Placement(row, offset, segment)
