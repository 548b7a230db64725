"""Short convolutions in our kernel: against sums one token at a time, interpreted.

`test_interpreted` runs it in a process of its own. Shape letters as in `lengthwise.kernels.short_convolution`.
"""

import pytest
import torch
from compiling import compiles, in_another_process, made
from conftest import INTERPRETED
from torch.func import vmap

from lengthwise.encodings.convolution import convolved as eager
from lengthwise.kernels import short_convolution
from lengthwise.kernels.short_convolution import convolved
from lengthwise.model.decoder import Decoder


def compile_kernels() -> None:
    kinds = dict.fromkeys(("numbers", "taps", "out", "grad", "dnumbers", "part"), "*fp32") | {"segments": "*i32"}
    for function in (short_convolution._forward, short_convolution._backward):
        made(function, kinds, {"W": 4, "T": 64, "Y": 64}, num_warps=4)


@pytest.mark.slow
@compiles
def test_kernels_compile_for_a_gpu_that_is_not_there() -> None:
    in_another_process(compile_kernels)


@pytest.mark.skipif(not INTERPRETED, reason="test_interpreted runs it in a process of its own")
@pytest.mark.parametrize(("S", "C", "W"), [(16, 3, 1), (80, 70, 4), (128, 64, 3)])
def test_sums_and_gradients_are_those_of_each_token(S: int, C: int, W: int) -> None:
    draw = torch.Generator().manual_seed(S)
    numbers = torch.randn(2, 2, S, C, generator=draw).requires_grad_()
    taps = torch.randn(2, C, W, generator=draw).requires_grad_()
    segments = torch.randint(0, 5, (2, 2, S), generator=draw).sort(-1).values
    found = vmap(convolved)(numbers, taps, segments)
    exact_numbers, exact_taps = numbers.detach().double().requires_grad_(), taps.detach().double().requires_grad_()
    wanted = torch.zeros(2, 2, S, C, dtype=torch.float64)
    for back in range(min(W, S)):
        same = (segments[..., back:] == segments[..., : S - back])[..., None]
        moved = exact_numbers[:, :, : S - back] * same * exact_taps[:, None, None, :, W - 1 - back]
        wanted = wanted + torch.cat([torch.zeros(2, 2, back, C), moved], dim=2)
    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=1e-5)
    weigh = torch.randn(found.shape, generator=draw)
    ours = torch.autograd.grad(found, [numbers, taps], weigh)
    theirs = torch.autograd.grad(wanted, [exact_numbers, exact_taps], weigh.double())
    for mine, true in zip(ours, theirs, strict=True):
        assert (mine - true).abs().max() <= 1e-5 * true.abs().max()


@pytest.mark.skipif(not INTERPRETED, reason="test_interpreted runs it in a process of its own")
def test_it_is_what_pytorch_does() -> None:
    segments = torch.tensor([[1] * 5 + [2] * 9 + [3] + [0] * 3, [1] * 18])
    numbers, taps = torch.randn(2, 18, 6), torch.randn(6, 4)
    layout = Decoder.layout(segments, segments_BT=segments)
    torch.testing.assert_close(convolved(numbers, taps, segments), eager(numbers, taps, layout))
