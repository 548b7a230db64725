"""The feed-forward layer whose products end in ReLU, dropout and mask, in Triton's interpreter on the CPU.

`test_interpreted` runs them, in a process of their own. Shape letters as in `lengthwise.kernels.feed_forward`.
"""

import inspect
import re
import subprocess
import tempfile
from typing import Any

import pytest
import torch
from compiling import compiles, in_another_process, made
from conftest import INTERPRETED
from torch import Tensor
from torch.func import vmap

from lengthwise.kernels import feed_forward as feed_forward_kernel
from lengthwise.kernels.drop import drop_relu
from lengthwise.kernels.dropout import kept
from lengthwise.kernels.feed_forward import feed_forward, masked_product, relu_product, suits
from lengthwise.kernels.ops import FusedOps, Ops
from lengthwise.model.config import ModelConfig
from lengthwise.model.feed_forward import ReluFeedForward

RATE = 0.3


def compile_kernels() -> None:
    for absent in ("hidden", "key"):
        # Two programs of 256 threads share the 64 K registers of a multiprocessor, and 227 KiB of memory.
        compile_products(torch.bfloat16, absent, 256, 128)
        compile_products(torch.float32, absent, 256, 255)


def compile_products(dtype: torch.dtype, absent: str, D: int, registers: int) -> None:
    from triton import knobs

    tiles, kind = feed_forward_kernel.TILES[dtype], "*bf16" if dtype == torch.bfloat16 else "*fp32"
    # Backwards the second matrix is read as its transpose, of which the columns lie side by side.
    numbers = {"D": D, "F": 4 * D, "x_D": 1, "weight_F" if absent == "hidden" else "weight_D": 1}
    numbers |= {"B": tiles.rows, "W": tiles.columns, "C": feed_forward_kernel._terms(D, tiles.terms)}
    numbers |= {"GROUP": tiles.group}
    kinds = dict.fromkeys(("x", "weight", "hidden", "out"), kind) | {"key": "*i32", "inverse": "fp32"}
    function = feed_forward_kernel._multiply
    aligned = set(inspect.signature(function.fn).parameters) - {"key_N", "M", "threshold", "inverse"}
    options = {"num_warps": tiles.warps, "num_stages": tiles.stages}
    ptx = made(function, kinds, numbers, [absent], aligned, **options)["ptx"]
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(ptx)
        file.flush()
        assembler = [knobs.nvidia.ptxas.path, "-v", "--gpu-name=sm_90a", "-o", "/dev/null", file.name]
        told = subprocess.run(assembler, capture_output=True, text=True, check=True).stderr
    assert " 0 bytes spill stores" in told, told
    used = re.search(r"Used (\d+) registers", told)
    assert used is not None and int(used[1]) <= registers, (tiles, absent, told)
    assert "wgmma.mma_async" in ptx, ptx
    # Everything goes 16 bytes at a time.
    assert re.search(r"cp\.async\.cg\S* [^\n]*, 0x10", ptx), ptx
    assert set(re.findall(r"st\.global\S*", ptx)) == {"st.global.v4.b32"}, ptx
    assert absent == "hidden" or set(re.findall(r"ld\.global\S*", ptx)) == {"ld.global.v4.b32"}, ptx


@pytest.mark.slow
@compiles
def test_kernels_compile_for_a_gpu_that_is_not_there_and_fit_its_registers() -> None:
    in_another_process(compile_kernels)


def test_what_is_refused() -> None:
    def call(x: Tensor, inner: Tensor, rate: float = RATE) -> Tensor:
        return feed_forward(x, inner, inner.transpose(1, 2), None, rate, None, None)

    for shape in [(1, 3, 24), (3, 16)]:
        with pytest.raises(ValueError, match="multiple of 16"):
            call(torch.zeros(shape), torch.zeros(1, shape[-1], 32))
    for x, inner in [(torch.float16, torch.float16), (torch.float32, torch.bfloat16)]:
        with pytest.raises(ValueError, match="float16"):
            call(torch.zeros(1, 3, 16, dtype=x), torch.zeros(1, 16, 32, dtype=inner))
    with pytest.raises(ValueError, match="rate"):
        call(torch.zeros(1, 3, 16), torch.zeros(1, 16, 32), 1.0)


def test_only_narrow_models_take_it() -> None:
    widths = (16, 64, 100, 256, 512, 528, 768, 2048)
    assert [width for width in widths if suits(width, torch.bfloat16)] == [16, 64, 256, 512]
    assert not any(suits(width, torch.float32) for width in widths)


def close(found: tuple[Tensor, ...], expected: tuple[Tensor, ...], tolerance: float) -> None:
    for each, wanted in zip(found, expected, strict=True):
        assert each.shape == wanted.shape
        assert (each.double() - wanted.double()).abs().max() <= tolerance * wanted.abs().max()


def equal(found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    for each, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(each, wanted, rtol=0, atol=0)


def dropped(positive_NMF: Tensor, key_N: Tensor | None, rate: float) -> Tensor:
    if key_N is None:
        return positive_NMF
    return positive_NMF * torch.stack([kept(positive_NMF.shape[1:], key, rate) for key in key_N]) / (1 - rate)


def written_out(x_NMD: Tensor, inner_NDF: Tensor, output_NFD: Tensor, key_N: Tensor | None, rate: float) -> Tensor:
    return dropped((x_NMD @ inner_NDF).relu(), key_N, rate) @ output_NFD


class Case:
    """Streams and gradients; weights that are sections of a row of each model's, as those of a fleet are."""

    def __init__(self, N: int, M: int, D: int, F: int, dtype: torch.dtype = torch.float32, whole: bool = False) -> None:
        """`whole`: everything is -1, 0 or 1, so that sums are exact in whatever order they are added up."""
        draw = torch.Generator().manual_seed(M + F)

        def numbers(*shape: int) -> Tensor:
            drawn = torch.randn(shape, generator=draw)
            return (drawn.round().clamp(-1, 1) if whole else drawn).to(dtype)

        self.D, self.F = D, F
        self.x = numbers(N, M, D).requires_grad_()
        self.grad = numbers(N, M, D)
        self.inner, self.output = (each.detach().requires_grad_() for each in self.cut(numbers(N, 2 * D * F + 48)))
        self.key = torch.randint(-(2**31), 2**31, (N, 3), generator=draw).to(torch.int32)[:, 1]

    @property
    def leaves(self) -> list[Tensor]:
        return [self.x, self.inner, self.output]

    def cut(self, row_NW: Tensor) -> tuple[Tensor, Tensor]:
        D, F = self.D, self.F
        inner, output = row_NW[:, 16 : 16 + D * F], row_NW[:, 32 + D * F : 32 + 2 * D * F]
        return inner.unflatten(1, (D, F)), output.unflatten(1, (F, D))

    def homes(self) -> Tensor:
        """Rows where nothing is zero yet; the places beside the homes must stay as they are."""
        return torch.full((len(self.x), 2 * self.D * self.F + 48), 7.0, dtype=self.x.dtype)

    def beside_homes(self, homes_NW: Tensor) -> Tensor:
        size = self.D * self.F
        return torch.cat([homes_NW[:, :16], homes_NW[:, 16 + size : 32 + size], homes_NW[:, 32 + 2 * size :]], 1)


class TestInterpreted:
    __test__ = INTERPRETED

    @pytest.mark.parametrize("at_home", [False, True])
    @pytest.mark.parametrize("keyed", [False, True])
    @pytest.mark.parametrize(
        ("shape", "dtype", "tolerance"),
        [
            ((2, 37, 48, 200), torch.float32, 1e-5),
            ((1, 67, 256, 64), torch.float32, 1e-5),
            ((2, 133, 64, 256), torch.bfloat16, 2e-2),
        ],
    )
    def test_equals_the_same_written_out(
        self, shape: tuple[int, ...], dtype: torch.dtype, tolerance: float, keyed: bool, at_home: bool
    ) -> None:
        case = Case(*shape, dtype=dtype)
        key, homes = case.key if keyed else None, case.homes()
        places = case.cut(homes) if at_home else (None, None)
        found = feed_forward(case.x, case.inner, case.output, key, RATE, *places)
        assert found.dtype == dtype
        grads = torch.autograd.grad(found, case.leaves, case.grad, allow_unused=True)
        if at_home:
            assert grads[1] is None and grads[2] is None
            assert (case.beside_homes(homes) == 7).all()
            grads = (grads[0], *case.cut(homes))

        wide = [each.detach().double().requires_grad_() for each in case.leaves]
        expected = written_out(*wide, key, RATE)
        wanted = torch.autograd.grad(expected, wide, case.grad.double())
        if dtype == torch.float32:
            close((found, *grads), (expected, *wanted), tolerance)
        else:
            # A sum near 0 may round to the other side of it, and then an element has a gradient or none: so the norms.
            for each, right in zip((found, *grads), (expected, *wanted), strict=True):
                assert (each.double() - right).norm() <= tolerance * right.norm()

    @pytest.mark.parametrize(("M", "dtype"), [(66, torch.float32), (130, torch.bfloat16)])
    @pytest.mark.parametrize("keyed", [False, True])
    def test_equals_the_kernels_one_after_the_other(self, keyed: bool, M: int, dtype: torch.dtype) -> None:
        """To the bit, with numbers of which nothing is rounded (1 / (1 - 1/2) is 2)."""
        case = Case(2, M, 48, 144, dtype, whole=True)
        key, rate = (case.key, 0.5) if keyed else (None, 0.0)
        hidden = torch.bmm(case.x, case.inner)
        hidden = drop_relu(hidden, key, rate) if key is not None else hidden.relu()
        equal((relu_product(case.x, case.inner, key, rate),), (hidden,))
        assert 0.2 < (hidden > 0).float().mean() < (0.3 if keyed else 0.6)

        found = feed_forward(case.x, case.inner, case.output, key, rate, None, None)
        expected = torch.bmm(hidden, case.output)
        grads, wanted = (torch.autograd.grad(each, case.leaves, case.grad) for each in (found, expected))
        equal((found,), (expected,))
        equal(grads, wanted)

    def test_any_number_of_tokens(self) -> None:
        """One token; one more than a tile; more rows of tiles than a group, of which the last has but few."""
        for M in (1, 65, 64 * 9 + 3):
            case = Case(1, M, 16, 80, whole=True)
            hidden = relu_product(case.x, case.inner, case.key, 0.5)
            equal((hidden,), (dropped(torch.bmm(case.x, case.inner).relu(), case.key, 0.5),))
            turned = case.output.transpose(1, 2)
            masked = torch.bmm(case.grad, turned) * (hidden > 0) * 2
            equal((masked_product(case.grad, turned, hidden, 0.5),), (masked,))

    def test_only_one_of_the_homes(self) -> None:
        case = Case(2, 5, 16, 64)
        homes = case.homes()
        inner_home, output_home = case.cut(homes)

        def grads(*places: Tensor | None) -> tuple[Any, ...]:
            y = feed_forward(case.x, case.inner, case.output, case.key, RATE, *places)
            return torch.autograd.grad(y, case.leaves, case.grad, allow_unused=True)

        _, inner, output = grads(None, None)
        _, nothing, found = grads(inner_home, None)
        assert nothing is None
        equal((inner_home, found), (inner, output))
        assert (output_home == 7).all()
        _, found, nothing = grads(None, output_home)
        assert nothing is None
        equal((found, output_home), (inner, output))

    def test_weights_that_ask_for_no_gradient_still_write_it_home(self) -> None:
        case = Case(2, 5, 16, 64)
        found, expected = case.homes(), case.homes()
        for homes, weights in [
            (expected, (case.inner, case.output)),
            (found, (case.inner.detach(), case.output.detach())),
        ]:
            y = feed_forward(case.x, *weights, case.key, RATE, *case.cut(homes))
            torch.autograd.grad(y, case.x, case.grad)
        equal((found,), (expected,))
        assert not any((place == 7).any() for place in case.cut(found))

    def test_no_rate_drops_nothing(self) -> None:
        case = Case(2, 5, 16, 64)
        weights = (case.inner, case.output)
        expected = feed_forward(case.x, *weights, None, 0.0, None, None)
        equal((feed_forward(case.x, *weights, case.key, 0.0, None, None),), (expected,))
        equal((feed_forward(case.x, *weights, None, RATE, None, None),), (expected,))

    def test_arrays_of_any_strides(self) -> None:
        case = Case(2, 5, 16, 64)

        def turned(each: Tensor) -> Tensor:
            return each.transpose(1, 2).contiguous().transpose(1, 2)

        def run(x: Tensor, inner: Tensor, output: Tensor, grad: Tensor) -> tuple[Tensor, ...]:
            y = feed_forward(x, inner, output, case.key, RATE, None, None)
            return y, *torch.autograd.grad(y, [x, inner, output], grad)

        close(run(*map(turned, case.leaves), turned(case.grad)), run(*case.leaves, case.grad), 1e-6)
        ones = torch.ones(())
        close(run(*case.leaves, ones.expand(2, 5, 16)), run(*case.leaves, torch.ones(2, 5, 16)), 1e-6)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_bits_of_the_kernel_depend_neither_on_the_stack_nor_on_chance(self, dtype: torch.dtype) -> None:
        case = Case(2, 40, 64, 144, dtype)
        turned = case.output.transpose(1, 2)
        hidden = relu_product(case.x, case.inner, case.key, RATE)
        masked = masked_product(case.grad, turned, hidden, RATE)
        equal((relu_product(case.x, case.inner, case.key, RATE),), (hidden,))
        for n in range(2):
            one = slice(n, n + 1)
            equal((relu_product(case.x[one], case.inner[one], case.key[one], RATE),), (hidden[one],))
            equal((masked_product(case.grad[one], turned[one], hidden[one], RATE),), (masked[one],))

    def test_stacked_models_equal_each_alone(self) -> None:
        """To the bit, with numbers of which nothing is rounded: a stack's other products are not those of one model."""
        case = Case(3, 37, 48, 144, whole=True)
        homes, homes_alone = case.homes(), case.homes()

        def one(x: Tensor, inner: Tensor, output: Tensor, key: Tensor, *places: Tensor) -> Tensor:
            home_inner, home_output = places
            return feed_forward(
                x[None], inner[None], output[None], key[None], 0.5, home_inner[None], home_output[None]
            ).squeeze(0)

        def run(function: Any, x: Tensor, grad: Tensor, *inputs: Tensor) -> tuple[Tensor, Tensor]:
            y = function(x, *inputs)
            return y, torch.autograd.grad(y, x, grad)[0]

        inputs = (case.x, case.grad, case.inner, case.output, case.key)
        found = run(vmap(one), *inputs, *case.cut(homes))
        each_alone = (*inputs, *case.cut(homes_alone))
        alone = [run(one, *(each[n] for each in each_alone)) for n in range(3)]
        equal(found, tuple(torch.stack(parts) for parts in zip(*alone, strict=True)))
        equal((homes,), (homes_alone,))
        assert not any((place == 7).all() for place in case.cut(homes))

    def test_what_models_share_is_not_stacked(self) -> None:
        """One layer for all models: its gradient is the sum of theirs, and a home has place for one alone."""
        case = Case(3, 5, 16, 64)
        inner, output = case.inner[0].detach().requires_grad_(), case.output[0].detach().requires_grad_()

        def one(x: Tensor, key: Tensor) -> Tensor:
            return feed_forward(x[None], inner[None], output[None], key[None], RATE, None, None)[0]

        found = torch.autograd.grad(vmap(one)(case.x, case.key).square().sum(), [inner, output])
        alone = [torch.autograd.grad(one(case.x[n], case.key[n]).square().sum(), [inner, output]) for n in range(3)]
        close(found, tuple(torch.stack(parts).sum(0) for parts in zip(*alone, strict=True)), 1e-5)
        home = torch.zeros_like(inner)
        shared = vmap(lambda x: feed_forward(x[None], inner[None], output[None], None, 0.0, home[None], None)[0])
        with pytest.raises(ValueError, match="one place"):
            shared(case.x)

    @pytest.mark.parametrize("active", [False, True])
    def test_the_layer_of_the_decoder_is_the_same_with_it_and_without(
        self, active: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The place after the layer has the same key either way."""
        draw = torch.Generator().manual_seed(0)
        layer = ReluFeedForward(ModelConfig(width=32, heads=2))
        for weight in layer.parameters():
            torch.nn.init.normal_(weight, generator=draw)
        x_BTD = torch.randn(2, 7, 32, generator=draw)
        keys = torch.tensor([5, 6, 7], dtype=torch.int32) if active else None

        def run(kernel: bool) -> tuple[Tensor, ...]:
            dropout = (FusedOps if kernel else Ops)(RATE, keys)
            dropout.next_key()
            y = layer(x_BTD, dropout)
            assert dropout.place == (2 if active else 0)
            return y, *torch.autograd.grad(y.square().sum(), list(layer.parameters()))

        expected = run(kernel=False)
        fused, called = feed_forward_kernel.feed_forward, []
        monkeypatch.setattr(feed_forward_kernel, "feed_forward", lambda *given: called.append(1) or fused(*given))
        close(run(kernel=True), expected, 1e-5)
        assert not called, "in float32 it is not taken by itself"
        monkeypatch.setattr(feed_forward_kernel, "suits", lambda *_: True)
        close(run(kernel=True), expected, 1e-5)
        assert called
