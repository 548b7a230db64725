"""The embedding's kernels against indexing, in Triton's interpreter on the CPU.

`test_interpreted` runs them, in a process of their own. Shape letters as in `lengthwise.kernels.embedding`.
"""

from collections.abc import Callable

import pytest
import torch
from compiling import compiles, in_another_process, made
from conftest import INTERPRETED
from torch import Tensor
from torch.func import vmap

from lengthwise.kernels import embedding as embedding_kernel
from lengthwise.kernels.embedding import CHUNK, look_up

V = 90


def compile_kernels() -> None:
    for dtype in ("*bf16", "*fp32"):
        kinds = {"tokens": "*i32", "order": "*i64", "part": "*fp32"}
        kinds |= dict.fromkeys(("weight", "x", "grad", "out"), dtype)
        for width, columns in [(768, 256), (16, 16)]:
            numbers = {"D": width, "C": CHUNK, "W": columns}
            for function in (embedding_kernel._gather, embedding_kernel._add_chunks, embedding_kernel._add_crossing):
                made(function, kinds, numbers, num_warps=4)


@pytest.mark.slow
@compiles
def test_kernels_compile_for_a_gpu_that_is_not_there() -> None:
    in_another_process(compile_kernels)


def test_what_is_refused() -> None:
    tokens = torch.zeros(2, 3, dtype=torch.int64)
    for shape in [(2, 5, 24), (2, 5, 4112), (5, 16)]:
        with pytest.raises(ValueError, match="multiple of 16"):
            look_up(tokens, torch.zeros(shape), None)
    with pytest.raises(ValueError, match="float16"):
        look_up(tokens, torch.zeros(2, 5, 16).half(), None)
    with pytest.raises(ValueError, match="one place"):
        look_up(tokens, torch.zeros(2, 5, 16), torch.zeros(5, 16).expand(2, 5, 16))
    with pytest.raises(ValueError, match="contiguous"):
        look_up(tokens, torch.zeros(2, 5, 16), torch.zeros(2, 16, 5).transpose(1, 2))


def runs(*lengths: int) -> list[int]:
    """Tokens 3, 4, 5, ... of which there are so many."""
    return [token for token, length in enumerate(lengths, start=3) for _ in range(length)]


C = CHUNK
SORTED = {
    "one": runs(1),
    "all different": runs(*[1] * (2 * C + 5)),
    "one everywhere": runs(5 * C),
    "one everywhere and a bit": runs(5 * C + 1),
    "ends at a boundary": runs(3, C - 3, C, 2 * C, 4),
    "one short of a boundary": runs(C - 1, C, C, 2),
    "one past a boundary": runs(C + 1, C, C - 2, 3),
    "crosses two boundaries with others around": runs(5, 2 * C, 4, C - 1, 1, 1),
    "two cross one after the other": runs(C - 1, 2, C - 2, 2, C - 2, 2),
    "longer than the chunks added at a time": runs(2, C * C + 2 * C + 3, 1),
    "ends with the last of the chunks added at a time": runs(C - 1, 1 + C * C, C),
}


def reference(tokens_NM: Tensor, weight_NVD: Tensor) -> Tensor:
    return torch.stack([weight[tokens] for tokens, weight in zip(tokens_NM, weight_NVD, strict=True)])


class Case:
    """Tokens in disorder, weights that are strided between models, as those of a fleet are, gradients."""

    def __init__(self, tokens: list[int], N: int = 1, D: int = 16, dtype: torch.dtype = torch.float32) -> None:
        draw = torch.Generator().manual_seed(len(tokens) + D)
        M = len(tokens)
        each = [torch.tensor(tokens)[torch.randperm(M, generator=draw)] for _ in range(N)]
        # Each model has other tokens, so that a mix-up of models shows.
        self.tokens = torch.stack([(t + 7 * n) % V for n, t in enumerate(each)])
        self.weight = torch.randn(N, 2, V, D, generator=draw).to(dtype)[:, 1].requires_grad_()
        self.grad = torch.randn(N, M, D, generator=draw).to(dtype)
        self.before = torch.randn(N, 3, V, D, generator=draw)

    def expected(self) -> Tensor:
        """In fp64."""
        weight = self.weight.detach().double().requires_grad_()
        return torch.autograd.grad(reference(self.tokens, weight), weight, self.grad.double())[0]

    def close(self, found: Tensor, expected: Tensor, tolerance: float) -> None:
        assert (found.double() - expected).abs().max() <= tolerance * expected.abs().max()


class TestInterpreted:
    __test__ = INTERPRETED

    @pytest.mark.parametrize("name", SORTED)
    def test_sums_of_runs(self, name: str) -> None:
        case = Case(SORTED[name])
        found = look_up(case.tokens, case.weight, None)
        assert torch.equal(found, reference(case.tokens, case.weight))
        (gradient,) = torch.autograd.grad(found, case.weight, case.grad)
        case.close(gradient, case.expected(), 1e-6)

    @pytest.mark.parametrize("skip", [None, 5])
    @pytest.mark.parametrize("at_home", [False, True])
    @pytest.mark.parametrize(
        ("N", "D", "dtype", "tolerance"),
        [(3, 48, torch.float32, 1e-6), (1, 768, torch.float32, 1e-6), (2, 48, torch.bfloat16, 1e-2)],
    )
    def test_equals_indexing(
        self, N: int, D: int, dtype: torch.dtype, tolerance: float, at_home: bool, skip: int | None
    ) -> None:
        case = Case(runs(9, 3, 20, 1, 40, 1, 1, 2), N, D, dtype)
        home = case.before.to(dtype)
        before = home.clone()
        found = look_up(case.tokens, case.weight, home[:, 1] if at_home else None, skip)
        assert found.dtype == dtype and found.is_contiguous()
        assert torch.equal(found, reference(case.tokens, case.weight))
        (gradient,) = torch.autograd.grad(found, case.weight, case.grad, allow_unused=True)
        expected = case.expected()
        if skip is not None:
            expected[:, skip] = 0
        if at_home:
            assert gradient is None
            expected += before[:, 1]
            gradient = home[:, 1]
            untouched = torch.ones(N, V, dtype=torch.bool).scatter(1, case.tokens, False)
            if skip is not None:
                untouched[:, skip] = True
            assert torch.equal(home[:, 1][untouched], before[:, 1][untouched])
            assert torch.equal(home[:, [0, 2]], before[:, [0, 2]])
        assert gradient is not None and gradient.dtype == dtype
        case.close(gradient, expected, tolerance)

    @pytest.mark.parametrize("lengths", [(2, 1, 3 * C, 4), (C, C, C, C), (1, 1, C - 2, C)])
    def test_what_is_skipped_is_not_read(self, lengths: tuple[int, ...]) -> None:
        case = Case(runs(*lengths))
        expected = case.expected()
        expected[:, 5] = 0
        case.grad[case.tokens == 5] = float("nan")
        found = look_up(case.tokens, case.weight, None, skip=5)
        case.close(torch.autograd.grad(found, case.weight, case.grad)[0], expected, 1e-6)

    def test_a_home_may_be_finer_than_the_weight(self) -> None:
        """The sum is not rounded on its way: 1 + 2**-12 has no place in bf16."""
        tokens, weight = torch.full((1, 40), 3), torch.zeros(1, 5, 16, dtype=torch.bfloat16, requires_grad=True)
        home = torch.ones(1, 5, 16)
        grad = torch.full((1, 40, 16), 2**-12, dtype=torch.bfloat16)
        torch.autograd.grad(look_up(tokens, weight, home), weight, grad, allow_unused=True)
        assert (home[0, 3] == 1 + 40 * 2**-12).all() and (home[0, :3] == 1).all()

    @pytest.mark.parametrize("at_home", [False, True])
    def test_stacked_models_equal_each_alone(self, at_home: bool) -> None:
        case = Case(runs(9, 3, 20, 1, 2 * C + 1, 1), N=3)
        homes, homes_alone = case.before.clone(), case.before.clone()

        def one(tokens: Tensor, weight: Tensor, home: Tensor) -> Tensor:
            return look_up(tokens[None], weight[None], home[None] if at_home else None)[0]

        def run(function: Callable[..., Tensor], weight: Tensor, grad: Tensor, *others: Tensor) -> tuple[Tensor, ...]:
            tokens, home = others
            found = function(tokens, weight, home)
            return found, *torch.autograd.grad(found, weight, grad, materialize_grads=True)

        found = run(vmap(one), case.weight, case.grad, case.tokens, homes[:, 1])
        alone = [run(one, case.weight[n], case.grad[n], case.tokens[n], homes_alone[n, 1]) for n in range(3)]
        for mine, theirs in zip(found, zip(*alone, strict=True), strict=True):
            assert torch.equal(mine, torch.stack(theirs))
        assert torch.equal(homes, homes_alone)
        assert torch.equal(homes, case.before) != at_home

    def test_what_models_share_is_not_stacked(self) -> None:
        """One batch for all models; then one weight for all, whose gradient is the sum over them."""
        case = Case(runs(3, 20, 1), N=3)
        tokens = case.tokens[0]
        found = vmap(lambda weight: look_up(tokens[None], weight[None], None)[0])(case.weight)
        assert torch.equal(found, reference(tokens.expand(3, -1), case.weight))
        alone = torch.autograd.grad(reference(tokens.expand(3, -1), case.weight), case.weight, case.grad)[0]
        case.close(torch.autograd.grad(found, case.weight, case.grad)[0], alone.double(), 1e-6)

        weight = case.weight[0].detach().requires_grad_()
        found = vmap(lambda tokens: look_up(tokens[None], weight[None], None)[0])(case.tokens)
        (shared,) = torch.autograd.grad(found, weight, case.grad)
        case.close(shared, case.expected().sum(0), 1e-6)

    def test_tokens_are_sorted_for_gradients_alone(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise AssertionError("sorted")

        case = Case(runs(3, 2))
        monkeypatch.setattr(Tensor, "sort", refuse)
        with torch.no_grad():
            assert torch.equal(look_up(case.tokens, case.weight, None), reference(case.tokens, case.weight))
        with pytest.raises(AssertionError, match="sorted"):
            look_up(case.tokens, case.weight, None)
