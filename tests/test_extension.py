"""Extensions of trained models: each formula beside a loop of its own and beside transformers; what all promise.

Shape letters: B batch, H heads, T queries, S keys, K head width, L layers, P rotated pairs.
"""

import copy
import importlib.util
import json
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import lengthwise as lw
from lengthwise import registry
from lengthwise.encodings.composition import Composition
from lengthwise.encodings.contribution import Contribution, Rotation, Scores
from lengthwise.encodings.encoding import AttentionLayout, Encoding, Geometry
from lengthwise.errors import UserError
from lengthwise.extensions.adaptive_temperature import FITTED, inverse_temperature, sharpened
from lengthwise.extensions.extended import Extended
from lengthwise.extensions.extension import Extension, contribution_of, extensions_of, wrapped
from lengthwise.extensions.head_scale import HeadScale
from lengthwise.extensions.remapping import Remapping
from lengthwise.extensions.rescaling import sequence_lengths
from lengthwise.model.attention import scale_of
from lengthwise.model.backend import reads_projection, sdpa_refuses
from lengthwise.model.build import Lengths, build
from lengthwise.model.config import ModelConfig
from lengthwise.model.decoder import Decoder
from lengthwise.model.initial_values import initialize
from lengthwise.model.trace import Trace

ROWS = 24
TRAINED = 16
STYLES = {
    "t5": ModelConfig(style="t5", layers=2, width=64, heads=4, feed_forward=80),
    "llama-grouped": ModelConfig(style="llama", layers=2, width=64, heads=4, key_value_heads=2, feed_forward=80),
}
ROTARY = {"name": "rotary", "fraction": 0.5}  # 4 pairs of a head of 16
SETTINGS: dict[str, dict[str, Any]] = {
    "adaptive-temperature": {},
    "uniform-scale": {"slope": 0.35},
    "head-scale": {"initial": 1.6},
    "logn": {"below": True},
    "ssmax": {"s": 0.4, "b": 0.1},
    "position-interpolation": {"factor": 3.0},
    "ntk": {"factor": 3.0},
    "dynamic-ntk": {"factor": 2.0},
    "yarn": {"factor": 4.0, "beta_fast": 2.0, "beta_slow": 0.1},
    "llama3": {"factor": 8.0, "low": 0.01, "high": 2.0},
    "longrope": {"factor": 4.0, "short": [1.0, 1.1, 1.2, 1.3], "long": [1.0, 2.0, 3.5, 4.0]},
    "self-extend": {"group": 4, "window": 6},
    "rerope": {"window": 6},
    "leaky-rerope": {"window": 6, "factor": 5.0},
    "lm-infinite": {"global_tokens": 3, "window": 9},
    "streaming": {"first": 3, "recent": 8},
    "dual-chunk": {"chunk": 13, "local": 4},
    "string": {"offset": 10, "window": 3},
    "drope": {},
}
BY_LENGTH = {"dynamic-ntk", "longrope"}
ROTATING = [
    name for name in SETTINGS if name not in ("adaptive-temperature", "uniform-scale", "head-scale", "logn", "ssmax")
]
REMAPPING = [name for name in SETTINGS if isinstance(lw.extension(name, **SETTINGS[name]), Remapping)]
HIDING = ["lm-infinite", "streaming"]


def make_model(*layers: dict[str, Any], style: str = "t5") -> Decoder:
    """Initial weights, then noise on all of them: attention that is far from uniform, and no table of zeros."""
    model = build(STYLES[style], ROWS, list(layers), Lengths(trained=TRAINED, met=4 * TRAINED))
    initialize(model, 0)
    generator = torch.Generator().manual_seed(1000)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.7 * parameter.shape[-1] ** -0.5 * torch.randn(parameter.shape, generator=generator)
    return model


def extension_called(name: str) -> Any:
    return lw.extension(name, **SETTINGS[name])


def extend(encoding: Encoding, *extensions: Extension) -> Encoding:
    """The encoding with extensions that apply to it."""
    extended = wrapped(encoding, extensions)
    assert extensions_of(extended) == extensions
    return extended


def layout_at(encoding: Encoding, positions_BT: Tensor, layer: int = 0) -> AttentionLayout:
    """A whole pass at these positions, as a layer sees it."""
    x_BTD = torch.zeros(*positions_BT.shape, encoding.geometry.width)
    return AttentionLayout(positions_BT, positions_BT).at_layer(layer, x_BTD, encoding.token_numbers(x_BTD))


def contribution_at(encoding: Encoding, positions_BT: Tensor, layer: int = 0) -> Contribution:
    return encoding.contribute(layout_at(encoding, positions_BT, layer))


def rotation_at(encoding: Encoding, positions_BT: Tensor) -> Rotation:
    rotation = contribution_at(encoding, positions_BT).rotation
    assert rotation is not None
    return rotation


def angles_at(encoding: Encoding, positions_BT: Tensor) -> Tensor:
    """Of queries; keys have the same."""
    rotation = rotation_at(encoding, positions_BT)
    assert rotation.key_angles is None
    return rotation.angles(positions_BT)


def draw_tokens(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(1, ROWS, shape, generator=torch.Generator().manual_seed(seed))


def draw_normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def assert_same(actual: Tensor, expected: Tensor) -> None:
    """Equal but for the order of fp32 sums."""
    torch.testing.assert_close(actual, expected, rtol=2e-5, atol=2e-5)


@pytest.fixture(params=list(STYLES))
def style(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=list(SETTINGS))
def name(request: pytest.FixtureRequest) -> str:
    return request.param


def test_every_extension_is_tested_here() -> None:
    assert set(SETTINGS) == set(registry.extensions.names())


# Formulas, element by element


def rotary_for(trained: int, width: int, fraction: float, base: float = 10000.0, **settings: Any) -> Encoding:
    geometry = Geometry(4 * width, 4, width, 2, trained, trained, logit_scale=width**-0.5)
    return lw.encoding("rotary", geometry, fraction=fraction, base=base, **settings)


def loop_interpolation(i: int, d: int, base: float, L: int, T: int, factor: float) -> float:
    return base ** (-2 * i / d) / factor


def loop_ntk(i: int, d: int, base: float, L: int, T: int, factor: float) -> float:
    return (base * factor ** (d / (d - 2))) ** (-2 * i / d)


def loop_ntk_parts(i: int, d: int, base: float, L: int, T: int, factor: float, turned: bool) -> float:
    """NTK for pairs that complete a turn within L, or for those that do not; the others are interpolated."""
    completes = L * base ** (-2 * i / d) >= 2 * math.pi
    return loop_ntk(i, d, base, L, T, factor) if completes == turned else loop_interpolation(i, d, base, L, T, factor)


def loop_dynamic(i: int, d: int, base: float, L: int, T: int, factor: float) -> float:
    if T <= L:
        return base ** (-2 * i / d)
    return (base * (factor * T / L - (factor - 1)) ** (d / (d - 2))) ** (-2 * i / d)


def loop_yarn_paper(
    i: int, d: int, base: float, L: int, T: int, factor: float, fast: float = 32, slow: float = 1
) -> float:
    """Equations 21 to 23 of the paper: gamma is 1 (left alone) for many turns and 0 (interpolated) for few."""
    theta = base ** (-2 * i / d)
    turns = L / (2 * math.pi / theta)
    gamma = 0.0 if turns < slow else 1.0 if turns > fast else (turns - slow) / (fast - slow)
    return (1 - gamma) * theta / factor + gamma * theta


def loop_yarn_code(
    i: int, d: int, base: float, L: int, T: int, factor: float, fast: float = 32, slow: float = 1, truncate: bool = True
) -> float:
    """The authors' code: the ramp is linear in the index."""
    low, high = (d * math.log(L / (turns * 2 * math.pi)) / (2 * math.log(base)) for turns in (fast, slow))
    if truncate:
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, d - 1)
    interpolated = min(1.0, max(0.0, (i - low) / (high - low)))
    theta = base ** (-2 * i / d)
    return interpolated * theta / factor + (1 - interpolated) * theta


def loop_llama3(i: int, d: int, base: float, L: int, T: int, factor: float, low: float = 1, high: float = 4) -> float:
    theta = base ** (-2 * i / d)
    wavelength = 2 * math.pi / theta
    if wavelength < L / high:
        return theta
    if wavelength > L / low:
        return theta / factor
    smooth = (L / wavelength - low) / (high - low)
    return (1 - smooth) * theta / factor + smooth * theta


LONG, SHORT = [1 + 0.5 * i for i in range(32)], [1 + 0.01 * i for i in range(32)]


def loop_longrope(i: int, d: int, base: float, L: int, T: int, factor: float, **_: Any) -> float:
    return base ** (-2 * i / d) / (LONG[i] if T > L else SHORT[i])


LOOPS: list[tuple[str, dict[str, Any], Callable[..., float]]] = [
    ("position-interpolation", {"factor": 4.0}, lambda *a: loop_interpolation(*a, 4.0)),
    ("ntk", {"factor": 4.0}, lambda *a: loop_ntk(*a, 4.0)),
    ("ntk", {"factor": 4.0, "pairs": "complete"}, lambda *a: loop_ntk_parts(*a, 4.0, turned=True)),
    ("ntk", {"factor": 4.0, "pairs": "incomplete"}, lambda *a: loop_ntk_parts(*a, 4.0, turned=False)),
    ("dynamic-ntk", {"factor": 1.0}, lambda *a: loop_dynamic(*a, 1.0)),
    ("dynamic-ntk", {"factor": 3.0}, lambda *a: loop_dynamic(*a, 3.0)),
    ("yarn", {"factor": 8.0}, lambda *a: loop_yarn_code(*a, 8.0)),
    ("yarn", {"factor": 8.0, "truncate": False}, lambda *a: loop_yarn_code(*a, 8.0, truncate=False)),
    ("yarn", {"factor": 8.0, "ramp": "rotations"}, lambda *a: loop_yarn_paper(*a, 8.0)),
    (
        "yarn",
        {"factor": 2.0, "beta_fast": 16.0, "beta_slow": 2.0},
        lambda *a: loop_yarn_code(*a, 2.0, fast=16, slow=2),
    ),
    ("llama3", {"factor": 8.0}, lambda *a: loop_llama3(*a, 8.0)),
    ("llama3", {"factor": 4.0, "low": 2.0, "high": 9.0}, lambda *a: loop_llama3(*a, 4.0, 2.0, 9.0)),
    ("longrope", {"factor": 4.0, "long": LONG, "short": SHORT}, lambda *a: loop_longrope(*a, 4.0)),
]


@pytest.mark.parametrize("fraction", [1.0, 0.5])
@pytest.mark.parametrize(("name", "settings", "loop"), LOOPS, ids=lambda x: x if isinstance(x, str) else "")
def test_angles_are_the_published_ones(
    name: str, settings: dict[str, Any], loop: Callable[..., float], fraction: float
) -> None:
    trained, width = 2048, 64
    rotated = int(width * fraction)
    if name == "longrope":
        settings = {**settings, "long": LONG[: rotated // 2], "short": SHORT[: rotated // 2]}
    extended = extend(rotary_for(trained, width, fraction), lw.extension(name, **settings))
    for length in (300, trained, trained + 1, 3 * trained):
        found_TP = angles_at(extended, torch.arange(length)[None])[0]
        frequencies = [loop(i, rotated, 10000.0, trained, length) for i in range(rotated // 2)]
        positions = torch.arange(length, dtype=torch.float64)
        expected_TP = positions[:, None] * torch.tensor(frequencies, dtype=torch.float64)
        assert found_TP.dtype == torch.float32
        torch.testing.assert_close(found_TP.double(), expected_TP, rtol=2e-6, atol=0)


HUGGING_FACE = [
    ("position-interpolation", {"factor": 4.0}, "linear", {"factor": 4.0}),
    ("dynamic-ntk", {"factor": 2.0}, "dynamic", {"factor": 2.0}),
    ("yarn", {"factor": 4.0}, "yarn", {"factor": 4.0}),
    ("yarn", {"factor": 4.0, "truncate": False}, "yarn", {"factor": 4.0, "truncate": False}),
    (
        "yarn",
        {"factor": 16.0, "beta_fast": 20.0, "beta_slow": 3.0, "attention_factor": 1.5},
        "yarn",
        {"factor": 16.0, "beta_fast": 20.0, "beta_slow": 3.0, "attention_factor": 1.5},
    ),
    ("llama3", {"factor": 8.0}, "llama3", {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}),
    (
        "longrope",
        {"factor": 4.0, "long": LONG, "short": SHORT},
        "longrope",
        {"factor": 4.0, "long_factor": LONG, "short_factor": SHORT},
    ),
]


@pytest.mark.slow
@pytest.mark.parametrize("fraction", [1.0, 0.5])
@pytest.mark.parametrize("base", [10000.0, 500000.0])
@pytest.mark.parametrize(("name", "settings", "kind", "theirs"), HUGGING_FACE)
def test_frequencies_and_magnitude_are_those_of_transformers(
    name: str, settings: dict[str, Any], kind: str, theirs: dict[str, Any], base: float, fraction: float
) -> None:
    rope = pytest.importorskip("transformers.modeling_rope_utils")
    from transformers import LlamaConfig

    trained, width = 1024, 64
    pairs = int(width * fraction) // 2
    settings = {key: value[:pairs] if isinstance(value, list) else value for key, value in settings.items()}
    theirs = {key: value[:pairs] if isinstance(value, list) else value for key, value in theirs.items()}
    parameters = {
        "rope_type": kind,
        "rope_theta": base,
        "partial_rotary_factor": fraction,
        "original_max_position_embeddings": trained,
        **theirs,
    }
    config = LlamaConfig(
        hidden_size=4 * width,
        num_attention_heads=4,
        head_dim=width,
        max_position_embeddings=trained,
        rope_parameters=parameters,
    )
    extension = lw.extension(name, **settings)
    extended = extend(rotary_for(trained, width, fraction, base), extension)
    for length in (trained, 2 * trained, 5000):
        frequencies_P, magnitude = rope.ROPE_INIT_FUNCTIONS[kind](config, device=torch.device("cpu"), seq_len=length)
        found_TP = angles_at(extended, torch.arange(length)[None])[0]
        torch.testing.assert_close(found_TP[1], frequencies_P, rtol=2e-6, atol=0)
        assert extended.resolved().get("magnitude") == pytest.approx(magnitude, rel=1e-12)


def test_yarn_leaves_the_fast_pairs_alone() -> None:
    """The direction of the ramp, without any formula."""
    encoding = rotary_for(2048, 64, 1.0)
    one = torch.tensor([[1]])
    for ramp in ("index", "rotations"):
        extended = extend(encoding, lw.extension("yarn", factor=4, ramp=ramp))
        ratio_P = (angles_at(extended, one) / angles_at(encoding, one))[0, 0]
        assert ratio_P[0] == 1 and ratio_P[-1] == 0.25
        assert bool((ratio_P.diff() <= 0).all()) and len(ratio_P.unique()) > 4


@pytest.mark.parametrize("name", ["ntk", "dynamic-ntk"])
def test_ntk_slows_the_slowest_pair_by_the_factor_whatever_the_exponents_spread(name: str) -> None:
    encoding = rotary_for(2048, 64, 0.25, exponent="head")
    positions_BT = torch.arange(3 * 2048)[None]
    extended = extend(encoding, lw.extension(name, factor=3.0 if name == "ntk" else 1.0))
    ratio_P = (angles_at(extended, positions_BT) / angles_at(encoding, positions_BT))[0, 1]
    expected = torch.tensor([3.0 ** -(i / 7) for i in range(8)])
    torch.testing.assert_close(ratio_P, expected, rtol=2e-6, atol=0)


@pytest.mark.parametrize("pairs", ["interleaved", "halves"])
@pytest.mark.parametrize("on", ["logits", "rotated"])
@pytest.mark.parametrize("name", ["yarn", "longrope"])
def test_where_the_magnitude_goes(name: str, on: str, pairs: str) -> None:
    """Products of rotated queries and keys, one number at a time; 4 of 8 entries are rotated."""
    encoding = rotary_for(8, 8, 0.5, pairs=pairs)
    settings = {"factor": 4.0} if name == "yarn" else {"factor": 4.0, "long": [1.0, 3.0], "short": [1.0, 2.0]}
    extended = extend(encoding, lw.extension(name, magnitude_on=on, **settings))
    m = 0.1 * math.log(4) + 1 if name == "yarn" else math.sqrt(1 + math.log(4) / math.log(8))
    length = 20
    q_BHTK, k_BHTK = draw_normal(1, 1, length, 8, seed=1), draw_normal(1, 1, length, 8, seed=2)
    positions_BT = torch.arange(length)[None]
    contribution, rotation = contribution_at(extended, positions_BT), rotation_at(extended, positions_BT)
    assert contribution.names == (["rotation", "scale"] if on == "logits" else ["rotation"])
    rotated_q, rotated_k = rotation.of_queries(q_BHTK, positions_BT), rotation.of_keys(k_BHTK, positions_BT)
    found_TS = (rotated_q @ rotated_k.mT * scale_of(contribution, 8**-0.5))[0, 0]
    frequencies = angles_at(extended, positions_BT)[0, 1].tolist()
    for t in range(0, length, 3):
        for s in range(t):
            q, k = q_BHTK[0, 0, t].tolist(), k_BHTK[0, 0, s].tolist()
            rotated = 0.0
            for i, frequency in enumerate(frequencies):
                a, b = (2 * i, 2 * i + 1) if pairs == "interleaved" else (i, i + 2)
                cosine, sine = math.cos((t - s) * frequency), math.sin((t - s) * frequency)
                rotated += (q[a] * k[a] + q[b] * k[b]) * cosine + (q[a] * k[b] - q[b] * k[a]) * sine
            rest = sum(q[i] * k[i] for i in range(4, 8)) * (m**2 if on == "logits" else 1)
            assert float(found_TS[t, s]) == pytest.approx((m**2 * rotated + rest) * 8**-0.5, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("table", [{"name": "none"}, ROTARY, {"name": "alibi"}])
def test_uniform_scale_counts_tokens_from_one(table: dict[str, Any]) -> None:
    encoding = make_model(table).encoding_at(0)
    positions_BT = torch.tensor([[0, 1, 14, 15, 16, 17, 100], [40, 41, 42, 43, 44, 45, 46]])
    found = contribution_at(extend(encoding, lw.extension("uniform-scale", slope=0.35)), positions_BT).scale
    assert isinstance(found, Tensor) and found.shape == (2, 1, 7, 1) and found.dtype == torch.float32
    for b in range(2):
        for t in range(7):
            i = int(positions_BT[b, t]) + 1
            expected = 1 + 0.35 * math.log(i / TRAINED) if i > TRAINED else 1
            assert float(found[b, 0, t, 0]) == pytest.approx(expected, rel=1e-6)
    constant = extend(encoding, lw.extension("uniform-scale", constant=1.2))
    assert contribution_at(constant, positions_BT).scale == 1.2


@pytest.mark.parametrize(
    ("name", "settings", "loop"),
    [
        ("logn", {}, lambda n: max(1.0, math.log(n) / math.log(TRAINED))),
        ("logn", {"below": True}, lambda n: math.log(n) / math.log(TRAINED)),
        ("ssmax", {"s": 0.4}, lambda n: 0.4 * math.log(n)),
        ("ssmax", {"b": 0.25}, lambda n: 0.75 * math.log(n) / math.log(TRAINED) + 0.25),
    ],
)
def test_scales_by_length_count_keys_that_are_seen(
    name: str, settings: dict[str, Any], loop: Callable[[int], float]
) -> None:
    """Not positions: two sequences are packed into a row, and a window hides what is far."""
    model = make_model({"name": "none"})
    segments_BT = torch.tensor([[1] * 5 + [2] * 20])
    layout = model.layout(torch.zeros(1, 25, dtype=torch.long), segments_BT=segments_BT)
    encoding = extend(model.encoding_at(0), lw.extension(name, **settings))
    found = encoding.contribute(layout.at_layer(0, torch.zeros(1, 25, 64), None)).scale
    assert isinstance(found, Tensor)
    seen = [*range(1, 6), *range(1, 21)]
    assert found[0, 0, :, 0].tolist() == pytest.approx([loop(n) for n in seen], rel=1e-6)
    windowed = make_model({"methods": [{"name": "none"}, {"name": "window", "size": 7}]})
    encoding = extend(windowed.encoding_at(0), lw.extension(name, **settings))
    found = encoding.contribute(layout.at_layer(0, torch.zeros(1, 25, 64), None)).scale
    assert isinstance(found, Tensor)
    assert found[0, 0, :, 0].tolist() == pytest.approx([loop(min(n, 7)) for n in seen], rel=1e-6)


def test_adaptive_temperature_is_the_published_polynomial() -> None:
    """Against the entropy one row at a time; and not a public copy of it that reads the coefficients backwards."""
    logits = 2 * draw_normal(1, 1, 5, 40)
    layout = layout_at(make_model({"name": "none"}).encoding_at(0), torch.arange(5)[None])
    found = sharpened(logits, layout)
    for row, sharp in zip(logits[0, 0].tolist(), found[0, 0], strict=True):
        total = sum(map(math.exp, row))
        shares = [math.exp(each) / total for each in row]
        h = -sum(share * math.log(share) for share in shares)
        beta = max(1.0, -0.037 * h**4 + 0.481 * h**3 - 2.3 * h**2 + 4.917 * h - 1.791) if h > 0.5 else 1.0
        assert beta > 1.2
        torch.testing.assert_close(sharp, (beta * torch.tensor(row)).softmax(-1), rtol=1e-4, atol=1e-6)
    right = inverse_temperature(torch.tensor([0.4, 1.5, 3.0, 4.41, 6.0]))
    assert right.tolist() == pytest.approx([1, 1.846, 2.25, 2.421, 1], abs=1e-3)
    backwards = [max(1.0, sum(c * h**power for power, c in enumerate(FITTED))) for h in (1.5, 3.0)]
    assert backwards == pytest.approx([3.04, 1.0], abs=0.01), "what lowest power first gives"
    nothing = -math.log(1 / 400)  # of 400 equal items
    assert float(inverse_temperature(torch.tensor(nothing))) == 1, "where dispersion is worst it does nothing"


def test_self_extend_is_the_published_formula() -> None:
    """Logits one at a time: relative positions as they are in the window, in groups beyond it."""
    model = make_model(ROTARY)
    longer = lw.extended(model, [lw.extension("uniform-scale", constant=1.3), extension_called("self-extend")])
    encoding, extended = model.encoding_at(0), longer.encoding_at(0)
    group, window, length = 4, 6, 40
    q_BHTK, k_BHTK = draw_normal(1, 4, length, 16, seed=1), draw_normal(1, 4, length, 16, seed=2)
    positions_BT = torch.arange(length)[None]
    layout = layout_at(extended, positions_BT)
    contribution = extended.contribute(layout)
    # Queries and keys come as they were projected: what the rotation would be is in the change of scores alone.
    assert contribution.names == ["scale", "score"] and contribution.scale == 1.3
    assert contribution.score is not None
    unused_BHTS = torch.full((1, 4, length, length), math.nan)
    found = contribution.score(Scores(unused_BHTS, q_BHTK, k_BHTK, layout, scale=1.3, bias_BHTS=None))
    rotation = rotation_at(encoding, positions_BT)
    largest = 0
    for t in range(length):
        for s in range(t + 1):
            relative = t - s
            if relative >= window:
                relative = t // group - s // group + window - window // group
            largest = max(largest, relative)
            q = rotation.of_queries(q_BHTK[:, :, t : t + 1], torch.tensor([[relative]]))
            expected_H = 1.3 * (q * k_BHTK[:, :, s : s + 1]).sum(-1)[0, :, 0]
            torch.testing.assert_close(found[0, :, t, s], expected_H, rtol=1e-4, atol=1e-4)
    assert window < largest < TRAINED


def relative_rerope(t: int, s: int) -> float:
    return min(t - s, 6)


def relative_leaky(t: int, s: int) -> float:
    return t - s if t - s < 6 else 6 + (t - s - 6) / 5


def relative_infinite(t: int, s: int) -> float | None:
    return min(t - s, 9) if t - s < 9 or s < 3 else None


def relative_streaming(t: int, s: int) -> float | None:
    """The places of both in a cache from which all but the first 3 and the last 8 have been removed."""
    kept = [j for j in range(t + 1) if j < 3 or j > t - 8]
    return kept.index(t) - kept.index(s) if s in kept else None


def relative_chunks(t: int, s: int) -> float:
    """Chunks of 9; the positions of queries are listed as the paper lists them."""
    same, following, others = list(range(9)), [9, 10, 11, 12, 12, 12, 12, 12, 12], [12] * 9
    back = t // 9 - s // 9
    return [same, following, others][min(back, 2)][t % 9] - s % 9


def relative_string(t: int, s: int) -> float:
    return t - s if t - s < 10 else t - s - 10 + 3


RELATIVE: dict[str, Callable[[int, int], float | None]] = {
    "rerope": relative_rerope,
    "leaky-rerope": relative_leaky,
    "lm-infinite": relative_infinite,
    "streaming": relative_streaming,
    "dual-chunk": relative_chunks,
    "string": relative_string,
}


def scores_of(encoding: Encoding, q_BHTK: Tensor, k_BHTK: Tensor) -> Tensor:
    """The logits that the change of scores makes, (H, T, S), of queries and keys as they were projected."""
    layout = layout_at(encoding, torch.arange(q_BHTK.shape[2])[None])
    contribution = encoding.contribute(layout)
    assert contribution.score is not None and contribution.rotation is None
    bias = contribution.bias(layout)
    products_BHTS = 1.3 * q_BHTK @ k_BHTK.mT
    logits_BHTS = products_BHTS if bias is None else products_BHTS + bias
    return contribution.score(Scores(logits_BHTS, q_BHTK, k_BHTK, layout, 1.3, bias))[0]


@pytest.mark.parametrize("name", RELATIVE)
def test_remapped_distances_are_the_published_ones(name: str) -> None:
    """Logits one query and one key at a time, from the distance of the two."""
    encoding = make_model(ROTARY).encoding_at(0)
    length = 40
    q_BHTK, k_BHTK = draw_normal(1, 4, length, 16, seed=1), draw_normal(1, 4, length, 16, seed=2)
    found_HTS = scores_of(extend(encoding, extension_called(name)), q_BHTK, k_BHTK)
    frequencies = [10000 ** (-2 * i / 8) for i in range(4)]
    largest, changed, hidden = 0.0, 0, 0
    for t in range(length):
        for s in range(t + 1):
            relative = RELATIVE[name](t, s)
            if relative is None:
                assert bool((found_HTS[:, t, s] == -math.inf).all())
                hidden += 1
                continue
            largest, changed = max(largest, relative), changed + (relative != t - s)
            q, k = q_BHTK[0, 1, t].tolist(), k_BHTK[0, 1, s].tolist()
            expected = sum(q[i] * k[i] for i in range(8, 16))
            for i, frequency in enumerate(frequencies):
                cosine, sine = math.cos(relative * frequency), math.sin(relative * frequency)
                a, b, c, d = q[2 * i], q[2 * i + 1], k[2 * i], k[2 * i + 1]
                expected += (a * c + b * d) * cosine + (a * d - b * c) * sine
            assert float(found_HTS[1, t, s]) == pytest.approx(1.3 * expected, rel=1e-4, abs=1e-4)
    most = {"rerope": 6, "leaky-rerope": 12.6, "lm-infinite": 9, "streaming": 10, "dual-chunk": 12, "string": 32}[name]
    assert changed and largest == pytest.approx(most) and bool(hidden) == (name in HIDING)


def loop_of_bias(encoding: Encoding, name: str, q_BHTK: Tensor, k_BHTK: Tensor) -> Tensor:
    """What a bias adds at the remapped distances, (H, T, S): -inf for keys that are not seen, nan for later ones."""
    bias, length = contribution_of(encoding).distance_bias, q_BHTK.shape[2]
    found_HTS = torch.full((4, length, length), math.nan)
    for t in range(length):
        for s in range(t + 1):
            relative = RELATIVE[name](t, s)
            if relative is None:
                found_HTS[:, t, s] = -math.inf
            else:
                found_HTS[:, t, s] = 0 if bias is None else bias(torch.tensor(int(relative)))
    return found_HTS


@pytest.mark.parametrize("name", HIDING)
@pytest.mark.parametrize("table", [{"name": "none"}, {"name": "alibi"}, {"name": "t5", "max_distance": 20}])
@torch.no_grad()
def test_keys_are_hidden_without_rotations_too(table: dict[str, Any], name: str) -> None:
    """And distances are capped in what is added for them."""
    encoding = make_model(table).encoding_at(0)
    q_BHTK, k_BHTK = draw_normal(1, 4, 30, 16, seed=1), draw_normal(1, 4, 30, 16, seed=2)
    found_HTS = scores_of(extend(encoding, extension_called(name)), q_BHTK, k_BHTK)
    expected_HTS = 1.3 * (q_BHTK @ k_BHTK.mT)[0] + loop_of_bias(encoding, name, q_BHTK, k_BHTK)
    seen_TS = torch.ones(30, 30, dtype=torch.bool).tril()
    assert_same(found_HTS[:, seen_TS], expected_HTS[:, seen_TS])


@pytest.mark.parametrize("name", [name for name in RELATIVE if name != "leaky-rerope"])
@torch.no_grad()
def test_rotations_and_biases_of_one_layer_are_remapped_alike(name: str) -> None:
    both = Composition([rotary_for(TRAINED, 16, 0.5), lw.encoding("alibi", Geometry.of(64, 4))])
    alone, alibi = both.methods
    assert isinstance(alone, Encoding) and isinstance(alibi, Encoding)
    q_BHTK, k_BHTK = draw_normal(1, 4, 30, 16, seed=1), draw_normal(1, 4, 30, 16, seed=2)
    found_HTS = scores_of(extend(both, extension_called(name)), q_BHTK, k_BHTK)
    expected_HTS = scores_of(extend(alone, extension_called(name)), q_BHTK, k_BHTK)
    expected_HTS = expected_HTS + loop_of_bias(alibi, name, q_BHTK, k_BHTK)
    seen_TS = torch.ones(30, 30, dtype=torch.bool).tril()
    assert_same(found_HTS[:, seen_TS], expected_HTS[:, seen_TS])


def test_logn_beside_rerope_is_a_uniform_scale() -> None:
    """The authors' factor of queries, ln(position + 1) / ln(trained length) where that is above 1."""
    longer = lw.extended(
        make_model(ROTARY), [lw.extension("uniform-scale", slope=1 / math.log(TRAINED)), extension_called("rerope")]
    )
    found = contribution_at(longer.encoding_at(0), torch.arange(50)[None]).scale
    assert isinstance(found, Tensor)
    expected = [max(1.0, math.log(position + 1) / math.log(TRAINED)) for position in range(50)]
    assert found.flatten().tolist() == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", HIDING)
@torch.no_grad()
def test_hidden_keys_are_those_of_a_shorter_sequence(name: str) -> None:
    """One layer, no positions: the last token reads its first and its last tokens as if there were no others."""
    config = ModelConfig(style="llama", layers=1, width=64, heads=4)
    model = build(config, ROWS, [{"name": "none"}], Lengths(TRAINED, TRAINED))
    initialize(model, 0)
    tokens_BT = draw_tokens(2, 40)
    longer = lw.extended(model, [lw.extension(name, **SETTINGS[name])])
    recent = 9 if name == "lm-infinite" else 8
    shortened_BT = torch.cat([tokens_BT[:, :3], tokens_BT[:, -recent:]], dim=1)
    assert_same(longer(tokens_BT)[:, -1], model(shortened_BT)[:, -1])


@torch.no_grad()
def test_streaming_is_a_cache_without_the_tokens_between() -> None:
    """One layer with rotary positions: what is left of the sequence is read at its places, from 0 on."""
    config = ModelConfig(style="llama", layers=1, width=64, heads=4)
    model = build(config, ROWS, [ROTARY], Lengths(TRAINED, TRAINED))
    initialize(model, 0)
    tokens_BT = draw_tokens(2, 40)
    shortened_BT = torch.cat([tokens_BT[:, :3], tokens_BT[:, -8:]], dim=1)
    longer = lw.extended(model, [extension_called("streaming")])
    assert_same(longer(tokens_BT)[:, -1], model(shortened_BT)[:, -1])


@pytest.mark.parametrize("layers", [(), (1,)])
@torch.no_grad()
def test_drope_is_a_model_that_was_never_rotated(layers: tuple[int, ...]) -> None:
    model = make_model(ROTARY, ROTARY)
    dropped = lw.extended(model, [lw.extension("drope", layers=list(layers))])
    others = [ROTARY if layers and layer not in layers else {"name": "none"} for layer in range(2)]
    plain = make_model(*others)
    plain.load_state_dict(model.state_dict())
    tokens_BT = draw_tokens(2, 40)
    assert torch.equal(dropped(tokens_BT), plain(tokens_BT))
    assert dropped.resolved_layers()[0]["not_rotated"] == list(layers or (0, 1))
    scale = lw.extension("uniform-scale", constant=1.4)
    assert_same(lw.extended(dropped, [scale])(tokens_BT), lw.extended(plain, [scale])(tokens_BT))


# What all promise


def test_all_weights_are_shared_and_the_trained_model_stays_as_it_is(name: str, style: str) -> None:
    model = make_model(ROTARY, style=style)
    tokens_BT = draw_tokens(2, 40)
    before, weights = model(tokens_BT), copy.deepcopy(model.state_dict())
    longer = lw.extended(model, [extension_called(name)])
    with torch.no_grad():
        after = longer(tokens_BT)
    assert not torch.equal(after, before), "an extension that does nothing passes every test below"
    assert torch.equal(model(tokens_BT), before)
    assert all(torch.equal(weight, weights[key]) for key, weight in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert type(model) is Decoder and not extensions_of(model.encoding_at(0))
    trained = {key: weight.data_ptr() for key, weight in model.named_parameters()}
    shared = {key: weight.data_ptr() for key, weight in longer.named_parameters()}
    assert {key: shared[key] for key in trained} == trained
    assert [key for key in shared if key not in trained] == (["encodings.0.trained.0"] if name == "head-scale" else [])
    assert [key for key, weight in longer.named_parameters() if weight.requires_grad] == (
        ["encodings.0.trained.0"] if name == "head-scale" else []
    )


@pytest.mark.parametrize(
    "table", [{"name": "t5"}, {"name": "t5", "shared": False}, {"name": "learned"}, {"name": "sinusoidal"}]
)
@torch.no_grad()
def test_weights_of_encodings_are_shared_and_embedded_once(table: dict[str, Any]) -> None:
    """Head-scale gives each layer an encoding of its own; what was added to the embeddings once is still added once."""
    model = make_model(table)
    tokens_BT = draw_tokens(2, 30)
    longer = lw.extended(model, [lw.extension("head-scale", initial=1.0)])
    assert torch.equal(longer(tokens_BT), model(tokens_BT))
    assert len(longer.distinct_encodings()) == 2
    pointers = {weight.data_ptr() for weight in longer.parameters()}
    assert {weight.data_ptr() for weight in model.parameters()} < pointers


@torch.no_grad()
def test_stateless(name: str) -> None:
    """The same answer whatever was asked before, on the same object and on a fresh one."""
    model = make_model(ROTARY)
    longer = lw.extended(model, [extension_called(name)])
    short_BT, long_BT = draw_tokens(1, 10), draw_tokens(1, 60, seed=1)
    first = longer(short_BT), longer(long_BT)
    again = longer(long_BT), longer(short_BT)
    fresh = lw.extended(model, [extension_called(name)])
    assert torch.equal(first[0], again[1]) and torch.equal(first[1], again[0])
    assert torch.equal(fresh(long_BT), first[1]) and torch.equal(fresh(short_BT), first[0])


@torch.no_grad()
def test_neighbours_in_batch_and_row_change_nothing(name: str, style: str) -> None:
    """A short text beside a long one: padded left or right, or packed into one row with it."""
    longer = lw.extended(make_model(ROTARY, style=style), [extension_called(name)])
    texts = [draw_tokens(1, length, seed=length) for length in (9, 20, 50)]
    alone = [longer(text)[0] for text in texts]
    for left in (True, False):
        tokens_BT, segments_BT = torch.zeros(2, 3, 50, dtype=torch.int64).unbind()
        for row, text in enumerate(texts):
            place = slice(50 - text.shape[1], 50) if left else slice(text.shape[1])
            tokens_BT[row, place], segments_BT[row, place] = text[0], 1
        logits = longer(tokens_BT, segments_BT=segments_BT)
        for row, expected in enumerate(alone):
            assert_same(logits[row, segments_BT[row] == 1], expected)
    segments_BT = torch.cat([torch.full_like(text, index + 1) for index, text in enumerate(texts)], dim=1)
    assert_same(longer(torch.cat(texts, dim=1), segments_BT=segments_BT)[0], torch.cat(alone))


@torch.no_grad()
def test_cached_decoding_is_the_full_pass(name: str, style: str) -> None:
    """But for those that follow the length: for them a cache is refused where it would lie.

    Their keys at length T + 1 are not those at length T, so that no cache can give what the full pass gives.
    """
    longer = lw.extended(make_model(ROTARY, style=style), [extension_called(name)])
    length = 40
    if name in BY_LENGTH:
        with pytest.raises(UserError, match=rf"{name} rotates all keys anew .* trained 16 tokens"):
            longer.new_cache(2, TRAINED + 1)
        length = TRAINED
    tokens_BT = draw_tokens(2, length)
    cache = longer.new_cache(2, length)
    parts = [longer(tokens_BT[:, :7], cache=cache)]
    parts += [longer(tokens_BT[:, t : t + 1], cache=cache) for t in range(7, length)]
    assert_same(torch.cat(parts, dim=1), longer(tokens_BT))


@torch.no_grad()
def test_always_long_factors_can_be_cached() -> None:
    longer = lw.extended(make_model(ROTARY), [lw.extension("longrope", **SETTINGS["longrope"], choice="long")])
    tokens_BT = draw_tokens(2, 40)
    cache = longer.new_cache(2, 40)
    parts = [longer(tokens_BT[:, t : t + 1], cache=cache) for t in range(40)]
    assert_same(torch.cat(parts, dim=1), longer(tokens_BT))
    by_length = lw.extended(make_model(ROTARY), [extension_called("longrope")])
    assert torch.equal(longer(tokens_BT), by_length(tokens_BT))
    assert not torch.equal(longer(tokens_BT[:, :9]), by_length(tokens_BT[:, :9]))


@torch.no_grad()
def test_eager_and_fused_attention_agree(name: str, style: str) -> None:
    longer = lw.extended(make_model(ROTARY, style=style), [extension_called(name)])
    tokens_BT = draw_tokens(2, 50)
    fused = longer(tokens_BT)
    longer.backend = "eager"
    assert_same(longer(tokens_BT), fused)


@pytest.mark.parametrize("name", ["position-interpolation", "ntk", "dynamic-ntk", "llama3", "drope", *REMAPPING])
@torch.no_grad()
def test_explicit_positions_and_shifts(name: str) -> None:
    longer = lw.extended(make_model(ROTARY), [extension_called(name)])
    tokens_BT, positions_BT = draw_tokens(2, 40), torch.arange(40)[None]
    expected = longer(tokens_BT)
    assert torch.equal(longer(tokens_BT, positions_BT), expected)
    shifted = longer(tokens_BT, positions_BT + 33)
    by_shift = name in {*BY_LENGTH, "self-extend", "dual-chunk"}
    assert longer.encoding_at(0).shift_invariant == (not by_shift)
    assert torch.allclose(shifted, expected, atol=1e-3) == (not by_shift)


# Where nothing may change


@pytest.mark.parametrize(
    ("name", "settings", "length"),
    [
        ("uniform-scale", {"constant": 1.0}, 50),
        ("uniform-scale", {"slope": 0.0}, 50),
        ("uniform-scale", {"slope": 0.35}, TRAINED),
        ("head-scale", {"initial": 1.0}, 50),
        ("position-interpolation", {"factor": 1.0}, 50),
        ("ntk", {"factor": 1.0}, 50),
        ("dynamic-ntk", {"factor": 2.0}, TRAINED),
        ("yarn", {"factor": 1.0}, 50),
        ("yarn", {"factor": 1.0, "ramp": "rotations"}, 50),
        ("llama3", {"factor": 1.0}, 50),
        ("longrope", {"factor": 1.0, "long": [1.0] * 4, "short": [1.0] * 4}, 50),
        ("longrope", {"factor": 1.0, "long": [9.0] * 4, "short": [1.0] * 4}, TRAINED),
    ],
)
@torch.no_grad()
def test_logits_stay_bit_for_bit(name: str, settings: dict[str, Any], length: int, style: str) -> None:
    model = make_model(ROTARY, style=style)
    model.backend = "eager"
    tokens_BT = draw_tokens(2, length)
    assert torch.equal(lw.extended(model, [lw.extension(name, **settings)])(tokens_BT), model(tokens_BT))


@pytest.mark.parametrize(("settings", "length"), [({"group": 4, "window": 6}, 6), ({"group": 1, "window": 6}, 50)])
@torch.no_grad()
def test_self_extend_changes_nothing_in_the_window_and_in_groups_of_one(settings: dict[str, Any], length: int) -> None:
    model = make_model(ROTARY)
    tokens_BT = draw_tokens(2, length)
    assert_same(lw.extended(model, [lw.extension("self-extend", **settings)])(tokens_BT), model(tokens_BT))


@pytest.mark.parametrize(
    ("name", "settings", "length"),
    [
        ("rerope", {"window": 6}, 7),
        ("leaky-rerope", {"window": 6, "factor": 5.0}, 7),
        ("leaky-rerope", {"window": 6, "factor": 1.0}, 50),
        ("lm-infinite", {}, TRAINED + 1),
        ("lm-infinite", {"global_tokens": 3, "window": 9}, 10),
        ("streaming", {}, TRAINED),
        ("streaming", {"first": 3, "recent": 8}, 11),
        ("dual-chunk", {"chunk": 13, "local": 4}, 13),
        ("string", {"offset": 10, "window": 3}, 10),
    ],
)
@torch.no_grad()
def test_remappings_change_nothing_up_to_where_they_begin(name: str, settings: dict[str, Any], length: int) -> None:
    model = make_model(ROTARY)
    longer = lw.extended(model, [lw.extension(name, **settings)])
    tokens_BT = draw_tokens(2, length + 1)
    assert_same(longer(tokens_BT[:, :length]), model(tokens_BT[:, :length]))
    if "factor" not in settings or settings["factor"] > 1:
        assert (longer(tokens_BT) - model(tokens_BT))[:, -1].abs().max() > 1e-4, "one token more"


@pytest.mark.parametrize("name", HIDING)
@pytest.mark.parametrize("table", [ROTARY, {"name": "alibi"}, {"name": "none"}])
@torch.no_grad()
def test_the_first_tokens_are_those_of_a_sequence_behind_padding(table: dict[str, Any], name: str) -> None:
    """Padded on the left and decoded with a cache, whatever the positions begin with."""
    longer = lw.extended(make_model(table), [extension_called(name)])
    tokens_BT, segments_BT = draw_tokens(2, 40), torch.ones(2, 40, dtype=torch.int64)
    segments_BT[1, :13] = 0
    cache = longer.new_cache(2, 40)
    parts = [longer(tokens_BT[:, :20], segments_BT=segments_BT[:, :20], cache=cache)]
    parts += [
        longer(tokens_BT[:, t : t + 1], segments_BT=segments_BT[:, t : t + 1], cache=cache) for t in range(20, 40)
    ]
    found = torch.cat(parts, dim=1)
    assert_same(found[0], longer(tokens_BT[:1])[0])
    assert_same(found[1, 13:], longer(tokens_BT[1:, 13:])[0])
    shifted = longer(tokens_BT, torch.arange(100, 140)[None])
    torch.testing.assert_close(shifted[0], found[0], rtol=1e-3, atol=1e-3)


def test_places_count_the_tokens_of_a_sequence() -> None:
    positions_BT, segments_BT = torch.arange(6)[None] + 50, torch.tensor([[2, 1, 1, 2, 1, 3]])
    layout = AttentionLayout(positions_BT, positions_BT, segments_BT=segments_BT, key_segments_BS=segments_BT)
    assert layout.places_BS.tolist() == [[0, 0, 1, 1, 2, 0]]
    assert AttentionLayout(positions_BT, positions_BT).places_BS.tolist() == [[0, 1, 2, 3, 4, 5]]


# Sequences are told apart by their positions


def test_sequence_lengths() -> None:
    positions_BT = torch.tensor([[0, 1, 2, 0, 1, 0, 0, 1], [3, 5, 9, 10, 11, 12, 13, 14], [0, 0, 1, 2, 3, 4, 5, 6]])
    assert sequence_lengths(positions_BT).tolist() == [[3, 3, 3, 2, 2, 1, 2, 2], [15] * 8, [1] + [7] * 7]


# Kernels


@pytest.mark.parametrize("name", ["position-interpolation", "ntk", "dynamic-ntk", "llama3"])
def test_other_frequencies_keep_the_kernel_that_rotates_by_itself(name: str) -> None:
    contribution = contribution_of(extend(make_model(ROTARY).encoding_at(0), extension_called(name)))
    assert contribution.names == ["rotation"] and reads_projection(contribution, STYLES["t5"])


@pytest.mark.parametrize("name", [name for name in SETTINGS if name not in REMAPPING])
def test_what_is_not_changed_is_not_declared(name: str) -> None:
    """A backend asks what there is: a part that does nothing would cost the fused program."""
    contribution = contribution_of(extend(make_model(ROTARY).encoding_at(0), extension_called(name)))
    more = {"adaptive-temperature": "normalizer"}
    more |= dict.fromkeys(("uniform-scale", "head-scale", "logn", "ssmax", "yarn"), "scale")
    rotation = [] if name == "drope" else ["rotation"]
    assert contribution.names == [*rotation, *([more[name]] if name in more else [])]
    assert bool(sdpa_refuses(contribution, torch.zeros(1, 1, 1, 1))) == (name == "adaptive-temperature")


@torch.no_grad()
def largest_difference_in_the_kernel() -> float:
    """Between our kernel and PyTorch's, of packed rows; to be asked in Triton's interpreter, or on a GPU."""
    tokens_BT = draw_tokens(1, 32)
    segments_BT = torch.tensor([[1] * 9 + [2] * 23])
    found = []
    for style in STYLES:
        for name in SETTINGS:
            if name in REMAPPING and name != "self-extend":
                continue  # the same program
            longer = lw.extended(make_model(ROTARY, style=style), [extension_called(name)])
            expected = longer(tokens_BT, segments_BT=segments_BT)
            longer.backend = "kernel"
            found.append(float((longer(tokens_BT, segments_BT=segments_BT) - expected).abs().max()))
    return max(found)


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not installed")
def test_our_kernel_agrees() -> None:
    """The interpreter must be asked for before Triton is imported, so in a process of its own."""
    program = "from test_extension import largest_difference_in_the_kernel as ask; print(ask())"
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, cwd=Path(__file__).parent)
    assert done.returncode == 0, done.stderr
    assert 0 < float(done.stdout) < 1e-5


@pytest.mark.parametrize("table", [{"name": "alibi"}, {"name": "t5"}])
@torch.no_grad()
def test_scales_come_before_the_bias(table: dict[str, Any]) -> None:
    encoding = make_model(table).encoding_at(0)
    before = contribution_of(encoding)
    after = contribution_of(extend(encoding, lw.extension("uniform-scale", constant=1.5)))
    assert before.names == ["distance_bias"] and after.names == ["scale", "distance_bias"] and after.scale == 1.5
    assert before.distance_bias is not None and after.distance_bias == before.distance_bias, "the very same method"
    distance = torch.arange(70)
    assert torch.equal(after.distance_bias(distance), before.distance_bias(distance))
    model = make_model(table)
    longer = lw.extended(model, [lw.extension("uniform-scale", constant=1.5)])
    traces = Trace(), Trace()
    tokens_BT = draw_tokens(1, 30)
    model(tokens_BT, trace=traces[0])
    longer(tokens_BT, trace=traces[1])
    plain, scaled = (trace.layers[0] for trace in traces)
    seen = plain.logits_BHTS.isfinite()
    assert_same(scaled.content_BHTS, 1.5 * plain.content_BHTS)
    assert_same(scaled.logits_BHTS[seen], (plain.logits_BHTS + 0.5 * plain.content_BHTS)[seen])


# Head-scale


def test_gradient_of_head_scales_by_finite_differences(style: str) -> None:
    head_scale = extension_called("head-scale")
    longer = lw.extended(make_model(ROTARY, style=style), [head_scale])
    tokens_BT = draw_tokens(2, 40)
    weight_V = draw_normal(ROWS, seed=5)

    def value() -> Tensor:
        return (longer(tokens_BT).double().softmax(-1) * weight_V).sum()

    assert head_scale.scales_LH.shape == (2, 4) and head_scale.scales_LH.dtype == torch.float32
    (found_LH,) = torch.autograd.grad(value(), head_scale.parameters())

    @torch.no_grad()
    def difference(layer: int, head: int, step: float) -> float:
        ends = []
        for change in (step, -step):
            head_scale.scales_LH[layer, head] += change
            ends.append(float(value()))
            head_scale.scales_LH[layer, head] -= change
        return (ends[0] - ends[1]) / (2 * step)

    for layer in range(2):
        for head in range(4):
            # Two steps, so that the third derivative drops out: attention in T5 style is sharp.
            expected = (4 * difference(layer, head, 0.01) - difference(layer, head, 0.02)) / 3
            assert float(found_LH[layer, head]) == pytest.approx(expected, rel=0.01, abs=2e-3)
    assert float(found_LH.abs().min()) > 1e-3, "large enough to be told from nothing"


def test_head_scale_scales_one_head_of_one_layer() -> None:
    head_scale = lw.extension("head-scale", initial=1.0)
    longer = lw.extended(make_model(ROTARY), [head_scale])
    with torch.no_grad():
        head_scale.scales_LH[1, 2] = 2.0
    positions_BT = torch.arange(3)[None]
    for layer, expected in enumerate(([1.0, 1.0, 1.0, 1.0], [1.0, 1.0, 2.0, 1.0])):
        scale = contribution_at(longer.encoding_at(layer), positions_BT, layer).scale
        assert isinstance(scale, Tensor) and scale.shape == (4, 1, 1) and scale.flatten().tolist() == expected


@pytest.mark.parametrize("floor", [1.0, 0.0])
def test_training_moves_the_scales_and_nothing_else(floor: float) -> None:
    model = make_model(ROTARY)
    head_scale = lw.extension("head-scale", initial=1.05, floor=floor)
    longer = lw.extended(model, [head_scale])
    tokens_BT = draw_tokens(2, 40)
    weights, before = copy.deepcopy(model.state_dict()), model(tokens_BT)
    optimizer = torch.optim.AdamW(head_scale.parameters(), lr=0.05, betas=(0.9, 0.95), weight_decay=0.0)
    for _ in range(10):
        logits = longer(tokens_BT)[:, :-1].flatten(0, 1)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(logits, tokens_BT[:, 1:].flatten()).backward()
        optimizer.step()
        below = bool((head_scale.scales_LH < 1).any())
        head_scale.constrain()
    assert below, "the constraint has something to do"
    assert bool((head_scale.scales_LH < 1).any()) == (floor == 0)
    scales_LH = head_scale.scales_LH.detach()
    assert float(scales_LH.min()) >= floor and float(scales_LH.max()) > 1.05
    assert torch.equal(model(tokens_BT), before)
    assert all(torch.equal(weight, weights[key]) for key, weight in model.state_dict().items())
    assert all(weight.grad is None for weight in (*model.parameters(), *longer.blocks.parameters()))


def test_a_head_scale_serves_models_of_its_shape() -> None:
    head_scale = extension_called("head-scale")
    with pytest.raises(UserError, match="no scales before"):
        head_scale.parameters()
    lw.extended(make_model(ROTARY), [head_scale])
    scales = head_scale.scales_LH
    lw.extended(make_model({"name": "none"}), [head_scale])
    assert head_scale.scales_LH is scales
    other = build(ModelConfig(layers=3, width=64, heads=4), ROWS, [{"name": "none"}], Lengths(16, 16))
    with pytest.raises(UserError, match=r"scales for \(2, 4\) layers and heads, and the model has \(3, 4\)"):
        lw.extended(other, [head_scale])


@torch.no_grad()
def test_head_scales_stay_in_fp32() -> None:
    model = make_model(ROTARY).bfloat16()
    head_scale = extension_called("head-scale")
    longer = lw.extended(model, [head_scale])
    assert head_scale.scales_LH.dtype == torch.float32 and longer.embedding.weight.dtype == torch.bfloat16
    assert longer(draw_tokens(1, 20)).isfinite().all()
    with pytest.raises(UserError, match="must stay in fp32"):
        longer.bfloat16()(draw_tokens(1, 20))


# Stacking


@pytest.mark.parametrize("name", ROTATING)
@torch.no_grad()
def test_scales_stack_with_anything(name: str) -> None:
    """The product of both scales, before an extension that rotates: the same as one scale of that size."""
    model = make_model(ROTARY)
    both = [lw.extension("uniform-scale", constant=1.2), lw.extension("head-scale", initial=1.5)]
    stacked = lw.extended(model, [*both, extension_called(name)])
    one = lw.extended(model, [lw.extension("uniform-scale", constant=1.8), extension_called(name)])
    tokens_BT = draw_tokens(2, 40)
    assert_same(stacked(tokens_BT), one(tokens_BT))
    assert not torch.allclose(one(tokens_BT), lw.extended(model, [extension_called(name)])(tokens_BT), atol=1e-3)
    if name not in REMAPPING:
        after = lw.extended(model, [extension_called(name), *both])
        assert_same(after(tokens_BT), one(tokens_BT))


@torch.no_grad()
def test_extending_twice_is_extending_with_both() -> None:
    model = make_model(ROTARY)
    first, second = extension_called("head-scale"), extension_called("yarn")
    tokens_BT = draw_tokens(2, 40)
    twice = lw.extended(lw.extended(model, [first]), [second])
    assert torch.equal(twice(tokens_BT), lw.extended(model, [first, second])(tokens_BT))
    assert [each.name for each in extensions_of(twice.encoding_at(1))] == ["head-scale", "yarn"]


def test_extending_twice_refuses_what_extending_once_does() -> None:
    scale = lw.extension("uniform-scale", constant=1.2)
    yarn, self_extend, dynamic, head_scale = (
        lw.extended(make_model(ROTARY), [extension_called(name)])
        for name in ("yarn", "self-extend", "dynamic-ntk", "head-scale")
    )
    with pytest.raises(UserError, match="ntk does not stack with yarn"):
        lw.extended(yarn, [extension_called("ntk")])
    with pytest.raises(UserError, match="uniform-scale cannot come after self-extend"):
        lw.extended(self_extend, [scale])
    with pytest.raises(UserError, match="head-scale does not stack with itself"):
        lw.extended(head_scale, [extension_called("head-scale")])
    with pytest.raises(UserError, match="dynamic-ntk rotates all keys anew"):
        lw.extended(dynamic, [scale]).new_cache(2, TRAINED + 1)


@pytest.mark.parametrize("first", ROTATING)
def test_two_that_rotate_do_not_stack(first: str) -> None:
    model = make_model(ROTARY)
    for second in ROTATING:
        with pytest.raises(UserError, match=f"{second} does not stack with {first}"):
            lw.extended(model, [extension_called(first), extension_called(second)])


def test_self_extend_comes_last_and_head_scale_once() -> None:
    with pytest.raises(UserError, match="uniform-scale cannot come after self-extend"):
        lw.extended(make_model(ROTARY), [extension_called("self-extend"), extension_called("uniform-scale")])
    with pytest.raises(UserError, match="head-scale does not stack with itself"):
        lw.extended(make_model(ROTARY), [extension_called("head-scale"), extension_called("head-scale")])


@pytest.mark.parametrize("name", [name for name in ROTATING if name not in HIDING])
@pytest.mark.parametrize("encoding", ["none", "alibi", "t5", "sinusoidal", "learned"])
def test_what_does_not_rotate_cannot_be_rotated_otherwise(name: str, encoding: str) -> None:
    model = make_model({"name": encoding})
    told = rf"{name} applies to no layer of this model \(encodings: {encoding}\); .* rotated by angles"
    with pytest.raises(UserError, match=told):
        lw.extended(model, [extension_called(name)])
    assert wrapped(model.encoding_at(0), (extension_called(name),)) is model.encoding_at(0)


@torch.no_grad()
def test_a_schedule_is_extended_where_it_rotates_and_says_so() -> None:
    model = make_model(ROTARY, {"name": "t5"})
    longer = lw.extended(model, [lw.extension("uniform-scale", constant=1.2), extension_called("yarn")])
    layers = longer.resolved_layers()
    assert [layer["encoding"] for layer in layers] == ["rotary", "t5"]
    assert [[each["name"] for each in layer["extensions"]] for layer in layers] == [
        ["uniform-scale", "yarn"],
        ["uniform-scale"],
    ]
    assert layers[0]["extensions"][1]["factor"] == 4.0 and layers[0]["magnitude"] == pytest.approx(1.1386, abs=1e-4)
    assert layers[0]["slowest_wavelength"] > 2 * model.encoding_at(0).resolved()["slowest_wavelength"]
    assert not any(weight.requires_grad for weight in longer.parameters())
    assert all(weight.requires_grad for weight in model.parameters())
    json.dumps(layers)


def test_context_grows() -> None:
    model = make_model(ROTARY)

    def context(longer: Extended) -> int:
        return longer.encoding_at(0).geometry.context

    assert context(lw.extended(model, [lw.extension("yarn", factor=8)])) == 8 * TRAINED
    assert context(lw.extended(model, [lw.extension("yarn", factor=2)])) == 4 * TRAINED, "as before"
    assert context(lw.extended(model, [lw.extension("self-extend", group=8, window=4)])) == 12 * 8 + 4
    assert context(lw.extended(model, [extension_called("dynamic-ntk")], context=1000)) == 1000
    assert model.encoding_at(0).geometry.context == 4 * TRAINED
    assert lw.extended(model, []).encoding_at(0).geometry.trained_context == TRAINED
    with pytest.raises(UserError, match="ends at position 63"):
        lw.extended(make_model({"name": "learned"}), [extension_called("uniform-scale")], context=65)
    longer = lw.extended(make_model({"name": "learned"}), [extension_called("uniform-scale")])
    with pytest.raises(UserError, match="position 64 is beyond the last one"):
        longer(draw_tokens(1, 65))


# Settings


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("yan", {}, "unknown extension 'yan'; did you mean 'yarn'"),
        ("yarn", {}, "missing setting 'extension yarn.factor'"),
        ("yarn", {"factor": 0.5}, "factor must be 1 or more"),
        ("yarn", {"factor": 2, "beta": 3}, "did you mean 'beta_slow' or 'beta_fast'"),
        ("yarn", {"factor": 2, "beta_fast": 1, "beta_slow": 2}, "below beta_fast"),
        ("yarn", {"factor": 2, "attention_factor": 0}, "attention_factor must be above 0"),
        ("llama3", {"factor": 2, "low": 4, "high": 1}, "below high"),
        ("longrope", {"factor": 2, "long": [1.0], "short": [1.0, 2.0]}, "as many factors"),
        ("longrope", {"factor": 2, "long": [0.0], "short": [1.0]}, "above 0"),
        ("uniform-scale", {}, "either a constant, or a slope"),
        ("uniform-scale", {"constant": 1.2, "slope": 0.3}, "either a constant, or a slope"),
        ("uniform-scale", {"constant": 0.0}, "constant must be above 0"),
        ("uniform-scale", {"slope": -0.1}, "slope must be 0 or more"),
        ("head-scale", {"initial": 0.9}, "not below floor 1"),
        ("head-scale", {"floor": -1.0}, "floor must be 0 or more"),
        ("position-interpolation", {"factor": 0.9}, "factor must be 1 or more"),
        ("ntk", {"factor": 0.9}, "factor must be 1 or more"),
        ("dynamic-ntk", {"factor": 0.9}, "factor must be 1 or more"),
        ("self-extend", {"group": 0, "window": 3}, "1 or more"),
        ("rerope", {"window": 0}, "window must be 1 or more"),
        ("leaky-rerope", {"window": 3, "factor": 0.5}, "1 or more"),
        ("lm-infinite", {"global_tokens": -1}, "global_tokens must be 0 or more"),
        ("lm-infinite", {"window": 0}, "window must be 1 or more"),
        ("streaming", {"first": -1}, "first must be 0 or more"),
        ("streaming", {"recent": 0}, "recent must be 1 or more"),
        ("dual-chunk", {"chunk": 8, "local": 8}, "below chunk 8"),
        ("string", {"offset": 8, "window": 8}, "below offset 8"),
        ("drope", {"layers": [0, 0]}, "each once"),
        ("drope", {"layers": [-1]}, "from 0 on"),
    ],
)
def test_wrong_settings_are_refused(name: str, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        lw.extension(name, **settings)


@pytest.mark.parametrize(
    ("table", "name", "settings", "message"),
    [
        ({"name": "rotary", "fraction": 0.125}, "ntk", {"factor": 2.0}, "needs two rotated pairs or more, not 1"),
        ({"name": "rotary", "fraction": 0.125}, "yarn", {"factor": 2.0}, "needs two rotated pairs or more, not 1"),
        (ROTARY, "longrope", {"factor": 2.0, "long": [1.0], "short": [1.0]}, "factors for 1 pairs, and 4 are rotated"),
        (ROTARY, "self-extend", {"group": 2, "window": 16}, "below the trained length 16, not 16"),
        (ROTARY, "rerope", {"window": 16}, "below the trained length 16, not 16"),
        (ROTARY, "leaky-rerope", {"window": 16, "factor": 2.0}, "below the trained length 16, not 16"),
        (ROTARY, "lm-infinite", {"window": 17}, "at most the trained length 16, not 17"),
        (ROTARY, "streaming", {"first": 4, "recent": 13}, "at most 16 together"),
        (ROTARY, "streaming", {"first": 16}, "at most 16 together"),
        (ROTARY, "dual-chunk", {"chunk": 17, "local": 2}, "at most the trained length 16, not 17"),
        (ROTARY, "string", {"offset": 16, "window": 2}, "below the trained length 16, not 16"),
        (ROTARY, "drope", {"layers": [0, 2]}, "in layer 2, counted from 0, and the model has 2 layers"),
        ({"name": "cope"}, "lm-infinite", {}, "not rotated yet to another change"),
        ({"name": "pope"}, "streaming", {}, "not rotated yet to another change"),
        ({"name": "learned"}, "lm-infinite", {}, "learned adds positions to the embeddings"),
        ({"name": "sinusoidal"}, "streaming", {}, "sinusoidal adds positions to the embeddings"),
        ({"name": "logn"}, "streaming", {}, "scales its logits by how many a query sees"),
    ],
)
def test_what_does_not_fit_the_model_is_refused(
    table: dict[str, Any], name: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        lw.extended(make_model(table), [lw.extension(name, **settings)])


class Curved(Encoding):
    """Angles that grow with the square of the position, or frequencies that are no geometric series."""

    name = "curved"
    square = True

    def contribute(self, layout: AttentionLayout) -> Contribution:
        return Contribution(rotation=Rotation(self.angles))

    def angles(self, positions_BT: Tensor) -> Tensor:
        p_BT = positions_BT.float()
        return (p_BT**2 if self.square else p_BT)[..., None] * torch.tensor([1.0, 0.9, 0.1])


def test_angles_of_another_kind_are_refused() -> None:
    encoding = Curved(Curved.Config(), Geometry.of(width=32, heads=4))
    for name in ("position-interpolation", "rerope"):
        with pytest.raises(UserError, match=f"{name} needs angles that grow linearly"):
            extend(encoding, extension_called(name))
    encoding.square = False
    extend(encoding, lw.extension("position-interpolation", factor=2))
    with pytest.raises(UserError, match="geometric series"):
        extend(encoding, lw.extension("yarn", factor=2))


# Around it


@torch.no_grad()
def test_a_deep_copy_can_be_fine_tuned_alone() -> None:
    model = make_model(ROTARY)
    tokens_BT = draw_tokens(2, 40)
    longer = lw.extended(model, [extension_called("yarn")])
    own = copy.deepcopy(longer).requires_grad_(True)
    expected = longer(tokens_BT)
    assert torch.equal(own(tokens_BT), expected)
    for weight in own.parameters():
        weight += 1
    assert torch.equal(longer(tokens_BT), expected)


def test_large_positions_in_bf16_models_are_rotated_in_fp32() -> None:
    model = make_model(ROTARY).bfloat16()
    extended = lw.extended(model, [lw.extension("position-interpolation", factor=4)]).encoding_at(0)
    angles = angles_at(extended, torch.tensor([[65537]]))
    assert angles.dtype == torch.float32
    assert float(angles[0, 0, 0]) == 65537 / 4


PLUG_IN = '''
"""Attention logits divided by one number."""

from dataclasses import dataclass, replace

from lengthwise.encodings.encoding import AttentionLayout, Contribution, Geometry
from lengthwise.extensions.extension import Extension


class FlatHeads(Extension):
    """Attention logits divided by one number."""

    name = "flat-heads"

    @dataclass(frozen=True)
    class Config:
        divisor: float = 2.0

    def extend(self, contribution: Contribution, layout: AttentionLayout, geometry: Geometry) -> Contribution:
        scale = 1.0 if contribution.scale is None else contribution.scale
        return replace(contribution, scale=scale / self.config.divisor)
'''


def call(folder: Path, *words: str) -> str:
    environment = {**os.environ, "LENGTHWISE_PATH": str(folder), "COLUMNS": "160"}
    done = subprocess.run([sys.executable, "-c", *words], env=environment, capture_output=True, text=True, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
def test_a_file_of_ones_own_is_an_extension(tmp_path: Path) -> None:
    (tmp_path / "extensions").mkdir()
    (tmp_path / "extensions/flat_heads.py").write_text(PLUG_IN)
    command = "from lengthwise.cli import main; main()"
    rows = {row["name"]: row for row in json.loads(call(tmp_path, command, "list", "extensions", "--json"))}
    assert set(rows) == {*SETTINGS, "flat-heads"}
    assert rows["flat-heads"]["settings"] == {"divisor": "2.0"} and rows["yarn"]["settings"]["factor"] == "required"
    assert "divided by one number" in call(tmp_path, command, "list", "extensions")
    program = """
import lengthwise as lw
from lengthwise.extensions.extension import contribution_of, wrapped
found = (lw.extension("flat-heads", divisor=4.0), lw.extension("flat-heads"))
print(contribution_of(wrapped(lw.encoding("none"), found)).scale)
"""
    assert float(call(tmp_path, program)) == 1 / 8


def test_listing_needs_no_torch(tmp_path: Path) -> None:
    (tmp_path / "extensions").mkdir()
    program = "import sys; from lengthwise import registry; registry.extensions.names(); print('torch' in sys.modules)"
    assert call(tmp_path, program).strip() == "False"


def test_head_scale_is_what_it_says() -> None:
    assert isinstance(lw.extension("head-scale"), HeadScale)
    assert lw.extension("head-scale").config == HeadScale.Config(initial=1.6, floor=1.0)
