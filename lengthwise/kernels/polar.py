"""Entries of queries and keys as magnitudes and phases (PoPE), inside a Triton kernel that holds whole rows.

An entry x is softplus(x), with a phase that grows with the position; keys have a further one for each entry of a head.
The product of a query and a key is the sum of products of magnitudes times the cosine between their phases. Shape
letters as in `attention`.
"""

from __future__ import annotations

from lengthwise.kernels.parts import jit, tl


@jit
def phases_of(turns, token_T, c_K, K: tl.constexpr):
    """Cosines and sines of the phases of positions, of every entry."""
    place_TK = (token_T[:, None] * K + c_K[None, :]) * 2
    return tl.load(turns + place_TK), tl.load(turns + place_TK + 1)


@jit
def shifted(cosine_TK, sine_TK, offset_K):
    """Those of phases that are larger by an offset of each entry."""
    along_K, across_K = tl.cos(offset_K)[None, :], tl.sin(offset_K)[None, :]
    return cosine_TK * along_K - sine_TK * across_K, sine_TK * along_K + cosine_TK * across_K


@jit
def real_and_imaginary(x_TK, cosine_TK, sine_TK):
    """Both parts, rounded as the entries were."""
    x = x_TK.to(tl.float32)
    magnitude_TK = tl.maximum(x, 0.0) + tl.log(1.0 + tl.exp(-tl.abs(x)))
    return (magnitude_TK * cosine_TK).to(x_TK.dtype), (magnitude_TK * sine_TK).to(x_TK.dtype)


@jit
def gradient_of_entries(x_TK, dreal_TK, dimaginary_TK, cosine_TK, sine_TK):
    """By way of the magnitude, whose slope is the sigmoid."""
    dmagnitude_TK = dreal_TK * cosine_TK + dimaginary_TK * sine_TK
    return dmagnitude_TK / (1.0 + tl.exp(-x_TK.to(tl.float32)))


@jit
def gradient_of_phases(real_TK, imaginary_TK, dreal_TK, dimaginary_TK):
    """(K,): what all tokens of a row say of an offset."""
    return tl.sum(dimaginary_TK * real_TK.to(tl.float32) - dreal_TK * imaginary_TK.to(tl.float32), 0)
