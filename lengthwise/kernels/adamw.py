"""AdamW and the norms of gradients in Triton, for sections of the rows of a fleet: `optimizer` in one pass over memory.

Shape letters: N models, S weights of a section of one model, X pieces of all sections. Inside a kernel S and X name
the block that a program holds. Nothing is added up in an order left to chance: the same inputs give the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from lengthwise.kernels.parts import jit, tl, triton

if TYPE_CHECKING:
    from lengthwise.training.recipe import TrainingConfig

PIECE = 8192
"""Gradients that one program squares and adds up, all of them read before the first is used."""
BLOCK = 1024
"""Weights that one program updates."""
SUMMED = 4096
"""Pieces that the program which adds up a model's pieces holds at once."""


def pieces(size: int) -> int:
    """How many partial sums a section of `size` weights has."""
    return -(-size // PIECE)


def squares(gradients_NS: Tensor, pieces_NX: Tensor) -> None:
    """Writes a section's sums of squares (N, pieces(S)), fp32: its own columns of an array for all sections."""
    N, S = gradients_NS.shape
    assert pieces_NX.shape == (N, pieces(S)) and pieces_NX.dtype == torch.float32
    with torch.cuda.device_of(gradients_NS):
        _squares[pieces(S), N](gradients_NS, pieces_NX, _width(gradients_NS), _width(pieces_NX), S, PIECE, num_warps=8)


def norms(pieces_NX: Tensor, norms_N: Tensor | None = None) -> Tensor:
    """Each model's norm from the pieces of all sections, written to `norms_N` where that is given."""
    N, X = pieces_NX.shape
    norms_N = pieces_NX.new_empty(N) if norms_N is None else norms_N
    assert norms_N.is_contiguous()
    with torch.cuda.device_of(pieces_NX):
        _norms[N,](pieces_NX, norms_N, _width(pieces_NX), X, SUMMED, num_warps=16)
    return norms_N


def adamw(
    weights_NS: Tensor,
    first_NS: Tensor,
    second_NS: Tensor,
    decays_S: Tensor,
    gradients_NS: Tensor,
    norms_N: Tensor,
    rates_N: Tensor,
    corrections_2: Tensor,
    copy_NS: Tensor | None,
    wanted_1: Tensor | None,
    config: TrainingConfig,
) -> None:
    """What `optimizer.AdamW.update` does; nothing at all where `wanted_1` is 0, which only the device needs to know."""
    N, S = weights_NS.shape
    assert decays_S.is_contiguous() and norms_N.is_contiguous() and rates_N.is_contiguous()
    with torch.cuda.device_of(weights_NS):
        _adamw[triton.cdiv(S, BLOCK), N](
            *(weights_NS, first_NS, second_NS, decays_S, gradients_NS, norms_N, rates_N, corrections_2),
            *(copy_NS, wanted_1, _width(weights_NS), _width(first_NS), _width(second_NS), _width(gradients_NS)),
            *(0 if copy_NS is None else _width(copy_NS), S, config.clip, config.weight_decay),
            # Of numbers close to 1 fp32 knows the distance to 1 only roughly.
            *(1 - config.beta1, config.beta2, 1 - config.beta2, config.epsilon, BLOCK),
            num_warps=4,
        )


def _width(matrix: Tensor) -> int:
    """From row to row. That of a lone row means nothing, and 1 would cost the compiler what it knows of alignment."""
    assert matrix.stride(1) == 1 or matrix.shape[1] == 1
    return matrix.stride(0) if len(matrix) > 1 else 0


@jit
def _squares(gradients, pieces, gradients_N, pieces_N, S, BLOCK: tl.constexpr):
    piece, n = tl.program_id(0), tl.program_id(1).to(tl.int64)
    s_S = piece.to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    gradients_S = tl.load(gradients + n * gradients_N + s_S, mask=s_S < S, other=0.0).to(tl.float32)
    tl.store(pieces + n * pieces_N + piece, tl.sum(gradients_S * gradients_S, 0))


@jit
def _norms(pieces, norms, pieces_N, X, BLOCK: tl.constexpr):
    n = tl.program_id(0).to(tl.int64)
    sums_X = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, X, BLOCK):
        x_X = start + tl.arange(0, BLOCK)
        sums_X += tl.load(pieces + n * pieces_N + x_X, mask=x_X < X, other=0.0)
    tl.store(norms + n, tl.sqrt_rn(tl.sum(sums_X, 0)))


@jit
def _adamw(
    weights, first, second, decays, gradients, norms, rates, corrections, copy, wanted,
    weights_N, first_N, second_N, gradients_N, copy_N, S,
    clip, weight_decay, rest1, beta2, rest2, epsilon, BLOCK: tl.constexpr,
):  # fmt: skip
    n = tl.program_id(1).to(tl.int64)
    s_S = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    # Runs of four: 16 bytes of fp32. Where bf16 and bool took 16 bytes of theirs, threads would hold other weights of
    # each array and had to exchange them.
    s_S = tl.max_contiguous(tl.multiple_of(s_S, 4), 4)
    inside_S = s_S < S
    if wanted is not None:
        inside_S &= tl.load(wanted) != 0
    gradients_S = tl.load(gradients + n * gradients_N + s_S, mask=inside_S, other=0.0).to(tl.float32)
    first_S = tl.load(first + n * first_N + s_S, mask=inside_S, other=0.0)
    second_S = tl.load(second + n * second_N + s_S, mask=inside_S, other=0.0)
    weights_S = tl.load(weights + n * weights_N + s_S, mask=inside_S, other=0.0)
    decays_S = tl.load(decays + s_S, mask=inside_S, other=0)

    norm = tl.load(norms + n)
    finite = norm < float("inf")
    rate = tl.where(finite, tl.load(rates + n), 0.0)
    gradients_S = tl.where(finite, gradients_S * tl.minimum(clip / (norm + 1e-6), 1.0), 0.0)
    first_S += rest1 * (gradients_S - first_S)
    second_S = beta2 * second_S + rest2 * gradients_S * gradients_S
    scale_S = tl.sqrt_rn(second_S) / tl.load(corrections + 1) + epsilon
    weights_S *= tl.where(decays_S, 1 - rate * weight_decay, 1.0)
    weights_S -= first_S / scale_S * (rate / tl.load(corrections))

    tl.store(first + n * first_N + s_S, first_S, mask=inside_S)
    tl.store(second + n * second_N + s_S, second_S, mask=inside_S)
    tl.store(weights + n * weights_N + s_S, weights_S, mask=inside_S)
    if copy is not None:
        tl.store(copy + n * copy_N + s_S, weights_S, mask=inside_S)
