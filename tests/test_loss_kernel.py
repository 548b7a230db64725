"""The cross-entropy kernels against cross-entropy written out, in Triton's interpreter on the CPU.

`test_interpreted` runs them, in a process of their own. Shape letters as in `lengthwise.kernels.loss`.
"""

import inspect

import pytest
import torch
from compiling import compiles, in_another_process, made
from conftest import INTERPRETED
from torch import Tensor

from lengthwise.kernels import loss as loss_kernel
from lengthwise.kernels.loss import cross_entropy


def compile_kernels() -> None:
    fixed, warps = {"BLOCK": loss_kernel.BLOCK}, loss_kernel.WARPS
    for dtype, reads in [("*bf16", 2), ("*fp32", 4)]:  # 16 logits of a thread, 16 bytes at a time
        kinds = dict.fromkeys(("counts", "likelihoods", "losses"), "*fp32") | {"logits": dtype, "targets": "*i32"}
        for function in (loss_kernel._count, loss_kernel._likelihoods, loss_kernel._mean):
            names = list(inspect.signature(function.fn).parameters)
            ptx = made(function, kinds, fixed, aligned=names, num_warps=warps)["ptx"]
            if "logits" in names:  # read for the sum, and for the gradient; that is written, or zeros are
                assert ptx.count("ld.global.v4.b32") == 2 * reads, ptx
                assert ptx.count("st.global.v4.b32") == 2 * reads, ptx
                # Between the last that is read of the logits for the loss and the first that is written over them.
                before = ptx[: ptx.index("st.global.v4")]
                single = before.rindex("ld.global.b16" if dtype == "*bf16" else "ld.global.b32")
                assert "bar.sync" in before[single:], ptx


@pytest.mark.slow
@compiles
def test_kernels_compile_for_a_gpu_that_is_not_there_and_read_16_bytes_at_a_time() -> None:
    in_another_process(compile_kernels)


def test_what_is_refused() -> None:
    with pytest.raises(ValueError, match="float16"):
        cross_entropy(torch.zeros(1, 2, 3, dtype=torch.float16), torch.zeros(1, 2, dtype=torch.int64))


def inputs(P: int, V: int, dtype: torch.dtype = torch.float32, spread: float = 3.0) -> tuple[Tensor, Tensor]:
    """Logits of three models and targets, the first and the last of the vocabulary among them, some only filling up."""
    draw = torch.Generator().manual_seed(P + V)
    logits_NPV = (torch.randn(3, P, V, generator=draw) * spread).to(dtype).requires_grad_()
    targets_NP = torch.randint(0, V, (3, P), generator=draw)
    targets_NP[:, 0], targets_NP[:, 1] = 0, V - 1
    targets_NP[0, 2:4] = -1
    targets_NP[1, -1] = -1
    return logits_NPV, targets_NP


def written_out(logits_NPV: Tensor, targets_NP: Tensor) -> Tensor:
    """In fp64, over the real targets alone."""
    losses = []
    for logits_PV, targets_P in zip(logits_NPV.double(), targets_NP, strict=True):
        real = [(p, int(target)) for p, target in enumerate(targets_P) if target >= 0]
        each = [logits_PV[p].exp().sum().log() - logits_PV[p, target] for p, target in real]
        losses.append(torch.stack(each).mean())
    return torch.stack(losses)


def with_gradient(losses_N: Tensor, logits_NPV: Tensor) -> tuple[Tensor, Tensor]:
    """That of the sum holds each model's own."""
    return losses_N.detach(), torch.autograd.grad(losses_N.sum(), logits_NPV)[0]


def by_kernel(logits_NPV: Tensor, targets_NP: Tensor) -> tuple[Tensor, Tensor]:
    """The kernel writes over what it is given."""
    return cross_entropy(logits_NPV.detach().clone(), targets_NP)


def close(found: Tensor, expected: Tensor, tolerance: float) -> None:
    assert found.shape == expected.shape
    assert (found.double() - expected).abs().max() <= tolerance * expected.abs().max()


class TestInterpreted:
    __test__ = INTERPRETED

    @pytest.fixture(autouse=True)
    def small_blocks(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(loss_kernel, "BLOCK", 16)

    @pytest.mark.parametrize(
        ("P", "V", "dtype", "integers", "tolerance"),
        [
            (5, 7, torch.float32, torch.int32, 1e-6),
            (5, 48, torch.float32, torch.int64, 1e-6),
            (39, 33, torch.float32, torch.int32, 1e-6),  # more predictions than a block, too
            (5, 61, torch.bfloat16, torch.int32, 1e-2),
        ],
    )
    def test_equals_cross_entropy_written_out(
        self, P: int, V: int, dtype: torch.dtype, integers: torch.dtype, tolerance: float
    ) -> None:
        logits, targets = inputs(P, V, dtype)
        losses, gradient = by_kernel(logits, targets.to(integers))
        expected, expected_gradient = with_gradient(written_out(logits, targets), logits)
        assert losses.dtype == torch.float32 and gradient.dtype == dtype
        close(losses, expected, 1e-6)  # of bf16, too: only what is read is rounded
        close(gradient, expected_gradient, tolerance)
        assert (gradient[targets < 0] == 0).all()

    def test_a_block_of_the_real_size(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(loss_kernel, "BLOCK", 2048)
        self.test_equals_cross_entropy_written_out(5, 5000, torch.float32, torch.int32, 1e-6)

    def test_takes_any_strides(self) -> None:
        logits, targets = inputs(5, 33)
        turned = logits.detach().transpose(0, 2).contiguous().transpose(0, 2)
        spread = torch.stack([targets, targets - 1], -1)[..., 0]
        expected = by_kernel(logits, targets)
        for found, wanted in zip(cross_entropy(turned, spread), expected, strict=True):
            assert found.equal(wanted)

    def test_the_gradient_is_where_the_logits_were(self) -> None:
        given = inputs(5, 33)[0].detach()
        _, gradient = cross_entropy(given, inputs(5, 33)[1])
        assert gradient.data_ptr() == given.data_ptr()

    @pytest.mark.filterwarnings("ignore:.*divide:RuntimeWarning")
    def test_a_model_without_any_target(self) -> None:
        logits, targets = inputs(5, 33)
        expected, expected_gradient = by_kernel(logits, targets)
        targets[1] = -1
        losses, gradient = by_kernel(logits, targets)
        assert losses.isnan().tolist() == [False, True, False]
        assert (gradient[1] == 0).all()
        assert losses[::2].equal(expected[::2]) and gradient[::2].equal(expected_gradient[::2])

    def test_a_model_with_logits_that_are_not_numbers(self) -> None:
        logits, targets = inputs(5, 33)
        expected, expected_gradient = by_kernel(logits, targets)
        with torch.no_grad():
            logits[1, 0, 20] = float("nan")
        losses, gradient = by_kernel(logits, targets)
        assert losses.isnan().tolist() == [False, True, False]
        assert not gradient[1].isfinite().all()
        assert losses[::2].equal(expected[::2]) and gradient[::2].equal(expected_gradient[::2])

    def test_huge_logits(self) -> None:
        logits, targets = inputs(5, 33, spread=1e4)
        with torch.no_grad():
            logits[0, 0] += 1e4  # exp of it is beyond fp64, too
            logits[2, 1, 30:] = logits[2, 1].amax() + torch.arange(3)
        losses, gradient = by_kernel(logits, targets)
        logarithms = logits.double().log_softmax(-1)
        real = targets >= 0
        chosen = logarithms.gather(2, targets.clamp(min=0)[..., None])[..., 0]
        expected = -(chosen * real).sum(1) / real.sum(1)
        expected, expected_gradient = with_gradient(expected, logits)
        close(losses, expected, 1e-6)
        close(gradient, expected_gradient, 2e-3)  # fp32 at 30,000 has steps of 0.002

    def test_logits_of_minus_infinity(self) -> None:
        """A whole block of them comes first."""
        logits, targets = inputs(5, 33)
        whole = torch.full_like(logits[..., :16], float("-inf"))
        longer = torch.cat([whole, logits], dim=2).detach().requires_grad_()
        losses, gradient = by_kernel(longer, torch.where(targets >= 0, targets + 16, -1))
        expected, expected_gradient = with_gradient(written_out(logits, targets), logits)
        close(losses, expected, 1e-6)
        assert (gradient[..., :16] == 0).all()
        close(gradient[..., 16:], expected_gradient, 1e-6)

    def test_stacked_models_equal_each_alone(self) -> None:
        logits, targets = inputs(5, 33, torch.bfloat16)
        losses, gradient = by_kernel(logits, targets)
        for n in range(3):
            loss, alone = by_kernel(logits[n : n + 1], targets[n : n + 1])
            assert losses[n].equal(loss[0]) and gradient[n].equal(alone[0])
