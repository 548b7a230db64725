"""The fused join, dropout and normalisation against the same written out, in Triton's interpreter on the CPU.

`test_interpreted` runs them, in a process of their own. Shape letters as in `lengthwise.kernels.norm`.
"""

from collections.abc import Callable

import pytest
import torch
from compiling import compiles, in_another_process, made
from conftest import INTERPRETED
from torch import Tensor
from torch.func import vmap

from lengthwise.kernels import norm as norm_kernel
from lengthwise.kernels.dropout import kept
from lengthwise.kernels.norm import add_drop, drop, join_norm
from lengthwise.model.norm import RMSNorm

RATE = 0.3


def compile_kernels() -> None:
    kinds = {"key": "*i32", "part": "*fp32", "out": "*bf16", "inverse": "fp32"}
    kinds |= dict.fromkeys(("x", "y", "weight", "stream", "normed", "dstream", "dnormed", "dx", "dy"), "*bf16")
    for function, absent, numbers in [
        (norm_kernel._forward, (), {"D": 768, "B": 4, "W": 1024}),
        (norm_kernel._forward, ("y", "key"), {"D": 48, "B": 32, "W": 64}),
        (norm_kernel._backward, (), {"D": 768, "B": 4, "W": 1024}),
        (norm_kernel._backward, ("dstream", "key"), {"D": 4096, "B": 1, "W": 4096}),
        (norm_kernel._add_up, (), {"B": 128, "W": 32}),
        (norm_kernel._drop, (), {"D": 768, "B": 4, "W": 1024}),
        (norm_kernel._drop, ("x",), {"D": 48, "B": 32, "W": 64}),
    ]:
        made(function, kinds, numbers, absent, num_warps=8)


@pytest.mark.slow
@compiles
def test_kernels_compile_for_a_gpu_that_is_not_there() -> None:
    in_another_process(compile_kernels)


def test_what_is_refused() -> None:
    weight = torch.ones(1, 16)
    for shape in [(1, 3, 24), (1, 3, 4112), (3, 16)]:
        with pytest.raises(ValueError, match="multiple of 16"):
            join_norm(torch.zeros(shape), None, None, 0.0, weight, None)
    with pytest.raises(ValueError, match="float16"):
        drop(torch.zeros(1, 3, 16).half(), torch.zeros(1), RATE)
    with pytest.raises(ValueError, match="rate"):
        add_drop(torch.zeros(1, 3, 16), torch.zeros(1, 3, 16), None, 1.0)
    two = torch.zeros(2, 3, 16)
    with pytest.raises(ValueError, match="one place"):
        join_norm(two, None, None, 0.0, torch.ones(2, 16), torch.zeros(16).expand(2, 16))
    with pytest.raises(ValueError, match="contiguous"):
        join_norm(two, None, None, 0.0, torch.ones(2, 16), torch.zeros(16, 2).t())


def dropped(y_NMD: Tensor, key_N: Tensor | None) -> Tensor:
    if key_N is None:
        return y_NMD
    return y_NMD * torch.stack([kept(y_NMD.shape[1:], key, RATE) for key in key_N]) / (1 - RATE)


def reference(x_NMD: Tensor, y_NMD: Tensor | None, key_N: Tensor | None, weight_ND: Tensor) -> tuple[Tensor, Tensor]:
    stream = x_NMD if y_NMD is None else x_NMD + dropped(y_NMD, key_N)
    return stream, stream / (stream.square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight_ND[:, None]


def close(found: tuple[Tensor, ...], expected: tuple[Tensor, ...], tolerance: float) -> None:
    for each, wanted in zip(found, expected, strict=True):
        assert each.shape == wanted.shape
        assert (each.double() - wanted).abs().max() <= tolerance * wanted.abs().max()


def equal(found: tuple[Tensor, ...], expected: tuple[Tensor, ...]) -> None:
    for each, wanted in zip(found, expected, strict=True):
        torch.testing.assert_close(each, wanted, rtol=0, atol=0)


class Case:
    """Streams, branches, weights and gradients, all strided between models, as the weights of a fleet are."""

    def __init__(self, N: int, M: int, D: int, dtype: torch.dtype = torch.float32) -> None:
        draw = torch.Generator().manual_seed(M + D)
        spread = torch.randn(N, 5, M, D, generator=draw).to(dtype)
        # Sizes that are not near 1, some of them so small that epsilon matters.
        spread[:, 0] *= torch.logspace(-3, 1, M)[:, None]
        spread[:, 1] *= torch.logspace(-3, 1, M)[:, None]
        self.x, self.y, self.dstream, self.dnormed, _ = spread.unbind(1)
        self.weight = torch.randn(N, 2, D, generator=draw)[:, 1].requires_grad_()
        self.key = torch.randint(-(2**31), 2**31, (N, 3), generator=draw).to(torch.int32)[:, 1]
        self.x.requires_grad_()
        self.y.requires_grad_()

    def home(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """Where nothing is zero yet; the places beside it must stay as they are."""
        N, D = self.weight.shape
        return torch.full((N, 3, D), 7.0, dtype=dtype)


class TestInterpreted:
    __test__ = INTERPRETED

    @pytest.mark.parametrize("at_home", [False, True])
    @pytest.mark.parametrize(("joined", "keyed"), [(False, False), (True, False), (True, True)])
    @pytest.mark.parametrize(
        ("shape", "dtype", "tolerance"),
        [
            ((2, 7, 768), torch.float32, 1e-6),
            ((3, 37, 48), torch.float32, 1e-6),
            ((1, 33, 256), torch.bfloat16, 1e-2),
        ],
    )
    def test_equals_the_same_written_out(
        self, shape: tuple[int, ...], dtype: torch.dtype, tolerance: float, joined: bool, keyed: bool, at_home: bool
    ) -> None:
        case = Case(*shape, dtype=dtype)
        key, home = case.key if keyed else None, case.home() if at_home else None
        branch = (case.y,) if joined else ()
        place = None if home is None else home[:, 1]
        found = join_norm(case.x, case.y if joined else None, key, RATE, case.weight, place)
        assert all(each.dtype == dtype for each in found)
        if not joined:
            assert found[0].data_ptr() == case.x.data_ptr()
        leaves = [case.x, *branch, case.weight]
        grads = torch.autograd.grad(found, leaves, (case.dstream, case.dnormed), allow_unused=True)
        if home is not None:
            assert grads[-1] is None
            assert (home[:, [0, 2]] == 7).all()
            grads = (*grads[:-1], home[:, 1])

        # In bf16 the stream is rounded before it is normalised, that of fp64 is not: hence the loose tolerance.
        wide = [each.detach().double().requires_grad_() for each in leaves]
        expected = reference(wide[0], wide[1] if joined else None, key, wide[-1])
        close(found, expected, tolerance)
        close(grads, torch.autograd.grad(expected, wide, (case.dstream.double(), case.dnormed.double())), tolerance)

    @pytest.mark.parametrize("of", ["stream", "normed"])
    @pytest.mark.parametrize(("joined", "keyed"), [(False, False), (True, False), (True, True)])
    def test_either_output_may_be_without_a_gradient(self, of: str, joined: bool, keyed: bool) -> None:
        case = Case(2, 5, 48)
        key, home = case.key if keyed else None, case.home()
        inputs = (case.x, case.y if joined else None, key)
        leaves = [case.x, case.y] if joined else [case.x]
        which = 0 if of == "stream" else 1
        weigh = case.dnormed
        found = torch.autograd.grad(join_norm(*inputs, RATE, case.weight, home[:, 1])[which], leaves, weigh)
        expected = reference(*inputs, case.weight)[which]
        wanted = torch.autograd.grad(expected, [*leaves, case.weight], weigh, materialize_grads=True)
        close((*found, home[:, 1]), tuple(x.double() for x in wanted), 1e-6)

    def test_the_norm_is_that_of_the_decoder(self) -> None:
        case = Case(1, 5, 48)
        norm = RMSNorm(48)
        norm.weight = torch.nn.Parameter(case.weight[0].detach())
        close(join_norm(case.x, None, None, 0.0, case.weight, None)[1:], (norm(case.x).double(),), 1e-6)

    def test_the_weight_and_its_home_have_types_of_their_own(self) -> None:
        case = Case(2, 5, 48)
        home = case.home(torch.bfloat16)
        stream, normed = join_norm(case.x, None, None, 0.0, case.weight.bfloat16(), home[:, 1])
        assert normed.dtype == torch.float32
        torch.autograd.grad((stream * 0 + normed).sum(), case.x)
        unit = reference(case.x, None, None, torch.ones_like(case.weight))[1]
        close((home[:, 1],), (unit.sum(1).double(),), 1e-2)

    @pytest.mark.parametrize("M", [3, 4200])
    def test_many_blocks_are_added_up(self, M: int) -> None:
        """4,200 rows of 16 are 132 blocks, more than the last sum holds at a time."""
        case = Case(1, M, 16)
        grad = torch.autograd.grad(join_norm(case.x, None, None, 0.0, case.weight, None)[1], case.weight, case.dnormed)
        x, weight = case.x.double(), case.weight.detach().double().requires_grad_()
        normed = reference(x, None, None, weight)[1]
        close(grad, torch.autograd.grad(normed, weight, case.dnormed.double()), 1e-6)

    def test_what_is_dropped_is_what_the_rule_drops(self) -> None:
        case = Case(3, 5, 48)
        ones, zeros = torch.ones_like(case.x), torch.zeros_like(case.x)
        expected = torch.stack([kept(ones.shape[1:], key, RATE) for key in case.key])
        assert 0.6 < expected.float().mean() < 0.8
        for found in (
            drop(ones, case.key, RATE),
            add_drop(zeros, ones, case.key, RATE),
            join_norm(zeros, ones, case.key, RATE, case.weight, None)[0],
        ):
            assert torch.equal(found != 0, expected)

    @pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 1e-2)])
    def test_elementwise_kernels(self, dtype: torch.dtype, tolerance: float) -> None:
        case = Case(2, 33, 48, dtype)
        leaves = [case.x, case.y]
        wide = [each.detach().double().requires_grad_() for each in leaves]
        weigh = case.dstream

        found, expected = drop(case.y, case.key, RATE), dropped(wide[1], case.key)
        close((found,), (expected,), tolerance)
        wanted = torch.autograd.grad(expected, wide[1], weigh.double())
        close(torch.autograd.grad(found, case.y, weigh), wanted, tolerance)

        for key in (case.key, None):
            found, expected = add_drop(case.x, case.y, key, RATE), wide[0] + dropped(wide[1], key)
            close((found,), (expected,), tolerance)
            grads = torch.autograd.grad(found, leaves, weigh)
            assert grads[0].data_ptr() == weigh.data_ptr()
            close(grads, torch.autograd.grad(expected, wide, weigh.double()), tolerance)

    def test_no_rate_drops_nothing(self) -> None:
        case = Case(2, 3, 16)
        assert drop(case.x, case.key, 0.0) is case.x
        equal((add_drop(case.x, case.y, case.key, 0.0),), (case.x + case.y,))
        equal(
            join_norm(case.x, case.y, case.key, 0.0, case.weight, None),
            join_norm(case.x, case.y, None, RATE, case.weight, None),
        )

    def test_gradients_of_any_strides(self) -> None:
        case = Case(2, 3, 16)
        turned = case.dnormed.transpose(1, 2).contiguous().transpose(1, 2)

        def grads(dstream: Tensor, dnormed: Tensor) -> tuple[Tensor, ...]:
            outputs = join_norm(case.x, case.y, case.key, RATE, case.weight, None)
            return torch.autograd.grad(outputs, [case.x, case.y, case.weight], (dstream, dnormed))

        ones = torch.ones(())
        equal(grads(ones.expand(2, 3, 16), turned), grads(torch.ones(2, 3, 16), case.dnormed))

    @pytest.mark.parametrize("joined", [False, True])
    def test_stacked_models_equal_each_alone(self, joined: bool) -> None:
        case = Case(3, 37, 48)
        homes, homes_alone = case.home(), case.home()

        def one(x: Tensor, y: Tensor, key: Tensor, weight: Tensor, home: Tensor) -> tuple[Tensor, ...]:
            stream, normed = join_norm(
                x[None], y[None] if joined else None, key.view(1), RATE, weight[None], home[None]
            )
            after = add_drop(drop(stream, key.view(1), RATE), normed, key.view(1), RATE)
            return stream[0], normed[0], after[0]

        def run(function: Callable[..., tuple[Tensor, ...]], *inputs: Tensor) -> tuple[Tensor, ...]:
            outputs = function(*inputs)
            loss = sum((x.square().sum() for x in outputs), torch.zeros(()))
            return *outputs, *torch.autograd.grad(loss, inputs[:2], materialize_grads=True)

        found = run(vmap(one), case.x, case.y, case.key, case.weight, homes[:, 1])
        alone = [
            run(one, case.x[n], case.y[n], case.key[n], case.weight[n], homes_alone[n, 1]) for n in range(len(case.x))
        ]
        equal(found, tuple(torch.stack(parts) for parts in zip(*alone, strict=True)))
        equal((homes,), (homes_alone,))
        assert not (homes[:, 1] == 7).any()

    def test_what_models_share_is_not_stacked(self) -> None:
        """One stream and one weight for all; the gradients are sums over the models."""
        case = Case(3, 5, 48)
        x, weight = case.x[0].detach().requires_grad_(), case.weight[0].detach().requires_grad_()

        def one(y: Tensor, key: Tensor) -> Tensor:
            return torch.stack(join_norm(x[None], y[None], key.view(1), RATE, weight[None], None))

        found = torch.autograd.grad(vmap(one)(case.y, case.key).square().sum(), [x, weight])
        alone = [torch.autograd.grad(one(case.y[n], case.key[n]).square().sum(), [x, weight]) for n in range(3)]
        close(found, tuple(torch.stack(parts).sum(0).double() for parts in zip(*alone, strict=True)), 1e-6)
        with pytest.raises(ValueError, match="one place"):
            home = torch.zeros(48)
            vmap(lambda y: join_norm(y[None], None, None, 0.0, weight[None], home[None])[1])(case.y)
