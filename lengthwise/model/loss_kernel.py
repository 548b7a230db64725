"""Cross-entropy of stacked models in Triton: the logits are read once for the losses and once for their gradient.

Shape letters: N models, P predictions of a model, V vocabulary rows. Inside a kernel P and V name the block that a
program holds. Nothing is added up in an order left to chance: the same inputs give the same bits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lengthwise.model.kernel_parts import jit, tl, triton
from lengthwise.model.stacking import stacked

BLOCK = 2048
"""Logits that a program holds at once: 16 of each thread, which in bf16 are two reads of 16 bytes."""
WARPS = 4


def cross_entropy(logits_NPV: Tensor, targets_NP: Tensor) -> Tensor:
    """Mean over a model's targets of -log softmax, (N,) in fp32; a negative target only fills up.

    Without any target it is nan, as 0 / 0, and the gradient 0. Under `torch.func.vmap` the stacked models join N;
    gradients are taken outside of it.
    """
    if logits_NPV.dtype not in (torch.float32, torch.bfloat16):
        raise ValueError(f"cross-entropy takes float32 and bfloat16, not {logits_NPV.dtype}")
    return _CrossEntropy.apply(logits_NPV, targets_NP)[0]


class _CrossEntropy(torch.autograd.Function):
    """Returns, beside the losses, what its gradient needs: logsumexp of each prediction, number of targets."""

    @staticmethod
    def forward(logits_NPV: Tensor, targets_NP: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits_NPV, targets_NP = logits_NPV.contiguous(), targets_NP.contiguous()
        N, P, V = logits_NPV.shape
        likelihoods_NP, logsumexps_NP = logits_NPV.new_empty((2, N, P), dtype=torch.float32)
        losses_N, counts_N = logits_NPV.new_empty((2, N), dtype=torch.float32)
        with torch.cuda.device_of(logits_NPV):
            _forward[P, N](logits_NPV, targets_NP, likelihoods_NP, logsumexps_NP, V, BLOCK, num_warps=WARPS)
            block = min(BLOCK, triton.next_power_of_2(P))
            _mean[N,](likelihoods_NP, targets_NP, losses_N, counts_N, P, block, num_warps=WARPS)
        return losses_N, logsumexps_NP, counts_N

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: tuple[Tensor, Tensor, Tensor]) -> None:
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)  # else zeros are made for them
        ctx.save_for_backward(*inputs, *output[1:])

    @staticmethod
    def backward(ctx: Any, gradient_N: Tensor, *_: None) -> tuple[Tensor, None]:  # pyrefly: ignore
        logits_NPV, targets_NP, logsumexps_NP, counts_N = ctx.saved_tensors
        logits_NPV, targets_NP = logits_NPV.contiguous(), targets_NP.contiguous()
        N, P, V = logits_NPV.shape
        dlogits_NPV = torch.empty_like(logits_NPV)
        with torch.cuda.device_of(logits_NPV):
            _backward[P, N](
                *(logits_NPV, targets_NP, logsumexps_NP, gradient_N, counts_N, dlogits_NPV),
                *(gradient_N.stride(0), V, BLOCK),  # that of a sum is one number, spread with stride 0
                num_warps=WARPS,
            )
        return dlogits_NPV, None

    vmap = staticmethod(stacked(lambda *inputs: _CrossEntropy.apply(*inputs)))


@jit
def _forward(logits, targets, likelihoods, logsumexps, V, BLOCK: tl.constexpr):
    place = tl.program_id(1).to(tl.int64) * tl.num_programs(0) + tl.program_id(0)
    target = tl.load(targets + place)
    likelihood = 0.0
    logsumexp = 0.0
    if target >= 0:  # what fills up is not even read
        largest = -3.4e38  # finite: the difference of two infinities is not a number
        total = 0.0
        for start in range(0, V, BLOCK):
            v_V = start + tl.arange(0, BLOCK)
            logits_V = tl.load(logits + place * V + v_V, mask=v_V < V, other=float("-inf")).to(tl.float32)
            larger = tl.maximum(largest, tl.max(logits_V, 0))
            total = total * tl.exp(largest - larger) + tl.sum(tl.exp(logits_V - larger), 0)
            largest = larger
        logsumexp = largest + tl.log(total)
        # Not minus the sum of both: beside large logits the logarithm would lose its last digits.
        likelihood = tl.load(logits + place * V + target).to(tl.float32) - largest - tl.log(total)
    tl.store(likelihoods + place, likelihood)
    tl.store(logsumexps + place, logsumexp)


@jit
def _mean(likelihoods, targets, losses, counts, P, BLOCK: tl.constexpr):
    n = tl.program_id(0).to(tl.int64)
    total_P = tl.zeros((BLOCK,), tl.float32)
    count_P = tl.zeros((BLOCK,), tl.int32)
    for start in range(0, P, BLOCK):
        p_P = start + tl.arange(0, BLOCK)
        total_P += tl.load(likelihoods + n * P + p_P, mask=p_P < P, other=0.0)
        count_P += (tl.load(targets + n * P + p_P, mask=p_P < P, other=-1) >= 0).to(tl.int32)
    count = tl.sum(count_P, 0).to(tl.float32)
    tl.store(losses + n, -tl.sum(total_P, 0) / count)
    tl.store(counts + n, count)


@jit
def _backward(logits, targets, logsumexps, gradient, counts, dlogits, gradient_N, V, BLOCK: tl.constexpr):
    n = tl.program_id(1).to(tl.int64)
    place = n * tl.num_programs(0) + tl.program_id(0)
    target = tl.load(targets + place)
    real = target >= 0
    logsumexp = tl.load(logsumexps + place)
    share = tl.load(gradient + n * gradient_N) / tl.load(counts + n)
    for start in range(0, V, BLOCK):
        v_V = start + tl.arange(0, BLOCK)
        inside_V = v_V < V
        logits_V = tl.load(logits + place * V + v_V, mask=inside_V & real, other=0.0).to(tl.float32)
        dlogits_V = tl.exp(logits_V - logsumexp) - tl.where(v_V == target, 1.0, 0.0)
        tl.store(dlogits + place * V + v_V, tl.where(real, dlogits_V * share, 0.0), mask=inside_V)
