"""Biases of row and column, and windows, in the fused attention kernels: against eager attention, interpreted.

`test_interpreted` runs it in a process of its own. Shape letters as in `lengthwise.kernels.attention`.
"""

import pytest
import torch
from conftest import INTERPRETED
from torch import Tensor
from torch.func import vmap

from lengthwise.kernels.attention import Parts, fused_attention

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="test_interpreted runs it in a process of its own")


def inputs(N: int, R: int, T: int, H: int, K: int, dtype: torch.dtype) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(T + K)
    segments = torch.randint(1, 4, (N, R, T), generator=draw).sort(-1).values
    segments[..., -3:] = 0
    return {
        "joined": torch.randn(N, R, T, 3, H, K, generator=draw).to(dtype).requires_grad_(),
        "segments": segments,
        "table": torch.randn(N, H, T, generator=draw).requires_grad_(),
        "row": torch.randn(N, R, H, T, generator=draw).requires_grad_(),
        "column": torch.randn(N, R, H, T, generator=draw).requires_grad_(),
        "window": torch.randint(1, T, (N, H), generator=draw).to(torch.int32),
    }


def eager(given: dict[str, Tensor], biased: bool, windowed: bool, scale: float) -> Tensor:
    q, k, v = given["joined"].double().unbind(3)
    T = q.shape[2]
    distance = torch.arange(T)[:, None] - torch.arange(T)
    logits = (
        torch.einsum("nrthk,nrshk->nrhts", q, k) * scale + given["table"].double()[:, None, :, distance.clamp(min=0)]
    )
    if biased:
        row, column = given["row"], given.get("column", -given["row"])
        logits = logits + row.double()[..., :, None] + column.double()[..., None, :]
    seen = (distance >= 0) & (given["segments"][..., :, None] == given["segments"][..., None, :])[:, :, None]
    if windowed:
        seen = seen & (distance < given["window"][:, None, :, None, None])
    return torch.einsum("nrhts,nrshk->nrthk", logits.masked_fill(~seen, float("-inf")).softmax(-1), v)


def fused(given: dict[str, Tensor], biased: bool, windowed: bool, scale: float) -> Tensor:
    row, column = (given["row"], given.get("column")) if biased else (None, None)
    window = given["window"] if windowed else None
    parts = Parts(table_NHT=given["table"], row_NRHT=row, column_NRHT=column, window_NH=window)
    return fused_attention(given["joined"], given["segments"], parts, scale=scale)


@pytest.mark.parametrize("biases", [(), ("row", "column"), ("row",)])
@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.parametrize(
    ("shape", "dtype", "tolerance"),
    [
        ((2, 2, 32, 2, 16), torch.float32, 1e-5),
        ((1, 1, 192, 2, 16), torch.float32, 1e-5),  # in blocks of 32, some of which windows hide
        ((2, 1, 64, 2, 32), torch.bfloat16, 2e-2),
        ((1, 1, 256, 2, 16), torch.bfloat16, 2e-2),
    ],
)
def test_outputs_and_gradients_are_those_of_eager_attention(
    shape: tuple[int, ...], dtype: torch.dtype, tolerance: float, biases: tuple[str, ...], windowed: bool
) -> None:
    """A row without a column: the number of a token as a query less that of another one as a key."""
    given = inputs(*shape, dtype=dtype)
    if "column" not in biases:
        del given["column"]
    leaves, biased = [given[name] for name in ("joined", "table", *biases)], bool(biases)
    grad = torch.randn(*shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    scale = shape[-1] ** -0.5
    found, expected = fused(given, biased, windowed, scale), eager(given, biased, windowed, scale)
    assert (found.double() - expected).abs().max() <= tolerance * expected.abs().max()
    ours = torch.autograd.grad(found, leaves, grad)
    theirs = torch.autograd.grad(expected, leaves, grad.double())
    # A softmax does not notice what a whole row shares: the gradient of `row` is 0 but for rounding.
    largest = max(float(each.abs().max()) for each in theirs)
    for mine, wanted in zip(ours, theirs, strict=True):
        assert (mine.double() - wanted).abs().max() <= tolerance * max(float(wanted.abs().max()), largest)


@pytest.mark.parametrize("window", [1, 5, 33, 191, 192, 1000])
def test_a_window_of_any_size_in_long_rows(window: int) -> None:
    given = inputs(1, 1, 192, 1, 16, torch.float32)
    given["window"] = torch.tensor([[window]], dtype=torch.int32)
    found, expected = fused(given, False, True, 0.25), eager(given, False, True, 0.25)
    assert (found.double() - expected).abs().max() <= 1e-5 * expected.abs().max()
    mine, wanted = (torch.autograd.grad(each.square().sum(), given["joined"])[0] for each in (found, expected))
    assert (mine - wanted).abs().max() <= 1e-5 * wanted.abs().max()


def test_stacked_models_have_their_own_rows_columns_and_windows() -> None:
    given = inputs(3, 1, 32, 2, 16, torch.float32)
    names = ("joined", "segments", "table", "row", "column", "window")

    def one(*arrays: Tensor) -> Tensor:
        return fused({name: array[None] for name, array in zip(names, arrays, strict=True)}, True, True, 0.25)[0]

    stacked = vmap(one)(*(given[name] for name in names))
    assert torch.allclose(stacked, fused(given, True, True, 0.25))
    leaves = [given[name] for name in ("joined", "row", "column")]
    mine = torch.autograd.grad(stacked.square().sum(), leaves)
    wanted = torch.autograd.grad(eager(given, True, True, 0.25).square().sum(), leaves)
    largest = max(float(each.abs().max()) for each in wanted)
    for ours, theirs in zip(mine, wanted, strict=True):
        assert (ours - theirs).abs().max() <= 1e-5 * largest


def test_columns_without_rows_and_other_precisions_are_refused() -> None:
    given = inputs(1, 1, 16, 1, 16, torch.float32)
    with pytest.raises(ValueError, match="needs one of the row"):
        fused_attention(given["joined"], given["segments"], Parts(column_NRHT=given["column"]))
    rounded = Parts(row_NRHT=given["row"].bfloat16(), column_NRHT=given["column"].bfloat16())
    with pytest.raises(ValueError, match="must be float32"):
        fused_attention(given["joined"], given["segments"], rounded)
