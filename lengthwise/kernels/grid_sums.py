"""The gradient of a bias by both positions: what all sequences of all rows say of it, added up.

Shape letters as in `attention`: L tokens of a row, which is also how many positions the grid has; Y parts of the rows.
Inside a kernel: B positions of queries and of keys that a program holds.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lengthwise.kernels.parts import jit, tl, triton

PARTS = 4
"""Into which the rows of a batch are cut, so that a few heads fill the chip."""


def sum_by_position(dlogits_NRHLL: Tensor, segments_NRL: Tensor, places_NRL: Tensor) -> Tensor:
    """(N, H, L, L): the gradient at the positions of a query and a key, over all sequences that have them.

    Tokens of a sequence lie side by side, and their positions count up by one. Padding, where they do not, has a
    gradient of zero.
    """
    N, R, H, L, _ = dlogits_NRHLL.shape
    B, parts = min(64, L), min(PARTS, R)
    part_NYHLL = dlogits_NRHLL.new_empty((N, parts, H, L, L))
    blocks = L // B
    with torch.cuda.device_of(dlogits_NRHLL):
        _sum[blocks * blocks * H, parts, N](
            *(dlogits_NRHLL, segments_NRL, places_NRL, part_NYHLL, *segments_NRL.stride()[:2]),
            *(R, L, parts, H, B, triton.next_power_of_2(L)),
            num_warps=4,
        )
    return part_NYHLL.sum(1)


@jit
def _sum(
    dlogits, segments, places, part, segments_N, segments_R,
    R, L, Y: tl.constexpr, H: tl.constexpr, B: tl.constexpr, W: tl.constexpr,
):  # fmt: skip
    h, block, y = tl.program_id(0) % H, tl.program_id(0) // H, tl.program_id(1)
    n = tl.program_id(2).to(tl.int64)
    first_query, first_key = block // (L // B) * B, block % (L // B) * B
    b_B, t_W = tl.arange(0, B), tl.arange(0, W)
    query_B, key_B = first_query + b_B, first_key + b_B
    sum_BB = tl.zeros((B, B), tl.float32)
    for r in range(y + 0, R, Y):
        if first_key <= first_query:
            segment_W = tl.load(segments + n * segments_N + r * segments_R + t_W, mask=t_W < L, other=-1)
            place_W = tl.load(places + (n * R + r) * L + t_W, mask=t_W < L, other=0)
            begin = 0
            while begin < L:  # one sequence after the other
                here_W = t_W == begin
                own_W = (segment_W == tl.sum(tl.where(here_W, segment_W, 0), 0)) & (t_W < L)
                end = tl.min(tl.where(own_W | (t_W < begin), L, t_W), 0)
                # Where the positions of this block lie in the row.
                shift = begin - tl.sum(tl.where(here_W, place_W, 0), 0)
                query_at_B, key_at_B = query_B + shift, key_B + shift
                inside_BB = (query_at_B >= begin)[:, None] & (query_at_B < end)[:, None]
                inside_BB &= (key_at_B >= begin)[None, :] & (key_at_B[None, :] <= query_at_B[:, None])
                at_BB = (((n * R + r) * H + h) * L + query_at_B[:, None]) * L + key_at_B[None, :]
                sum_BB += tl.load(dlogits + at_BB, mask=inside_BB, other=0.0)
                begin = end
    at_BB = (((n * Y + y) * H + h) * L + query_B[:, None]) * L + key_B[None, :]
    tl.store(part + at_BB, sum_BB)
