"""Placements: positions are data, drawn for each example alone, and every encoding follows them in training."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import small_study
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise import registry
from lengthwise.data.examples import Examples
from lengthwise.data.scratchpad import Scratchpad
from lengthwise.data.sequences import Sequences, join, render
from lengthwise.errors import UserError
from lengthwise.executors.local import run_study
from lengthwise.model.build import Lengths, build
from lengthwise.model.config import ModelConfig
from lengthwise.placements.choosing import make_placement, placement_words
from lengthwise.placements.placement import Generators, Placement
from lengthwise.records.rows import load_results
from lengthwise.seeding import stream
from lengthwise.study import make_task
from lengthwise.tasks.task import Task
from lengthwise.training.batches import TrainingData, collate
from lengthwise.training.examples_of import test_of as examples_of_the_test
from lengthwise.training.fleet import Batch, Fleet
from lengthwise.training.plan import FleetPlan, sequence_lengths
from lengthwise.training.recipe import DataConfig

CPU = torch.device("cpu")
DATA = DataConfig(train_lengths=(2, 5), test_lengths=(6, 10), examples=0, test_per_length=5)


def place(placement: Placement, sizes: list[int], seed: int = 0, first: int = 0) -> np.ndarray:
    found = placement.place(np.array(sizes), {}, Generators(seed, first + np.arange(len(sizes))))
    return np.tile(np.arange(max(sizes)), (len(sizes), 1)) if found is None else found


@pytest.mark.parametrize("name", registry.placements.names())
@settings(max_examples=30, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40), min_size=1, max_size=9), seed=st.integers(0, 2**63), first=st.integers(0, 10**9)
)
def test_positions_rise_and_stay_within_reach(name: str, sizes: list[int], seed: int, first: int) -> None:
    placement = make_placement(name)
    positions = place(placement, sizes, seed, first)
    for row, size in zip(positions, sizes, strict=True):
        assert (np.diff(row[:size]) > 0).all() and row[0] >= 0
        assert row[size - 1] < placement.reach(max(sizes))
    # An example's positions do not depend on its neighbours, nor on how examples are cut into batches.
    alone = [place(placement, [size], seed, first + i)[0] for i, size in enumerate(sizes)]
    for row, mine, size in zip(positions, alone, sizes, strict=True):
        assert (row[:size] == mine[:size]).all()


def test_random_subsets_are_uniform() -> None:
    """Every pair of five positions is as likely as any other, and the first of one is uniform."""
    placement = make_placement("randomized(range=5)")
    pairs = place(placement, [2] * 20_000, seed=3)
    codes, counts = np.unique(pairs[:, 0] * 5 + pairs[:, 1], return_counts=True)
    assert len(codes) == 10 and (abs(counts - 2000) < 5 * 2000**0.5).all()
    starts, counts = np.unique(place(make_placement("random-start(largest=9)"), [3] * 20_000)[:, 0], return_counts=True)
    assert starts.tolist() == list(range(10)) and (abs(counts - 2000) < 5 * 2000**0.5).all()


def test_settings_are_words_tables_and_strict() -> None:
    assert placement_words("randomized") == placement_words({"name": "randomized"}) == "randomized(range=2048)"
    assert placement_words("randomized( range = 64 )") == "randomized(range=64)" and placement_words("consecutive")
    assert DataConfig(placement={"name": "random-start", "largest": 7}).placement == "random-start(largest=7)"
    for bad, told in {
        "randomised": "did you mean 'randomized'",
        "randomized(rnage=3)": "did you mean 'range'",
        "randomized(range=0)": "must be 1 to 100,000, not 0",
        "randomized(range=many)": "look like randomized",
        "randomized(": "is a name such as",
    }.items():
        with pytest.raises((UserError, ValueError), match=told):
            DataConfig(placement=bad)
    with pytest.raises(ValueError, match="needs consecutive positions"):
        DataConfig(placement="randomized", scratchpad="full")
    with pytest.raises(UserError, match="too few positions"):
        place(make_placement("randomized(range=4)"), [5])


def test_consecutive_is_found_out_not_taken_for_granted() -> None:
    task = make_task("copy.words")
    for placement, expected in {"consecutive": True, "random-start": True, "randomized": False}.items():
        data = TrainingData(task, replace(DATA, placement=placement), seed=1)
        assert collate([data.batches(0, 2, 4)], 0, 32, 4).consecutive == expected, placement
    # One example that counts otherwise is enough.
    plain = TrainingData(task, DATA, seed=1).batches(0, 1, 4)
    positions = np.tile(np.arange(plain.tokens.shape[1]), (4, 1))
    assert replace(plain, positions=positions).consecutive
    positions[2, 1] = 7
    assert not replace(plain, positions=positions).consecutive
    behind = np.tile(np.arange(plain.tokens.shape[1]), (4, 1))
    behind[np.arange(plain.tokens.shape[1]) >= plain.size[:, None]] = 99
    assert replace(plain, positions=behind).consecutive, "what stands behind the end does not count"


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("encoding", ["alibi", "t5", "rotary", "sinusoidal", "none"])
def test_a_fleet_follows_positions_as_the_model_called_directly_does(encoding: str, count: int) -> None:
    """With randomised positions ALiBi and T5 once computed what consecutive ones give, and said nothing."""
    config = ModelConfig(layers=2, width=32, heads=2)
    task = make_task("copy.words")
    fleet = Fleet(build(config, task.vocabulary.rows, [{"name": encoding}], Lengths(64, 64)), count, CPU)
    fleet.initialize(list(range(count)))
    with torch.no_grad():
        for view in fleet.named(fleet.matrix_NW).values():
            view += 0.3 * torch.randn(view.shape, generator=torch.Generator().manual_seed(1))
    losses = {}
    for placement in ("consecutive", "randomized(range=64)"):
        data = [TrainingData(task, replace(DATA, placement=placement), seed=seed) for seed in range(count)]
        examples = [each.batches(0, 1, 4) for each in data]
        batch = Batch.of(collate(examples, 0, 32, 4), 0, CPU)
        losses[placement] = fleet.gradients(batch)[0]
        for row, each in enumerate(examples):
            fleet.model.load_state_dict(fleet.row(fleet.matrix_NW, row))
            positions = None if each.positions is None else torch.from_numpy(each.positions.clip(max=63))
            with torch.no_grad():
                logits = fleet.model(torch.from_numpy(each.tokens).long(), positions_BT=positions)
            targets = torch.from_numpy(each.tokens).long()
            column = torch.arange(targets.shape[1])
            asked = (column >= torch.from_numpy(each.prompt)[:, None]) & (column < torch.from_numpy(each.size)[:, None])
            found = torch.nn.functional.cross_entropy(logits[:, :-1][asked[:, 1:]], targets[:, 1:][asked[:, 1:]])
            torch.testing.assert_close(losses[placement][row], found, rtol=1e-5, atol=1e-5)
    differ = (losses["consecutive"] - losses["randomized(range=64)"]).abs().max() > 1e-4
    assert differ == (encoding != "none")


def test_a_study_with_randomised_positions_trains_resumes_and_is_tested_at_them(tmp_path: Path) -> None:
    study = small_study(seeds=[1], encodings=["alibi", "learned"], data__placement="randomized(range=40)")
    run_study(study, tmp_path / "a", "cpu")
    run_study(study, tmp_path / "b", "cpu")
    first, second = (load_results(tmp_path / name) for name in "ab")
    assert first.rows == second.rows
    run = study.runs()[0]
    assert run.table()["data"]["placement"] == "randomized(range=40)" and sequence_lengths(run).met == 40
    test = examples_of_the_test(run)
    assert test.positions is not None and test.positions.max() > 30
    plain = small_study(seeds=[1], encodings=["alibi", "learned"])
    assert plain.runs()[0].fingerprint != run.fingerprint
    assert json.loads(json.dumps(run.table()))["data"]["placement"]
    assert FleetPlan((run,)).build().last_position is None


class Sides(Task):
    """Says of every symbol on which side of the separator it stands."""

    name = "copy.words"

    def __init__(self) -> None:
        self.inner = make_task("copy.words")
        super().__init__(self.inner.config)

    def symbols(self):
        return self.inner.symbols()

    def draw(self, bucket: int, count: int, generator: np.random.Generator):
        return self.inner.draw(bucket, count, generator)

    def tracks(self, examples: Examples) -> dict[str, np.ndarray]:
        return {"side": 1 + (examples.parts > 1)}


@pytest.mark.parametrize("tokens", ["symbols", "published"])
def test_tracks_follow_the_tokens_of_their_words(tokens: str) -> None:
    task = Sides()
    drawn = task.examples(3, 4, stream(0))
    sequences = render(task, drawn, Scratchpad(), tokens=DataConfig(tokens=tokens).make_tokens(task), tracks=("side",))
    side = sequences.tracks["side"]
    for row in range(4):
        prompt, size = sequences.prompt[row], sequences.size[row]
        assert (
            (side[row, :prompt] == 1).all() and (side[row, prompt : size - 1] == 2).all() and side[row, size - 1] == 0
        )
    both = join([sequences.select(slice(2)), sequences.select(slice(2, 4))], 0)
    assert (both.tracks["side"] == side).all()
    with pytest.raises(UserError, match="has none of that name"):
        render(task, drawn, Scratchpad(), tracks=("depth",))


def test_joined_sequences_keep_positions_of_their_own() -> None:
    plain = Sequences(np.ones((1, 3), np.int32), np.ones(1, np.int32), np.full(1, 3), np.ones(1))
    moved = replace(plain, tokens=np.ones((1, 4), np.int32), size=np.full(1, 4), positions=np.array([[5, 6, 9, 12]]))
    joined = join([plain, moved], 0)
    assert joined.positions is not None and joined.positions.tolist() == [[0, 1, 2, 0], [5, 6, 9, 12]]
    assert join([plain, plain], 0).positions is None
