"""Interventions: what is hidden is hidden where it should be, and who counts at the separator is found out.

Shape letters: B examples, T queries, S keys, D width, J tokens of a separator, V vocabulary rows.
"""

from collections.abc import Callable
from itertools import product
from typing import Any, cast

import numpy as np
import pytest
import torch
from separator_doubles import a_run, counter, decoder
from torch import Tensor

from lengthwise.analysis.exchanges import (
    DONORS,
    NO_DONOR,
    donors_of,
    exchange_rows,
    read_exchanged,
    separator_states,
    target_sizes,
)
from lengthwise.analysis.knockouts import EVERY_LAYER, KNOCKOUTS, Knockout, Trial, outcomes_of, read_hiding, trials
from lengthwise.analysis.regions import Region, RegionInputs, region_inputs
from lengthwise.analysis.separator import knockout_rows
from lengthwise.kernels.ops import Ops
from lengthwise.model.decoder import Block, Decoder


@pytest.fixture(scope="module")
def divided() -> RegionInputs:
    """copy.repeat with 2 + 3 tokens, lengths 2 to 4 seen, 5 to 9 not."""
    return region_inputs(a_run(), 4)


# Knock-outs


def every_place(tokens_BT: Tensor) -> Tensor:
    return torch.arange(tokens_BT.numel())


def read(model: Decoder, tokens_BT: Tensor, hidden_BTS: Tensor, layer: int = EVERY_LAYER) -> Tensor:
    """Logits of all tokens (B, T, V)."""
    layer_B = torch.full((len(tokens_BT),), layer)
    return read_hiding(model, tokens_BT, hidden_BTS, layer_B, every_place(tokens_BT)).view(*tokens_BT.shape, -1)


def some_batch(divided: RegionInputs) -> tuple[Tensor, Tensor]:
    batch = list(divided.inputs.batches())[-2]
    return batch.tokens_BT, divided.of(batch)


def by_hand(model: Decoder, tokens_BT: Tensor, hidden: Callable[[int], Tensor]) -> Tensor:
    """Logits from the formula of a block, with what is hidden in each layer."""
    layout = model.layout(tokens_BT)
    x_BTD = model.embedding(tokens_BT)
    for layer, block in enumerate(cast(list[Block], list(model.blocks))):
        contribution = layout.contribution(model.encoding_at(layer))
        assert set(contribution.names) <= {"distance_bias"}
        projected = block.attention.projection(block.attention_norm(x_BTD)).chunk(3, dim=-1)
        q, k, v = (each.unflatten(-1, (model.config.heads, -1)).transpose(1, 2) for each in projected)
        logits = torch.einsum("bhtk,bhsk->bhts", q, k) * model.config.logit_scale
        bias = contribution.bias(layout)
        logits = logits if bias is None else logits + bias
        weights = logits.masked_fill(hidden(layer)[:, None], -torch.inf).softmax(-1)
        mixed = torch.einsum("bhts,bhsk->bhtk", weights, v).transpose(1, 2).flatten(-2)
        x_BTD = x_BTD + block.attention.output(mixed)
        x_BTD = x_BTD + block.feed_forward(block.feed_forward_norm(x_BTD), Ops())
    return model.unembed(model.final_norm(x_BTD))


@pytest.mark.parametrize("encoding", ["none", "alibi", "t5", "rotary", "sinusoidal"])
@torch.no_grad()
def test_hiding_nothing_changes_nothing(divided: RegionInputs, encoding: str) -> None:
    model, (tokens_BT, region_BT) = decoder(encoding=encoding), some_batch(divided)
    torch.testing.assert_close(read(model, tokens_BT, Trial(None).hidden(region_BT)), model(tokens_BT))


@pytest.mark.parametrize("layer", [EVERY_LAYER, 0, 1, 2])
@pytest.mark.parametrize("knockout", KNOCKOUTS, ids=lambda knockout: knockout.name)
@torch.no_grad()
def test_what_is_hidden_is_hidden_where_it_should_be(divided: RegionInputs, knockout: Knockout, layer: int) -> None:
    model, (tokens_BT, region_BT) = decoder(layers=3), some_batch(divided)
    size = tokens_BT.shape[1]
    hidden_BTS = torch.zeros(len(tokens_BT), size, size, dtype=torch.bool)
    causal_BTS = torch.zeros_like(hidden_BTS)
    for b, t, s in product(range(len(tokens_BT)), range(size), range(size)):
        causal_BTS[b, t, s] = s > t
        forbidden = region_BT[b, t] == knockout.queries and region_BT[b, s] == knockout.keys and s != t
        hidden_BTS[b, t, s] = s > t or bool(forbidden)
    assert torch.equal(knockout.hidden(region_BT), hidden_BTS)
    assert not knockout.hidden(region_BT).all(-1).any(), "a query sees itself at least"
    expected = by_hand(model, tokens_BT, lambda each: hidden_BTS if layer in (EVERY_LAYER, each) else causal_BTS)
    found = read(model, tokens_BT, hidden_BTS, layer)
    torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)
    assert not torch.allclose(found, model(tokens_BT), atol=1e-3), "it makes a difference"


@torch.no_grad()
def test_a_token_that_sees_nothing_but_itself_is_alone(divided: RegionInputs) -> None:
    model, (tokens_BT, _) = decoder(encoding="none"), some_batch(divided)
    blind = Knockout("everything", Region.TARGET, Region.TARGET).hidden(torch.full_like(tokens_BT, Region.TARGET))
    alone = model(tokens_BT.reshape(-1, 1)).view(*tokens_BT.shape, -1)
    torch.testing.assert_close(read(model, tokens_BT, blind), alone)
    assert not torch.allclose(alone, model(tokens_BT), atol=1e-3)


@torch.no_grad()
def test_targets_that_do_not_see_the_source_do_not_depend_on_it(divided: RegionInputs) -> None:
    """With one layer: with more, the separator may have told them."""
    model, (tokens_BT, region_BT) = decoder(layers=1), some_batch(divided)
    other_BT = torch.where(region_BT == Region.SOURCE, tokens_BT.flip(0), tokens_BT)
    assert not torch.equal(other_BT, tokens_BT)
    in_target = region_BT == Region.TARGET
    hidden_BTS = next(each for each in KNOCKOUTS if each.name == "source").hidden(region_BT)
    one, two = (read(model, each, hidden_BTS)[in_target] for each in (tokens_BT, other_BT))
    torch.testing.assert_close(one, two)
    assert not torch.allclose(model(tokens_BT)[in_target], model(other_BT)[in_target], atol=1e-3)


def test_rows_of_a_batch_have_trials_of_their_own(divided: RegionInputs) -> None:
    """All trials at once are what each is alone, and nothing hidden is what the model does by itself."""
    model = decoder()
    tried = trials(2)
    assert len(tried) == 1 + len(KNOCKOUTS) * 3 and len(trials(1)) == 1 + len(KNOCKOUTS)
    end = a_run().make_tokens().end
    together = [each.row(divided) for each in outcomes_of(model, divided, tried, end)]
    alone = [each.row(divided) for trial in tried for each in outcomes_of(model, divided, [trial], end)]
    assert together == alone == knockout_rows(model, divided, end)
    assert [(row["hidden"], row["layer"]) for row in together[:4]] == [
        ("nothing", 0), ("prefix", 0), ("prefix", 1), ("prefix", 2),
    ]  # fmt: skip


# Exchanges


@pytest.mark.parametrize("reads", ["first", "last"])
def test_who_takes_the_count_from_the_separator_ends_as_the_donor_does(divided: RegionInputs, reads: str) -> None:
    own, equal, shorter, longer = exchange_rows(counter(reads), divided, a_run().make_tokens().end)
    for group, examples in (("seen", 6), ("unseen", 20)):
        assert (
            own[group] == equal[group] == {"n": examples, "as_own": examples, "as_donor": 0, "earlier": 0, "not_yet": 0}
        )
        n = shorter[group]["n"]
        assert shorter[group] == {"n": n, "as_own": 0, "as_donor": n, "earlier": 0, "not_yet": 0}
        assert longer[group]["not_yet"] == longer[group]["n"] == n > 0, "longer than the target that is shown"
    assert [row["donor"] for row in (own, equal, shorter, longer)] == list(DONORS)


def test_who_counts_the_source_ends_as_before(divided: RegionInputs) -> None:
    for row in exchange_rows(counter("source"), divided, a_run().make_tokens().end):
        for group in ("seen", "unseen"):
            assert row[group]["as_own"] == row[group]["n"] > 0


def test_donors_have_targets_as_asked_and_come_from_their_own_side(divided: RegionInputs) -> None:
    due_E = target_sizes(divided)
    seen_E = divided.inputs.length_E <= 4
    compares: dict[str, Callable[[Any, Any], Any]] = {
        "equal": np.equal, "shorter": np.less, "longer": np.greater,
    }  # fmt: skip
    for kind, compare in compares.items():
        donor_E = donors_of(divided, kind)
        takes_E = donor_E != NO_DONOR
        assert compare(due_E[donor_E], due_E)[takes_E].all()
        assert (seen_E[donor_E] == seen_E)[takes_E].all() and (donor_E != np.arange(len(due_E)))[takes_E].all()
        without = {"equal": [], "shorter": [2, 5], "longer": [4, 9]}[kind]
        assert (takes_E == ~np.isin(divided.inputs.length_E, without)).all()


@torch.no_grad()
def test_an_exchange_replaces_what_layers_read_at_the_separator(divided: RegionInputs) -> None:
    """In all layers of a real model: then all that a target knows of the donor is what its separator was."""
    model, (tokens_BT, region_BT) = decoder(), some_batch(divided)
    states = separator_states(model, divided)
    examples = list(divided.inputs.batches())[-2].example_B
    where_BJ = torch.stack([(row == Region.SEPARATOR).nonzero()[:, 0] for row in region_BT])
    every_B = torch.full((len(tokens_BT),), EVERY_LAYER)

    def exchanged(given: Tensor, layer_B: Tensor) -> Tensor:
        found = read_exchanged(model, tokens_BT, where_BJ, given, layer_B, every_place(tokens_BT))
        return found.view(*tokens_BT.shape, -1)

    own = states[:, torch.from_numpy(examples)]
    plain = model(tokens_BT)
    torch.testing.assert_close(exchanged(own, every_B), plain, msg="one's own changes nothing")
    given = states[:, :1].expand(-1, len(examples), -1, -1)
    found = exchanged(given, every_B)
    before = region_BT < Region.SEPARATOR
    torch.testing.assert_close(found[before], plain[before], msg="what comes before sees nothing of it")
    assert not torch.allclose(found[region_BT == Region.TARGET], plain[region_BT == Region.TARGET], atol=1e-3)
    for layer in (0, 1):
        kept = own.clone()
        kept[layer] = given[layer]
        alone, mixed = (
            exchanged(given, torch.full_like(every_B, layer)),
            exchanged(kept, torch.full_like(every_B, layer)),
        )
        torch.testing.assert_close(alone, mixed, msg="only its own layer counts")
    # The embedding of a separator is the same in all examples: without absolute positions, nothing is exchanged there.
    torch.testing.assert_close(exchanged(given, torch.zeros_like(every_B)), plain)
