"""Splits that never meet, sequences, packing, and batches that are a function of the step alone."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise import registry, splits
from lengthwise.engine.batches import CHUNK, TrainingData, collate
from lengthwise.engine.packing import pack
from lengthwise.engine.recipe import DataConfig
from lengthwise.errors import UserError
from lengthwise.evaluation.test_set import test_set as make_test_set
from lengthwise.evaluation.test_set import validation_set
from lengthwise.examples import Examples, Part
from lengthwise.scratchpad import PUBLISHED, Scratchpad
from lengthwise.seeding import derive, stream
from lengthwise.sequences import render
from lengthwise.splits import Split
from lengthwise.study import make_task
from lengthwise.tasks.task import Span
from lengthwise.vocabulary import Vocabulary

names = pytest.mark.parametrize("name", [name for name in registry.tasks.names() if name != "file"])


def prompts(task, examples) -> list[str]:
    return [task.text(examples, i)[0] for i in range(len(examples))]


def without(examples: Examples, buckets: set[int]) -> Examples:
    return examples.select(np.flatnonzero(~np.isin(examples.buckets, list(buckets))))


@names
def test_splits_share_no_prompt_across_seeds(name: str) -> None:
    task = make_task(name)
    shared = {bucket for bucket in task.buckets(task.train_lengths) if splits.is_shared(task, bucket)}
    drawn = {
        (split, seed): set(prompts(task, without(splits.draw(task, split, task.train_lengths, 700, seed), shared)))
        for split in Split
        for seed in (0, 1)
    }
    if name == "parity":  # 496 strings in all: nothing is left that could be kept apart
        assert shared == {4, 5, 6, 7, 8}
        return
    assert all(drawn.values())
    for (split, _), found in drawn.items():
        for (other, _), others in drawn.items():
            if split != other:
                assert not found & others


def test_finite_training_set_of_copy_repeat_is_as_published() -> None:
    """About 5,263 of the 6,052 symbols at each of 19 lengths, each symbol once per length."""
    task = make_task("copy.repeat")
    drawn = splits.draw(task, Split.TRAIN, task.train_lengths, 100_000, 0)
    lengths, counts = np.unique(drawn.buckets, return_counts=True)
    assert list(lengths) == list(range(2, 21))
    assert counts.max() - counts.min() <= 1 and counts.sum() == 100_000
    texts = prompts(task, drawn.select(np.arange(0, 100_000, 10)))
    assert len(set(texts)) == len(texts)


def test_lengths_are_shuffled() -> None:
    drawn = splits.draw(make_task("copy.words"), Split.TRAIN, Span(2, 20), 1000, 0)
    assert not np.array_equal(np.sort(drawn.buckets), drawn.buckets)


def test_a_space_too_small_to_split_is_refused_or_shared() -> None:
    with pytest.raises(UserError, match="too few different examples of length 1"):
        splits.draw(make_task({"name": "copy.words", "symbols": 2}), Split.VALIDATION, Span(1, 1), 100, 0)
    tiny = make_task({"name": "copy.repeat", "symbols": 10})
    assert splits.is_shared(tiny, 3)
    assert len(splits.draw(tiny, Split.TEST, Span(3, 3), 25, 0)) == 10
    assert len(splits.draw(tiny, Split.TEST, Span(3, 3), 25, 0, again=True)) == 25


def test_counts_are_spread_by_shares() -> None:
    assert splits.spread(10, [1, 1, 1]) == [4, 3, 3]
    assert splits.spread(10_000, [1] * 192) == [53] * 16 + [52] * 176
    assert splits.spread(7, [1, 0, 6]) == [1, 0, 6]
    assert splits.spread(3, [0.5, 0.5]) == [2, 1]


def test_streams_depend_on_seed_and_names_only() -> None:
    assert derive(1, "a", 2) == derive(1, "a", 2)
    different = [
        derive(1, "a", 2),
        derive(2, "a", 2),
        derive(1, "b", 2),
        derive(1, "a", "2"),
        derive(1, "a"),
        derive(1),
    ]
    assert len(set(different)) == len(different)
    assert all(0 <= value < 2**63 for value in different)
    assert stream(5, "x").integers(1 << 60) == stream(5, "x").integers(1 << 60)


def test_known_stream_values() -> None:
    """Pins the streams: a change here changes every result and must raise study.NUMERICS."""
    assert derive(1, "initial", "embedding.weight") == 7960063596901124861
    assert stream(1, "data").integers(1000, size=3).tolist() == [454, 419, 588]


@names
def test_rendered_sequence_is_prompt_target_end(name: str) -> None:
    task = make_task(name)
    examples = splits.draw(task, Split.TRAIN, task.train_lengths, 40, 0)
    sequences = render(task, examples, Scratchpad())
    for i in range(40):
        prompt, target = task.text(task.formatted(examples, Scratchpad()), i)
        row, prompt_size, size = sequences.tokens[i], sequences.prompt[i], sequences.size[i]
        assert task.vocabulary.decode(row[:prompt_size]) == prompt
        assert task.vocabulary.decode(row[prompt_size:size]) == f"{target} <end>"
        assert (row[size:] == task.vocabulary.pad).all()


def test_without_anchor_the_first_words_are_gone() -> None:
    task = make_task("copy.words")
    examples = splits.draw(task, Split.TRAIN, Span(4, 4), 5, 0)
    with_anchor, without = (render(task, examples, Scratchpad(), anchor) for anchor in (True, False))
    assert task.vocabulary.decode(with_anchor.tokens[0, :1]) == "Copy:"
    np.testing.assert_array_equal(with_anchor.tokens[:, 1:], without.tokens)
    assert (without.prompt == with_anchor.prompt - 1).all()


@given(sizes=st.lists(st.integers(1, 30), min_size=1, max_size=80), room=st.integers(0, 40))
def test_packing_places_everything_once_without_overlap(sizes: list[int], room: int) -> None:
    width = max(sizes) + room
    placed = pack(np.array(sizes), width)
    used: dict[tuple[int, int], int] = {}
    for example, size in enumerate(sizes):
        for place in range(placed.offset_E[example], placed.offset_E[example] + size):
            assert place < width
            cell = (int(placed.row_E[example]), place)
            assert cell not in used
            used[cell] = example
    segments = {(int(r), int(s)) for r, s in zip(placed.row_E, placed.segment_E, strict=True)}
    assert len(segments) == len(sizes) and min(placed.segment_E) == 1


def test_packing_leaves_little_padding() -> None:
    sizes = stream(0).integers(7, 44, size=64)
    rows = pack(sizes, 50).row_E.max() + 1
    assert sizes.sum() / (rows * 50) > 0.9


def test_packing_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        pack(np.array([5, 9]), 8)


@pytest.mark.parametrize("row_width", [None, 40])
def test_collated_batch_holds_every_target_and_nothing_else(row_width: int | None) -> None:
    tasks = [make_task("copy.words"), make_task("copy.words_twice")]
    rows = [
        render(task, splits.draw(task, Split.TRAIN, Span(2, 7), 12, seed), Scratchpad())
        for seed, task in enumerate(tasks)
    ]
    batch = collate(rows, pad=0, row_width=row_width)
    for i, row in enumerate(rows):
        real = batch.weights_NP[i] > 0
        flat = batch.tokens_NRT[i].ravel()
        targets = np.concatenate([r[p:s] for r, p, s in zip(row.tokens, row.prompt, row.size, strict=True)])
        np.testing.assert_array_equal(batch.targets_NP[i][real], targets)
        np.testing.assert_array_equal(flat[batch.predicting_NP[i][real] + 1], targets)
        assert not batch.weights_NP[i][len(targets) :].any()
        if row_width is None:
            assert batch.segments_NRT is None
            continue
        assert batch.segments_NRT is not None and batch.positions_NRT is not None
        documents = []
        for r in range(batch.tokens_NRT.shape[1]):
            for segment in range(1, batch.segments_NRT[i, r].max() + 1):
                here = batch.segments_NRT[i, r] == segment
                documents.append(tuple(batch.tokens_NRT[i, r][here]))
                np.testing.assert_array_equal(batch.positions_NRT[i, r][here], np.arange(here.sum()))
        assert sorted(documents) == sorted(tuple(t[:s]) for t, s in zip(row.tokens, row.size, strict=True))


@settings(max_examples=20, deadline=None)
@given(first=st.integers(0, 3 * CHUNK), count=st.integers(1, 200), finite=st.booleans())
def test_training_examples_do_not_depend_on_the_batch_size(first: int, count: int, finite: bool) -> None:
    data = TRAINING[finite]
    whole = data.slice(first, count)
    cut = count // 2
    parts = [data.slice(first, cut), data.slice(first + cut, count - cut)] if cut else [whole]
    rows = [tuple(t[:s]) for part in parts for t, s in zip(part.tokens, part.size, strict=True)]
    assert rows == [tuple(t[:s]) for t, s in zip(whole.tokens, whole.size, strict=True)]


TRAINING = {
    finite: TrainingData(
        make_task("copy.words"),
        DataConfig(train_lengths=(2, 8), test_lengths=(9, 16), examples=1000 if finite else 0),
        seed=1,
    )
    for finite in (True, False)
}


def test_an_epoch_shows_each_example_once_in_a_new_order() -> None:
    data = TRAINING[True]
    epochs = [
        [tuple(t[:s]) for t, s in zip(part.tokens, part.size, strict=True)]
        for part in (data.slice(0, 1000), data.slice(1000, 1000))
    ]
    assert sorted(epochs[0]) == sorted(epochs[1])
    assert epochs[0] != epochs[1]


def test_endless_data_never_shows_validation_or_test_prompts() -> None:
    task, config = TRAINING[False].task, TRAINING[False].config
    train = {
        tuple(t[:p]) for t, p in zip(*(lambda s: (s.tokens, s.prompt))(TRAINING[False].slice(0, 20_000)), strict=True)
    }
    for held_out in (validation_set(task, config), make_test_set(task, config)):
        assert not train & {tuple(t[:p]) for t, p in zip(held_out.tokens, held_out.prompt, strict=True)}


def test_test_set_has_every_length_equally_often() -> None:
    task = make_task("copy.words")
    config = DataConfig(train_lengths=(2, 5), test_lengths=(6, 10), test_per_length=30)
    lengths, counts = np.unique(make_test_set(task, config).buckets, return_counts=True)
    assert list(lengths) == list(range(2, 11))
    assert set(counts) == {30}


def test_scratchpad_formats_are_the_32_sets() -> None:
    every = {
        Scratchpad("+".join(names) if names else "none").steps
        for names in _subsets(["input", "computation", "output", "variables", "remaining"])
    }
    assert len(every) == 32
    assert {Scratchpad(name).steps for name in PUBLISHED} <= every
    assert Scratchpad("full-input").steps == (Part.COMPUTATION, Part.OUTPUT, Part.VARIABLES, Part.REMAINING)
    assert Scratchpad("output+computation").steps == Scratchpad("minimal").steps
    with pytest.raises(UserError, match="did you mean 'input'"):
        _ = Scratchpad("inptu").steps


def _subsets(items: list[str]) -> list[list[str]]:
    return [[x for i, x in enumerate(items) if bits >> i & 1] for bits in range(2 ** len(items))]


def test_vocabulary_is_closed() -> None:
    vocabulary = Vocabulary(["a", "b"])
    assert vocabulary.decode(vocabulary.encode("b a b")) == "b a b"
    assert vocabulary.rows == 64
    with pytest.raises(ValueError, match="not in the vocabulary"):
        vocabulary.encode("a c")
    with pytest.raises(ValueError, match="declared twice"):
        Vocabulary(["a", "a"])
