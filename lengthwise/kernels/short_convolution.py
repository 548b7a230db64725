"""Short causal convolutions over numbers of tokens, each number by itself, in one Triton kernel each way.

PyTorch's operations take half a dozen passes over the numbers for each tap. Shape letters: N models, B rows, S tokens,
C numbers of a token, W taps, X parts of the sum over tokens. Inside a kernel: T tokens and Y numbers that a program
holds. The tokens of a sequence lie side by side. Nothing is added up in an order left to chance.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lengthwise.kernels.parts import jit, tl, triton
from lengthwise.kernels.stacking import stacked

TOKENS, NUMBERS = 64, 64


def convolved(numbers_BSC: Tensor, taps_CW: Tensor, segments_BS: Tensor) -> Tensor:
    """The last tap is of the token itself, the one before of the token before it in its segment, and so on; in fp32."""
    return _convolved(numbers_BSC.float()[None], taps_CW.float()[None], segments_BS[None]).squeeze(0)


@torch.library.custom_op("lengthwise::short_convolution", mutates_args=())
def _convolved(numbers_NBSC: Tensor, taps_NCW: Tensor, segments_NBS: Tensor) -> Tensor:
    numbers, taps, segments = (each.contiguous() for each in (numbers_NBSC, taps_NCW, segments_NBS))
    out = torch.empty_like(numbers)
    N, B, S, C = numbers.shape
    T, Y = _tiles(S, C)
    with torch.cuda.device_of(out):
        grid = (triton.cdiv(S, T) * triton.cdiv(C, Y), B, N)
        _forward[grid](numbers, taps, segments, out, S, C, taps.shape[2], T, Y, num_warps=4)
    return out


@torch.library.custom_op("lengthwise::short_convolution_backward", mutates_args=())
def _convolved_backward(
    grad_NBSC: Tensor, numbers_NBSC: Tensor, taps_NCW: Tensor, segments_NBS: Tensor
) -> tuple[Tensor, Tensor]:
    given = (grad_NBSC, numbers_NBSC, taps_NCW, segments_NBS)
    grad, numbers, taps, segments = (each.contiguous() for each in given)
    dnumbers = torch.empty_like(numbers)
    (N, B, S, C), W = numbers.shape, taps.shape[2]
    T, Y = _tiles(S, C)
    blocks = -(-S // T)
    part_NXCW = numbers.new_empty((N, B * blocks, C, W))
    with torch.cuda.device_of(dnumbers):
        grid = (blocks * triton.cdiv(C, Y), B, N)
        _backward[grid](grad, numbers, taps, segments, dnumbers, part_NXCW, S, C, W, T, Y, num_warps=4)
    return dnumbers, part_NXCW.sum(1)


def _tiles(S: int, C: int) -> tuple[int, int]:
    return min(TOKENS, int(triton.next_power_of_2(S))), min(NUMBERS, int(triton.next_power_of_2(C)))


@_convolved.register_fake
def _(numbers_NBSC: Tensor, _taps: Tensor, _segments: Tensor) -> Tensor:
    return numbers_NBSC.new_empty(numbers_NBSC.shape)


@_convolved_backward.register_fake
def _(_grad: Tensor, numbers_NBSC: Tensor, taps_NCW: Tensor, _segments: Tensor) -> tuple[Tensor, Tensor]:
    return numbers_NBSC.new_empty(numbers_NBSC.shape), taps_NCW.new_empty(taps_NCW.shape)


def _setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs)


def _gradients(ctx: Any, grad_NBSC: Tensor) -> tuple[Tensor, Tensor, None]:
    return *_convolved_backward(grad_NBSC, *ctx.saved_tensors), None


_convolved.register_autograd(_gradients, setup_context=_setup_context)
_convolved.register_vmap(stacked(_convolved))
_convolved_backward.register_vmap(stacked(_convolved_backward))


@jit
def _moved(x, segments, segment_T, s_T, c_Y, by, S, C):
    """Numbers of the tokens `by` places later, or earlier, where those are of the same sequence; else 0."""
    there_T = s_T + by
    known_T = (there_T >= 0) & (there_T < S)
    known_T &= tl.load(segments + there_T, mask=known_T, other=-1) == segment_T
    return tl.load(x + there_T[:, None] * C + c_Y[None, :], mask=known_T[:, None] & (c_Y < C)[None, :], other=0.0)


@jit
def _forward(numbers, taps, segments, out, S, C, W: tl.constexpr, T: tl.constexpr, Y: tl.constexpr):
    b, n = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    blocks = tl.cdiv(S, T)
    s_T = tl.program_id(0) % blocks * T + tl.arange(0, T)
    c_Y = tl.program_id(0) // blocks * Y + tl.arange(0, Y)
    row = n * tl.num_programs(1) + b
    segments += row * S
    numbers += row * S * C
    segment_T = tl.load(segments + s_T, mask=s_T < S, other=-1)
    sum_TY = tl.zeros((T, Y), tl.float32)
    for back in range(W):
        tap_Y = tl.load(taps + (n * C + c_Y) * W + W - 1 - back, mask=c_Y < C, other=0.0)
        sum_TY += _moved(numbers, segments, segment_T, s_T, c_Y, -back, S, C) * tap_Y[None, :]
    inside_TY = (s_T < S)[:, None] & (c_Y < C)[None, :]
    tl.store(out + (row * S + s_T[:, None]) * C + c_Y[None, :], sum_TY, mask=inside_TY)


@jit
def _backward(
    grad, numbers, taps, segments, dnumbers, part, S, C, W: tl.constexpr, T: tl.constexpr, Y: tl.constexpr
):  # fmt: skip
    b, n = tl.program_id(1).to(tl.int64), tl.program_id(2).to(tl.int64)
    blocks = tl.cdiv(S, T)
    block = tl.program_id(0) % blocks
    s_T, c_Y = block * T + tl.arange(0, T), tl.program_id(0) // blocks * Y + tl.arange(0, Y)
    row = n * tl.num_programs(1) + b
    segments += row * S
    numbers += row * S * C
    grad += row * S * C
    segment_T = tl.load(segments + s_T, mask=s_T < S, other=-1)
    inside_TY = (s_T < S)[:, None] & (c_Y < C)[None, :]
    grad_TY = tl.load(grad + s_T[:, None] * C + c_Y[None, :], mask=inside_TY, other=0.0)
    sum_TY = tl.zeros((T, Y), tl.float32)
    for back in range(W):
        tap_Y = tl.load(taps + (n * C + c_Y) * W + W - 1 - back, mask=c_Y < C, other=0.0)
        sum_TY += _moved(grad, segments, segment_T, s_T, c_Y, back, S, C) * tap_Y[None, :]
        dtap_Y = tl.sum(grad_TY * _moved(numbers, segments, segment_T, s_T, c_Y, -back, S, C), 0)
        place_Y = ((row * blocks + block) * C + c_Y) * W + W - 1 - back
        tl.store(part + place_Y, dtap_Y, mask=c_Y < C)
    tl.store(dnumbers + (row * S + s_T[:, None]) * C + c_Y[None, :], sum_TY, mask=inside_TY)
