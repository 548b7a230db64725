"""The network over heads in our kernel: against the same written in PyTorch, interpreted.

`test_interpreted` runs it in a process of its own. Shape letters as in `lengthwise.kernels.head_network`.
"""

import pytest
import torch
import torch.nn.functional as F
from compiling import compiles, in_another_process, made
from conftest import INTERPRETED
from torch import Tensor
from torch.func import vmap

from lengthwise.kernels import head_network


def compile_kernels() -> None:
    numbers = {"G": 64, "H": 8, "W": 32, "P": 64, "Y": 16, "V": 32, "PRECISION": "tf32"}
    names = (
        "grad",
        "content",
        "bias",
        "inner",
        "inner_bias",
        "outer",
        "outer_bias",
        "out",
        "dcontent",
        "dbias",
        "part",
    )
    for function in (head_network._forward, head_network._backward):
        made(function, dict.fromkeys(names, "*fp32"), numbers, num_warps=4)


@pytest.mark.slow
@compiles
def test_kernels_compile_for_a_gpu_that_is_not_there() -> None:
    in_another_process(compile_kernels)


def drawn(N: int, B: int, A: int, H: int, T: int, W: int) -> list[Tensor]:
    draw = torch.Generator().manual_seed(H + W)
    shapes = ((N, B, H, T, T), (N, A, H, T, T), (N, W, 2 * H), (N, W), (N, H, W), (N, H))
    return [torch.randn(shape, generator=draw).requires_grad_() for shape in shapes]


def written_out(content: Tensor, bias: Tensor, *network: Tensor) -> Tensor:
    """Of one model, in the precision of what is given."""
    inner, inner_bias, outer, outer_bias = network
    both = torch.cat([content, bias.expand_as(content)], dim=1).movedim(1, -1)
    found = F.linear(F.leaky_relu(F.linear(both, inner, inner_bias)), outer, outer_bias)
    return content + bias + found.movedim(-1, 1)


@pytest.mark.skipif(not INTERPRETED, reason="test_interpreted runs it in a process of its own")
@pytest.mark.parametrize(("H", "W", "A"), [(8, 32, 1), (3, 5, 2), (12, 40, 1)])
def test_logits_and_gradients_are_those_of_pytorch(H: int, W: int, A: int) -> None:
    given = drawn(2, 2, A, H, 16, W)
    found = vmap(head_network.changed)(*given)
    exact = [each.detach().double().requires_grad_() for each in given]
    wanted = torch.stack([written_out(*each) for each in zip(*exact, strict=True)])
    assert (found - wanted).abs().max() <= 1e-5 * wanted.abs().max()
    weigh = torch.randn(found.shape, generator=torch.Generator().manual_seed(0))
    ours, theirs = torch.autograd.grad(found, given, weigh), torch.autograd.grad(wanted, exact, weigh.double())
    for mine, true in zip(ours, theirs, strict=True):
        assert mine.shape == true.shape and (mine - true).abs().max() <= 1e-5 * true.abs().max()


@pytest.mark.skipif(not INTERPRETED, reason="test_interpreted runs it in a process of its own")
def test_many_rows_are_shared_among_few_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    given = [each[0] for each in drawn(1, 5, 1, 4, 16, 8)]
    wanted = torch.autograd.grad(head_network.changed(*given).square().sum(), given)
    monkeypatch.setattr(head_network, "PROGRAMS", 3)
    for mine, other in zip(
        torch.autograd.grad(head_network.changed(*given).square().sum(), given), wanted, strict=True
    ):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)


def test_what_is_supported() -> None:
    def fits(heads: int, width: int) -> bool:
        return head_network.supports(
            *(torch.zeros(s) for s in ((width, 2 * heads), (width,), (heads, width), (heads,)))
        )

    assert fits(8, 32) and fits(32, 64) and not fits(33, 32) and not fits(8, 65)
