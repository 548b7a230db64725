"""Pairs of entries of queries and keys, rotated inside a Triton kernel.

Shape letters as in `attention`: P pairs, C numbers of a pair (cosine and sine of queries and keys alike, or those of
queries and then those of keys), G heads with angles of their own (1 where all share them).
"""

from __future__ import annotations

from lengthwise.kernels.parts import jit, tl


@jit
def entry_order(c_K, P: tl.constexpr, HALVES: tl.constexpr):
    """Where the entries of a pair lie, side by side: an order in which products of queries and keys stay the same."""
    if HALVES:  # entry i of the first half of the rotated ones goes with entry i of the second
        c_K = tl.where(c_K < 2 * P, c_K % 2 * P + c_K // 2, c_K)
    return c_K


@jit
def turns_of(
    turns, token_T, h, KEYS: tl.constexpr, G: tl.constexpr, P: tl.constexpr, C: tl.constexpr, K: tl.constexpr
):  # fmt: skip
    """Cosines and sines of a block of tokens for all K / 2 pairs of a head: no turn from pair P on."""
    pair = tl.arange(0, K // 2)
    place = ((token_T[:, None] * G + h % G) * P + pair[None, :]) * C
    if KEYS:
        place += C - 2
    known = (pair < P)[None, :]
    return tl.load(turns + place, mask=known, other=1.0), tl.load(turns + place + 1, mask=known, other=0.0)


@jit
def turned(x_TK, cosine_TP, sine_TP):
    """Neighbouring entries turned, rounded as they were."""
    a_TP, b_TP = tl.split(tl.reshape(x_TK.to(tl.float32), (cosine_TP.shape[0], cosine_TP.shape[1], 2)))
    pairs = tl.join(a_TP * cosine_TP - b_TP * sine_TP, a_TP * sine_TP + b_TP * cosine_TP)
    return tl.reshape(pairs, x_TK.shape).to(x_TK.dtype)


@jit
def turned_back(
    x_TK, turns, token_T, h, KEYS: tl.constexpr, G: tl.constexpr, P: tl.constexpr, C: tl.constexpr, K: tl.constexpr
):  # fmt: skip
    """The gradient of what was turned: turned the other way."""
    cosine_TP, sine_TP = turns_of(turns, token_T, h, KEYS, G, P, C, K)
    return turned(x_TK, cosine_TP, -sine_TP)


@jit
def gradient_of_angles(x_TK, dx_TK):
    """(T, K / 2), from what was turned and its gradient."""
    a_TP, b_TP = tl.split(tl.reshape(x_TK.to(tl.float32), (x_TK.shape[0], x_TK.shape[1] // 2, 2)))
    da_TP, db_TP = tl.split(tl.reshape(dx_TK.to(tl.float32), (x_TK.shape[0], x_TK.shape[1] // 2, 2)))
    return db_TP * a_TP - da_TP * b_TP


@jit
def store_of_pairs(place, x_TP, token_T, h, H: tl.constexpr, P: tl.constexpr):
    """Numbers of the pairs of a head, where every head has its own."""
    pair = tl.arange(0, x_TP.shape[1])
    place_TP = (token_T[:, None] * H + h) * P + pair[None, :]
    tl.store(place + place_TP, x_TP, mask=(pair < P)[None, :])
