"""The kernels of AdamW and of gradient norms against both written out, in Triton's interpreter on the CPU.

`test_interpreted` runs them, in a process of their own. Shape letters as in `lengthwise.kernels.adamw`, and
W: weights of one model.
"""

import inspect
from collections.abc import Callable, Collection
from typing import Any

import pytest
import torch
from compiling import compiles, in_another_process, made
from conftest import INTERPRETED
from torch import Tensor

from lengthwise.kernels import adamw as optimizer_kernel
from lengthwise.kernels.adamw import adamw, norms, pieces, squares
from lengthwise.training import optimizer
from lengthwise.training.recipe import TrainingConfig

CONFIG = TrainingConfig(beta1=0.8, beta2=0.95, weight_decay=0.3, clip=0.7, epsilon=1e-5)
START, SIZE, WIDTH = 64, 1088, 1280
"""A section in the middle of rows; its last weights do not fill a block."""
INSIDE = slice(START, START + SIZE)
RATES = [1e-2, 3e-2, 2e-2]


def compile_kernels() -> None:
    def asm(function: Any, warps: int, block: int, absent: Collection[str] = (), **kinds: str) -> Any:
        names = list(inspect.signature(function.fn).parameters)
        floats = dict.fromkeys(("clip", "weight_decay", "rest1", "beta2", "rest2", "epsilon"), "fp32")
        arrays = {name: "*fp32" for name in names if name not in ("S", "X") and not name.endswith("_N")}
        aligned = set(names) - floats.keys()
        return made(function, arrays | floats | kinds, {"BLOCK": block}, absent, aligned, num_warps=warps)

    asm(optimizer_kernel._norms, 16, optimizer_kernel.SUMMED)
    for dtype in ("*bf16", "*fp32"):
        # 32 gradients of a thread.
        ptx = asm(optimizer_kernel._squares, 8, optimizer_kernel.PIECE, gradients=dtype)["ptx"]
        assert ptx.count("ld.global.v4.b32") == (4 if dtype == "*bf16" else 8), ptx
        for absent in ((), ("copy", "wanted")):
            # 8 weights of a thread: twice 16 bytes of each array in fp32, twice 8 of those in bf16, nothing exchanged.
            kinds = {"gradients": dtype, "decays": "*i1", "copy": "*bf16", "wanted": "*i32"}
            found = asm(optimizer_kernel._adamw, 4, optimizer_kernel.BLOCK, absent, **kinds)
            ptx = found["ptx"]
            assert ptx.count("ld.global.v4.b32") == (6 if dtype == "*bf16" else 8), ptx
            assert ptx.count("ld.global.v2.b32") == (2 if dtype == "*bf16" else 0), ptx
            assert ptx.count("st.global.v4.b32") == 6, ptx
            assert ptx.count("st.global.v2.b32") == (0 if absent else 2), ptx
            assert ("cvt.rn.bf16" in ptx) == (not absent), ptx
            assert "convert_layout" not in found["ttgir"], found["ttgir"]


@pytest.mark.slow
@compiles
def test_kernels_compile_for_a_gpu_that_is_not_there_and_read_16_bytes_at_a_time() -> None:
    in_another_process(compile_kernels)


class Rows:
    """Three models in the middle of training."""

    def __init__(self) -> None:
        draw = torch.Generator().manual_seed(0)
        self.weights_NW, self.first_NW, self.second_NW = torch.randn(3, 3, WIDTH, generator=draw)
        self.second_NW.square_()
        self.copy_NW = self.weights_NW.bfloat16()
        self.decays_W = torch.rand(WIDTH, generator=draw) < 0.5
        self.rates_N = torch.tensor(RATES)

    def matrices(self) -> list[Tensor]:
        return [self.weights_NW, self.first_NW, self.second_NW, self.copy_NW]

    def step(
        self,
        change: Callable[..., None],
        gradients_NS: Tensor,
        step: int,
        copied: bool = True,
        wanted_1: Tensor | None = None,
    ) -> None:
        """`change` is `AdamW.update` or `adamw`, which takes the settings last."""
        norms_N = gradients_NS.float().norm(dim=1)
        corrections_2 = torch.tensor(optimizer.corrections(CONFIG, step))
        change(
            *(matrix[:, INSIDE] for matrix in (self.weights_NW, self.first_NW, self.second_NW)),
            *(self.decays_W[INSIDE], gradients_NS, norms_N, self.rates_N, corrections_2),
            self.copy_NW[:, INSIDE] if copied else None,
            *([wanted_1, CONFIG] if change is adamw else []),
        )


def gradients_of(dtype: torch.dtype, seed: int = 1) -> Tensor:
    """Norms of about 33, 3.3 and 0.33: below and above what is clipped."""
    noise_NS = torch.randn(3, SIZE, generator=torch.Generator().manual_seed(seed))
    return (noise_NS * torch.tensor([[1.0], [0.1], [0.01]])).to(dtype)


def written_out(rows: Rows, gradients_NS: Tensor, step: int) -> tuple[Tensor, Tensor, Tensor]:
    """Loshchilov and Hutter's algorithm 2 after clipping, weight decay times learning rate, in fp64."""
    weights, first, second = (matrix[:, INSIDE].double() for matrix in rows.matrices()[:3])
    gradients = gradients_NS.double()
    for n in range(3):
        length = gradients[n].square().sum().sqrt()
        clipped = gradients[n] * CONFIG.clip / (length + 1e-6) if length + 1e-6 > CONFIG.clip else gradients[n]
        first[n] = CONFIG.beta1 * first[n] + (1 - CONFIG.beta1) * clipped
        second[n] = CONFIG.beta2 * second[n] + (1 - CONFIG.beta2) * clipped**2
        mean = first[n] / (1 - CONFIG.beta1 ** (step + 1))
        square = second[n] / (1 - CONFIG.beta2 ** (step + 1))
        decayed = weights[n] * (1 - RATES[n] * CONFIG.weight_decay * rows.decays_W[INSIDE])
        weights[n] = decayed - RATES[n] * mean / (square.sqrt() + CONFIG.epsilon)
    return weights, first, second


def cut_off(x: Tensor) -> Tensor:
    """In bf16 as the interpreter makes it; a GPU rounds (`cvt.rn` above)."""
    return (x.view(torch.int32) >> 16 << 16).view(torch.float32).bfloat16()


class TestInterpreted:
    __test__ = INTERPRETED

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_equals_adamw_written_out(self, dtype: torch.dtype) -> None:
        rows = Rows()
        for step in range(3):
            gradients = gradients_of(dtype, seed=step)
            expected = written_out(rows, gradients, step)
            rows.step(adamw, gradients, step)
            for found, wanted in zip(rows.matrices()[:3], expected, strict=True):
                torch.testing.assert_close(found[:, INSIDE].double(), wanted, rtol=2e-6, atol=1e-6)
            assert rows.copy_NW[:, INSIDE].equal(cut_off(rows.weights_NW)[:, INSIDE])

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    @pytest.mark.parametrize("copied", [False, True])
    def test_equals_the_update_in_pytorch(self, dtype: torch.dtype, copied: bool) -> None:
        rows, others = Rows(), Rows()
        for step in range(2):
            rows.step(adamw, gradients_of(dtype, seed=step), step, copied)
            others.step(optimizer.AdamW(CONFIG).update, gradients_of(dtype, seed=step), step, copied)
        for found, wanted in zip(rows.matrices()[:3], others.matrices()[:3], strict=True):
            torch.testing.assert_close(found, wanted, rtol=2e-6, atol=1e-6)
        if not copied:
            assert rows.copy_NW.equal(Rows().copy_NW)

    def test_nothing_outside_of_the_section_changes(self) -> None:
        rows, before = Rows(), Rows()
        rows.step(adamw, gradients_of(torch.float32), 0)
        for matrix, old in zip(rows.matrices(), before.matrices(), strict=True):
            assert matrix[:, :START].equal(old[:, :START])
            assert matrix[:, START + SIZE :].equal(old[:, START + SIZE :])
        for matrix, old in zip(rows.matrices()[:3], before.matrices()[:3], strict=True):
            assert (matrix[:, INSIDE] != old[:, INSIDE]).float().mean() > 0.99

    def test_an_update_that_is_not_wanted_changes_nothing(self) -> None:
        rows, before, plain = Rows(), Rows(), Rows()
        gradients = gradients_of(torch.bfloat16)
        rows.step(adamw, gradients, 0, wanted_1=torch.tensor([0], dtype=torch.int32))
        for matrix, old in zip(rows.matrices(), before.matrices(), strict=True):
            assert matrix.equal(old)
        rows.step(adamw, gradients, 0, wanted_1=torch.tensor([1], dtype=torch.int32))
        plain.step(adamw, gradients, 0)
        for matrix, wanted in zip(rows.matrices(), plain.matrices(), strict=True):
            assert matrix.equal(wanted)

    @pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
    def test_a_model_whose_gradient_is_not_finite_keeps_its_weights(self, bad: float) -> None:
        rows, untroubled, others, before = Rows(), Rows(), Rows(), Rows()
        gradients = gradients_of(torch.bfloat16)
        untroubled.step(adamw, gradients, 4)
        gradients[1, 700] = bad
        rows.step(adamw, gradients, 4)
        others.step(optimizer.AdamW(CONFIG).update, gradients, 4)
        for matrix, fine in zip(rows.matrices(), untroubled.matrices(), strict=True):
            assert matrix[::2].equal(fine[::2])
        assert rows.weights_NW[1].equal(before.weights_NW[1])
        assert rows.copy_NW[1, INSIDE].equal(cut_off(before.weights_NW)[1, INSIDE])
        for found, wanted in zip(rows.matrices()[1:3], others.matrices()[1:3], strict=True):  # these shrink
            torch.testing.assert_close(found[1], wanted[1], rtol=1e-6, atol=0)

    def test_stacked_models_equal_each_alone(self) -> None:
        together, alone = Rows(), Rows()
        gradients = gradients_of(torch.bfloat16)
        together.step(adamw, gradients, 0)
        everything = alone.matrices()
        rates = alone.rates_N
        for n in range(3):
            alone.weights_NW, alone.first_NW, alone.second_NW, alone.copy_NW = (each[n : n + 1] for each in everything)
            alone.rates_N = rates[n : n + 1]
            alone.step(adamw, gradients[n : n + 1], 0)
        for found, wanted in zip(everything, together.matrices(), strict=True):
            assert found.equal(wanted)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_norms_of_several_sections(self, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
        """The pieces are so small that one section has several, and all together more than are held at once."""
        monkeypatch.setattr(optimizer_kernel, "PIECE", 128)
        monkeypatch.setattr(optimizer_kernel, "SUMMED", 4)
        gradients_NW = torch.randn(3, WIDTH, generator=torch.Generator().manual_seed(0)).to(dtype)
        gradients_NW *= torch.tensor([[1.0], [1e-4], [1e4]])
        sizes = [64, SIZE, 128]
        assert [pieces(size) for size in sizes] == [1, 9, 1]
        pieces_NX = torch.full((3, 11), float("nan"))
        section_of = dict(zip(sizes, gradients_NW.split(sizes, dim=1), strict=True))
        columns_of = dict(zip(sizes, pieces_NX.split([1, 9, 1], dim=1), strict=True))
        for size in (SIZE, 128, 64):
            squares(section_of[size], columns_of[size])
        parts = [part.double().square().sum(1) for part in gradients_NW[:, INSIDE].split(128, dim=1)]
        torch.testing.assert_close(columns_of[SIZE].double(), torch.stack(parts, dim=1), rtol=1e-6, atol=0)
        expected = gradients_NW.double().square().sum(1).sqrt()
        torch.testing.assert_close(norms(pieces_NX).double(), expected, rtol=1e-6, atol=0)
        room_N = torch.empty(3)
        assert norms(pieces_NX, room_N) is room_N and room_N.equal(norms(pieces_NX))
        lone = pieces_NX.new_empty(1, 9)
        squares(section_of[SIZE][1:2], lone)
        assert lone[0].equal(columns_of[SIZE][1])

    @pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), 1e30])
    def test_norms_that_are_not_finite(self, bad: float) -> None:
        gradients_NS = gradients_of(torch.float32)
        gradients_NS[1, 700] = bad
        pieces_NX = torch.empty(3, pieces(SIZE))
        squares(gradients_NS, pieces_NX)
        assert norms(pieces_NX).isfinite().tolist() == [True, False, True]
