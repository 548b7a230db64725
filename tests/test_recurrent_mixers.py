"""Recurrent mixers against their formulas, written here token by token from the papers: values and gradients."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import silu, softplus

from lengthwise import registry
from lengthwise.encodings.encoding import Encoding, Geometry
from lengthwise.errors import UserError
from lengthwise.mixers.convolution import CausalConvolution
from lengthwise.mixers.gated_delta_net import GatedDeltaNet
from lengthwise.mixers.lstm import Lstm
from lengthwise.mixers.mamba2 import Mamba2, usual_head
from lengthwise.mixers.matrix_states import scan_states
from lengthwise.mixers.rwkv7 import Rwkv7
from lengthwise.model.build import Lengths, build, make_mixer
from lengthwise.model.config import ModelConfig
from lengthwise.model.decoder import Decoder
from lengthwise.model.layer import LayerPass

GEOMETRY = Geometry.of(8, 2)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


# The scan in chunks


@pytest.mark.parametrize("erases", [False, True])
@pytest.mark.parametrize("fades", [1, 3])
@pytest.mark.parametrize("length", [1, 5, 64, 65, 150])
def test_a_scan_in_chunks_is_one_step_after_the_other(length: int, fades: int, erases: bool) -> None:
    """With sequences that begin anywhere, a state from before, and values in fp64: equal but for rounding."""
    q, k, erase, write = (random(2, length, 2, 3, seed=seed) / 2 for seed in range(4))
    v, before = random(2, length, 2, 4, seed=5), random(2, 2, 3, 4, seed=6)
    log_fade = -random(2, length, 2, fades, seed=7).sigmoid()
    continues = random(2, length, seed=8) > -1.5  # a few sequences in a chunk, and one over several
    continues[0] = True
    given = [q, k, v, log_fade, before, *((erase, write) if erases else ())]
    for each in given:
        each.requires_grad_()
    state, expected = before, []
    for t in range(length):
        state = state * continues[:, t, None, None, None]
        erased = torch.einsum("bhk,bhkv->bhv", erase[:, t], state)
        state = state * log_fade[:, t].exp()[..., None] + k[:, t, ..., None] * v[:, t, ..., None, :]
        if erases:
            state = state + write[:, t, ..., None] * erased[..., None, :]
        expected.append(torch.einsum("bhk,bhkv->bhv", q[:, t], state))
    parts = (erase, write) if erases else (None, None)
    found, after = scan_states(q, k, v, log_fade, continues, before, *parts)
    torch.testing.assert_close(found, torch.stack(expected, dim=1))
    torch.testing.assert_close(after, state)
    probe, probe_state = random(*found.shape, seed=9), random(*after.shape, seed=10)
    ends = [(found * probe).sum() + (after * probe_state).sum()]
    ends.append((torch.stack(expected, dim=1) * probe).sum() + (state * probe_state).sum())
    ours, theirs = (torch.autograd.grad(end, given) for end in ends)
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)


def test_one_key_for_all_heads_is_that_key_in_each() -> None:
    q, k, v = random(1, 70, 1, 3), random(1, 70, 1, 3, seed=1), random(1, 70, 4, 2, seed=2)
    log_fade, continues = -random(1, 70, 4, 1, seed=3).exp(), torch.ones(1, 70, dtype=torch.bool)
    before = torch.zeros(1, 4, 3, 2, dtype=torch.float64)
    shared = scan_states(q, k, v, log_fade, continues, before)
    each = scan_states(q.expand(-1, -1, 4, -1), k.expand(-1, -1, 4, -1), v, log_fade, continues, before)
    torch.testing.assert_close(shared, each)


@pytest.mark.parametrize("strength", [1.0, 1.98])
def test_a_key_that_is_written_again_and_again_stays_exact(strength: float) -> None:
    """The hardest system of a chunk: all keys alike. Inverting it by powers of the matrix would give 1e17."""
    k = torch.ones(1, 300, 1, 4) / 2
    v = random(1, 300, 1, 2).float()
    fades, before = torch.zeros(1, 300, 1, 1), torch.zeros(1, 1, 4, 2)
    continues = torch.ones(1, 300, dtype=torch.bool)
    found, _ = scan_states(k, strength * k, v, fades, continues, before, k, -strength * k)
    held, expected = torch.zeros(2, dtype=torch.float64), []
    for value in v[0, :, 0].double():
        held = held + strength * (value - held)
        expected.append(held)
    torch.testing.assert_close(found[0, :, 0].double(), torch.stack(expected), atol=1e-4, rtol=1e-4)


def test_fades_to_nothing_are_nothing_and_not_infinite() -> None:
    q, k, v = (random(1, 130, 1, 2, seed=seed).float() for seed in range(3))
    log_fade = torch.zeros(1, 130, 1, 1)
    log_fade[:, ::3] = -1000.0
    log_fade.requires_grad_()
    continues, before = torch.ones(1, 130, dtype=torch.bool), torch.zeros(1, 1, 2, 2)
    found, _ = scan_states(q, k, v, log_fade, continues, before)
    began = torch.arange(130) % 3 != 0  # as if a sequence began at each
    alone, _ = scan_states(q, k, v, torch.zeros(1, 130, 1, 1), began[None], before)
    torch.testing.assert_close(found, alone, atol=1e-5, rtol=1e-5)
    (gradient,) = torch.autograd.grad(found.sum(), log_fade)
    assert gradient.isfinite().all()


def test_a_convolution_sees_the_last_tokens_of_its_sequence() -> None:
    convolution = CausalConvolution(3, 4, bias=True)
    assert convolution.bias is not None
    x_TC, continues = random(9, 3).float(), torch.tensor([0, 1, 1, 1, 1, 1, 0, 1, 1], dtype=torch.bool)
    first = [0, 0, 0, 0, 0, 0, 6, 6, 6]
    expected = []
    for t in range(9):
        total = convolution.bias
        for back in range(4):
            if t - back >= first[t]:
                total = total + convolution.weight[:, 3 - back] * x_TC[t - back]
        expected.append(total)
    nothing = torch.zeros(1, *convolution.remembered)
    whole, _ = convolution(x_TC[None], continues[None], nothing)
    torch.testing.assert_close(whole[0], torch.stack(expected))
    for cut in range(1, 9):
        begun, memory = convolution(x_TC[None, :cut], continues[None, :cut], nothing)
        ended, _ = convolution(x_TC[None, cut:], continues[None, cut:], memory)
        torch.testing.assert_close(torch.cat([begun, ended], dim=1), whole)


# Formulas: a mixer and one sequence (T, D) to what is added to the stream


def rms_norm(x: Tensor, weight: Tensor, small: float) -> Tensor:
    return x / (x.square().mean() + small).sqrt() * weight


def convolved(convolution: CausalConvolution, given: list[Tensor], t: int) -> Tensor:
    total = sum(convolution.weight[:, -1 - back] * given[t - back] for back in range(4) if t >= back)
    assert isinstance(total, Tensor)
    return silu(total if convolution.bias is None else total + convolution.bias)


def mamba2(mixer: Mamba2, x_TD: Tensor) -> Tensor:
    inner, size, heads, width = mixer.inner, mixer.state, mixer.heads, mixer.head
    projected = [mixer.input.weight @ x_D for x_D in x_TD]
    middle = [each[inner : 2 * inner + 2 * size] for each in projected]
    state, found = torch.zeros(heads, width, size), []
    for t, each in enumerate(projected):
        mixed = convolved(mixer.convolution, middle, t)
        x, b, c = mixed[:inner], mixed[inner : inner + size], mixed[inner + size :]
        read = []
        states = []
        for head in range(heads):
            mine = x[head * width : (head + 1) * width]
            step = softplus(each[2 * inner + 2 * size + head] + mixer.step_bias[head])
            states.append(torch.exp(-step * mixer.log_rate[head].exp()) * state[head] + step * torch.outer(mine, b))
            read.append(states[-1] @ c + mixer.skip[head] * mine)
        state = torch.stack(states)
        gated = torch.cat(read) * silu(each[:inner])
        found.append(mixer.output.weight @ rms_norm(gated, mixer.norm.weight, 1e-5))
    return torch.stack(found)


def gated_delta_net(mixer: GatedDeltaNet, x_TD: Tensor) -> Tensor:
    """With the matrix as in the paper, values by keys: S (alpha (I - beta k k^T)) + beta v k^T."""
    heads, key, value = mixer.heads, mixer.key, mixer.value
    projected = [mixer.input.weight @ x_D for x_D in x_TD]
    state, found = torch.zeros(heads, value, key), []
    for t, x_D in enumerate(x_TD):
        mixed = convolved(mixer.convolution, projected, t)
        q, k = mixed[: heads * key].view(heads, key), mixed[heads * key : 2 * heads * key].view(heads, key)
        v, gate = mixed[2 * heads * key :].view(heads, value), silu(mixer.gate.weight @ x_D).view(heads, value)
        beta = torch.sigmoid(mixer.strength.weight @ x_D) * (2 if mixer.config.negative else 1)
        alpha = torch.exp(-mixer.log_rate.exp() * softplus(mixer.fade.weight @ x_D + mixer.step_bias))
        read, states = [], []
        for head in range(heads):
            unit_k, unit_q = (each / (each.square().sum() + 1e-6).sqrt() for each in (k[head], q[head]))
            kept = torch.eye(key) - beta[head] * torch.outer(unit_k, unit_k)
            states.append(alpha[head] * state[head] @ kept + beta[head] * torch.outer(v[head], unit_k))
            read.append(rms_norm(states[-1] @ unit_q, mixer.norm.weight, 1e-5) * gate[head])
        state = torch.stack(states)
        found.append(mixer.output.weight @ torch.cat(read))
    return torch.stack(found)


def rwkv7(mixer: Rwkv7, x_TD: Tensor) -> Tensor:
    """With the matrix as in the paper, values by keys: S (diag(w) - u^T (a * u)) + v^T k."""
    heads, width = mixer.heads, mixer.head
    state, before, found = torch.zeros(heads, width, width), torch.zeros_like(x_TD[0]), []
    for x_D in x_TD:
        r, w, k, v, a, g = (x_D + (before - x_D) * share for share in mixer.shift)
        w = mixer.fade_out.weight @ torch.tanh(mixer.fade_in.weight @ w) + mixer.fade_out.bias
        w = torch.exp(-(torch.tensor(-0.5).exp()) * torch.sigmoid(w))
        a = torch.sigmoid(mixer.rate_out.weight @ (mixer.rate_in.weight @ a) + mixer.rate_out.bias)
        gate = mixer.gate_out.weight @ torch.sigmoid(mixer.gate_in.weight @ g)
        r, k, v = mixer.receptance.weight @ r, mixer.key.weight @ k, mixer.value.weight @ v
        erased, k = k * mixer.erased_key, k * (1 + (a - 1) * mixer.key_rate)
        read, states = [], []
        for head in range(heads):
            own = slice(head * width, (head + 1) * width)
            unit = erased[own] / erased[own].norm()
            moved = torch.diag(w[own]) - torch.outer(unit, a[own] * unit)
            states.append(state[head] @ moved + torch.outer(v[own], k[own]))
            out = states[-1] @ r[own]
            out = (out - out.mean()) / (out.var(correction=0) + width * 1e-5).sqrt()
            out = out * mixer.norm_weight[own] + mixer.norm_bias[own]
            read.append(out + (r[own] * k[own] * mixer.bonus[own]).sum() * v[own])
        state, before = torch.stack(states), x_D
        found.append(mixer.output.weight @ (torch.cat(read) * gate))
    return torch.stack(found)


def lstm(mixer: Lstm, x_TD: Tensor) -> Tensor:
    """The layer of PyTorch, which orders its gates otherwise."""
    size = mixer.state_width

    def reordered(x: Tensor) -> Tensor:
        enters, stays, shown, new = x.split(size)
        return torch.cat([enters, stays, new, shown])

    layer = torch.nn.LSTM(x_TD.shape[1], size, batch_first=True)
    weights = {
        "weight_ih_l0": reordered(mixer.input.weight),
        "weight_hh_l0": reordered(mixer.recurrent.weight),
        "bias_ih_l0": reordered(mixer.input.bias),
        "bias_hh_l0": torch.zeros(4 * size),
    }
    hidden_TW = torch.func.functional_call(layer, weights, x_TD[None])[0][0]
    return hidden_TW @ mixer.output.weight.T


CASES: dict[str, tuple[Callable[..., Tensor], dict[str, Any]]] = {
    "mamba2": (mamba2, {"name": "mamba2", "state": 5, "head": 4}),
    "gated-delta-net": (gated_delta_net, {"name": "gated-delta-net"}),
    "gated-delta-net-negative": (gated_delta_net, {"name": "gated-delta-net", "negative": True, "heads": 1}),
    "rwkv7": (rwkv7, {"name": "rwkv7", "head": 4, "rank": 3}),
    "lstm": (lstm, {"name": "lstm", "expand": 0.75}),
}


def mixer_of(table: dict[str, Any]) -> Any:
    mixer = make_mixer(table, GEOMETRY)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in mixer.named_parameters():
            found = mixer.initial(name, generator)
            if isinstance(found, Tensor):
                parameter.copy_(found)
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    return mixer


def here_of(segments_BT: Tensor) -> LayerPass:
    return LayerPass(Encoding(None, GEOMETRY), Decoder.layout(segments_BT, segments_BT=segments_BT))


@pytest.mark.parametrize(("formula", "table"), CASES.values(), ids=CASES)
def test_a_mixer_is_its_formula(formula: Callable[..., Tensor], table: dict[str, Any]) -> None:
    """Two rows, of two and of three sequences, one longer than a chunk: values, and gradients of everything."""
    mixer = mixer_of(table)
    sizes = [[70, 10], [3, 1, 76]]
    segments_BT = torch.tensor([[n for n, size in enumerate(row, 1) for _ in range(size)] for row in sizes])
    x_BTD = random(2, 80, 8).float().requires_grad_()
    found_BTD = mixer(x_BTD, here_of(segments_BT))
    alone = [torch.cat([formula(mixer, x) for x in row.split(cut)]) for row, cut in zip(x_BTD, sizes, strict=True)]
    expected_BTD = torch.stack(alone)
    torch.testing.assert_close(found_BTD, expected_BTD, atol=1e-4, rtol=1e-4)
    probe = random(2, 80, 8, seed=3).float()
    weights = [x_BTD, *mixer.parameters()]
    ours, theirs = (torch.autograd.grad((each * probe).sum(), weights) for each in (found_BTD, expected_BTD))
    largest = max(float(each.abs().max()) for each in theirs)
    for name, mine, other in zip(["x", *dict(mixer.named_parameters())], ours, theirs, strict=True):
        assert (mine != 0).any(), name
        # A sum of many that nearly cancel is as exact as its terms, which other gradients tell the size of.
        near = 3e-4 * float(other.abs().max()) + 1e-5 * largest
        torch.testing.assert_close(mine, other, atol=near, rtol=1e-3, msg=lambda told, name=name: name + told)


@pytest.mark.parametrize("table", [table for _, table in CASES.values()], ids=CASES)
@pytest.mark.parametrize("pieces", [[66, *[1] * 4, 70], [1, 139]])
def test_cached_equals_uncached_beyond_a_chunk(table: dict[str, Any], pieces: list[int]) -> None:
    mixer, encoding = mixer_of(table), Encoding(None, GEOMETRY)
    config = ModelConfig(layers=1, width=8, heads=2)
    cache = Decoder(config, 9, [encoding]).new_cache(2, 140)
    segments_BT = torch.tensor([[0] * 3 + [1] * 137, [1] * 140])  # one row is padded on its left
    x_BTD, first, found = random(2, 140, 8).float(), 0, []
    with torch.no_grad():
        whole_BTD = mixer(x_BTD, here_of(segments_BT))
        for size in pieces:
            some = slice(first, first + size)
            layout = Decoder.layout(segments_BT[:, some], segments_BT=segments_BT[:, some], cache=cache)
            found.append(mixer(x_BTD[:, some], LayerPass(encoding, layout, cache=cache)))
            cache.advance(size)
            first += size
    torch.testing.assert_close(torch.cat(found, dim=1), whole_BTD, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("table", [table for _, table in CASES.values()], ids=CASES)
def test_in_bf16_the_states_stay_in_fp32(table: dict[str, Any]) -> None:
    """A fleet may read its weights in bf16: the result is then bf16, and as near as its products are."""
    mixer, x_BTD = mixer_of(table), random(1, 100, 8).float()
    here = here_of(torch.ones(1, 100, dtype=torch.long))
    with torch.no_grad():
        exact = mixer(x_BTD, here)
        found = mixer.bfloat16()(x_BTD.bfloat16(), here)
    assert found.dtype == torch.bfloat16
    assert (found - exact).square().mean() < 0.02 * exact.square().mean()


def test_a_negative_eigenvalue_turns_a_state_around() -> None:
    """What parity needs: with beta 2 and no fade the state at a key changes its sign with every such token."""
    key, nothing = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    bits = [1, 0, 1, 1, 0, 1]
    k = torch.stack([key if bit else nothing for bit in bits])[None, :, None]
    fades, continues = torch.zeros(1, 6, 1, 1), torch.ones(1, 6, dtype=torch.bool)
    before = torch.tensor([[[[1.0], [0.0]]]])
    found, _ = scan_states(key.expand_as(k), 2 * k, torch.zeros(1, 6, 1, 1), fades, continues, before, k, -2 * k)
    assert found.flatten().tolist() == [-1, -1, 1, -1, -1, 1]


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"name": "mamba2", "head": 3}, "head must divide"),
        ({"name": "rwkv7", "head": 3}, "head must divide"),
        ({"name": "gated-delta-net", "keys": 0}, "keys and expand"),
        ({"name": "lstm", "expand": -1}, "expand must be"),
        ({"name": "mamba2", "convolution": 1}, "convolution must be"),
    ],
)
def test_settings_out_of_range_are_refused(table: dict[str, Any], words: str) -> None:
    with pytest.raises((UserError, ValueError), match=words):
        make_mixer(table, GEOMETRY)


def test_published_sizes_come_with_wide_models_and_sane_ones_with_narrow() -> None:
    def resolved(name: str, width: int, heads: int) -> dict[str, Any]:
        return make_mixer({"name": name}, Geometry.of(width, heads)).resolved()

    assert resolved("mamba2", 768, 12) == {"heads": 24, "head_width": 64, "state": 128, "inner_width": 1536}
    assert resolved("mamba2", 64, 4) == {"heads": 4, "head_width": 32, "state": 16, "inner_width": 128}
    assert resolved("rwkv7", 768, 12) == {"heads": 12, "head_width": 64, "rank": 64}
    assert resolved("rwkv7", 64, 4) == {"heads": 4, "head_width": 16, "rank": 32}
    assert resolved("gated-delta-net", 2048, 6) == {"heads": 6, "key_width": 256, "value_width": 512}
    assert usual_head(3) == 1 and usual_head(48) == 12


@pytest.mark.parametrize("name", registry.mixers.names())
def test_weights_begin_as_said_and_every_one_has_a_gradient(name: str) -> None:
    config = ModelConfig(layers=1, width=16, heads=2)
    model = build(config, 9, [{"name": name}], Lengths(8, 8))
    model(torch.arange(1, 9)[None]).square().sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
