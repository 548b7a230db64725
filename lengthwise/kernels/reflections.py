"""Reflections that tokens put between a key and a query (PaTH), inside a Triton kernel that holds whole rows.

A key is multiplied by I - b w w^T of every token after it, up to the query. With w and b of all tokens of a row the
product of a query and a key loses `reached . solved`, where (1 + between) solved = onto, a triangular system (the UT
transform). `PRECISION` of products of fp32: tensor cores round once what a bf16 model is made of. Shape letters as in
`attention`.
"""

from __future__ import annotations

from lengthwise.kernels.parts import jit, tl


@jit
def inverse_of_lower(below_TT, T: tl.constexpr, PRECISION: tl.constexpr):
    """The inverse of 1 + a matrix that is zero on and above its diagonal.

    From blocks of one token to the whole, two neighbours at a time: the block below their inverses is minus the product
    of the three. Powers of the matrix, which would be as short, overflow where the vectors of tokens are alike.
    """
    t_T = tl.arange(0, T)
    inverse_TT = tl.where(t_T[:, None] == t_T[None, :], 1.0, 0.0)
    for level in range(4 + (T > 16) + (T > 32) + (T > 64)):
        block_T, pair_T = t_T >> level, t_T >> (level + 1)
        joins_TT = (block_T[:, None] != block_T[None, :]) & (pair_T[:, None] == pair_T[None, :])
        product_TT = tl.dot(inverse_TT, tl.where(joins_TT, below_TT, 0.0), input_precision=PRECISION)
        inverse_TT -= tl.dot(product_TT, inverse_TT, input_precision=PRECISION)
    return inverse_TT


@jit
def reflect(q_TK, k_TK, w_TK, strength_T, own_TS, before_TS, T: tl.constexpr, PRECISION: tl.constexpr):
    """What the system is made of, and its solution; all in fp32.

    `own_TS`: whether a key is of the query's sequence and no later; `before_TS`: and earlier.
    """
    w_KT = tl.trans(w_TK)
    alike_TT = tl.dot(w_TK, w_KT, input_precision=PRECISION)
    with_keys_TS = tl.dot(w_TK, tl.trans(k_TK.to(tl.float32)), input_precision=PRECISION)
    between_TT = tl.where(before_TS, alike_TT * strength_T[:, None], 0.0)
    onto_TS = tl.where(before_TS, with_keys_TS * strength_T[:, None], 0.0)
    inverse_TT = inverse_of_lower(between_TT, T, PRECISION)
    solved_TS = tl.dot(inverse_TT, onto_TS, input_precision=PRECISION)
    reached_TS = tl.where(own_TS, tl.dot(q_TK.to(tl.float32), w_KT, input_precision=PRECISION), 0.0)
    return alike_TT, with_keys_TS, inverse_TT, solved_TS, reached_TS


@jit
def gradients_of_reflections(
    dtaken_TS, q_TK, k_TK, w_TK, strength_T, system, own_TS, before_TS, PRECISION: tl.constexpr
):  # fmt: skip
    """Of queries, keys, the vectors w and their strengths, where `dtaken_TS` is that of `reached . solved`."""
    alike_TT, with_keys_TS, inverse_TT, solved_TS, reached_TS = system
    solved_ST = tl.trans(solved_TS)
    dreached_TS = tl.where(own_TS, tl.dot(dtaken_TS, solved_ST, input_precision=PRECISION), 0.0)
    dsolved_TS = tl.dot(tl.trans(reached_TS), dtaken_TS, input_precision=PRECISION)
    donto_TS = tl.dot(tl.trans(inverse_TT), dsolved_TS, input_precision=PRECISION)
    dbetween_TT = tl.where(before_TS, -tl.dot(donto_TS, solved_ST, input_precision=PRECISION), 0.0)
    donto_TS = tl.where(before_TS, donto_TS, 0.0)
    dstrength_T = tl.sum(donto_TS * with_keys_TS + dbetween_TT * alike_TT, 1)
    donto_TS *= strength_T[:, None]
    dbetween_TT *= strength_T[:, None]
    dw_TK = tl.dot(tl.trans(dreached_TS), q_TK.to(tl.float32), input_precision=PRECISION)
    dw_TK += tl.dot(donto_TS, k_TK.to(tl.float32), input_precision=PRECISION)
    dw_TK += tl.dot(dbetween_TT + tl.trans(dbetween_TT), w_TK, input_precision=PRECISION)
    dq_TK = tl.dot(dreached_TS, w_TK, input_precision=PRECISION)
    dk_TK = tl.dot(tl.trans(donto_TS), w_TK, input_precision=PRECISION)
    return dq_TK, dk_TK, dw_TK, dstrength_T
