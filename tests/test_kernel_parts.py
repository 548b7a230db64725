"""What there may be besides queries, keys and values in the fused attention kernels: against eager attention in
float64, interpreted.

`test_interpreted` runs it in a process of its own. Shape letters as in `lengthwise.kernels.attention`.
"""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from conftest import INTERPRETED
from torch import Tensor
from torch.func import vmap

from lengthwise.kernels.attention import Parts, fused_attention, reflects
from lengthwise.kernels.attention_parts import LEARNED

pytestmark = pytest.mark.skipif(not INTERPRETED, reason="test_interpreted runs it in a process of its own")

PAIRS, SCALE = 4, 0.3


def drawn(what: str, N: int, R: int, T: int, H: int, K: int, dtype: torch.dtype) -> dict[str, Any]:
    """Segments, what is joined, and the named parts; those that are learned ask for gradients."""
    draw = torch.Generator().manual_seed(T + K + len(what))

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=draw)

    segments = torch.randint(1, 4, (N, R, T), generator=draw).sort(-1).values
    segments[..., -3:] = 0
    parts: dict[str, Tensor] = {}
    for name in what.split():
        if name == "turns":
            angles = 2 * normal(N, R, T, 1, PAIRS)
            parts["turns_NRTGPC"] = torch.stack([angles.cos(), angles.sin()], -1)
        elif name == "magnitudes":  # other angles of keys, and other factors
            angles, others, size = 2 * normal(N, R, T, 1, PAIRS), normal(N, R, T, 1, PAIRS), 0.5 + normal(1).abs()
            turns = [angles.cos() * size, angles.sin() * size, others.cos() / size, others.sin() / size]
            parts["turns_NRTGPC"] = torch.stack(turns, -1)
        elif name == "angles":
            parts["angles_NRTHP"] = 2 * normal(N, R, T, H, PAIRS)
        elif name == "table":
            parts["table_NHT"] = normal(N, H, T)
        elif name == "biases":
            parts["row_NRHT"], parts["column_NRHT"] = normal(N, R, H, T), normal(N, R, H, T)
        elif name == "factor":
            parts["factor_NRHT"] = 0.5 + normal(N, R, H, T).abs()
        elif name == "grid":
            parts["grid_NHTT"], parts["place_NRT"] = normal(N, H, T, T), places(segments)
        elif name == "given":
            parts["given_NRHTS"] = normal(N, R, H, T, T)
        elif name == "rows":
            parts["rows_NEK"] = normal(N, 5, K).to(dtype)
        elif name == "reflections":
            parts["vectors_NRTHK"] = F.normalize(normal(N, R, T, H, K), dim=-1)
            parts["strength_NRHT"] = 2 * torch.rand(N, R, H, T, generator=draw)
        elif name == "phases":
            angles = 3 * normal(N, R, T, 1, K)
            parts["turns_NRTGPC"] = torch.stack([angles.cos(), angles.sin()], -1)
            parts["offset_NHK"] = normal(N, H, K)
        elif name == "window":
            parts["window_NH"] = torch.randint(2, T, (N, H), generator=draw)
    joined = normal(N, R, T, 1 if "given" in what else 3, H, K).to(dtype)
    for each in (joined, *(parts[name] for name in LEARNED if name in parts)):
        each.requires_grad_()
    if "angles_NRTHP" in parts:
        fixed = parts["angles_NRTHP"].detach()
        parts["turns_NRTGPC"] = torch.stack([fixed.cos(), fixed.sin()], -1)
    grad = normal(N, R, T, H, K) * (segments > 0)[..., None, None]  # nobody reads what becomes of padding
    return {"joined": joined, "segments": segments, "parts": Parts(**parts), "grad": grad.to(dtype)}


def places(segments_NRT: Tensor) -> Tensor:
    """0, 1, 2, ... in each segment; 0 in what is padding."""
    same = segments_NRT[..., :, None] == segments_NRT[..., None, :]
    return same.tril(-1).sum(-1) * (segments_NRT > 0)


def rotated(x: Tensor, cosine: Tensor, sine: Tensor, halves: bool) -> Tensor:
    width = 2 * cosine.shape[-1]
    a, b = x[..., :width].chunk(2, -1) if halves else (x[..., 0:width:2], x[..., 1:width:2])
    pairs = [a * cosine - b * sine, a * sine + b * cosine]
    return torch.cat([torch.cat(pairs, -1) if halves else torch.stack(pairs, -1).flatten(-2), x[..., width:]], -1)


def eager(joined: Tensor, segments: Tensor, parts: Parts, halves: bool) -> Tensor:
    """In float64."""
    T = joined.shape[2]
    index = torch.arange(T)
    own = ((index[:, None] >= index) & (segments[..., :, None] == segments[..., None, :]))[:, :, None]
    seen = own
    if parts.window_NH is not None:
        seen = own & (index[:, None] - index < parts.window_NH[:, None, :, None, None])
    if parts.given_NRHTS is not None:
        logits, v = parts.given_NRHTS, joined[:, :, :, 0]
    else:
        q, k, v = joined.unbind(3)
        if parts.angles_NRTHP is not None:
            turns = (parts.angles_NRTHP.cos(), parts.angles_NRTHP.sin(), halves)
            q, k = rotated(q, *turns), rotated(k, *turns)
        elif parts.offset_NHK is not None:
            cosine, sine = parts.turns_NRTGPC.unbind(-1)
            phases = torch.atan2(sine, cosine)
            q, k = polar(q, phases), polar(k, phases + parts.offset_NHK[:, None, None])
        elif parts.turns_NRTGPC is not None:
            cosine, sine, *_ = parts.turns_NRTGPC.unbind(-1)
            *_, key_cosine, key_sine = parts.turns_NRTGPC.unbind(-1)
            q, k = rotated(q, cosine, sine, halves), rotated(k, key_cosine, key_sine, halves)
        content = torch.einsum("nrthk,nrshk->nrhts", q, k)
        if parts.vectors_NRTHK is not None:
            content = reflected(q, k, parts.vectors_NRTHK, parts.strength_NRHT, segments)
        logits = content * SCALE
        if parts.factor_NRHT is not None:
            logits = logits * parts.factor_NRHT[..., None]
        if parts.table_NHT is not None:
            logits = logits + parts.table_NHT[:, None][..., (index[:, None] - index).clamp(min=0)]
        if parts.row_NRHT is not None:
            logits = logits + parts.row_NRHT[..., None] + parts.column_NRHT[..., None, :]
        if parts.grid_NHTT is not None:
            place = parts.place_NRT
            found = [[grid[:, at][:, :, at] for at in rows] for grid, rows in zip(parts.grid_NHTT, place, strict=True)]
            logits = logits + torch.stack([torch.stack(each) for each in found])
        if parts.rows_NEK is not None:
            last = parts.rows_NEK.shape[1] - 1
            gates = logits.sigmoid() * seen
            count = torch.stack([gates[..., s:].sum(-1) for s in range(T)], -1).clamp(max=last)
            score = torch.einsum("nrthk,nek->nrhte", q, parts.rows_NEK)
            logits = logits + sum((1 - (count - e).abs()).clamp(min=0) * score[..., e, None] for e in range(last + 1))
    weights = logits.masked_fill(~seen, float("-inf")).softmax(-1)
    return torch.einsum("nrhts,nrshk->nrthk", weights, v)


def polar(x: Tensor, phases: Tensor) -> Tensor:
    size = (1 + x.exp()).log()
    return torch.cat([size * phases.cos(), size * phases.sin()], -1)


def reflected(q: Tensor, k: Tensor, w: Tensor, strength: Tensor | None, segments: Tensor) -> Tensor:
    """Products, every key reflected by the tokens after it, one after the other, up to the query."""
    assert strength is not None
    columns, T = [], q.shape[2]
    for s in range(T):
        key, products = k[:, :, s], []
        for t in range(T):
            if t > s:
                own = (segments[:, :, t] == segments[:, :, s])[..., None, None]
                along = (w[:, :, t] * key).sum(-1, keepdim=True) * strength[:, :, :, t, None]
                key = torch.where(own, key - along * w[:, :, t], key)
            products.append((q[:, :, t] * key).sum(-1))
        columns.append(torch.stack(products, -1))
    return torch.stack(columns, -1)


def doubled(given: dict[str, Any]) -> tuple[Tensor, Parts]:
    parts = {name: x.detach().double() if x is not None and x.is_floating_point() else x
             for name, x in given["parts"]._asdict().items()}  # fmt: skip
    joined = given["joined"].detach().double()
    for each in (joined, *(parts[name] for name in LEARNED if parts[name] is not None)):
        each.requires_grad_()
    return joined, Parts(**parts)


def leaves(joined: Tensor, parts: Parts) -> dict[str, Tensor]:
    return {"joined": joined} | {name: x for name in LEARNED if (x := getattr(parts, name)) is not None}


WHOLE, SMALL, BLOCKS = (2, 2, 32, 2, 16), (1, 2, 16, 2, 16), (1, 1, 192, 2, 16)
IN_HALVES = ("turns", "angles", "angles factor window", "turns reflections", "angles rows")


@pytest.mark.parametrize(
    ("what", "shape"),
    [
        *((what, WHOLE) for what in ("", "magnitudes", "factor table", "rows", "rows window biases")),
        *((what, SMALL) for what in ("reflections", "reflections factor biases window", "reflections rows")),
        *((what, SMALL) for what in ("turns reflections", "angles rows", "phases factor window")),
        ("phases", WHOLE),
        *((what, shape) for what in ("turns", "angles", "grid", "given") for shape in (WHOLE, BLOCKS)),
        *((what, BLOCKS) for what in ("magnitudes", "angles factor window", "grid table biases", "given window")),
    ],
)
def test_outputs_and_gradients_are_those_of_eager_attention(what: str, shape: tuple[int, ...]) -> None:
    given = drawn(what, *shape, dtype=torch.float32)  # type: ignore[misc]
    for halves in (False, True) if what in IN_HALVES else (False,):
        found = fused_attention(given["joined"], given["segments"], given["parts"], scale=SCALE, halves=halves)
        joined, parts = doubled(given)
        wanted = eager(joined, given["segments"], parts, halves)
        assert (found - wanted).abs().max() <= 1e-5 * wanted.abs().max()
        ours = torch.autograd.grad(found, list(leaves(given["joined"], given["parts"]).values()), given["grad"])
        named = leaves(joined, parts)
        theirs = torch.autograd.grad(wanted, list(named.values()), given["grad"].double())
        # A softmax does not notice what a whole row shares: the gradient of such a bias is 0 but for rounding.
        largest = max(float(each.abs().max()) for each in theirs)
        for name, mine, exact in zip(named, ours, theirs, strict=True):
            assert mine.shape == exact.shape
            assert (mine - exact).abs().max() <= 2e-5 * max(exact.abs().max(), 1e-2 * largest), name


@pytest.mark.parametrize(
    ("what", "shape"),
    [
        *((what, (2, 1, 64, 2, 32)) for what in ("magnitudes", "angles", "factor", "grid", "given")),
        *((what, (2, 1, 64, 2, 32)) for what in ("rows", "reflections", "phases")),
        *((what, (1, 1, 256, 2, 16)) for what in ("angles factor", "grid", "given")),
    ],
)  # fmt: skip
def test_the_same_in_bf16(what: str, shape: tuple[int, ...]) -> None:
    given = drawn(what, *shape, dtype=torch.bfloat16)  # type: ignore[misc]
    found = fused_attention(given["joined"], given["segments"], given["parts"], scale=SCALE)
    joined, parts = doubled(given)
    wanted = eager(joined, given["segments"], parts, False)
    assert (found.double() - wanted).norm() <= 1e-2 * wanted.norm()
    ours = torch.autograd.grad(found, list(leaves(given["joined"], given["parts"]).values()), given["grad"])
    named = leaves(joined, parts)
    theirs = torch.autograd.grad(wanted, list(named.values()), given["grad"].double())
    for name, mine, exact in zip(named, ours, theirs, strict=True):
        assert (mine.double() - exact).norm() <= 3e-2 * exact.norm(), name


def test_vectors_that_are_alike_do_not_overflow() -> None:
    """Powers of the matrix between tokens reach 1e17 for them; the reflections themselves keep all lengths."""
    given = drawn("reflections", 1, 1, 64, 1, 16, dtype=torch.bfloat16)
    parts = given["parts"]
    near = F.normalize(torch.ones(16) + 0.01 * parts.vectors_NRTHK.detach(), dim=-1)
    parts = parts._replace(vectors_NRTHK=near.requires_grad_(), strength_NRHT=torch.full((1, 1, 1, 64), 2.0))
    segments = torch.ones(1, 1, 64, dtype=torch.int64)
    found = fused_attention(given["joined"], segments, parts, scale=SCALE)
    joined, exact = doubled(given | {"parts": parts})
    assert (found.double() - eager(joined, segments, exact, False)).abs().max() <= 3e-2
    gradients = torch.autograd.grad(found, [given["joined"], near], given["grad"])
    assert all(bool(each.isfinite().all()) for each in gradients)


@pytest.mark.parametrize("what", ["magnitudes factor", "angles grid", "given", "rows", "reflections", "phases"])
def test_stacked_models_have_parts_of_their_own(what: str) -> None:
    given = drawn(what, 3, 1, 16, 2, 16, dtype=torch.float32)
    parts = given["parts"]
    names = [name for name, x in parts._asdict().items() if x is not None]

    def one(joined: Tensor, segments: Tensor, *some: Tensor) -> Tensor:
        own = Parts(**{name: x[None] for name, x in zip(names, some, strict=True)})
        return fused_attention(joined[None], segments[None], own, scale=SCALE)[0]

    arrays = (given["joined"], given["segments"], *(getattr(parts, name) for name in names))
    stacked, together = vmap(one)(*arrays), fused_attention(given["joined"], given["segments"], parts, scale=SCALE)
    assert torch.equal(stacked, together)
    learned = list(leaves(given["joined"], parts).values())
    for mine, wanted in zip(
        torch.autograd.grad(stacked, learned, given["grad"]),
        torch.autograd.grad(together, learned, given["grad"]),
        strict=True,
    ):
        assert torch.equal(mine, wanted)


def test_a_grid_reads_the_positions_of_sequences_that_are_cut_into_chunks() -> None:
    """A chunk is a segment that does not begin at 0."""
    given = drawn("grid", 1, 2, 32, 2, 16, dtype=torch.float32)
    parts = given["parts"]
    chunks = given["segments"] * 100 + parts.place_NRT // 4
    found = fused_attention(given["joined"], chunks, parts, scale=SCALE)
    joined, exact = doubled(given)
    wanted = eager(joined, chunks, exact, False)
    assert (found - wanted).abs().max() <= 1e-5 * wanted.abs().max()
    mine = torch.autograd.grad(found, parts.grid_NHTT, given["grad"])[0]
    theirs = torch.autograd.grad(wanted, exact.grid_NHTT, given["grad"].double())[0]
    assert (mine - theirs).abs().max() <= 1e-5 * theirs.abs().max()


def test_the_operator_keeps_its_promises() -> None:
    for what in ("angles factor grid", "given", "rows", "reflections", "phases"):
        given = drawn(what, 2, 1, 16, 1, 16, dtype=torch.float32)
        arguments = (given["joined"], given["segments"], *given["parts"], 0.0, 0.25, 0, False)
        torch.library.opcheck(torch.ops.lengthwise.attention.default, arguments)


def test_what_cannot_be_together_is_refused() -> None:
    given = drawn("given", 1, 1, 16, 1, 16, dtype=torch.float32)
    with pytest.raises(ValueError, match="factor_NRHT cannot be added"):
        fused_attention(
            given["joined"], given["segments"], given["parts"]._replace(factor_NRHT=torch.ones(1, 1, 1, 16))
        )
    long = drawn("reflections", 1, 1, 128, 1, 16, dtype=torch.bfloat16)
    assert reflects(64, 32, torch.bfloat16) and not reflects(128, 16, torch.bfloat16)
    with pytest.raises(ValueError, match="no reflections in rows of 128"):
        fused_attention(long["joined"], long["segments"], long["parts"])
    counted = drawn("rows", 1, 1, 192, 1, 16, dtype=torch.float32)
    with pytest.raises(ValueError, match="gates cannot be counted in rows of 192"):
        fused_attention(counted["joined"], counted["segments"], counted["parts"])
    own = drawn("rows biases", 1, 1, 16, 1, 16, dtype=torch.float32)
    with pytest.raises(ValueError, match="notices what a whole row shares"):
        fused_attention(own["joined"], own["segments"], own["parts"]._replace(column_NRHT=None))
