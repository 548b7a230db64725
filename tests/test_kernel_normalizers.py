"""Sinks, entmax and stick-breaking in the fused attention kernels: against eager attention, interpreted.

`test_interpreted` runs it in a process of its own. Shape letters as in `lengthwise.kernels.attention`.
"""

import pytest
import torch
from conftest import INTERPRETED
from torch import Tensor

from lengthwise.encodings.entmax import entmax_by_bisection
from lengthwise.kernels.attention import Parts, fused_attention, normalizes

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="test_interpreted runs it in a process of its own")


def inputs(N: int, R: int, T: int, H: int, K: int, dtype: torch.dtype) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(T + K)
    segments = torch.randint(1, 4, (N, R, T), generator=draw).sort(-1).values
    segments[..., -3:] = 0
    return {
        "joined": (2 * torch.randn(N, R, T, 3, H, K, generator=draw)).to(dtype).requires_grad_(),
        "segments": segments,
        "table": torch.randn(N, H, T, generator=draw).requires_grad_(),
        "row": torch.randn(N, R, H, T, generator=draw).requires_grad_(),
        "column": torch.randn(N, R, H, T, generator=draw).requires_grad_(),
        "sink": (3 * torch.randn(N, H, generator=draw)).requires_grad_(),
    }


def weights_of(logits: Tensor, sink_NH: Tensor, program: str) -> Tensor:
    """In float64."""
    if program == "entmax":
        return entmax_by_bisection(logits, 1.5)
    if program == "stick-breaking":
        taken = logits.sigmoid()
        left = torch.cat([(1 - taken).flip(-1).cumprod(-1).flip(-1)[..., 1:], torch.ones_like(taken[..., :1])], dim=-1)
        return taken * left
    if program == "sink":
        sinks = sink_NH.double()[:, None, :, None, None].expand(*logits.shape[:-1], 1)
        logits = torch.cat([logits, sinks], dim=-1)
        return logits.softmax(-1)[..., :-1]
    return logits.softmax(-1)


def eager(given: dict[str, Tensor], program: str, scale: float) -> Tensor:
    q, k, v = given["joined"].double().unbind(3)
    T = q.shape[2]
    distance = torch.arange(T)[:, None] - torch.arange(T)
    logits = torch.einsum("nrthk,nrshk->nrhts", q, k) * scale
    logits = logits + given["table"].double()[:, None, :, distance.clamp(min=0)]
    logits = logits + given["row"].double()[..., :, None] + given["column"].double()[..., None, :]
    seen = (distance >= 0) & (given["segments"][..., :, None] == given["segments"][..., None, :])[:, :, None]
    weights = weights_of(logits.masked_fill(~seen, float("-inf")), given["sink"], program)
    return torch.einsum("nrhts,nrshk->nrthk", weights, v)


def fused(given: dict[str, Tensor], program: str, scale: float) -> Tensor:
    sink = given["sink"] if program == "sink" else None
    parts = Parts(table_NHT=given["table"], row_NRHT=given["row"], column_NRHT=given["column"], sink_NH=sink)
    name = "softmax" if program == "sink" else program
    return fused_attention(given["joined"], given["segments"], parts, scale=scale, program=name)


@pytest.mark.parametrize(
    ("program", "shape", "dtype", "tolerance"),
    [
        *((each, (2, 2, 32, 2, 16), torch.float32, 2e-5) for each in ("sink", "entmax", "stick-breaking")),
        *((each, (2, 1, 128, 2, 32), torch.bfloat16, 2e-2) for each in ("sink", "entmax", "stick-breaking")),
        ("sink", (1, 1, 192, 2, 16), torch.float32, 2e-5),  # in blocks of 32
        ("sink", (2, 1, 256, 1, 16), torch.bfloat16, 2e-2),
    ],
)
def test_outputs_and_gradients_are_those_of_eager_attention(
    program: str, shape: tuple[int, ...], dtype: torch.dtype, tolerance: float
) -> None:
    given, scale = inputs(*shape, dtype=dtype), shape[-1] ** -0.5
    leaves = [given[name] for name in ("joined", "table", "row", "column", *(["sink"] if program == "sink" else []))]
    grad = torch.randn(*shape, generator=torch.Generator().manual_seed(1)).to(dtype)
    found, expected = fused(given, program, scale), eager(given, program, scale)
    assert (found.double() - expected).abs().max() <= tolerance * expected.abs().max()
    ours = torch.autograd.grad(found, leaves, grad)
    theirs = torch.autograd.grad(expected, leaves, grad.double())
    # What all keys of a row share does not move entmax: the gradient of `row` is 0 there but for rounding. In bf16 what
    # is rounded is the output, and with it every gradient of long rows.
    largest = max(float(each.abs().max()) for each in theirs)
    by_largest = program == "entmax" or dtype == torch.bfloat16
    for mine, wanted in zip(ours, theirs, strict=True):
        allowed = tolerance * max(float(wanted.abs().max()), largest if by_largest else 0.0)
        assert (mine.double() - wanted).abs().max() <= allowed


def test_extreme_logits_leave_no_nan() -> None:
    given = inputs(1, 1, 16, 1, 16, torch.float32)
    given["table"] = torch.linspace(-1e4, 1e4, 16)[None, None].requires_grad_()
    for program in ("sink", "entmax", "stick-breaking"):
        found = fused(given, program, 1.0)
        gradients = torch.autograd.grad(found.sum(), [given["joined"], given["table"]])
        assert all(bool(each.isfinite().all()) for each in (found, *gradients)), program
        torch.testing.assert_close(found.double(), eager(given, program, 1.0), rtol=1e-4, atol=1e-4)


def test_what_there_is_no_program_for_is_refused() -> None:
    assert normalizes("softmax", 4096, 64, torch.float32) and not normalizes("sparsemax", 16, 16, torch.float32)
    assert normalizes("entmax", 128, 64, torch.bfloat16) and not normalizes("entmax", 192, 64, torch.bfloat16)
    assert not normalizes("stick-breaking", 128, 64, torch.float32)
    given = inputs(1, 1, 192, 1, 16, torch.float32)
    parts = (given["joined"], given["segments"])
    with pytest.raises(ValueError, match="no program for entmax in rows of 192"):
        fused_attention(*parts, program="entmax")
    short = inputs(1, 1, 16, 1, 16, torch.float32)
    parts = (short["joined"], short["segments"])
    with pytest.raises(ValueError, match="only a softmax has a sink"):
        fused_attention(*parts, Parts(sink_NH=short["sink"]), program="entmax")
    for program, sink in (("stick-breaking", None), ("softmax", short["sink"])):
        with pytest.raises(ValueError, match="notices what a whole row shares"):
            fused_attention(*parts, Parts(row_NRHT=short["row"], sink_NH=sink), program=program)
