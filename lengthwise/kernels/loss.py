"""Cross-entropy of stacked models and its gradient in Triton: the logits are read once, and overwritten.

Shape letters: N models, P predictions of a model, V vocabulary rows. Inside a kernel P and V name the block that a
program holds. Nothing is added up in an order left to chance: the same inputs give the same bits.
"""

from __future__ import annotations

import torch
from torch import Tensor

from lengthwise.kernels.parts import jit, tl, triton

BLOCK = 2048
"""Logits that a program holds at once: 16 of each thread, which in bf16 are two reads of 16 bytes."""
WARPS = 4


def cross_entropy(logits_NPV: Tensor, targets_NP: Tensor) -> tuple[Tensor, Tensor]:
    """Mean over a model's targets of -log softmax, (N,) in fp32, and its gradient, in the place of the logits.

    A negative target only fills up. Without any other the mean is nan, as 0 / 0, and the gradient 0.
    """
    if logits_NPV.dtype not in (torch.float32, torch.bfloat16):
        raise ValueError(f"cross-entropy takes float32 and bfloat16, not {logits_NPV.dtype}")
    logits_NPV, targets_NP = logits_NPV.contiguous(), targets_NP.contiguous()
    N, P, V = logits_NPV.shape
    likelihoods_NP = logits_NPV.new_empty((N, P), dtype=torch.float32)
    losses_N, counts_N = logits_NPV.new_empty((2, N), dtype=torch.float32)
    block = min(BLOCK, triton.next_power_of_2(P))
    with torch.cuda.device_of(logits_NPV):
        _count[N,](targets_NP, counts_N, P, block, num_warps=WARPS)
        _likelihoods[P, N](logits_NPV, targets_NP, counts_N, likelihoods_NP, V, BLOCK, num_warps=WARPS)
        _mean[N,](likelihoods_NP, counts_N, losses_N, P, block, num_warps=WARPS)
    return losses_N, logits_NPV


@jit
def _count(targets, counts, P, BLOCK: tl.constexpr):
    n = tl.program_id(0).to(tl.int64)
    count_P = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, P, BLOCK):
        p_P = start + tl.arange(0, BLOCK)
        count_P += (tl.load(targets + n * P + p_P, mask=p_P < P, other=-1) >= 0).to(tl.int32)
    tl.store(counts + n, tl.sum(count_P, 0).to(tl.float32))


@jit
def _likelihoods(logits, targets, counts, likelihoods, V, BLOCK: tl.constexpr):
    n = tl.program_id(1).to(tl.int64)
    place = n * tl.num_programs(0) + tl.program_id(0)
    target = tl.load(targets + place)
    logits += place * V
    likelihood = 0.0
    if target >= 0:  # else the logits are not even read
        largest = -3.4e38  # finite: the difference of two infinities is not a number
        total = 0.0
        for start in range(0, V, BLOCK):
            v_V = start + tl.arange(0, BLOCK)
            logits_V = tl.load(logits + v_V, mask=v_V < V, other=float("-inf")).to(tl.float32)
            larger = tl.maximum(largest, tl.max(logits_V, 0))
            total = total * tl.exp(largest - larger) + tl.sum(tl.exp(logits_V - larger), 0)
            largest = larger
        # Not minus the sum of both: beside large logits the logarithm would lose its last digits.
        likelihood = tl.load(logits + target).to(tl.float32) - largest - tl.log(total)
        share = 1 / tl.load(counts + n)
        tl.debug_barrier()  # no thread overwrites what another has yet to read
        for start in range(0, V, BLOCK):
            v_V = start + tl.arange(0, BLOCK)
            logits_V = tl.load(logits + v_V, mask=v_V < V, other=float("-inf")).to(tl.float32)
            dlogits_V = tl.exp(logits_V - largest) / total - tl.where(v_V == target, 1.0, 0.0)
            tl.store(logits + v_V, dlogits_V * share, mask=v_V < V)
    else:
        for start in range(0, V, BLOCK):
            v_V = start + tl.arange(0, BLOCK)
            tl.store(logits + v_V, tl.zeros((BLOCK,), tl.float32), mask=v_V < V)
    tl.store(likelihoods + place, likelihood)


@jit
def _mean(likelihoods, counts, losses, P, BLOCK: tl.constexpr):
    n = tl.program_id(0).to(tl.int64)
    total_P = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, P, BLOCK):
        p_P = start + tl.arange(0, BLOCK)
        total_P += tl.load(likelihoods + n * P + p_P, mask=p_P < P, other=0.0)
    tl.store(losses + n, -tl.sum(total_P, 0) / tl.load(counts + n))
