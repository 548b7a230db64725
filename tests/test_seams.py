"""Defects that the design before declarations hid, one test or more for each; a docstring says what it was.

Shape letters: B batch, T tokens, S keys, D model width.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from attention_by_hand import CONFIGS, PARTS, ROWS, Declared, decoder_with, draw_tokens, geometry_of, with_noise
from test_encoding_contract import assert_same_gradients
from test_methods import DATA, RECIPE, TASK, steps_of
from torch import Tensor, nn

from lengthwise.encodings.contribution import Contribution, Rotation, Scores
from lengthwise.encodings.encoding import AttentionLayout, Encoding, Geometry
from lengthwise.errors import UserError
from lengthwise.kernels.ops import Ops
from lengthwise.model.build import Lengths, build
from lengthwise.model.config import ModelConfig
from lengthwise.model.decoder import Block, Decoder
from lengthwise.model.initial_values import initialize
from lengthwise.training.batches import TrainingData, collate
from lengthwise.training.fleet import Batch, Fleet
from lengthwise.training.state import TrainingState
from lengthwise.training.update import Updater

CPU = torch.device("cpu")
SMALL = ModelConfig(layers=2, width=32, heads=2)


def small_decoder(encoding: str = "none", config: ModelConfig = SMALL) -> Decoder:
    return build(config, TASK.vocabulary.rows, [{"name": encoding}], Lengths(64, 64))


def batch_of(count: int, placement: str = "consecutive") -> Batch:
    data = [TrainingData(TASK, replace(DATA, placement=placement), seed=seed) for seed in range(count)]
    return Batch.of(collate([each.batches(0, 1, 8) for each in data], 0, 64, 8), 0, CPU)


def loss_of(model: Decoder, batch: Batch, row: int) -> Tensor:
    """Of one model of a fleet's batch, called as anyone would call it."""
    arrays = (each[row] for each in batch.arrays())
    tokens, segments, positions, predicting, targets = arrays
    logits = model(tokens, positions_BT=positions, segments_BT=segments).flatten(0, 1)[predicting]
    return F.cross_entropy(logits[targets >= 0], targets[targets >= 0].long())


# 1. Ordinary modules


class Ordinary(nn.Module):
    """A feed-forward of PyTorch's own modules."""

    def __init__(self, width: int, inner: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(width, inner), nn.GELU(), nn.Linear(inner, width))

    def forward(self, x_BTD: Tensor, ops: Ops) -> Tensor:
        return self.layers(x_BTD)


class Adapted(nn.Module):
    """A feed-forward of ours, and beside it a matrix product of PyTorch's."""

    def __init__(self, feed_forward: nn.Module, width: int) -> None:
        super().__init__()
        self.feed_forward, self.adapter = feed_forward, nn.Linear(width, width)

    def forward(self, x_BTD: Tensor, ops: Ops) -> Tensor:
        return self.feed_forward(x_BTD, ops) + self.adapter(x_BTD)


def ordinary_decoder(kind: str) -> Decoder:
    model = small_decoder()
    initialize(model, 3)
    with torch.random.fork_rng():
        torch.manual_seed(5)
        for block in cast(list[Block], list(model.blocks)):
            made: Any = Ordinary(32, 48) if kind == "ordinary" else Adapted(block.feed_forward, 32)
            block.feed_forward = made
    return model


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("kind", ["ordinary", "adapted"])
def test_a_block_of_ordinary_modules_learns(kind: str, count: int) -> None:
    """Gradients were asked of `embedding.` and `encodings.` alone, and all else had to write its own: an `nn.Linear` in
    the feed-forward got exactly 0.0 where our kernels worked, without an error."""
    fleet = Fleet(ordinary_decoder(kind), count, CPU)
    start = {name: value.clone() for name, value in ordinary_decoder(kind).named_parameters()}
    for row in range(count):
        fleet.put(row, start)
    batch = batch_of(count)
    _, gradients = fleet.gradients(batch)
    for row in range(count):
        model = ordinary_decoder(kind)
        loss_of(model, batch, row).backward()
        wanted = {name: cast(Tensor, parameter.grad) for name, parameter in model.named_parameters()}
        assert_same_gradients({name: each[row] for name, each in gradients.items()}, wanted)
    updater = Updater(fleet, RECIPE, TrainingState.begin(fleet.matrix_NW))
    losses = np.asarray(updater.run(steps_of(count)).read()[0])
    assert (losses[-5:].mean(0) < losses[:5].mean(0) - 0.2).all()
    for name, value in fleet.named(fleet.matrix_NW).items():
        assert all((each - start[name]).abs().max() > 1e-4 for each in value), f"{name} does not learn"


@pytest.mark.parametrize("style", ["t5", "llama"])
def test_kernels_write_the_gradients_of_modules_that_say_so_and_of_no_others(style: str) -> None:
    """What wrote its own gradient was decided by the name of a parameter; now its module says so."""
    model = small_decoder("t5", replace(SMALL, style=style))  # type: ignore[arg-type]
    fleet = Fleet(model, 2, CPU)
    assert set(fleet.shapes) - fleet.self_written == {"encodings.0.table"}
    for block in cast(list[Block], list(model.blocks)):
        mixed: Any = Adapted(block.feed_forward, 32)
        block.feed_forward = mixed
    fleet = Fleet(model, 2, CPU)
    others = set(fleet.shapes) - fleet.self_written
    adapters = {f"blocks.{layer}.feed_forward.adapter.{what}" for layer in range(2) for what in ("weight", "bias")}
    assert others == {"encodings.0.table", *adapters}
    for name in fleet.self_written:
        module = model.get_submodule(name.removesuffix(".weight"))
        assert "grad_out" in module._buffers and [own for own, _ in module.named_parameters()] == ["weight"], name


def test_a_parameter_that_nothing_trains_is_an_error() -> None:
    """It kept its initial value, or what weight decay made of it, to the end of the run."""
    model = ordinary_decoder("ordinary")
    model.blocks[1].register_parameter("idle", nn.Parameter(torch.ones(3)))
    fleet = Fleet(model, 2, CPU)
    with pytest.raises(UserError, match=r"blocks\.1\.idle has no part in the loss"):
        fleet.gradients(batch_of(2))


# 2. Positions in training


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("encoding", ["alibi", "t5", "rotary", "learned"])
def test_a_fleet_reads_positions_and_does_not_take_them_for_granted(encoding: str, count: int) -> None:
    """The training pass said `consecutive=True` of any positions: ALiBi and T5 took distances from the index, with the
    same loss at whatever positions (4.894449 both ways, where the model called directly had 4.881551)."""
    fleet = Fleet(small_decoder(encoding), count, CPU)
    fleet.initialize(list(range(count)))
    with torch.no_grad():
        for name, view in fleet.named(fleet.matrix_NW).items():
            noise = 2.0 if name.startswith("encodings.") else 0.3
            view += noise * torch.randn(view.shape, generator=torch.Generator().manual_seed(1))
    plain, moved = batch_of(count), batch_of(count, "randomized(range=64)")
    assert plain.consecutive and not moved.consecutive and torch.equal(plain.tokens_NRT, moved.tokens_NRT)
    losses = {}
    for name, batch in (("plain", plain), ("moved", moved)):
        losses[name], gradients = fleet.gradients(batch)
        for row in range(count):
            model = fleet.model
            model.load_state_dict(fleet.row(fleet.matrix_NW, row), strict=False)
            loss = loss_of(model, batch, row)
            torch.testing.assert_close(losses[name][row], loss.detach(), rtol=1e-5, atol=1e-6)
            found = torch.autograd.grad(loss, list(model.parameters()))
            wanted = dict(zip(fleet.shapes, found, strict=True))
            assert_same_gradients({key: each[row] for key, each in gradients.items()}, wanted)
    assert ((losses["plain"] - losses["moved"]).abs() > 2e-4).all()


# 4. What a contribution may know, and where it may act


def packed() -> tuple[Tensor, Tensor, list[Tensor]]:
    """Two sequences in one row: tokens, segments, and each alone."""
    alone = [draw_tokens(1, 5, seed=1), draw_tokens(1, 6, seed=2)]
    segments = torch.tensor([1, 2]).repeat_interleave(torch.tensor([5, 6]))[None]
    return torch.cat(alone, dim=1), segments, alone


def counting(told: bool) -> Callable[[Scores], Tensor]:
    """As CoPE counts: the gates from a key up to the query. `told`: whether those of hidden keys are left out."""

    def score(scores: Scores) -> Tensor:
        gates_BHTS = scores.logits_BHTS.sigmoid()
        if told:
            gates_BHTS = gates_BHTS * scores.visible_BTS[:, None]
        return scores.logits_BHTS + gates_BHTS.flip(-1).cumsum(-1).flip(-1).sin()

    return score


@pytest.mark.parametrize("told", [True, False])
@torch.no_grad()
def test_a_change_of_scores_is_told_which_keys_are_hidden(told: bool) -> None:
    """A bias of queries and keys was not: a correct CoPE failed packing, padding and gaps."""
    config = CONFIGS["t5"]

    class Scored(Encoding):
        name = "scored"

        def contribute(self, layout: AttentionLayout) -> Contribution:
            return Contribution(score=counting(told))

    model = decoder_with(Scored(None, geometry_of(config)), config)
    tokens, segments, alone = packed()
    found = model(tokens, segments_BT=segments)[0].split([5, 6])
    errors = [float((here - model(each)[0]).abs().max()) for here, each in zip(found, alone, strict=True)]
    assert (max(errors) < 1e-4) == told


@torch.no_grad()
def test_a_contribution_reads_what_its_layer_reads() -> None:
    """A bias that depends on the layer's input, as FoX has, had no place; numbers of tokens are kept in the cache."""
    model = decoder_with(Declared(PARTS["bias by token numbers"], geometry_of(CONFIGS["t5"])), CONFIGS["t5"])
    without = decoder_with(Declared(PARTS["nothing"], geometry_of(CONFIGS["t5"])), CONFIGS["t5"])
    tokens, segments, alone = packed()
    assert (model(tokens) - without(tokens)).abs().max() > 1e-2
    cache = model.new_cache(1, 11)
    steps = [model(tokens[:, [place]], cache=cache) for place in range(11)]
    torch.testing.assert_close(torch.cat(steps, dim=1), model(tokens), rtol=1e-5, atol=1e-5)
    assert cache.numbers.keys() == {0, 1} and cache.numbers[0].shape == (1, 11, 4)
    found = model(tokens, segments_BT=segments)[0].split([5, 6])
    for here, each in zip(found, alone, strict=True):
        torch.testing.assert_close(here, model(each)[0], rtol=1e-5, atol=1e-5)


def test_queries_are_told_from_keys() -> None:
    """One `rotate` was called alike for both: xPos and PoPE could not be written."""
    rotation = Rotation(
        lambda positions: positions[..., None].float(),
        query_magnitude=lambda positions: 0.5 ** positions[..., None].float(),
        key_magnitude=lambda positions: 2.0 ** positions[..., None].float(),
    )
    x, positions = torch.tensor([[[[1.0, 0.0]] * 6]]), torch.arange(6)[None]
    products = rotation.of_queries(x, positions)[0, 0] @ rotation.of_keys(x, positions)[0, 0].T
    for t in range(6):
        for s in range(t + 1):
            assert float(products[t, s]) == pytest.approx(0.5 ** (t - s) * math.cos(t - s), abs=1e-6)
    model = decoder_with(Declared(PARTS["narrower"], geometry_of(CONFIGS["t5"])), CONFIGS["t5"])
    assert model(draw_tokens(1, 4)).isfinite().all()


@torch.no_grad()
def test_a_contribution_acts_on_the_output() -> None:
    """Nothing acted there: gated attention could not be written."""
    config = CONFIGS["t5"]

    class Closed(Encoding):
        """Lets through what heads found for the tokens at even positions."""

        name = "closed"

        def contribute(self, layout: AttentionLayout) -> Contribution:
            def output(mixed_BHTK: Tensor, layout: AttentionLayout) -> Tensor:
                return mixed_BHTK * (layout.query_positions_BT % 2 == 0)[:, None, :, None]

            return Contribution(output=output)

    one = replace(config, layers=1)
    model = decoder_with(Closed(None, geometry_of(one)), one)
    tokens, others = draw_tokens(1, 6), draw_tokens(1, 6, seed=9)
    others[:, 3:] = tokens[:, 3:]
    same = (model(tokens) - model(others)).abs().amax(-1)[0] < 1e-6
    assert same.tolist() == [False, False, False, True, False, True]


# 5. Parameters of an encoding


class Numbers(Encoding):
    """A bias by distance from a number without dimensions, a vector, a constant, a module and a draw."""

    name = "numbers"

    def __init__(self, config: Any, geometry: Geometry) -> None:
        super().__init__(config, geometry)
        self.c = nn.Parameter(torch.tensor(0.1))
        self.slopes = nn.Parameter(torch.linspace(1, 2, geometry.heads))
        self.drawn = nn.Parameter(torch.zeros(geometry.heads))
        self.narrow = nn.Parameter(torch.zeros(geometry.heads))
        self.network = nn.Linear(1, geometry.heads)

    def initial(self, name: str, generator: torch.Generator) -> Tensor | float | None:
        if name == "drawn":
            return 3 + torch.rand(self.geometry.heads, generator=generator)
        return 0.01 if name == "narrow" else None

    def decays(self, name: str) -> bool:
        return name == "drawn"

    def contribute(self, layout: AttentionLayout) -> Contribution:
        return Contribution(distance_bias=self.bias)

    def bias(self, distance: Tensor) -> Tensor:
        learned = self.network(distance.float()[..., None]).movedim(-1, 0)
        slope = self.slopes + self.drawn + self.narrow
        return 0.1 * learned - self.c * slope.view(-1, *[1] * distance.ndim) * distance.float()


def numbers_fleet(count: int) -> Fleet:
    geometry = Geometry.of(SMALL.width, SMALL.heads)
    model = Decoder(SMALL, TASK.vocabulary.rows, [Numbers(None, geometry)] * SMALL.layers)
    fleet = Fleet(model, count, CPU)
    fleet.initialize(list(range(count)))
    return fleet


@pytest.mark.parametrize("count", [1, 3])
def test_a_number_without_dimensions_is_a_parameter_like_any_other(count: int) -> None:
    """It crashed every fleet: `unflatten: sizes must be non-empty`."""
    fleet = numbers_fleet(count)
    _, gradients = fleet.gradients(batch_of(count))
    assert gradients["encodings.0.c"].shape == (count,) and (gradients["encodings.0.c"] != 0).all()
    before = fleet.named(fleet.matrix_NW)["encodings.0.c"].clone()
    Updater(fleet, RECIPE, TrainingState.begin(fleet.matrix_NW)).run(steps_of(count)).read()
    assert (fleet.named(fleet.matrix_NW)["encodings.0.c"] != before).all()
    assert fleet.row(fleet.matrix_NW, 0)["encodings.0.c"].shape == ()


def test_an_encoding_says_how_its_parameters_begin() -> None:
    """What `__init__` made was overwritten by N(0, sd), and no mean could be given: FIRE's c = 0.1 became -0.65."""
    fleet = numbers_fleet(3)
    ours = {name.split(".", 2)[2]: value for name, value in fleet.named(fleet.matrix_NW).items() if "encodings" in name}
    assert torch.equal(ours["c"], torch.full((3,), 0.1)), "as __init__ made it"
    assert torch.equal(ours["slopes"], torch.linspace(1, 2, 2).expand(3, 2))
    assert ((ours["drawn"] >= 3) & (ours["drawn"] <= 4)).all() and len(set(ours["drawn"].flatten().tolist())) == 6
    assert 0 < ours["narrow"].abs().max() < 0.05, "a standard deviation around 0"
    assert len(set(ours["network.weight"].flatten().tolist())) == 6, "as PyTorch begins it, from the run's seed"
    again = numbers_fleet(3)
    assert torch.equal(again.matrix_NW, fleet.matrix_NW)


class Constructed(Encoding):
    """Modules and parameters in all the ways in which a constructor may begin them."""

    name = "constructed"

    def __init__(self, config: Any, geometry: Geometry) -> None:
        super().__init__(config, geometry)
        self.drawn = nn.Parameter(3 + torch.rand(geometry.heads))
        self.constant = nn.Linear(1, geometry.heads)
        nn.init.zeros_(self.constant.weight)
        nn.init.constant_(self.constant.bias, 3.0)
        last = nn.Linear(8, geometry.heads)
        nn.init.zeros_(last.weight)
        self.sequence = nn.Sequential(nn.Linear(1, 8), nn.ReLU(), last)
        self.normal = nn.Linear(1, 64)
        self.normal.weight.data.normal_(5.0, 0.1)
        self.replaced = nn.Linear(1, geometry.heads)
        self.replaced.weight = nn.Parameter(torch.ones(geometry.heads, 1))


def constructed(seed: int) -> dict[str, Tensor]:
    model = Decoder(SMALL, TASK.vocabulary.rows, [Constructed(None, Geometry.of(SMALL.width, SMALL.heads))] * 2)
    torch.rand(seed)  # whatever was drawn before
    initialize(model, seed)
    return {name: each.detach().clone() for name, each in model.encodings[0].named_parameters()}


def test_what_a_constructor_makes_of_modules_stays_and_what_it_draws_comes_from_the_seed() -> None:
    """Modules of PyTorch were begun anew over what `__init__` had made of them, and what it drew itself came from
    nobody's seed: all models of a fleet had the same numbers, and others in the next process."""
    one, again, other = constructed(1), constructed(1), constructed(2)
    for name, value in one.items():
        assert torch.equal(value, again[name]), name
    for found in (one, other):
        assert not found["constant.weight"].any() and (found["constant.bias"] == 3).all()
        assert not found["sequence.2.weight"].any() and found["sequence.2.bias"].any()
        assert (found["replaced.weight"] == 1).all()
        assert ((found["drawn"] >= 3) & (found["drawn"] <= 4)).all() and (found["normal.weight"] > 4).all()
    drawn = [name for name in one if not torch.equal(one[name], other[name])]
    assert {"drawn", "normal.weight", "sequence.0.weight", "sequence.0.bias"} <= set(drawn)


def test_an_encoding_says_which_of_its_parameters_decay() -> None:
    """Weight decay applied to none of them, whatever they were."""
    fleet = numbers_fleet(2)
    decays = fleet.named(fleet.decays(norms=False)[None])
    assert {name for name, value in decays.items() if "encodings" in name and value.any()} == {"encodings.0.drawn"}


def test_the_contract_takes_a_gradient_that_is_truly_zero() -> None:
    """It divided by it: a correct FIRE, whose last bias no softmax sees, failed 12 tests."""
    wanted = {"encodings.0.bias": torch.zeros(3), "blocks.0.weight": torch.tensor([1.0, -2.0])}
    rounding = {"encodings.0.bias": torch.full((3,), 1e-9), "blocks.0.weight": torch.tensor([1.0, -2.0])}
    assert_same_gradients(rounding, wanted)
    with pytest.raises(AssertionError, match="is off by"):
        assert_same_gradients(rounding | {"encodings.0.bias": torch.full((3,), 1e-3)}, wanted)
    with pytest.raises(AssertionError, match="has no gradient"):
        assert_same_gradients(wanted, wanted | {"blocks.0.weight": torch.zeros(2)})


@pytest.mark.usefixtures("encodings_outside")
@torch.no_grad()
def test_a_method_may_treat_all_short_sequences_alike() -> None:
    """`shift_invariant = False` had to show on twelve tokens: FIRE with its published L = 512 failed, and was right."""
    model, tokens = with_noise(build(CONFIGS["t5"], ROWS, [{"name": "fire"}], Lengths(64, 64))), draw_tokens(1, 12)
    near, far = (model(tokens, positions_BT=torch.arange(12)[None] + shift) for shift in (37, 4900))
    assert not model.encoding_at(0).shift_invariant
    torch.testing.assert_close(near, model(tokens), rtol=3e-5, atol=3e-5)
    assert (far - model(tokens)).abs().max() > 1e-3


# 6. How many keys are visible


def counted(layout: AttentionLayout, segments: list[int] | None) -> list[int]:
    length = layout.query_positions_BT.shape[1]
    return [sum(segments is None or segments[s] == segments[t] for s in range(t + 1)) for t in range(length)]


def test_scales_count_visible_keys_not_positions() -> None:
    """A scale like that of SSMax had positions alone, and took position + 1 for the number of keys: wrong as soon as
    positions are randomised, coupled or have gaps."""
    tokens = torch.zeros(1, 7, dtype=torch.int64)
    gapped = torch.tensor([[3, 4, 9, 20, 21, 40, 63]])
    for segments in (None, [1, 1, 1, 2, 2, 2, 2], [0, 0, 1, 1, 1, 1, 1], [1, 2, 1, 2, 2, 1, 1]):
        given = None if segments is None else torch.tensor([segments])
        for positions in (None, gapped):
            layout = Decoder.layout(tokens, positions, given)
            assert layout.visible_BT[0].tolist() == counted(layout, segments)
            some = layout.queries(torch.tensor([6, 2]))
            assert some.visible_BT[0].tolist() == [counted(layout, segments)[t] for t in (6, 2)]


@pytest.mark.usefixtures("encodings_outside")
@torch.no_grad()
def test_logits_that_scale_with_the_number_of_keys_do_not_depend_on_positions() -> None:
    """With position + 1 they did."""
    model, tokens = with_noise(build(CONFIGS["t5"], ROWS, [{"name": "ssmax"}], Lengths(64, 64))), draw_tokens(1, 7)
    gapped = torch.tensor([[3, 4, 9, 20, 21, 40, 63]])
    assert torch.equal(model(tokens, positions_BT=gapped), model(tokens))
    without = with_noise(build(CONFIGS["t5"], ROWS, [{"name": "none"}], Lengths(64, 64)))
    assert (model(tokens) - without(tokens)).abs().max() > 1e-2
