"""Several examples in one row, so that hardly a token is padding.

Shape letters: M batches, E examples of a batch, R rows.
"""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Packing:
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


def pack(size_ME: np.ndarray, row_width: int) -> Packing:
    """Best fit, largest first: each example goes where it leaves the least room, else into a new row.

    Many batches at once: the loop is over the examples of a batch, each step places one in every batch.
    """
    if size_ME.size and size_ME.max() > row_width:
        raise ValueError(f"an example of {size_ME.max()} tokens does not fit into rows of {row_width}")
    batches, examples = size_ME.shape
    order_ME = np.argsort(-size_ME, axis=1, kind="stable")
    # E counts them from the largest on from here.
    size_EM = np.take_along_axis(size_ME, order_ME, axis=1).T.astype(np.uint32)
    row_EM, offset_EM, segment_EM = (np.zeros((examples, batches), dtype=np.int64) for _ in range(3))
    # How much room is left in a row; those not yet begun rank behind all others, the first of them first.
    rank_MR = np.tile(row_width + 1 + np.arange(examples, dtype=np.uint32), (batches, 1))
    members_MR = np.zeros((batches, examples), dtype=np.int64)
    batch, begun = np.arange(batches), 0
    for place, size_M in enumerate(size_EM):
        # Where there is not enough room the difference is below 0, which in unsigned numbers is far above all others.
        chosen_M = (rank_MR[:, : begun + 1] - size_M[:, None]).argmin(axis=1)
        room_M = np.minimum(rank_MR[batch, chosen_M], np.uint32(row_width))
        rank_MR[batch, chosen_M] = room_M - size_M
        members_MR[batch, chosen_M] += 1
        row_EM[place], offset_EM[place] = chosen_M, row_width - room_M
        segment_EM[place] = members_MR[batch, chosen_M]
        begun = max(begun, int(chosen_M.max(initial=-1)) + 1)
    return Packing(*(_in_order(each, order_ME) for each in (row_EM, offset_EM, segment_EM)))


def _in_order(values_EM: np.ndarray, order_ME: np.ndarray) -> np.ndarray:
    """Of each example in its place, from those of the largest first."""
    values_ME = np.empty(order_ME.shape, dtype=values_EM.dtype)
    np.put_along_axis(values_ME, order_ME, values_EM.T, axis=1)
    return values_ME
