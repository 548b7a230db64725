"""What every encoding promises, checked for each one that the registry finds: a new encoding file needs no new test.

Shape letters: N models of a fleet, B batch, H heads, T queries, S keys, K head width, D model width.
"""

import inspect
import itertools
import json
import math
import os
import subprocess
import sys
import textwrap
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
import torch.nn.functional as F
from conftest import slow
from test_early_checks import Write, forget, write  # noqa: F401 (a fixture)
from torch import Tensor

from lengthwise import registry
from lengthwise.data.sequences import Sequences
from lengthwise.encodings.contribution import Contribution
from lengthwise.encodings.encoding import Encoding
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.errors import UserError
from lengthwise.model.attention import scale_of
from lengthwise.model.backend import Backend, sdpa_refuses
from lengthwise.model.build import Lengths, build
from lengthwise.model.config import ModelConfig
from lengthwise.model.decoder import Block, Decoder
from lengthwise.model.initial_values import initialize
from lengthwise.model.trace import Trace
from lengthwise.training.batches import NO_TARGET, collate
from lengthwise.training.fleet import Batch, Fleet

VOCABULARY_ROWS = 24
CONTEXT = 96
LENGTH = 12
STYLES: dict[str, ModelConfig] = {
    "t5": ModelConfig(style="t5", layers=2, width=64, heads=4, feed_forward=80),
    "llama": ModelConfig(style="llama", layers=2, width=64, heads=4, feed_forward=80),
    "llama-grouped": ModelConfig(style="llama", layers=2, width=64, heads=4, key_value_heads=2, feed_forward=80),
}


def settings_to_test(name: str) -> list[dict[str, Any]]:
    """The encoding as it comes, then once for every other value of each setting that is a choice."""
    config = registry.encodings.get(name).Config
    tables: list[dict[str, Any]] = [{"name": name}]
    hints = typing.get_type_hints(config)
    for field in fields(config):
        kind = hints[field.name]
        choices = (False, True) if kind is bool else ()
        if typing.get_origin(kind) is typing.Literal:
            choices = typing.get_args(kind)
        tables += [{"name": name, field.name: choice} for choice in choices if choice != field.default]
    return tables


def label(table: Mapping[str, Any]) -> str:
    return " ".join([table["name"], *(f"{key}={value}" for key, value in table.items() if key != "name")])


TABLES = [table for name in registry.encodings.names() for table in settings_to_test(name)]


def make_model(style: str, table: Mapping[str, Any], seed: int = 0, context: int = CONTEXT) -> Decoder:
    """Initial weights, then noise on all of them: attention that is far from uniform, and no table of zeros."""
    model = build(STYLES[style], VOCABULARY_ROWS, [table], Lengths(trained=context // 2, met=context))
    initialize(model, seed)
    generator = torch.Generator().manual_seed(1000 + seed)
    with torch.no_grad():
        for parameter in model.parameters():
            fan_in = parameter.shape[-1] if parameter.ndim else 1
            parameter += 0.7 * fan_in**-0.5 * torch.randn(parameter.shape, generator=generator)
    return model


@pytest.fixture(params=[style if style == "t5" else slow(style) for style in STYLES])
def style(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=TABLES, ids=label)
def table(request: pytest.FixtureRequest) -> dict[str, Any]:
    return request.param


@pytest.fixture
def model(table: dict[str, Any], style: str) -> Decoder:
    return make_model(style, table)


def draw_tokens(*shape: int, seed: int = 0) -> Tensor:
    return torch.randint(1, VOCABULARY_ROWS, shape, generator=torch.Generator().manual_seed(seed))


def draw_normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def assert_same(actual: Tensor, expected: Tensor, what: str = "logits", slack: float = 1.0) -> None:
    """Equal but for the order of fp32 sums."""
    torch.testing.assert_close(
        actual, expected, rtol=1e-5 * slack, atol=1e-5 * slack, msg=lambda text: f"{what}: {text}"
    )


def first_encoding(model: Decoder) -> Encoding:
    return model.distinct_encodings()[0]


def layout_of(encoding: Encoding, positions_BT: Tensor, segments_BT: Tensor | None = None) -> AttentionLayout:
    """A whole pass at these positions, as the first layer sees it; its input is noise."""
    tokens_BT = torch.zeros(positions_BT.shape, dtype=torch.int64)
    x_BTD = draw_normal(*positions_BT.shape, encoding.geometry.width, seed=5)
    layout = Decoder.layout(tokens_BT, positions_BT, segments_BT)
    return layout.at_layer(0, x_BTD, encoding.token_numbers(x_BTD))


def contribution_at(encoding: Encoding, positions_BT: Tensor) -> Contribution:
    return encoding.contribute(layout_of(encoding, positions_BT))


# 1. Padding


@pytest.mark.parametrize(("pad", "padding_segment"), [(0, 0), (7, 9)])
@pytest.mark.parametrize("side", ["left", "right", "right without segments"])
@torch.no_grad()
def test_padding_changes_no_real_token(model: Decoder, side: str, pad: int, padding_segment: int) -> None:
    sizes = (LENGTH, 7, 3)
    width = LENGTH + 2
    tokens = torch.full((len(sizes), width), pad)
    segments = torch.full((len(sizes), width), padding_segment)
    places = [slice(width - size, width) if side == "left" else slice(0, size) for size in sizes]
    rows = [draw_tokens(1, size, seed=size) for size in sizes]
    for i, (row, place) in enumerate(zip(rows, places, strict=True)):
        tokens[i, place], segments[i, place] = row[0], 1
    logits = model(tokens, segments_BT=None if side.endswith("without segments") else segments)
    for i, (row, place) in enumerate(zip(rows, places, strict=True)):
        assert_same(logits[i, place], model(row)[0], f"row of {sizes[i]} tokens")


# 2. Cache


def decode(model: Decoder, tokens: Tensor, chunks: Sequence[int], **along: Tensor | None) -> Tensor:
    """Logits of all tokens, read `chunks` at a time; `along` holds positions_BT and segments_BT."""
    assert sum(chunks) == tokens.shape[1]
    cache = model.new_cache(len(tokens), tokens.shape[1])
    parts = []
    for end, size in zip(itertools.accumulate(chunks), chunks, strict=True):
        now = slice(end - size, end)
        given = {name: value[:, now] for name, value in along.items() if value is not None}
        parts.append(model(tokens[:, now], cache=cache, **given))
    return torch.cat(parts, dim=1)


CHUNKS = [(1,) * LENGTH, (5, 1, 4, 2), (LENGTH,)]


@pytest.mark.parametrize("chunks", CHUNKS, ids=str)
@torch.no_grad()
def test_cached_decoding_equals_the_full_pass(model: Decoder, chunks: tuple[int, ...]) -> None:
    tokens = draw_tokens(3, LENGTH)
    assert_same(decode(model, tokens, chunks), model(tokens))


@pytest.mark.parametrize("chunks", CHUNKS, ids=str)
@torch.no_grad()
def test_cached_decoding_of_left_padded_rows_equals_the_rows_alone(model: Decoder, chunks: tuple[int, ...]) -> None:
    sizes = (LENGTH, 8, 3)
    tokens = draw_tokens(len(sizes), LENGTH)
    segments = torch.stack([(torch.arange(LENGTH) >= LENGTH - size).long() for size in sizes])
    logits = decode(model, tokens, chunks, segments_BT=segments)
    for i, size in enumerate(sizes):
        assert_same(logits[i, LENGTH - size :], model(tokens[i : i + 1, LENGTH - size :])[0], f"row of {size} tokens")


@pytest.mark.parametrize("chunks", CHUNKS, ids=str)
@torch.no_grad()
def test_cached_decoding_keeps_explicit_positions(model: Decoder, chunks: tuple[int, ...]) -> None:
    tokens = draw_tokens(2, LENGTH)
    positions = torch.stack([torch.arange(LENGTH) * 3 + 2, torch.arange(LENGTH) + 40])
    assert_same(decode(model, tokens, chunks, positions_BT=positions), model(tokens, positions_BT=positions))


@pytest.mark.parametrize("chunks", [(3,), (2, 1), (1, 1, 1)], ids=str)
@torch.no_grad()
def test_cached_padding_stays_hidden_from_tokens_without_segments(model: Decoder, chunks: tuple[int, ...]) -> None:
    padding, prompt_end = 4, LENGTH - 3
    tokens = draw_tokens(1, LENGTH)
    segments = (torch.arange(prompt_end) >= padding).long()[None]
    cache = model.new_cache(1, LENGTH)
    parts = [model(tokens[:, :prompt_end], segments_BT=segments, cache=cache)]
    parts += [model(part, cache=cache) for part in tokens[:, prompt_end:].split(list(chunks), dim=1)]
    assert_same(torch.cat(parts, dim=1)[:, padding:], model(tokens[:, padding:]))


# 3. Packing

DOCUMENT_SIZES = (6, 4, 1, 3)


def packed_rows() -> tuple[list[Tensor], Tensor, Tensor, Tensor]:
    """Documents; tokens, segments and positions of two rows that hold them all, in different orders, then padding."""
    documents = [draw_tokens(size, seed=20 + i) for i, size in enumerate(DOCUMENT_SIZES)]
    tokens, segments, positions = (torch.zeros(2, sum(DOCUMENT_SIZES) + 2, dtype=torch.int64) for _ in range(3))
    for row, order in enumerate(((0, 1, 2, 3), (3, 2, 0, 1))):
        start = 0
        for number in order:
            place = slice(start, start + DOCUMENT_SIZES[number])
            tokens[row, place], segments[row, place] = documents[number], number + 1
            positions[row, place] = torch.arange(DOCUMENT_SIZES[number])
            start = place.stop
        positions[row, start:] = torch.arange(tokens.shape[1] - start)  # padding is a segment like any other
    return documents, tokens, segments, positions


@pytest.mark.parametrize("explicit", [False, True], ids=["default positions", "explicit positions"])
@torch.no_grad()
def test_packed_documents_equal_the_documents_alone(model: Decoder, explicit: bool) -> None:
    documents, tokens, segments, positions = packed_rows()
    logits = model(tokens, positions_BT=positions if explicit else None, segments_BT=segments)
    for number, document in enumerate(documents):
        for row in range(2):
            packed = logits[row, segments[row] == number + 1]
            assert_same(packed, model(document[None])[0], f"document {number} in row {row}")


# 4. Explicit positions


@torch.no_grad()
def test_explicit_positions_equal_default_ones(model: Decoder) -> None:
    tokens = draw_tokens(3, LENGTH)
    expected = model(tokens)
    assert_same(model(tokens, positions_BT=torch.arange(LENGTH)[None]), expected, "one row of positions for all")
    assert_same(model(tokens, positions_BT=torch.arange(LENGTH).expand(3, -1)), expected, "a row of positions for each")


@torch.no_grad()
def test_positions_with_gaps_equal_a_row_whose_other_tokens_are_hidden(model: Decoder) -> None:
    """Where a token stands is what its position says, not its index in the row."""
    tokens = draw_tokens(2, LENGTH)
    mine = torch.arange(LENGTH) % 3 != 1
    segments = torch.where(mine, 1, 2).expand(2, -1)
    whole = model(tokens, positions_BT=torch.arange(LENGTH)[None], segments_BT=segments)
    alone = model(tokens[:, mine], positions_BT=torch.arange(LENGTH)[None, mine])
    assert_same(whole[:, mine], alone)


@torch.no_grad()
def test_shift_invariance_is_as_claimed(model: Decoder) -> None:
    """Far enough where it is not claimed: a method may treat all short sequences alike."""
    tokens, encoding = draw_tokens(2, LENGTH), first_encoding(model)
    shifts = [37, 11, 60]
    if not encoding.shift_invariant and (encoding.last_position is None or encoding.last_position > 50_000):
        shifts = [37_000, 11_000, 49_000]
    expected = model(tokens)
    shifted = model(tokens, positions_BT=torch.arange(LENGTH)[None] + shifts[0])
    each_row_its_own = model(tokens, positions_BT=torch.arange(LENGTH) + torch.tensor(shifts[1:])[:, None])
    if encoding.shift_invariant:
        assert_same(shifted, expected, slack=3)
        assert_same(each_row_its_own, expected, slack=3)
    else:
        assert (shifted - expected).abs().max() > 1e-3
        assert ((each_row_its_own - expected).abs().amax((1, 2)) > 1e-3).all()


# 5. A position does not depend on what follows it


@torch.no_grad()
def test_logits_do_not_depend_on_the_length_of_the_sequence(model: Decoder) -> None:
    tokens = draw_tokens(2, LENGTH)
    prefixes = (1, 2, 5, LENGTH - 1)
    before = [model(tokens[:, :size]) for size in prefixes]
    whole = model(tokens)
    for size, logits in zip(prefixes, before, strict=True):
        assert_same(logits, whole[:, :size], f"prefix of {size} tokens")
        # A hidden maximum, kept from the longer call, would show here.
        assert torch.equal(model(tokens[:, :size]), logits)


# 6. Backends


def one_batch(layout: str, seed: int) -> Batch:
    """Of one model: tokens, what they are to predict and where."""
    generator = torch.Generator().manual_seed(seed)
    _, packed, segments, positions = packed_rows()
    tokens = draw_tokens(*packed.shape, seed=seed)
    if layout == "plain":
        segments, positions = torch.ones_like(tokens), torch.arange(tokens.shape[1]).expand(2, -1)
    predicting = torch.randperm(tokens.numel(), generator=generator)[:9]
    targets = torch.randint(1, VOCABULARY_ROWS, predicting.shape, generator=generator)
    return Batch(*(array[None] for array in (tokens, segments, positions, predicting, targets)))


def logits_of(model: Decoder, batch: Batch, layout: str) -> Tensor:
    """Of every token of a batch of one model, by a plain call: (R * T, V)."""
    packed = layout == "packed"
    logits = model(
        batch.tokens_NRT[0],
        positions_BT=batch.positions_NRT[0] if packed else None,
        segments_BT=batch.segments_NRT[0] if packed else None,
    )
    return logits.flatten(0, 1)


def loss_and_gradients(model: Decoder, batch: Batch, layout: str) -> tuple[Tensor, dict[str, Tensor]]:
    """By plain autograd, of the real entries only."""
    predicting, targets = batch.predicting_NP[0], batch.targets_NP[0]
    real = targets != NO_TARGET
    loss = F.cross_entropy(logits_of(model, batch, layout)[predicting[real]], targets[real])
    parameters = dict(model.named_parameters())
    gradients = torch.autograd.grad(loss, list(parameters.values()), materialize_grads=True)
    return loss.detach(), dict(zip(parameters, gradients, strict=True))


def assert_same_gradients(actual: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> None:
    """But for rounding; a gradient that is truly zero (of what a softmax does not see, say) may be rounding alone."""
    assert list(actual) == list(expected)
    largest = max(float(gradient.abs().max()) for gradient in expected.values())
    for name, gradient in expected.items():
        size = float(gradient.abs().max())
        error = float((actual[name] - gradient).abs().max())
        if not name.startswith("encodings."):
            assert size > 0, f"{name} has no gradient"
        assert error <= max(1e-4 * size, 1e-7 * largest), f"gradient of {name} is off by {error:.1e}, and is {size:.1e}"


@pytest.mark.parametrize("layout", ["plain", "packed"])
def test_fused_and_eager_attention_agree(model: Decoder, layout: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel, calls = F.scaled_dot_product_attention, []

    def counted(*arguments: Any, **settings: Any) -> Tensor:
        calls.append(settings)
        return kernel(*arguments, **settings)

    monkeypatch.setattr(F, "scaled_dot_product_attention", counted)
    batch = one_batch(layout, seed=1)
    model.backend = "fused"
    fused_loss, fused = loss_and_gradients(model, batch, layout)
    refused = sdpa_refuses(contribution_at(first_encoding(model), torch.arange(3)[None]), torch.zeros(1, 1, 1, 1))
    assert len(calls) == (0 if refused else model.config.layers)
    calls.clear()
    model.backend = "eager"
    written_loss, written = loss_and_gradients(model, batch, layout)
    assert not calls
    assert_same(fused_loss, written_loss, "loss")
    assert_same_gradients(fused, written)


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["plain", "packed"])
@pytest.mark.parametrize(("count", "consecutive"), [(1, True), (3, True), (3, False)])
def test_a_fleet_equals_its_models_alone(
    table: dict[str, Any], style: str, layout: str, count: int, consecutive: bool
) -> None:
    """Whether or not it is told that positions are consecutive, as they are."""
    models = [make_model(style, table, seed=seed) for seed in range(count)]
    batches = [one_batch(layout, seed) for seed in range(count)]
    if count > 1:
        # A model with fewer targets than the others: the rest of its row is filled up and must not count.
        batches[1].targets_NP[0, 4:] = NO_TARGET
    fleet = Fleet(make_model(style, table), count, torch.device("cpu"))
    for row, model in enumerate(models):
        fleet.put(row, dict(model.named_parameters()))
    arrays = zip(*(batch.arrays() for batch in batches), strict=True)
    stacked = Batch(*map(torch.cat, arrays), consecutive=consecutive)
    losses, gradients = fleet.gradients(stacked)
    predicted = fleet.predictions(fleet.matrix_NW, stacked)
    for row, (model, batch) in enumerate(zip(models, batches, strict=True)):
        model.backend = "fused"
        loss, expected = loss_and_gradients(model, batch, layout)
        assert_same(losses[row], loss, f"loss of model {row}")
        assert_same_gradients({name: value[row] for name, value in gradients.items()}, expected)
        logits = logits_of(model, batch, layout)
        assert torch.equal(predicted[row], logits[batch.predicting_NP[0]].argmax(-1))


def collated_rows() -> tuple[Tensor, Tensor, Tensor]:
    """Tokens, segments and positions of packed rows as training has them: the positions of padding are all 0."""
    generator = torch.Generator().manual_seed(0)
    size_E = torch.randint(3, CONTEXT // 2, (9,), generator=generator).numpy()
    tokens = draw_tokens(len(size_E), int(size_E.max())).numpy()
    examples = Sequences(tokens, prompt=size_E - 1, size=size_E, buckets=size_E)
    batch = Batch.of(collate([examples], 0, CONTEXT - 10), 0, torch.device("cpu"))
    assert batch.segments_NRT.min() == 0 and batch.segments_NRT.max() > 1
    return batch.tokens_NRT[0], batch.segments_NRT[0], batch.positions_NRT[0]


@torch.no_grad()
def test_a_bias_by_distance_is_that_of_positions_and_of_the_index_in_a_row(model: Decoder) -> None:
    """Of every pair that a packed row lets see each other."""
    encoding = first_encoding(model)
    tokens, segments, positions = collated_rows()
    contribution = contribution_at(encoding, positions)
    function = contribution.distance_bias
    assert function is not None or encoding.name not in ("t5", "alibi")
    if function is None:
        return
    heads, length = encoding.geometry.heads, tokens.shape[1]
    table_HT = function(torch.arange(length))
    assert table_HT.dtype == torch.float32 and table_HT.shape == (heads, length)
    only = Contribution(distance_bias=function)
    biases = [
        only.bias(Decoder.layout(tokens, positions, segments, consecutive=consecutive)) for consecutive in (False, True)
    ]
    by_position, by_index = (found.expand(len(tokens), heads, length, length) for found in biases if found is not None)
    pairs = 0
    for row, query, key in itertools.product(range(len(tokens)), range(length), range(length)):
        if key <= query and segments[row, query] == segments[row, key] > 0:
            assert torch.equal(by_position[row, :, query, key], table_HT[:, query - key])
            assert torch.equal(by_index[row, :, query, key], table_HT[:, query - key])
            pairs += 1
    assert pairs > 1000


@pytest.mark.parametrize("backend", ["eager", "fused"])
def test_distances_of_index_equal_distances_of_position(model: Decoder, backend: Backend) -> None:
    """On packed rows, in every state that is no padding: what a fleet computes, and a model that knows positions."""
    model.backend = backend
    tokens, segments, positions = collated_rows()
    by_position = model.layout(tokens, positions, segments)
    by_index = model.layout(tokens, positions, segments, consecutive=True)
    assert not by_position.consecutive and by_index.consecutive
    real = segments > 0
    found: list[tuple[Tensor, dict[str, Tensor]]] = []
    for layout in (by_position, by_index):
        states = model.hidden(tokens, layout)[real]
        parameters = {name: p for name, p in model.named_parameters() if not name.startswith("unembedding")}
        weighted = (states * draw_normal(*states.shape, seed=3)).sum()
        gradients = torch.autograd.grad(weighted, list(parameters.values()), materialize_grads=True)
        found.append((states.detach(), dict(zip(parameters, gradients, strict=True))))
    assert_same(found[1][0], found[0][0], "states")
    assert_same_gradients(found[1][1], found[0][1])


# 7. Precision

FAR_POSITIONS = torch.tensor([0, 1, 2, 127, 128, 255, 256, 257, 258, 259, *range(2000, 2012), *range(4000, 4011)])


def far_positions(encoding: Encoding) -> Tensor:
    last = encoding.last_position
    return FAR_POSITIONS[None] if last is None else FAR_POSITIONS[None, last >= FAR_POSITIONS]


def in_bf16_and_in_fp32(style: str, table: Mapping[str, Any]) -> tuple[Encoding, Encoding]:
    """An encoding of a model cast to bf16, and one never cast that has the same, rounded, weights."""
    rounded, exact = (make_model(style, table, context=4100) for _ in range(2))
    rounded.to(torch.bfloat16)
    with torch.no_grad():
        for ours, theirs in zip(exact.parameters(), rounded.parameters(), strict=True):
            ours.copy_(theirs.float())
    return first_encoding(rounded), first_encoding(exact)


@torch.no_grad()
def test_a_bf16_model_rounds_embeddings_and_rotations_only_at_the_end(table: dict[str, Any], style: str) -> None:
    rounded, exact = in_bf16_and_in_fp32(style, table)
    positions = far_positions(rounded)
    geometry, length = rounded.geometry, positions.shape[1]
    # Embeddings of zero make a lost position visible, which a large embedding would drown.
    for x_BTD in (torch.zeros(1, length, geometry.width), draw_normal(1, length, geometry.width)):
        x_BTD = x_BTD.bfloat16()
        expected = exact.embed(x_BTD.float(), positions)
        actual = rounded.embed(x_BTD, positions)
        assert actual.dtype == torch.bfloat16
        assert_rounded_once_or_twice(actual, expected, scale=expected.abs() + (expected - x_BTD).abs())
    x_BHTK = draw_normal(1, geometry.heads, length, geometry.head_width).bfloat16()
    ours, theirs = (contribution_at(each, positions).rotation for each in (rounded, exact))
    for kind in ("of_queries", "of_keys") if ours and theirs else ():
        expected = getattr(theirs, kind)(x_BHTK.float(), positions)
        actual = getattr(ours, kind)(x_BHTK, positions)
        assert actual.dtype == torch.bfloat16
        assert_rounded_once_or_twice(actual, expected, scale=expected.abs() + x_BHTK.abs().amax())


def assert_rounded_once_or_twice(actual: Tensor, expected: Tensor, scale: Tensor) -> None:
    """bf16 rounds to within one part in 2^9; positions lost in bf16 would err by as much as the values themselves."""
    assert ((actual.float() - expected).abs() <= 2**-8 * scale + 1e-6).all()


@torch.no_grad()
def test_a_bf16_model_has_an_exact_fp32_bias_and_scale(table: dict[str, Any], style: str) -> None:
    rounded, exact = in_bf16_and_in_fp32(style, table)
    positions = far_positions(rounded)
    # What a layer reads is rounded in a bf16 model: both are given the same.
    layouts = [layout_of(each, positions) for each in (rounded, exact)]
    ours, theirs = (each.contribute(layout) for each, layout in zip((rounded, exact), layouts, strict=True))
    actual, expected = ours.bias(layouts[0]), theirs.bias(layouts[1])
    assert (actual is None) == (expected is None)
    if actual is not None and expected is not None:
        assert actual.dtype == torch.float32
        torch.testing.assert_close(actual, expected, rtol=2e-7, atol=1e-7)
    scales = (torch.as_tensor(scale_of(each, rounded.geometry.logit_scale)) for each in (ours, theirs))
    actual_scale, expected_scale = scales
    assert actual_scale.dtype == torch.float32
    torch.testing.assert_close(actual_scale, expected_scale, rtol=2e-7, atol=0)


# 8. Range


@torch.no_grad()
def test_positions_end_where_the_encoding_says(model: Decoder) -> None:
    tokens = draw_tokens(2, LENGTH)
    last = first_encoding(model).last_position
    if last is None:
        logits = model(tokens, positions_BT=torch.arange(100_000 - LENGTH + 1, 100_001)[None])
        assert logits.isfinite().all()
        if first_encoding(model).shift_invariant:
            # Phases in fp32 are off by up to 0.004 there; in bf16 they would mean nothing.
            torch.testing.assert_close(logits, model(tokens), rtol=0, atol=0.02)
        return
    at_the_end = torch.arange(last - LENGTH + 1, last + 1)[None]
    assert model(tokens, positions_BT=at_the_end).isfinite().all()
    with pytest.raises(UserError, match=str(last + 1)):
        model(tokens, positions_BT=at_the_end + 1)
    if last > 1000:
        return  # as many tokens would take minutes
    row = draw_tokens(1, last + 2)
    assert model(row[:, : last + 1]).isfinite().all()
    with pytest.raises(UserError, match=str(last + 1)):
        model(row)
    cache = model.new_cache(1, last + 2)
    model(row[:, : last + 1], cache=cache)
    with pytest.raises(UserError, match=str(last + 1)):
        model(row[:, last + 1 :], cache=cache)
    with pytest.raises((UserError, IndexError)):  # fleets take this way in, which checks nothing
        model.hidden(tokens, model.layout(tokens, at_the_end + 1))


@torch.no_grad()
def test_a_finite_table_refuses_negative_positions(style: str) -> None:
    model = make_model(style, {"name": "learned"})
    with pytest.raises(UserError, match="-1"):
        model(draw_tokens(1, LENGTH), positions_BT=torch.arange(LENGTH)[None] - 1)


# 9. Causality


@pytest.mark.parametrize("changed", [1, 6, LENGTH - 1])
@torch.no_grad()
def test_a_later_token_never_changes_an_earlier_logit(model: Decoder, changed: int) -> None:
    tokens = draw_tokens(1, LENGTH)
    others = tokens.clone()
    others[:, changed] = tokens[:, changed] % (VOCABULARY_ROWS - 1) + 1
    before, after = model(tokens), model(others)
    assert torch.equal(before[:, :changed], after[:, :changed])
    for place in range(changed, LENGTH):
        assert (before[:, place] - after[:, place]).abs().max() > 1e-4


# 10. Trace


@pytest.mark.parametrize("layout", ["plain", "packed"])
@torch.no_grad()
def test_a_trace_tells_what_attention_did(model: Decoder, layout: str) -> None:
    _, tokens, segments, _ = packed_rows()
    packed = layout == "packed"
    given = segments if packed else None
    untraced = model(tokens, segments_BT=given)
    trace = Trace()
    assert_same(model(tokens, segments_BT=given, trace=trace), untraced)
    length = tokens.shape[1]
    visible = torch.tensor(
        [
            [[s <= t and (not packed or row[s] == row[t]) for s in range(length)] for t in range(length)]
            for row in segments.tolist()
        ]
    )[:, None]
    assert len(trace.layers) == model.config.layers
    for layer, traced in enumerate(trace.layers):
        encoding, block = model.encoding_at(layer), model.blocks[layer]
        assert isinstance(block, Block)
        normed = block.attention_norm(trace.residual_BTD[layer])
        here = model.layout(tokens, segments_BT=given).at_layer(layer, normed, encoding.token_numbers(normed))
        contribution = encoding.contribute(here)
        queries, keys = block.attention.queries_and_keys(normed, contribution, here)
        scale, bias = scale_of(contribution, model.config.logit_scale), contribution.bias(here)
        shape = (2, model.config.heads, length, length)
        assert traced.content_BHTS.shape == traced.logits_BHTS.shape == traced.weights_BHTS.shape == shape
        assert_same(traced.content_BHTS, torch.einsum("bhtk,bhsk->bhts", queries, keys) * scale, "content")
        window = contribution.hidden_by_window(here)
        seen = visible.expand(shape) if window is None else visible.expand(shape) & ~window
        if contribution.score is None:
            expected = traced.content_BHTS + (0 if bias is None else bias)
            assert torch.equal(traced.logits_BHTS, torch.where(seen, expected, -math.inf))
        weights = traced.weights_BHTS
        assert (weights[~seen] == 0).all()
        assert (weights >= 0).all()
        if contribution.normalizer is None:
            assert_same(weights.sum(-1), torch.ones(shape[:-1]), "sum of weights")
            assert_same(weights, torch.softmax(traced.logits_BHTS, dim=-1), "weights")
    assert len(trace.residual_BTD) == model.config.layers + 1
    assert_same(model.unembed(model.final_norm(trace.residual_BTD[-1])), untraced, "logits of the last residual")


# 11. Resolved facts


def test_resolved_facts_are_plain_json(model: Decoder) -> None:
    for encoding in model.distinct_encodings():
        facts = encoding.resolved()
        assert json.loads(json.dumps(facts, allow_nan=False)) == facts


# 12. Initial weights


def test_a_seed_gives_the_same_weights_whatever_the_encoding(table: dict[str, Any], style: str) -> None:
    def weights(encoding: Mapping[str, Any], seed: int | None) -> dict[str, Tensor]:
        model = build(STYLES[style], VOCABULARY_ROWS, [encoding], Lengths(trained=CONTEXT // 2, met=CONTEXT))
        if seed is not None:
            initialize(model, seed)
        return {name: parameter.detach() for name, parameter in model.named_parameters()}

    ours, again, other_seed, constructed = (weights(table, seed) for seed in (3, 3, 4, None))
    without = weights({"name": "none"}, 3)
    assert {name for name in ours if not name.startswith("encodings.")} == set(without)
    for name, value in ours.items():
        assert torch.equal(value, again[name]), f"{name} is not drawn from the seed; `initial` is given a generator"
        stays = name.startswith("encodings.") and torch.equal(value, constructed[name])
        if value.numel() > 1 and value.std() > 0 and not stays:
            assert not torch.equal(value, other_seed[name]), (
                f"{name} is the same for all seeds: draw it from the generator that `initial` is given, or return None "
                "there, and it stays as `__init__` made it"
            )
        if name in without:
            assert torch.equal(value, without[name]), name


BEGINS = """
    def __init__(self, config, geometry):
        super().__init__(config, geometry)
        self.slopes = torch.nn.Parameter(torch.linspace(0.05, 1, geometry.heads))
    def contribute(self, layout):
        return Contribution(distance_bias=self.penalty)
    def penalty(self, distance):
        return -self.slopes.float().view(-1, *[1] * distance.ndim) * distance
    def initial(self, name, generator):
        return {initial}
"""


def test_a_parameter_may_stay_as_constructed_and_a_drawn_one_follows_the_seed(write: Write) -> None:  # noqa: F811
    def begin(name: str, initial: str) -> None:
        write(f"encodings/{name}.py", HEADER.format(name=name) + BEGINS.format(initial=initial))
        forget()
        test_a_seed_gives_the_same_weights_whatever_the_encoding({"name": name}, "t5")

    begin("as_constructed", "None")
    begin("drawn", "torch.randn(4, generator=generator)")
    with pytest.raises(AssertionError, match="draw it from the generator that `initial` is given, or return None"):
        begin("same_for_all", "torch.linspace(0.05, 2, 4)")


# The contract itself: encodings found through LENGTHWISE_PATH are covered, and broken ones are caught.

DOUBLES: dict[str, tuple[str, set[str]]] = {
    "double_sound": (
        """
        def contribute(self, layout):
            return Contribution(distance_bias=self.penalty)
        def penalty(self, distance):
            return -0.3 * distance.float().sqrt().expand(self.geometry.heads, *distance.shape)
        """,
        set(),
    ),
    "double_counts_columns": (
        """
        shift_invariant = False
        def embed(self, x, positions):
            return x + torch.arange(x.shape[1])[:, None].float().sin().to(x.dtype)
        """,
        {
            "test_padding_changes_no_real_token",
            "test_cached_decoding_equals_the_full_pass",
            "test_cached_decoding_of_left_padded_rows_equals_the_rows_alone",
            "test_cached_decoding_keeps_explicit_positions",
            "test_packed_documents_equal_the_documents_alone",
            "test_shift_invariance_is_as_claimed",
        },
    ),
    "double_counts_from_the_end": (
        """
        shift_invariant = False
        def embed(self, x, positions):
            left = positions.amax(dim=1, keepdim=True) - positions
            return x + left[..., None].float().sin().to(x.dtype)
        """,
        {"test_logits_do_not_depend_on_the_length_of_the_sequence", "test_padding_changes_no_real_token"},
    ),
    "double_remembers": (
        """
        longest = 0
        def contribute(self, layout):
            self.longest = max(self.longest, layout.key_positions_BS.shape[1])
            return Contribution(scale=1 + 0.1 * self.longest)
        """,
        {"test_logits_do_not_depend_on_the_length_of_the_sequence"},
    ),
    "double_rounds_distances": (
        """
        def __init__(self, config, geometry):
            super().__init__(config, geometry)
            self.slope = torch.nn.Parameter(torch.ones(1))
        def contribute(self, layout):
            return Contribution(distance_bias=self.penalty)
        def penalty(self, distance):
            rounded = distance.to(self.slope.dtype).expand(self.geometry.heads, *distance.shape)
            return (-0.1 * self.slope * rounded).float()
        """,
        {"test_a_bf16_model_has_an_exact_fp32_bias_and_scale"},
    ),
    "double_has_a_float_buffer": (
        """
        shift_invariant = False
        def __init__(self, config, geometry):
            super().__init__(config, geometry)
            self.register_buffer("frequencies", 1.37 ** -torch.arange(geometry.width).float())
        def embed(self, x, positions):
            return x + (positions[..., None].float() * self.frequencies.float()).sin().to(x.dtype)
        """,
        {"test_a_bf16_model_rounds_embeddings_and_rotations_only_at_the_end"},
    ),
    "double_claims_invariance": (
        """
        def embed(self, x, positions):
            return x + positions[..., None].float().sin().to(x.dtype)
        """,
        {"test_shift_invariance_is_as_claimed"},
    ),
    "double_does_nothing": ("shift_invariant = False", {"test_shift_invariance_is_as_claimed"}),
    "double_ends_unannounced": (
        """
        shift_invariant = False
        def embed(self, x, positions):
            return x + torch.linspace(0, 4, 5000)[positions][..., None].sin().to(x.dtype)
        """,
        {"test_positions_end_where_the_encoding_says"},
    ),
    "double_peeks": (
        """
        def embed(self, x, positions):
            return x + 0.5 * x.roll(-1, dims=1)
        """,
        {"test_a_later_token_never_changes_an_earlier_logit"},
    ),
    "double_tells_tensors": (
        "def resolved(self): return {'slope': torch.ones(1)}",
        {"test_resolved_facts_are_plain_json"},
    ),
}
HEADER = """
import torch
from lengthwise.encodings.encoding import Contribution, Encoding

class Double(Encoding):
    name = "{name}"
"""


@pytest.mark.slow
def test_encodings_of_lengthwise_path_are_covered_and_broken_ones_caught(tmp_path: Path) -> None:
    (tmp_path / "encodings").mkdir()
    for name, (body, _) in DOUBLES.items():
        text = HEADER.format(name=name) + textwrap.indent(textwrap.dedent(body), "    ")
        (tmp_path / "encodings" / f"{name}.py").write_text(text)
    outcomes = tmp_path / "outcomes.xml"
    options = ["-q", "-k", "double_ and t5", f"--junitxml={outcomes}", "-p", "no:cacheprovider", "-p", "no:randomly"]
    finished = subprocess.run(
        [sys.executable, "-m", "pytest", str(Path(__file__)), *options, "-o", "addopts="],
        env={**os.environ, "LENGTHWISE_PATH": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=280,  # a guard against hanging, not a measure
    )
    assert outcomes.exists(), finished.stdout + finished.stderr
    failed: dict[str, set[str]] = {name: set() for name in DOUBLES}
    seen: dict[str, set[str]] = {name: set() for name in DOUBLES}
    for case in ElementTree.parse(outcomes).iter("testcase"):
        test, _, parameters = case.attrib["name"].partition("[")
        double = parameters.split("-")[0]
        seen[double].add(test)
        if case.find("failure") is not None or case.find("error") is not None:
            failed[double].add(test)
    contract = {
        name
        for name, value in globals().items()
        if name.startswith("test_") and {"model", "table"} & set(inspect.signature(value).parameters)
    }
    assert len(contract) > 12
    assert seen["double_sound"] == contract
    assert not failed["double_sound"], finished.stdout
    for name, (_, expected) in DOUBLES.items():
        assert expected <= failed[name], f"{name} was not caught by {expected - failed[name]}"
