"""Each encoding against the formula of its paper, written here as plain loops over Python floats.

Shape letters: B batch, H heads, G key-value heads, T queries, S keys, K head width, D model width.
"""

import math
from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from torch import Tensor

from lengthwise.encodings.alibi import Alibi, slopes
from lengthwise.encodings.contribution import Rotation
from lengthwise.encodings.encoding import AttentionLayout, Encoding, Geometry, distances
from lengthwise.encodings.learned import Learned
from lengthwise.encodings.none import NoEncoding
from lengthwise.encodings.rotary import Rotary
from lengthwise.encodings.sinusoidal import Sinusoidal
from lengthwise.encodings.t5 import T5, bucket_of_distance
from lengthwise.kernels.ops import Ops
from lengthwise.mixers.attention import Attention
from lengthwise.model.attention import attend
from lengthwise.model.backend import Backend
from lengthwise.model.config import ModelConfig
from lengthwise.model.layer import LayerPass
from lengthwise.model.trace import Trace

Matrix = list[list[float]]

QUERY_POSITIONS = [[0, 3, 40, 258, 2040], [7, 8, 300, 301, 4000]]
KEY_POSITIONS = [[0, 1, 2, 3, 40, 257, 258, 2040], [5, 7, 8, 20, 43, 300, 301, 4000]]


def draw_normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def bias_of(encoding: Encoding, queries: list[list[int]], keys: list[list[int]]) -> Tensor:
    layout = AttentionLayout(torch.tensor(queries), torch.tensor(keys))
    contribution = encoding.contribute(layout)
    bias = contribution.bias(layout)
    assert contribution.names == ["distance_bias"] and bias is not None and bias.dtype == torch.float32
    assert bias.shape == (len(queries), encoding.geometry.heads, len(queries[0]), len(keys[0]))
    return bias


def rotation_of(encoding: Encoding) -> Rotation:
    """A rotation by position, alike for queries and keys, and nothing else."""
    positions_BT = torch.arange(3)[None]
    contribution = encoding.contribute(AttentionLayout(positions_BT, positions_BT))
    rotation = contribution.rotation
    assert contribution.names == ["rotation"] and rotation is not None
    assert rotation.key_angles is None and rotation.query_magnitude is None and rotation.key_magnitude is None
    return rotation


def test_distance_counts_back_from_the_query_and_is_zero_for_later_keys() -> None:
    actual = distances(torch.tensor([[0, 5], [9, 300]]), torch.tensor([[0, 2, 5, 7], [8, 9, 42, 300]]))
    assert actual.tolist() == [[[0, 0, 0, 0], [5, 3, 0, 0]], [[1, 0, 0, 0], [292, 291, 258, 0]]]


# T5


def t5_bucket(distance: int, buckets: int = 32, max_distance: int = 128) -> int:
    """Raffel et al. 2020, causal: half of the buckets exact, the others log-spaced up to `max_distance`."""
    exact = buckets // 2
    if distance < exact:
        return distance
    share = math.log(distance / exact) / math.log(max_distance / exact)
    return min(buckets - 1, exact + math.floor(share * (buckets - exact)))


@pytest.mark.parametrize(
    ("distance", "bucket"),
    # 16 * 2^(3k/16) is where bucket 16 + k begins: 16, 18.2, 20.7, 23.6, 26.9, 30.6, 34.9 ... 98.7, 112.4, 128.
    [
        *[(0, 0), (1, 1), (15, 15), (16, 16), (18, 16), (19, 17), (20, 17), (21, 18), (30, 20), (31, 21), (34, 21)],
        *[(35, 22), (98, 29), (99, 30), (112, 30), (113, 31), (127, 31), (128, 31), (1000, 31), (100_000, 31)],
    ],
)
def test_t5_buckets_by_hand(distance: int, bucket: int) -> None:
    assert t5_bucket(distance) == bucket
    encoding = T5(T5.Config(), Geometry.of(width=16, heads=2))
    with torch.no_grad():
        encoding.table.copy_(torch.arange(32)[:, None].expand(-1, 2))
        assert bias_of(encoding, [[distance + 5]], [[5]]).tolist() == [[[[bucket]], [[bucket]]]]


@pytest.mark.parametrize(("buckets", "max_distance"), [(32, 128), (32, 1000), (16, 60), (7, 20), (2, 2)])
def test_t5_buckets_of_all_distances(buckets: int, max_distance: int) -> None:
    expected = [t5_bucket(distance, buckets, max_distance) for distance in range(max_distance + 1)]
    assert bucket_of_distance(buckets, max_distance) == expected
    assert expected == sorted(expected) and expected[-1] == buckets - 1


def test_t5_bias_and_the_rows_of_its_table_that_learn() -> None:
    encoding = T5(T5.Config(), Geometry.of(width=48, heads=3))
    with torch.no_grad():
        encoding.table.copy_(draw_normal(32, 3))
    bias = bias_of(encoding, QUERY_POSITIONS, KEY_POSITIONS)
    table: Matrix = encoding.table.tolist()
    upstream = draw_normal(*bias.shape, seed=1)
    gradient = [[0.0] * 3 for _ in range(32)]
    for b, (queries, keys) in enumerate(zip(QUERY_POSITIONS, KEY_POSITIONS, strict=True)):
        for t, query in enumerate(queries):
            for s, key in enumerate(keys):
                bucket = t5_bucket(max(query - key, 0))
                for head in range(3):
                    assert bias[b, head, t, s].item() == table[bucket][head]
                    gradient[bucket][head] += upstream[b, head, t, s].item()
    (bias * upstream).sum().backward()
    assert encoding.table.grad is not None
    torch.testing.assert_close(encoding.table.grad, torch.tensor(gradient))
    assert {i for i, row in enumerate(gradient) if any(row)} < set(range(32)), "some bucket is not met"


def deviation_of(encoding: T5) -> float:
    return encoding.initial("table", torch.Generator())


def test_t5_table_learns_at_its_rate_and_begins_the_same() -> None:
    def moved(rate: float) -> tuple[torch.Tensor, torch.Tensor]:
        encoding = T5(T5.Config(rate=rate), Geometry.of(width=48, heads=3))
        with torch.no_grad():
            encoding.table.copy_(draw_normal(32, 3) * deviation_of(encoding))
        optimizer = torch.optim.Adam(encoding.parameters(), lr=0.01)
        bias = bias_of(encoding, QUERY_POSITIONS, KEY_POSITIONS)
        (bias * draw_normal(*bias.shape, seed=1)).sum().backward()
        optimizer.step()
        return bias.detach(), bias_of(encoding, QUERY_POSITIONS, KEY_POSITIONS).detach() - bias.detach()

    assert deviation_of(T5(T5.Config(rate=0.5, initial=0.3), Geometry.of(width=48, heads=3))) == 0.6
    (before, step), (slow_before, slow_step) = moved(1.0), moved(0.25)
    torch.testing.assert_close(slow_before, before)
    assert step.abs().max() > 0.009
    torch.testing.assert_close(slow_step, 0.25 * step, rtol=1e-4, atol=1e-7)


# ALiBi


def alibi_slopes(heads: int) -> list[float]:
    """Press et al. 2022, as the authors' code has it: recursion into the next larger power of two."""

    def series(power: int) -> list[float]:
        start = 2 ** (-(2 ** -(math.log2(power) - 3)))
        return [start * start**i for i in range(power)]

    if math.log2(heads).is_integer():
        return series(heads)
    closest = 2 ** math.floor(math.log2(heads))
    return series(closest) + alibi_slopes(2 * closest)[0::2][: heads - closest]


BY_HAND = {
    1: [2**-8],
    4: [2**-2, 2**-4, 2**-6, 2**-8],
    6: [2**-2, 2**-4, 2**-6, 2**-8, 2**-1, 2**-3],
    8: [2**-1, 2**-2, 2**-3, 2**-4, 2**-5, 2**-6, 2**-7, 2**-8],
    12: [2**-1, 2**-2, 2**-3, 2**-4, 2**-5, 2**-6, 2**-7, 2**-8, 2**-0.5, 2**-1.5, 2**-2.5, 2**-3.5],
    16: [2 ** (-(i + 1) / 2) for i in range(16)],
}


@pytest.mark.parametrize("heads", BY_HAND)
def test_alibi_slopes(heads: int) -> None:
    assert alibi_slopes(heads) == pytest.approx(BY_HAND[heads], rel=1e-12)
    assert slopes(heads).tolist() == pytest.approx(BY_HAND[heads], rel=2e-7)
    assert slopes(heads).dtype == torch.float32
    resolved = Alibi(Alibi.Config(), Geometry.of(width=16 * heads, heads=heads)).resolved()
    assert resolved == {"slopes": pytest.approx(BY_HAND[heads], rel=2e-7)}


@pytest.mark.parametrize("heads", [3, 4, 12])
def test_alibi_bias(heads: int) -> None:
    bias = bias_of(Alibi(Alibi.Config(), Geometry.of(width=heads * 4, heads=heads)), QUERY_POSITIONS, KEY_POSITIONS)
    slope = alibi_slopes(heads)
    for b, (queries, keys) in enumerate(zip(QUERY_POSITIONS, KEY_POSITIONS, strict=True)):
        for t, query in enumerate(queries):
            for s, key in enumerate(keys):
                for head in range(heads):
                    expected = -slope[head] * (query - key) if key < query else 0.0
                    assert bias[b, head, t, s].item() == pytest.approx(expected, rel=2e-7, abs=0)
    nearest_first = bias[0, :, -1].flip(-1)
    assert (nearest_first.diff(dim=-1) < 0).all(), "farther keys are penalised more"


# Rotary


def rotary_frequencies(
    rotated: int, head_width: int, base: float = 10000.0, exponent: Literal["rotated", "head"] = "rotated"
) -> list[float]:
    """Su et al. 2021: base^(-2i/d) for pair i; d is the width that is rotated, or the whole head."""
    spread = rotated if exponent == "rotated" else head_width
    return [base ** (-2 * i / spread) for i in range(rotated // 2)]


def rotated_by_hand(entries: list[float], position: int, frequencies: list[float], pairs: str) -> list[float]:
    """One head of one token: each pair, read as a complex number, times e^(i * position * frequency)."""
    result = list(entries)
    half = len(frequencies)
    for i, frequency in enumerate(frequencies):
        first, second = (2 * i, 2 * i + 1) if pairs == "interleaved" else (i, i + half)
        cosine, sine = math.cos(position * frequency), math.sin(position * frequency)
        result[first] = entries[first] * cosine - entries[second] * sine
        result[second] = entries[first] * sine + entries[second] * cosine
    return result


ROTARY_POSITIONS = [[0, 1, 2, 57], [9, 258, 2047, 4000]]


@pytest.mark.parametrize("pairs", ["interleaved", "halves"])
@pytest.mark.parametrize("exponent", ["rotated", "head"])
@pytest.mark.parametrize("fraction", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("base", [10000.0, 500.0])
def test_rotary(fraction: float, exponent: Any, pairs: Any, base: float) -> None:
    geometry = Geometry.of(width=32, heads=2)
    encoding = Rotary(Rotary.Config(fraction, base, pairs, exponent), geometry)
    rotated = {0.25: 4, 0.5: 8, 1.0: 16}[fraction]
    frequencies = rotary_frequencies(rotated, 16, base, exponent)
    assert encoding.frequencies().tolist() == pytest.approx(frequencies, rel=5e-7)
    assert encoding.resolved() == {
        "rotated_entries": rotated,
        "head_width": 16,
        "slowest_wavelength": pytest.approx(2 * math.pi / frequencies[-1], rel=5e-7),
    }
    x_BHTK = draw_normal(2, 2, 4, 16)
    rotation = rotation_of(encoding)
    assert rotation.pairs == pairs and rotation.plain == (pairs == "interleaved")
    actual = rotation.of_queries(x_BHTK, torch.tensor(ROTARY_POSITIONS))
    assert torch.equal(rotation.of_keys(x_BHTK, torch.tensor(ROTARY_POSITIONS)), actual)
    for b in range(2):
        for head in range(2):
            for t, position in enumerate(ROTARY_POSITIONS[b]):
                expected = rotated_by_hand(x_BHTK[b, head, t].tolist(), position, frequencies, pairs)
                # An fp32 phase of up to 4000 radians is off by up to 0.0004.
                assert actual[b, head, t].tolist() == pytest.approx(expected, abs=1e-6 + 4e-7 * position)
    assert torch.equal(actual[..., rotated:], x_BHTK[..., rotated:]), "the rest carries no position"


def test_rotary_by_hand() -> None:
    """A quarter of a circle counter-clockwise: (1, 0) becomes (0, 1), in the pair that the setting names."""
    geometry = Geometry.of(width=4, heads=1)
    x_BHTK = torch.tensor([1.0, 0.0, 0.0, 0.0]).view(1, 1, 1, 4)
    for pairs, moved in (("interleaved", 1), ("halves", 2)):
        encoding = Rotary(Rotary.Config(1.0, pairs=pairs), geometry)  # type: ignore
        result = rotation_of(encoding).of_keys(x_BHTK, torch.tensor([[11]]))
        expected = [math.cos(11), 0.0, 0.0, 0.0]
        expected[moved] = math.sin(11)  # 11 radians are close to 3/2 pi: the sine is -0.99999
        assert result.flatten().tolist() == pytest.approx(expected, abs=1e-6)


def test_the_two_slowest_wavelengths_of_a_quarter_of_64() -> None:
    geometry = Geometry.of(width=64, heads=1)
    wavelengths = [
        Rotary(Rotary.Config(0.25, exponent=exponent), geometry).resolved()["slowest_wavelength"]
        for exponent in ("rotated", "head")
    ]
    assert [round(wavelength) for wavelength in wavelengths] == [19869, 47]
    assert Rotary.Config() == Rotary.Config(fraction=0.25, base=10000.0, pairs="interleaved", exponent="rotated")


@pytest.mark.parametrize("pairs", ["interleaved", "halves"])
def test_rotated_products_depend_on_the_distance_and_on_its_sign(pairs: Any) -> None:
    rotation = rotation_of(Rotary(Rotary.Config(1.0, pairs=pairs), Geometry.of(width=8, heads=1)))
    q_BHTK, k_BHTK = draw_normal(1, 1, 1, 8, seed=1), draw_normal(1, 1, 1, 8, seed=2)

    def product(query: int, key: int) -> float:
        rotated_q = rotation.of_queries(q_BHTK, torch.tensor([[query]]))
        rotated_k = rotation.of_keys(k_BHTK, torch.tensor([[key]]))
        return float((rotated_q * rotated_k).sum())

    assert product(12, 10) == pytest.approx(product(102, 100), abs=1e-4)
    assert abs(product(12, 10) - product(10, 12)) > 0.1
    assert abs(product(12, 10) - product(13, 10)) > 0.1


@pytest.mark.parametrize("fraction", [0.3, 0.05, 0.1])
def test_rotary_refuses_a_fraction_that_makes_no_pairs(fraction: float) -> None:
    with pytest.raises(ValueError, match="no even number"):
        Rotary(Rotary.Config(fraction), Geometry.of(width=10, heads=1))


# Absolute positions


def wave(position: int, column: int, width: int, base: float) -> float:
    """Vaswani et al. 2017 with the columns sorted as published: all sines, then all cosines."""
    half = width // 2
    phase = position / base ** (2 * (column % half) / width)
    return math.sin(phase) if column < half else math.cos(phase)


@pytest.mark.parametrize("base", [10000.0, 300.0])
def test_sinusoidal(base: float) -> None:
    width = 12
    encoding = Sinusoidal(Sinusoidal.Config(base), Geometry.of(width=width, heads=1))
    x_BTD = draw_normal(2, 4, width)
    actual = encoding.embed(x_BTD, torch.tensor(ROTARY_POSITIONS))
    for b in range(2):
        for t, position in enumerate(ROTARY_POSITIONS[b]):
            for column in range(width):
                expected = x_BTD[b, t, column].item() + wave(position, column, width, base)
                assert actual[b, t, column].item() == pytest.approx(expected, abs=1e-6 + 2e-7 * position)
    slowest = 2 * math.pi * base ** (10 / 12)
    assert encoding.resolved() == {"slowest_wavelength": pytest.approx(slowest)}


def test_sinusoidal_by_hand() -> None:
    encoding = Sinusoidal(Sinusoidal.Config(), Geometry.of(width=4, heads=1))
    actual = encoding.embed(torch.zeros(1, 2, 4), torch.tensor([[0, 3]]))
    expected = [0.0, 0.0, 1.0, 1.0, math.sin(3), math.sin(0.03), math.cos(3), math.cos(0.03)]
    assert actual.flatten().tolist() == pytest.approx(expected, abs=1e-6)


def test_learned_adds_the_row_of_each_position() -> None:
    encoding = Learned(Learned.Config(rows=9), replace(Geometry.of(width=6, heads=1, context=7), trained_context=5))
    with torch.no_grad():
        encoding.table.copy_(draw_normal(9, 6))
    table: Matrix = encoding.table.tolist()
    x_BTD = draw_normal(2, 3, 6, seed=1)
    positions = [[0, 1, 8], [5, 5, 2]]
    actual = encoding.embed(x_BTD, torch.tensor(positions))
    for b in range(2):
        for t, position in enumerate(positions[b]):
            expected = [x + table[position][column] for column, x in enumerate(x_BTD[b, t].tolist())]
            assert actual[b, t].tolist() == pytest.approx(expected, rel=1e-6)
    actual.sum().backward()
    assert encoding.table.grad is not None
    assert encoding.table.grad[:, 0].tolist() == [1, 1, 1, 0, 0, 2, 0, 0, 1]
    assert encoding.last_position == 8
    assert encoding.resolved() == {"rows": 9, "rows_trained": 5, "rows_left_random": 4}


def test_a_learned_table_is_as_long_as_the_longest_sequence_unless_told() -> None:
    geometry = replace(Geometry.of(width=6, heads=1, context=7), trained_context=5)
    encoding = Learned(Learned.Config(), geometry)
    assert encoding.last_position == 6
    assert encoding.resolved() == {"rows": 7, "rows_trained": 5, "rows_left_random": 2}
    short = Learned(Learned.Config(rows=3), geometry)
    assert short.resolved() == {"rows": 3, "rows_trained": 3, "rows_left_random": 0}


# bf16 models


def test_bf16_keeps_integers_above_256_apart() -> None:
    """bf16 has no 257: were positions rounded to it, neighbours here would be equal."""
    geometry = Geometry.of(width=64, heads=4)
    positions = torch.tensor([[257, 258, 2001, 2002, 3999, 4000]])
    bias = bias_of(Alibi(Alibi.Config(), geometry).bfloat16(), [[4000]], positions.tolist())
    assert bias[0, :, 0].tolist() == [[-slope * (4000 - p) for p in positions[0].tolist()] for slope in BY_HAND[4]]

    embedded = Sinusoidal(Sinusoidal.Config(), geometry).embed(torch.zeros(1, 6, 64, dtype=torch.bfloat16), positions)
    assert embedded.dtype == torch.bfloat16
    x_BHTK = draw_normal(1, 4, 6, 16).bfloat16()
    rotated = rotation_of(Rotary(Rotary.Config(1.0), geometry)).of_queries(x_BHTK, positions)
    assert rotated.dtype == torch.bfloat16
    for t, position in enumerate(positions[0].tolist()):
        waves = [wave(position, column, 64, 10000.0) for column in range(64)]
        # bf16 rounds to one part in 512; an fp32 phase is off by 0.0004 at most.
        assert embedded[0, t].tolist() == pytest.approx(waves, rel=2**-8, abs=5e-4)
        for head in range(4):
            expected = rotated_by_hand(x_BHTK[0, head, t].tolist(), position, rotary_frequencies(16, 16), "interleaved")
            assert rotated[0, head, t].tolist() == pytest.approx(expected, rel=2**-8, abs=2e-3)


@pytest.mark.parametrize("backend", ["eager", "fused", "kernel"])
def test_attention_in_bf16_does_not_round_the_bias(backend: Backend) -> None:
    """Near 100, bf16 has steps of 0.5: biases that differ by 0.2 would become equal."""
    encoding = T5(T5.Config(), Geometry.of(width=8, heads=1))
    with torch.no_grad():
        encoding.table.copy_(100 + 0.2 * torch.arange(32)[:, None])
    q_BHTK = torch.zeros(1, 1, 4, 8, dtype=torch.bfloat16)
    v_BHTK = torch.eye(4, 8, dtype=torch.bfloat16)[None, None]
    positions = torch.arange(4)[None]
    layout = AttentionLayout(positions, positions)
    with torch.no_grad():
        mixed = attend(q_BHTK, q_BHTK, v_BHTK, encoding, layout, 8**-0.5, Ops(), backend=backend)
    grown = [math.exp(0.2 * (3 - s)) for s in range(4)]
    assert mixed[0, 0, 3, :4].tolist() == pytest.approx([g / sum(grown) for g in grown], rel=2**-8)


# A whole layer of attention


def times(matrix: Matrix, vector: list[float]) -> list[float]:
    """`matrix` has one row per input, one column per output."""
    return [math.fsum(w * x for w, x in zip(column, vector, strict=True)) for column in zip(*matrix, strict=True)]


def part(vector: list[float], head: int, width: int) -> list[float]:
    return vector[head * width : (head + 1) * width]


ENCODINGS: dict[str, Any] = {
    "none": lambda geometry: NoEncoding(NoEncoding.Config(), geometry),
    "t5": lambda geometry: T5(T5.Config(), geometry),
    "alibi": lambda geometry: Alibi(Alibi.Config(), geometry),
    "rotary": lambda geometry: Rotary(Rotary.Config(0.5), geometry),
    "rotary halves": lambda geometry: Rotary(Rotary.Config(1.0, pairs="halves"), geometry),
}


def expected_bias(encoding: Encoding, head: int, distance: int) -> float:
    if isinstance(encoding, T5):
        return encoding.table[t5_bucket(distance)][head].item()
    return -alibi_slopes(encoding.geometry.heads)[head] * distance if isinstance(encoding, Alibi) else 0.0


def expected_rotation(encoding: Encoding, entries: list[float], position: int) -> list[float]:
    if not isinstance(encoding, Rotary):
        return entries
    rotated = int(len(entries) * encoding.config.fraction)
    return rotated_by_hand(entries, position, rotary_frequencies(rotated, len(entries)), encoding.config.pairs)


@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize(("style", "groups"), [("t5", 4), ("llama", 4), ("llama", 2), ("llama", 1)])
def test_a_layer_of_attention(name: str, style: Any, groups: int) -> None:
    config = ModelConfig(style=style, layers=1, width=32, heads=4, key_value_heads=groups)
    head_width, scale = 8, 1.0 if style == "t5" else 1 / math.sqrt(8)
    geometry = replace(Geometry.of(width=32, heads=4), logit_scale=config.logit_scale)
    encoding: Encoding = ENCODINGS[name](geometry)
    layer = Attention(config)
    for i, parameter in enumerate([*layer.parameters(), *encoding.parameters()]):
        parameter.data = draw_normal(*parameter.shape, seed=i) * parameter.shape[-1] ** -0.5
    # Positions with a gap: 40 - 2 and 41 - 0 reach the log-spaced buckets.
    positions = [0, 1, 2, 40, 41]
    x_BTD = draw_normal(1, len(positions), 32, seed=9)
    layout = AttentionLayout(torch.tensor([positions]), torch.tensor([positions]))
    trace = Trace()
    with torch.no_grad():
        traced_output = layer(x_BTD, LayerPass(encoding, layout, trace=trace))
        fused = layer(x_BTD, LayerPass(encoding, layout, backend="fused"))
        untraced = layer(x_BTD, LayerPass(encoding, layout, backend="eager"))
    (traced,) = trace.layers

    weights: dict[str, Matrix] = {key: value.tolist() for key, value in layer.named_parameters()}
    tokens: Matrix = x_BTD[0].tolist()
    assert layer.sizes == {"query": 32, "key": 8 * groups, "value": 8 * groups}
    joined = weights["projection.weight"]
    assert {len(row) for row in joined} == {32 + 2 * 8 * groups}
    ends = (32, 32 + 8 * groups)
    parts = (slice(0, ends[0]), slice(ends[0], ends[1]), slice(ends[1], None))
    matrices = ([row[part] for row in joined] for part in parts)
    queries, keys, values = ([times(matrix, x) for x in tokens] for matrix in matrices)
    for t, position in enumerate(positions):
        mixed: list[float] = []
        for head in range(4):
            # Neighbouring query heads share a key-value head.
            group = head // (4 // groups)
            query = expected_rotation(encoding, part(queries[t], head, head_width), position)
            content, logits = [], []
            for s in range(t + 1):
                key = expected_rotation(encoding, part(keys[s], group, head_width), positions[s])
                content.append(scale * math.fsum(a * b for a, b in zip(query, key, strict=True)))
                logits.append(content[-1] + expected_bias(encoding, head, position - positions[s]))
            total = math.fsum(math.exp(logit) for logit in logits)
            shares = [math.exp(logit) / total for logit in logits]
            seen = slice(0, t + 1)
            assert traced.content_BHTS[0, head, t, seen].tolist() == pytest.approx(content, abs=2e-5)
            assert traced.logits_BHTS[0, head, t, seen].tolist() == pytest.approx(logits, abs=2e-5)
            assert traced.weights_BHTS[0, head, t, seen].tolist() == pytest.approx(shares, abs=1e-5)
            assert (traced.logits_BHTS[0, head, t, t + 1 :] == -math.inf).all()
            assert (traced.weights_BHTS[0, head, t, t + 1 :] == 0).all()
            for column in range(head_width):
                seen_values = [part(values[s], group, head_width)[column] for s in range(t + 1)]
                mixed.append(math.fsum(a * b for a, b in zip(shares, seen_values, strict=True)))
        expected = times(weights["output.weight"], mixed)
        assert traced_output[0, t].tolist() == pytest.approx(expected, abs=2e-5)
        assert fused[0, t].tolist() == pytest.approx(expected, abs=2e-5)
        assert untraced[0, t].tolist() == pytest.approx(expected, abs=2e-5)
