"""Gates of tokens by the kernels against the same written out, in Triton's interpreter on the CPU.

`test_interpreted` runs them, in a process of their own. Shape letters as in `lengthwise.kernels.gates`.
"""

from typing import Any

import pytest
import torch
from compiling import compiles, in_another_process, made
from conftest import INTERPRETED
from torch import Tensor
from torch.func import vmap

from lengthwise.encodings.choice import read_encoding
from lengthwise.kernels import gates as gates_kernel
from lengthwise.kernels.gates import _gates, _gates_backward, log_sigmoid_gates, supports
from lengthwise.model.build import Lengths, build
from lengthwise.model.config import ModelConfig
from lengthwise.tasks.choosing import make_task
from lengthwise.training.batches import TrainingData, collate
from lengthwise.training.fleet import Batch, Fleet
from lengthwise.training.recipe import DataConfig


def compile_kernels() -> None:
    for dtype, kind in ((torch.bfloat16, "*bf16"), (torch.float32, "*fp32")):
        kinds = dict.fromkeys(("x", "weight", "bias", "dx"), kind) | dict.fromkeys(("grad", "out", "part"), "*fp32")
        aligned = {*kinds, "grad_N", "out_N", "x_N", "weight_N"}
        for width, gates in [(768, 12), (48, 2), (4096, 32)]:
            for function, tiles in [
                (gates_kernel._forward, gates_kernel.FORWARD),
                (gates_kernel._backward_kernel, gates_kernel.BACKWARD),
            ]:
                B, W = gates_kernel._tiles(tiles, torch.empty(1, width, dtype=dtype))
                numbers = {"D": width, "B": B, "W": W, "G": gates_kernel._padded(gates)}
                ptx = made(function, kinds, numbers, aligned=aligned, num_warps=4, num_stages=4)["ptx"]
                # On tensor cores in bf16, and nowhere else: theirs would round fp32.
                assert ("mma" in ptx) == (dtype == torch.bfloat16), ptx


@pytest.mark.slow
@compiles
def test_kernels_compile_for_a_gpu_that_is_not_there() -> None:
    in_another_process(compile_kernels)


def test_what_is_supported() -> None:
    def fits(width: int, gates: int, *dtypes: torch.dtype) -> bool:
        x, weight, bias = torch.empty(5, width), torch.empty(gates, width), torch.empty(gates)
        return supports(*(each.to(dtype) for each, dtype in zip((x, weight, bias), dtypes, strict=True)))

    bf16, fp32 = torch.bfloat16, torch.float32
    for width, gates in [(16, 1), (48, 2), (768, 12), (4096, 32)]:
        assert fits(width, gates, fp32, fp32, fp32) and fits(width, gates, bf16, bf16, bf16)
    for width, gates in [(24, 2), (4112, 2), (64, 33)]:
        assert not fits(width, gates, fp32, fp32, fp32)
    assert not fits(64, 2, bf16, fp32, fp32) and not fits(64, 2, fp32, fp32, bf16)
    assert not fits(64, 2, *[torch.float16] * 3)
    with pytest.raises(ValueError, match="up to 32 gates"):
        log_sigmoid_gates(torch.zeros(1, 3, 16), torch.zeros(1, 33, 16), torch.zeros(1, 33))


def draw(N: int, M: int, D: int, C: int, dtype: torch.dtype = torch.float32) -> tuple[list[Tensor], Tensor]:
    """Inputs, weights and biases, strided between models as those of a fleet are; a gradient. Gates of -30 to 30."""
    generator = torch.Generator().manual_seed(M + D)
    x = torch.randn(N, 2, M, D, generator=generator).to(dtype)[:, 1]
    weight = (torch.randn(N, 2, C, D, generator=generator) * D**-0.5).to(dtype)[:, 1]
    bias = torch.linspace(-30, 30, C).expand(N, 2, C).contiguous().to(dtype)[:, 1]
    leaves = [each.requires_grad_() for each in (x, weight, bias)]
    return leaves, torch.randn(N, M, C, generator=generator)


def written_out(x_NMD: Tensor, weight_NCD: Tensor, bias_NC: Tensor) -> Tensor:
    return -torch.log1p(torch.exp(-(torch.einsum("nmd,ncd->nmc", x_NMD, weight_NCD) + bias_NC[:, None])))


def close(found: Tensor, expected: Tensor, tolerance: float) -> None:
    assert found.shape == expected.shape
    assert (found.double() - expected).abs().max() <= tolerance * expected.abs().max()


class TestInterpreted:
    __test__ = INTERPRETED

    @pytest.mark.parametrize(
        ("shape", "dtype", "tolerance"),
        [
            ((1, 70, 768, 12), torch.bfloat16, 8e-3),
            ((2, 33, 48, 2), torch.bfloat16, 8e-3),
            ((2, 35, 336, 20), torch.float32, 1e-6),
            ((3, 1, 16, 1), torch.float32, 1e-6),
            ((1, 130, 64, 32), torch.float32, 1e-6),
        ],
    )
    def test_gates_and_their_gradients(self, shape: tuple[int, ...], dtype: torch.dtype, tolerance: float) -> None:
        leaves, grad = draw(*shape, dtype=dtype)
        found = log_sigmoid_gates(*leaves)
        assert found.dtype == torch.float32
        wide = [each.detach().double().requires_grad_() for each in leaves]
        expected = written_out(*wide)
        close(found, expected, 1e-6)  # of bf16 too: inputs and weights are what was rounded
        grads = torch.autograd.grad(found, leaves, grad)
        assert all(each.dtype == dtype for each in grads)
        for each, wanted in zip(grads, torch.autograd.grad(expected, wide, grad.double()), strict=True):
            close(each, wanted, tolerance)

    def test_gates_that_keep_nearly_all_are_exact(self) -> None:
        """The logarithm of 1 + exp(-x), and 1 - exp(y), lose all of their digits there."""
        x, weight = torch.zeros(1, 1, 16), torch.zeros(1, 31, 16)
        bias = torch.linspace(-30, 30, 31)[None].requires_grad_()
        found = log_sigmoid_gates(x, weight, bias)
        wide = bias.detach().double().requires_grad_()
        expected = -torch.log1p(torch.exp(-wide))
        torch.testing.assert_close(found[0].double(), expected, rtol=1e-6, atol=0)
        ones = torch.ones_like(found)
        wanted = torch.autograd.grad(expected, wide, ones[0].double())[0]
        torch.testing.assert_close(torch.autograd.grad(found, bias, ones)[0].double(), wanted, rtol=1e-6, atol=0)

    def test_gradients_of_any_strides(self) -> None:
        leaves, grad = draw(2, 20, 32, 3)
        turned = grad.transpose(1, 2).contiguous().transpose(1, 2)
        found, expected = (torch.autograd.grad(log_sigmoid_gates(*leaves), leaves, each) for each in (turned, grad))
        assert all(map(torch.equal, found, expected))

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_stacked_models_equal_each_alone(self, dtype: torch.dtype) -> None:
        leaves, grad = draw(3, 70, 48, 3, dtype)

        def one(*inputs: Tensor) -> Tensor:
            return log_sigmoid_gates(*(each[None] for each in inputs))[0]

        found = vmap(one)(*leaves)
        grads = torch.autograd.grad(found, leaves, grad)
        for n in range(3):
            own = [each[n].detach().requires_grad_() for each in leaves]
            alone = one(*own)
            assert torch.equal(found[n], alone)
            for each, wanted in zip(grads, torch.autograd.grad(alone, own, grad[n]), strict=True):
                assert torch.equal(each[n], wanted)

    def test_operators_keep_the_rules_of_pytorch(self) -> None:
        leaves, grad = draw(2, 20, 32, 3)
        torch.library.opcheck(_gates, tuple(leaves))
        out = log_sigmoid_gates(*leaves).detach()
        torch.library.opcheck(_gates_backward, (grad, out, *(each.detach() for each in leaves[:2])))

    @pytest.mark.usefixtures("encodings_outside")
    @pytest.mark.parametrize(
        ("methods", "calls", "precision", "tolerance"),
        [
            (["fox"], 2, "bf16", 2e-2),
            (["rotary", "fox"], 2, "fp32", 5e-5),
            (["fox", "fox"], 0, "fp32", 5e-5),
        ],
    )
    def test_fleets_compute_declared_gates_by_the_kernel(
        self, monkeypatch: pytest.MonkeyPatch, methods: list[str], calls: int, precision: str, tolerance: float
    ) -> None:
        """And get the gradients that they get with eager gates. Those of two methods are joined, as numbers."""
        called: list[Any] = []
        monkeypatch.setattr(gates_kernel, "log_sigmoid_gates", lambda *x: called.append(x) or log_sigmoid_gates(*x))
        task, data = make_task("copy.words"), DataConfig(train_lengths=(2, 5), test_lengths=(6, 7), examples=0)
        layers = read_encoding([methods] * 2).resolved().layers
        model = build(ModelConfig(layers=2, width=32, heads=2), task.vocabulary.rows, layers, Lengths(64, 64))
        fleet = Fleet(model, 2, torch.device("cpu"), precision)
        fleet.initialize([1, 2])
        examples = [TrainingData(task, data, seed=seed).batches(0, 1, 4) for seed in range(2)]
        batch = Batch.of(collate(examples, 0, 32, 4), 0, torch.device("cpu"))
        gradients = {name: each.clone() for name, each in fleet.gradients(batch)[1].items()}
        assert len(called) == calls
        monkeypatch.setattr(gates_kernel, "supports", lambda *_: False)
        expected = fleet.gradients(batch)[1]
        assert len(called) == calls
        assert sum(".gate." in name for name in gradients) == 4 * methods.count("fox")
        for name, gradient in gradients.items():
            error = (gradient.float() - expected[name].float()).norm()
            assert error <= tolerance * expected[name].float().norm(), name
