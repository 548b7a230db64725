"""Every part that an encoding may declare, alone and with others, against attention one key at a time.

Shape letters: B batch, H heads, T queries, S keys, K head width, D model width.
"""

import random
from functools import cache
from itertools import chain

import pytest
import torch
from attention_by_hand import (
    CONFIGS,
    PARTS,
    Attended,
    ByHand,
    Declared,
    Rotates,
    Several,
    decoder_with,
    draw_tokens,
    geometry_of,
    read_by_hand,
)
from torch import Tensor

from lengthwise.encodings.check import check
from lengthwise.encodings.contribution import combine
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.errors import UserError
from lengthwise.model import attention
from lengthwise.model.attention import attention_weights
from lengthwise.model.backend import Backend
from lengthwise.model.decoder import Block, Decoder
from lengthwise.model.trace import Trace

LENGTH = 9
POSITIONS = {"consecutive": range(LENGTH), "gapped": [1, 2, 5, 6, 7, 11, 12, 18, 20]}


def goes_together(names: tuple[str, ...]) -> bool:
    """One rotation of each kind and one normaliser at most."""
    rotations = [name for name in names if isinstance(PARTS[name], Rotates)]
    own_weights = [name for name in names if type(PARTS[name]).weights is not ByHand.weights]
    return len(rotations) <= 1 and len(own_weights) <= 1 and "nothing" not in names


TOGETHER = [
    ("window", "rotation, interleaved", "scale by visible keys"),
    # Two of a kind: what adds, multiplies, hides or follows one another.
    ("window", "windows by head"),
    ("scale by head and position", "scale by visible keys"),
    ("bias by distance", "bias by distance"),
    ("bias by row and column", "bias by row and column"),
    ("scores above mean", "scores squared"),
    ("output by head", "output plus share"),
    ("wider", "narrower"),
    ("bias by token numbers", "output by layer input", "rotation, halves"),
    ("bias by position", "bias by position"),
    ("rotation of tokens", "rotation, interleaved"),
    ("rotation of tokens", "narrower"),
]


def compositions(count: int) -> list[tuple[str, ...]]:
    """Two or three parts each, drawn once and for all."""
    draw, found = random.Random(7), list(TOGETHER)
    while len(found) < len(TOGETHER) + count:
        names = tuple(draw.sample(list(PARTS), draw.choice([2, 3])))
        if goes_together(names) and names not in found:
            found.append(names)
    return found


CASES: dict[str, ByHand] = PARTS | {
    " + ".join(names): Several(*(PARTS[name] for name in names)) for names in compositions(12)
}


@cache
def decoder(case: str, config: str) -> Decoder:
    return decoder_with(Declared(CASES[case], geometry_of(CONFIGS[config])), CONFIGS[config])


@cache
def by_hand(
    case: str, config: str, tokens: tuple[int, ...], positions: tuple[int, ...]
) -> tuple[Tensor, list[Attended]]:
    return read_by_hand(decoder(case, config), torch.tensor(tokens), positions, CASES[case])


def expected(case: str, config: str, tokens_T: Tensor, positions: list[int] | range) -> Tensor:
    return by_hand(case, config, tuple(tokens_T.tolist()), tuple(positions))[0]


def assert_same(actual: Tensor, wanted: Tensor, what: str = "next-token logits") -> None:
    torch.testing.assert_close(actual, wanted, rtol=5e-5, atol=5e-5, msg=lambda text: f"{what}: {text}")


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(params=CONFIGS)
def config(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.mark.parametrize("placed", POSITIONS)
@torch.no_grad()
def test_a_model_computes_what_the_formulas_say(case: str, config: str, placed: str) -> None:
    model, tokens, positions = decoder(case, config), draw_tokens(1, LENGTH), POSITIONS[placed]
    wanted, layers = by_hand(case, config, tuple(tokens[0].tolist()), tuple(positions))
    trace = Trace()
    given = None if placed == "consecutive" else torch.tensor([list(positions)])
    assert_same(model(tokens, positions_BT=given, trace=trace)[0], wanted)
    for layer, (traced, attended) in enumerate(zip(trace.layers, layers, strict=True)):
        assert_same(traced.logits_BHTS[0], attended.logits_HTS, f"attention logits of layer {layer}")
        assert_same(traced.weights_BHTS[0], attended.weights_HTS, f"attention weights of layer {layer}")
    backends: list[Backend] = ["eager", "fused"]
    for model.backend in backends:
        assert_same(model(tokens, positions_BT=given)[0], wanted, model.backend)
        assert_same(model(tokens.expand(2, -1), positions_BT=given)[1], wanted, f"{model.backend}, two rows")


def test_the_check_before_training_accepts_it(case: str, config: str) -> None:
    check(decoder(case, config).distinct_encodings()[0])


@pytest.mark.parametrize("placed", POSITIONS)
@torch.no_grad()
def test_packed_sequences_equal_each_alone(case: str, config: str, placed: str) -> None:
    model = decoder(case, config)
    sizes = [[4, LENGTH, 1], [LENGTH, 3, 2]]
    rows = [[draw_tokens(size, seed=size) for size in row] for row in sizes]
    segments = torch.stack([torch.arange(1, 4).repeat_interleave(torch.tensor(row)) for row in sizes])
    positions = [[list(POSITIONS[placed])[:size] for size in row] for row in sizes]
    given = torch.tensor([list(chain(*row)) for row in positions]) if placed == "gapped" else None
    logits = model(torch.stack([torch.cat(row) for row in rows]), positions_BT=given, segments_BT=segments)
    for found, tokens, places, each in zip(logits, rows, positions, sizes, strict=True):
        for packed, alone, place in zip(found.split(each), tokens, places, strict=True):
            assert_same(packed, expected(case, config, alone, place))


@pytest.mark.parametrize("placed", POSITIONS)
@torch.no_grad()
def test_padding_on_the_left_changes_nothing(case: str, config: str, placed: str) -> None:
    model, sizes = decoder(case, config), (LENGTH, 4)
    tokens, segments, positions = (torch.zeros(2, LENGTH + 2, dtype=torch.int64) for _ in range(3))
    for row, size in enumerate(sizes):
        tokens[row, -size:], segments[row, -size:] = draw_tokens(size, seed=size), 1
        positions[row, -size:] = torch.tensor(list(POSITIONS[placed])[:size])
    logits = model(tokens, positions_BT=positions if placed == "gapped" else None, segments_BT=segments)
    for row, size in enumerate(sizes):
        assert_same(logits[row, -size:], expected(case, config, tokens[row, -size:], POSITIONS[placed][:size]))


@pytest.mark.parametrize(
    ("padding", "chunks", "placed"),
    [(0, (1,) * LENGTH, "gapped"), (2, (4, 1, 3, 1), "consecutive"), (2, (4, 1, 3, 1), "gapped")],
    ids=str,
)
@torch.no_grad()
def test_cached_reading_equals_reading_at_once(
    case: str, config: str, placed: str, chunks: tuple[int, ...], padding: int
) -> None:
    """Token by token and in parts; the first part may begin with padding, which stays hidden from all that follow."""
    model, tokens, positions = decoder(case, config), draw_tokens(1, LENGTH), torch.tensor([list(POSITIONS[placed])])
    cache, found = model.new_cache(1, padding + LENGTH), []
    parts = zip(tokens.split(list(chunks), dim=1), positions.split(list(chunks), dim=1), strict=True)
    for number, (part, place) in enumerate(parts):
        segments = None
        if padding and number == 0:
            ahead = torch.zeros(1, padding, dtype=torch.int64)
            segments = torch.cat([ahead, torch.ones_like(part)], dim=1)
            part, place = torch.cat([ahead, part], dim=1), torch.cat([ahead, place], dim=1)
        given = place if placed == "gapped" else None
        found.append(model(part, positions_BT=given, segments_BT=segments, cache=cache))
    assert_same(torch.cat(found, dim=1)[0, padding:], expected(case, config, tokens[0], POSITIONS[placed]))


@pytest.mark.parametrize("placed", POSITIONS)
@torch.no_grad()
def test_some_queries_get_what_all_get(case: str, config: str, placed: str) -> None:
    """Of `AttentionLayout.queries` and `block`: rows of the whole, for a part that is made for them alone."""
    model, tokens = decoder(case, config), draw_tokens(1, LENGTH)
    encoding, block = model.encoding_at(0), model.blocks[0]
    assert isinstance(block, Block)
    attended = by_hand(case, config, tuple(tokens[0].tolist()), tuple(POSITIONS[placed]))[1][0]
    given = None if placed == "consecutive" else torch.tensor([list(POSITIONS[placed])])
    x_BTD = block.attention_norm(model.embedding(tokens))

    def weights(layout: AttentionLayout, chosen: slice | Tensor, keys: int) -> Tensor:
        some = layout.contribution(encoding)
        found = attention_weights(q[:, :, chosen], k[:, :, :keys], some, layout, model.config.logit_scale)
        return found[2][0]

    whole = model.layout(tokens, given).at_layer(0, x_BTD, encoding.token_numbers(x_BTD))
    q, k = block.attention.queries_and_keys(x_BTD, whole.contribution(encoding), whole)
    assert_same(weights(whole, slice(None), LENGTH), attended.weights_HTS, "all")
    for chosen in (slice(2, 6), torch.tensor([7, 0, 3])):
        some = whole.queries(chosen)
        assert some.own_key_T.tolist() == torch.arange(LENGTH)[chosen].tolist()
        assert_same(weights(some, chosen, LENGTH), attended.weights_HTS[:, chosen], f"queries {chosen}")
    again = whole.queries(slice(2, 8)).queries(torch.tensor([4, 1]))
    assert_same(weights(again, torch.tensor([6, 3]), LENGTH), attended.weights_HTS[:, [6, 3]], "queries of queries")
    assert_same(weights(whole.block(3, 7), slice(3, 7), 7), attended.weights_HTS[:, 3:7, :7], "a block")


@pytest.mark.parametrize("placed", POSITIONS)
@torch.no_grad()
def test_a_few_queries_at_a_time_give_what_all_at_once_give(
    case: str, config: str, placed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention, "LARGEST_LOGITS", 2 * 4 * LENGTH)  # two queries of four heads
    model, tokens = decoder(case, config), draw_tokens(1, LENGTH)
    given = None if placed == "consecutive" else torch.tensor([list(POSITIONS[placed])])
    assert_same(model(tokens, positions_BT=given)[0], expected(case, config, tokens[0], POSITIONS[placed]))


@pytest.mark.parametrize(
    ("first", "second", "what"),
    [
        ("rotation, halves", "magnitudes, interleaved", "rotation"),
        ("softmax plus one", "sigmoid over visible", "normalizer"),
    ],
)
def test_two_of_what_there_can_be_one_are_refused(first: str, second: str, what: str) -> None:
    positions = torch.arange(3)[None]
    declared = [PARTS[name].declare(AttentionLayout(positions, positions)) for name in (first, second)]
    with pytest.raises(UserError, match=f"two methods of one layer have a {what}"):
        combine(declared)
