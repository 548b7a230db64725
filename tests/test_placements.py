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
from lengthwise.analysis.analyzed_runs import analyzed_runs
from lengthwise.data.examples import Examples, Part
from lengthwise.data.scratchpad import Scratchpad
from lengthwise.data.sequences import Sequences, join, placed, render
from lengthwise.data.symbol_tracks import symbol_tracks
from lengthwise.errors import UserError
from lengthwise.executors.local import run_study
from lengthwise.model.build import Lengths, build
from lengthwise.model.config import ModelConfig
from lengthwise.model.decoder import Decoder
from lengthwise.model.initial_values import initialize
from lengthwise.placements.choosing import make_placement, placement_words
from lengthwise.placements.counting import Counting
from lengthwise.placements.placement import Generators, Placement
from lengthwise.records.rows import load_results
from lengthwise.seeding import stream
from lengthwise.tasks.choosing import make_task
from lengthwise.tasks.task import Task
from lengthwise.training.batches import TrainingData, collate
from lengthwise.training.examples_of import test_of as examples_of_the_test
from lengthwise.training.fleet import Batch, Fleet
from lengthwise.training.plan import FleetPlan
from lengthwise.training.recipe import DataConfig
from lengthwise.training.run_sizes import sequence_lengths

CPU = torch.device("cpu")
DATA = DataConfig(train_lengths=(2, 5), test_lengths=(6, 10), examples=0, test_per_length=5)


def place(placement: Placement, sizes: list[int], seed: int = 0, first: int = 0, training: bool = True) -> np.ndarray:
    """With tracks that count down to 1, and begin again now and then: what a task may say of numbers."""
    tracks = {
        name: np.maximum(np.array(sizes)[:, None] - 1 - np.arange(max(sizes)), 0) % 7 for name in placement.tracks
    }
    found = placement.place(np.array(sizes), tracks, Generators(seed, first + np.arange(len(sizes)), training))
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
        assert (np.diff(row[:size]) > 0).all() or not placement.rises
        assert row[:size].min() >= 0 and row[:size].max() < placement.reach(max(sizes))
    tested = place(placement, sizes, seed, first, training=False)
    assert all(row[:size].max() < placement.reach(max(sizes)) for row, size in zip(tested, sizes, strict=True))
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


@pytest.mark.slow
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


class Sums(Task):
    """Additions of numbers of n digits, last digit first, in which digits of equal significance are told."""

    name = "addition"

    def symbols(self) -> list[str]:
        return [*"0123456789", "+", "=", "."]

    def draw(self, bucket: int, count: int, generator: np.random.Generator):
        numbers = generator.integers(10 ** (bucket - 1), 10**bucket, size=(count, 2))
        texts = [[*str(a)[::-1], "+", *str(b)[::-1], "=", *str(a + b)[::-1].ljust(bucket + 1, "0")] for a, b in numbers]
        ids = np.array([[self.vocabulary.id(symbol) for symbol in text] for text in texts], dtype=np.int32)
        prompt = 2 * bucket + 2
        return [(Part.PROMPT, ids[:, :prompt]), (Part.ANSWER, ids[:, prompt:])]

    def tracks(self, examples: Examples) -> dict[str, np.ndarray]:
        """Written apart from what the package says of runs of digits: by a loop."""
        found, last = [], 0
        for index, token in enumerate(examples.tokens):
            last = 0 if index in examples.starts else last
            last = last + 1 if self.vocabulary.symbols[token] in "0123456789" else 0
            found.append(last)
        return {"significance": np.array(found)}


def placed_sums(words: str, training: bool, seed: int = 0, count: int = 500) -> Sequences:
    task, placement = Sums(), make_placement(words)
    drawn = task.examples(3, count, stream(0))
    sequences = render(task, drawn, Scratchpad(), tracks=placement.tracks)
    return placed(sequences, placement, Generators(seed, np.arange(count), training))


SIGNIFICANCE = [1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 4, 0]
"""Of `1 2 3 + 4 5 6 = 5 7 9 0` and the end."""


def test_coupled_digits_of_equal_significance_share_a_position() -> None:
    tested = placed_sums("coupled(range=10)", training=False).positions
    assert tested is not None and (tested == SIGNIFICANCE).all()
    trained = placed_sums("coupled(range=10)", training=True, count=6000).positions
    assert trained is not None
    starts = trained[:, 3]  # of the plus sign
    assert (trained - starts[:, None] == SIGNIFICANCE).all()
    found, counts = np.unique(starts, return_counts=True)
    # Positions 0 to 9: a sum with numbers up to 4 begins anywhere from 0 to 5.
    assert found.tolist() == [0, 1, 2, 3, 4, 5] and (abs(counts - 1000) < 5 * 1000**0.5).all()
    again = placed_sums("coupled(range=10)", training=True, count=6000).positions
    other = placed_sums("coupled(range=10)", training=True, count=6000, seed=1).positions
    assert again is not None and other is not None
    assert (trained == again).all() and (trained != other).any()
    short = placed_sums("coupled(range=2)", training=True).positions
    assert short is not None and (short == SIGNIFICANCE).all(), "what does not fit begins at 0"


@pytest.mark.parametrize("track", ["run", "significance"])
def test_an_abacus_counts_digits_and_nothing_else(track: str) -> None:
    words = f'abacus(largest=5,track="{track}")'
    tested = placed_sums(words, training=False).positions
    assert tested is not None and (tested == SIGNIFICANCE).all()
    trained = placed_sums(words, training=True, count=6000).positions
    assert trained is not None
    offsets = trained[:, 0] - 1
    digit = np.array(SIGNIFICANCE) > 0
    assert (trained[:, ~digit] == 0).all()
    assert (trained[:, digit] - offsets[:, None] == np.array(SIGNIFICANCE)[digit]).all()
    found, counts = np.unique(offsets, return_counts=True)
    assert found.tolist() == [0, 1, 2, 3, 4, 5] and (abs(counts - 1000) < 5 * 1000**0.5).all()


def test_a_study_with_an_abacus_trains_with_offsets_and_is_tested_without(tmp_path: Path) -> None:
    study = small_study(
        seeds=[1], tasks=["addition"], encodings=["learned"], data__placement="abacus(largest=30)", training__steps=10
    )
    run_study(study, tmp_path, "cpu")
    assert load_results(tmp_path).rows
    (run,) = study.runs()
    data = TrainingData(make_task(run.task), run.data, seed=1)
    trained, test = data.batches(0, 4, 8).positions, examples_of_the_test(run).positions
    assert trained is not None and test is not None
    assert trained.max() > 20 and 3 < test.max() < 9, "digits of a number, at most 7 in a sum of two numbers of 6"


@pytest.mark.parametrize("anchor", [True, False])
def test_what_tasks_of_the_package_say_couples_their_symbols(anchor: bool) -> None:
    """Answers have the positions of what they are made of: digits of a reversed sum, symbols of a copy."""
    reversed_sum = make_task({"name": "addition", "reversed": True, "sentence": False})
    copy = make_task("copy.words")
    for task, track in ((reversed_sum, "significance"), (copy, "index")):
        placement = make_placement({"name": "coupled", "track": track, "range": 50})
        drawn = task.drawn(3, 20, seed=1)
        sequences = render(task, drawn, Scratchpad(), anchor, tracks=placement.tracks)
        tested = placed(sequences, placement, Generators(0, np.arange(20), training=False)).positions
        assert tested is not None
        for row, size, prompt in zip(tested, sequences.size, sequences.prompt, strict=True):
            answer = [int(each) for each in row[prompt:size] if each]
            assert answer == list(range(1, len(answer) + 1)) and len(answer) >= 3
            assert {1, 2, 3} <= set(row[:prompt].tolist()) and row.max() <= 4


def test_runs_of_digits_end_with_their_example() -> None:
    task = Sums()
    digits = np.array([task.vocabulary.id(symbol) for symbol in "12+34"])
    two = Examples(np.concatenate([digits, digits]), np.ones(10), np.array([0, 5, 10]), np.ones(2))
    assert symbol_tracks(task.vocabulary, two, ["run"])["run"].tolist() == [1, 2, 0, 1, 2] * 2
    plus = symbol_tracks(task.vocabulary, two, ["symbol:+"])["symbol:+"]
    assert plus.tolist() == [0, 0, 1, 0, 0] * 2
    with pytest.raises(UserError, match="asks for the symbol '#'"):
        symbol_tracks(task.vocabulary, two, ["symbol:#"])


def test_tracks_that_are_no_positions_or_not_there_are_refused() -> None:
    for wrong in (-1, 3):
        with pytest.raises(UserError, match="numbers from 0 to below n"):
            track = {"significance": np.array([[wrong, 0, 0]])}
            make_placement("coupled").place(np.array([3]), track, Generators(0, np.arange(1)))
    with pytest.raises(UserError, match=r"needs the track 'index'.*it has significance"):
        placed_sums('coupled(track="index")', training=True)
    with pytest.raises((UserError, ValueError), match=r"needs the track 'significance', and the task copy\.repeat"):
        FleetPlan((small_study(encodings=["learned"], data__placement="coupled").runs()[0],)).build()


def test_settings_that_are_words_come_back() -> None:
    words = placement_words({"name": "abacus", "track": 'a, "b"'})
    assert words == 'abacus(largest=99,track="a, \\"b\\"")' and placement_words(words) == words


def test_random_floats_are_sorted_uniform_numbers() -> None:
    """The smallest and the largest of n uniform numbers have means 1 / (n + 1) and n / (n + 1) of the range."""
    placement = make_placement("random-float(range=8)")
    positions = place(placement, [3] * 20_000, seed=5) / 1024
    assert (np.diff(positions, axis=1) > 0).all() and positions.max() < 8
    assert positions.mean(axis=0) == pytest.approx([2, 4, 6], abs=0.05)
    assert (positions % 1 != 0).mean() > 0.99
    quantiles = np.quantile(positions.ravel(), [0.1, 0.5, 0.9])
    assert quantiles == pytest.approx([0.8, 4, 7.2], abs=0.05)
    assert (place(placement, [3] * 9, training=False) == place(placement, [3] * 9)).all(), "tests draw too"
    crowded = place(make_placement("random-float(range=1)"), [1000], seed=1)[0]
    assert (np.diff(crowded) > 0).all() and crowded.max() < 1024


@pytest.mark.parametrize("encoding", ["sinusoidal", "rotary", "alibi"])
def test_encodings_that_take_fractions_read_them(encoding: str) -> None:
    """At multiples of the unit a model with fractions is the one with whole positions; between them it is between."""
    config, tokens = ModelConfig(layers=2, width=32, heads=2), torch.arange(1, 8)[None]
    models = []
    for counting in (Counting(), Counting("fractions", 1024)):
        model = build(config, 20, [{"name": encoding}], Lengths(16, 16), counting)
        initialize(model, 0)
        models.append(model.requires_grad_(False))
    whole, fractions = models
    positions = torch.tensor([[0, 1, 4, 5, 9, 12, 13]])
    expected = whole(tokens, positions_BT=positions)
    torch.testing.assert_close(fractions(tokens, positions_BT=1024 * positions), expected)
    torch.testing.assert_close(fractions(tokens), whole(tokens))
    assert not torch.allclose(fractions(tokens, positions_BT=1024 * positions + 512 * (positions > 4)), expected)
    cache, found = fractions.new_cache(1, 7), []
    for t in range(7):
        found.append(fractions(tokens[:, t : t + 1], cache=cache))
    torch.testing.assert_close(torch.cat(found, dim=1), whole(tokens), atol=1e-5, rtol=1e-5)


def test_random_floats_train_and_are_refused_where_nobody_could_read_them(tmp_path: Path) -> None:
    study = small_study(
        seeds=[1], encodings=["alibi", "none", ["rotary", "none"]], data__placement="random-float(range=16)",
        model={"layers": 2, "width": 32, "heads": 2}, training__steps=10,
    )  # fmt: skip
    run_study(study, tmp_path, "cpu")
    assert len(load_results(tmp_path).runs) == 3
    run = study.runs()[0]
    assert sequence_lengths(run).met == 16 and FleetPlan((run,)).build().unit == 1024
    with pytest.raises(UserError, match="trained at positions that are not whole"):
        analyzed_runs(tmp_path, "encoding=alibi")[0].open(CPU)
    for encoding in ("learned", "t5", [["rotary", "t5"]]):
        refused = small_study(seeds=[1], encodings=[encoding], data__placement="random-float").runs()[0]
        with pytest.raises(UserError, match=r"t5|learned.*fractions.*encodings that take them are alibi, .*rotary"):
            FleetPlan((refused,)).build()


def test_two_levels_count_segments_and_tokens_within_them() -> None:
    """`1 2 3 + 4 5 6 = 5 7 9 0` and the end, cut at the plus sign, which is the last token of its segment."""
    for training in (True, False):
        positions = placed_sums('bilevel(separator="+")', training).positions
        assert positions is not None
        assert (positions // 1024 == [0] * 4 + [1] * 9).all() and (positions % 1024 == [0, 1, 2, 3, *range(9)]).all()
    placement, cut = make_placement("bilevel"), np.zeros((1, 1500), dtype=np.int64)
    cut[0, [2, 3, 1400]] = 1
    found = placement.place(np.array([1500]), {"symbol:.": cut}, Generators(0, np.arange(1)))
    assert found is not None
    segment, index = 0, 0
    for t in range(1500):
        assert found[0, t] == 1024 * segment + min(index, 1023), t
        segment, index = (segment + 1, 0) if cut[0, t] else (segment, index + 1)


@pytest.mark.parametrize(("between", "alike"), [("rotary", {"fraction": 1.0}), ("alibi", {})])
def test_the_bilevel_encoding_is_one_encoding_within_segments_and_another_between(between: str, alike: dict) -> None:
    def model_of(table: dict, counting: Counting = Counting()) -> Decoder:  # noqa: B008
        model = build(ModelConfig(layers=2, width=32, heads=2), 20, [table], Lengths(16, 16), counting)
        initialize(model, 0)
        return model.requires_grad_(False)

    tokens = torch.arange(1, 9)[None]
    segments, index = torch.tensor([[0, 0, 0, 1, 1, 2, 2, 2]]), torch.tensor([[0, 1, 2, 0, 1, 0, 1, 2]])
    both = model_of({"name": "bilevel", "between": between}, Counting("levels", 1024))
    whole = model_of({"name": "bilevel", "between": between})
    learned = model_of({"name": "learned"})
    assert whole.state_dict().keys() == learned.state_dict().keys()
    learned.load_state_dict(whole.state_dict())
    torch.testing.assert_close(whole(tokens), learned(tokens))  # one segment
    torch.testing.assert_close(both(tokens), learned(tokens))
    torch.testing.assert_close(both(tokens, index), learned(tokens, index))
    found = both(tokens, 1024 * segments + index)
    assert not torch.allclose(found, learned(tokens, index))
    cache = both.new_cache(1, 8)
    parts = [both(tokens[:, t : t + 1], (1024 * segments + index)[:, t : t + 1], cache=cache) for t in range(8)]
    torch.testing.assert_close(torch.cat(parts, dim=1), found, atol=1e-5, rtol=1e-5)
    both.get_parameter("encodings.0.table").zero_()
    expected = model_of({"name": between, **alike})(tokens, segments)
    torch.testing.assert_close(both(tokens, 1024 * segments + index), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.slow
def test_a_study_with_two_levels_trains_and_others_are_refused(tmp_path: Path) -> None:
    words = 'bilevel(separator="+")'
    encodings = ["bilevel", {"name": "bilevel", "between": "alibi"}, "none"]
    study = small_study(seeds=[1, 2], tasks=["addition"], encodings=encodings, data__placement=words, training__steps=5)
    run_study(study, tmp_path, "cpu")
    assert len(load_results(tmp_path).runs) == 6
    refused = small_study(seeds=[1], tasks=["addition"], encodings=["rotary"], data__placement=words).runs()[0]
    with pytest.raises(UserError, match="segment and an index within it; encodings that take them are bilevel, none"):
        FleetPlan((refused,)).build()


def test_joined_sequences_keep_positions_of_their_own() -> None:
    plain = Sequences(np.ones((1, 3), np.int32), np.ones(1, np.int32), np.full(1, 3), np.ones(1))
    moved = replace(plain, tokens=np.ones((1, 4), np.int32), size=np.full(1, 4), positions=np.array([[5, 6, 9, 12]]))
    joined = join([plain, moved], 0)
    assert joined.positions is not None and joined.positions.tolist() == [[0, 1, 2, 0], [5, 6, 9, 12]]
    assert join([plain, plain], 0).positions is None
