"""Splits that never meet, sequences, packing, and batches that are a function of the step alone."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise import registry
from lengthwise.data import splits
from lengthwise.data.examples import Examples, Part
from lengthwise.data.packing import pack
from lengthwise.data.scratchpad import PUBLISHED, Scratchpad
from lengthwise.data.sequences import Sequences, render
from lengthwise.data.splits import Split
from lengthwise.data.vocabulary import Vocabulary
from lengthwise.errors import UserError
from lengthwise.evaluation.test_set import test_set as make_test_set
from lengthwise.evaluation.test_set import validation_set, watched_set
from lengthwise.records import published
from lengthwise.seeding import derive, stream
from lengthwise.study import load_study
from lengthwise.tasks.choosing import make_task
from lengthwise.tasks.task import Span
from lengthwise.tasks.words import words
from lengthwise.training.batches import CHUNK, NO_TARGET, ROW_UNIT, WINDOW, TrainingData, best_row_width, collate
from lengthwise.training.fleet import Batch
from lengthwise.training.recipe import DataConfig

names = pytest.mark.parametrize("name", [name for name in registry.tasks.names() if name != "file"])


def prompts(task, examples) -> list[str]:
    return [task.text(examples, i)[0] for i in range(len(examples))]


def without(examples: Examples, buckets: set[int]) -> Examples:
    return examples.select(np.flatnonzero(~np.isin(examples.buckets, list(buckets))))


@pytest.mark.slow
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


@pytest.mark.slow
@pytest.mark.parametrize("name", published.LENGTHS)
def test_sets_of_the_published_protocol_are_as_many_and_apart(name: str) -> None:
    """What `nope-paper` trains on and looks at, against the published numbers; prompts of validation and of the test of
    seen lengths are never trained on, but where the space is as small as published."""
    (run,) = load_study("nope-paper", ["encodings=['none']", "seeds=[1]", f"tasks=['{name}']"]).runs()
    task, data = run.make_task(), run.data
    train, validation, unseen = published.COUNTS[name]
    trained, looked_at = TrainingData(task, data, run.seed)._draw(0), validation_set(task, data)
    assert (len(trained), len(looked_at)) == (train, validation)
    tested = make_test_set(task, data)
    lengths = np.array([task.length_of(int(bucket)) for bucket in tested.buckets])
    (_, last), (first_unseen, last_unseen) = published.LENGTHS[name]
    assert (lengths > last).sum() == unseen
    if name not in published.WHOLE_TESTS:
        _, each = np.unique(tested.buckets[lengths > last], return_counts=True)
        assert len(set(each)) == 1, "every bucket equally often"
        assert set(lengths[lengths > last]) == set(range(first_unseen, last_unseen + 1))

    def prompts_of(sequences: Sequences) -> set[tuple[int, ...]]:
        return {tuple(row[:end]) for row, end in zip(sequences.tokens.tolist(), sequences.prompt.tolist(), strict=True)}

    held_out = [looked_at, tested.select(np.flatnonzero(lengths <= last))]
    shared = {
        bucket for bucket in task.buckets(task.train_lengths) if splits.is_shared(task, bucket, data.division(task))
    }
    assert shared == ({4, 5, 6, 7, 8} if name == "parity" else set())
    known = prompts_of(trained)
    for each_set in held_out:
        apart = each_set.select(np.flatnonzero(~np.isin(each_set.buckets, list(shared))))
        assert not prompts_of(apart) & known
    other = TrainingData(task, data, 2)._draw(0)
    assert np.array_equal(other.tokens, trained.tokens), "all seeds have the same examples"


@pytest.mark.slow
def test_scan_is_divided_at_random_over_all_lengths() -> None:
    """Published: 15,997 of 17,774, so some lengths have more than nine tenths of their commands and some have fewer."""
    task = make_task("scan")
    division = DataConfig(held_out="overall").division(task)
    drawn = {
        split: splits.draw(task, split, task.train_lengths, 20_000, 0, division=division)
        for split in (Split.TRAIN, Split.VALIDATION, Split.TEST)
    }
    found = {split: set(prompts(task, examples)) for split, examples in drawn.items()}
    assert len(found[Split.TRAIN]) == len(drawn[Split.TRAIN]) == 15_997
    assert len(set.union(*found.values())) == sum(map(len, found.values())) == 17_774
    every = sum(np.bincount(examples.buckets, minlength=26) for examples in drawn.values())
    shares = (np.bincount(drawn[Split.TRAIN].buckets, minlength=26) / np.maximum(every, 1))[every > 0]
    assert shares.min() < 0.89 and shares.max() > 0.91 and shares.mean() == pytest.approx(0.9, abs=0.02)


def test_lengths_are_shuffled() -> None:
    drawn = splits.draw(make_task("copy.words"), Split.TRAIN, Span(2, 20), 1000, 0)
    assert not np.array_equal(np.sort(drawn.buckets), drawn.buckets)


def test_a_space_too_small_to_split_is_refused_or_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    few = make_task({"name": "copy.words", "symbols": 2})
    assert splits.is_shared(few, 1) and len(splits.draw(few, Split.VALIDATION, Span(1, 1), 100, 0)) == 2
    monkeypatch.setattr(few, "every", lambda length: None)  # a task that does not list its examples
    with pytest.raises(UserError, match="too few different examples of length 1"):
        splits.draw(few, Split.VALIDATION, Span(1, 1), 100, 0)
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


def test_examples_without_a_prompt_are_refused() -> None:
    """Nothing stands before their first token that could predict it."""
    task = make_task("copy.words")
    examples = splits.draw(task, Split.TRAIN, Span(4, 4), 5, 0)
    bare = examples.keep([part for part in Part if part is not Part.PROMPT])
    assert (render(task, bare, Scratchpad()).prompt == 1).all()
    with pytest.raises(UserError, match=r"without a prompt.*anchor = true gives them one"):
        render(task, bare, Scratchpad(), anchor=False)


def test_without_anchor_the_first_words_are_gone() -> None:
    task = make_task("copy.words")
    examples = splits.draw(task, Split.TRAIN, Span(4, 4), 5, 0)
    with_anchor, without = (render(task, examples, Scratchpad(), anchor) for anchor in (True, False))
    assert task.vocabulary.decode(with_anchor.tokens[0, :1]) == "Copy:"
    np.testing.assert_array_equal(with_anchor.tokens[:, 1:], without.tokens)
    assert (without.prompt == with_anchor.prompt - 1).all()


batches_of_sizes = st.integers(1, 60).flatmap(
    lambda count: st.lists(st.lists(st.integers(0, 30), min_size=count, max_size=count), min_size=1, max_size=3)
)


@given(sizes=batches_of_sizes, room=st.integers(0, 40))
def test_packing_places_everything_once_without_overlap(sizes: list[list[int]], room: int) -> None:
    width = max(1, *(max(each) for each in sizes)) + room
    placed = pack(np.array(sizes), width)
    for batch, each in enumerate(sizes):
        row_E, offset_E, segment_E = (
            part[batch].tolist() for part in (placed.row_ME, placed.offset_ME, placed.segment_ME)
        )
        used: set[tuple[int, int]] = set()
        for example, size in enumerate(each):
            for place in range(offset_E[example], offset_E[example] + size):
                assert 0 <= place < width
                assert (row_E[example], place) not in used
                used.add((row_E[example], place))
        segments = set(zip(row_E, segment_E, strict=True))
        assert len(segments) == len(each) and min(segment_E) == 1
        assert set(row_E) == set(range(placed.rows_M[batch])), "no row is left empty"
        for row in set(row_E):
            members = [segment for r, segment in segments if r == row]
            assert sorted(members) == list(range(1, len(members) + 1))


@given(sizes=batches_of_sizes, room=st.integers(0, 40))
def test_packing_is_best_fit_with_the_largest_first(sizes: list[list[int]], room: int) -> None:
    """One batch at a time and one row at a time, as one would do it by hand."""
    width = max(1, *(max(each) for each in sizes)) + room
    placed = pack(np.array(sizes), width)
    for batch, each in enumerate(sizes):
        rooms: list[int] = []
        for example in sorted(range(len(each)), key=lambda example: -each[example]):
            fitting = [row for row, left in enumerate(rooms) if left >= each[example]]
            if fitting:
                row = min(fitting, key=lambda row: (rooms[row], row))
            else:
                row = len(rooms)
                rooms.append(width)
            assert placed.row_ME[batch, example] == row
            assert placed.offset_ME[batch, example] == width - rooms[row]
            rooms[row] -= each[example]
        assert placed.rows_M[batch] == len(rooms)


def test_packing_leaves_little_padding() -> None:
    sizes = stream(0).integers(7, 44, size=(3, 64))
    rows_M = pack(sizes, 50).rows_M
    assert (sizes.sum(axis=1) / (rows_M * 50) > 0.9).all()


def test_packing_refuses_what_does_not_fit() -> None:
    with pytest.raises(ValueError, match="does not fit"):
        pack(np.array([[5, 7], [5, 9]]), 8)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("name", ["copy.repeat", "addition", "scan", "summation", "sort.symbols"])
def test_rows_of_the_best_width_are_full(name: str, device: str) -> None:
    """At the published lengths and batch size; fill of the batches as they are collated."""
    batch, steps = 64, 50
    data = TrainingData(make_task(name), DataConfig(examples=0), 1)
    sequences = data.slice(0, batch * steps)
    width = best_row_width(sequences.size, batch, device)
    assert width in ((16, 24, 32, 48) if device == "cpu" else (16, 32)) or width % ROW_UNIT == 0
    assert width >= sequences.size.max()
    batches = collate([sequences], data.task.vocabulary.pad, width, batch)
    assert batches.tokens == sequences.size.sum() == (batches.segments_KNRT > 0).sum()
    assert batches.tokens / (batches.rows_K.sum() * width) >= 0.85


def test_the_best_width_is_the_shortest_full_one_else_the_fullest() -> None:
    widths = {
        (16, 16): 16,  # full at once
        (9, 9): 64,  # 9 of 16, 27 of 32, 63 of 64 tokens
        (33, 33): 256,  # 33 of 64, 99 of 128, 165 of 192, 231 of 256
        (40, 40): 128,  # 40 of 64, 120 of 128
        (100, 28): 128,  # one of each in a row
        (65, 65): 384,  # never nine tenths: 65 of 128, 130 of 192, 195 of 256, 260 of 320, 325 of 384
    }
    for sizes, width in widths.items():
        assert best_row_width(np.array(sizes * 2048), 2048, "cuda") == width, sizes
    assert best_row_width(np.full(4096, 65), 1, "cuda") == 128  # a lone example has a row of its own
    # On a CPU there are more widths to choose from: 11 of 16, 22 of 24; 45 of 48. Up to 64, 55 of 64 are enough.
    assert [best_row_width(np.array([11, 11] * 2048), 2048, device) for device in ("cpu", "cuda")] == [24, 64]
    assert [best_row_width(np.array([45, 45] * 2048), 2048, device) for device in ("cpu", "cuda")] == [48, 192]


def drawn(count: int) -> list[Sequences]:
    """Examples of two tasks."""
    tasks = [make_task("copy.words"), make_task("copy.words_twice")]
    return [
        render(task, splits.draw(task, Split.TRAIN, Span(2, 7), count, seed), Scratchpad())
        for seed, task in enumerate(tasks)
    ]


@pytest.mark.parametrize(("row_width", "width"), [(26, 26), (40, 40), (8, ROW_UNIT)])
def test_collated_batch_holds_every_target_and_nothing_else(row_width: int, width: int) -> None:
    """Rows that are too short for an example are made longer."""
    rows = drawn(12)
    batches = collate(rows, pad=0, row_width=row_width)
    assert batches.tokens == sum(int(row.size.sum()) for row in rows)
    batch = Batch.of(batches, 0, torch.device("cpu"))
    assert all(array.dtype == torch.int32 for array in batch.arrays())
    assert batches.consecutive and batch.consecutive, "what the positions below are"
    tokens_NRT, segments_NRT, positions_NRT, predicting_NP, targets_NP = (array.numpy() for array in batch.arrays())
    assert tokens_NRT.shape[2] == width
    for i, row in enumerate(rows):
        real = targets_NP[i] != NO_TARGET
        flat = tokens_NRT[i].ravel()
        targets = np.concatenate([r[p:s] for r, p, s in zip(row.tokens, row.prompt, row.size, strict=True)])
        np.testing.assert_array_equal(targets_NP[i][real], targets)
        np.testing.assert_array_equal(flat[predicting_NP[i][real] + 1], targets)
        assert real[: len(targets)].all() and not real[len(targets) :].any()
        assert (tokens_NRT[i][segments_NRT[i] == 0] == 0).all()
        documents = []
        for r in range(tokens_NRT.shape[1]):
            for segment in range(1, segments_NRT[i, r].max() + 1):
                here = segments_NRT[i, r] == segment
                documents.append(tuple(tokens_NRT[i, r][here]))
                assert (np.diff(np.flatnonzero(here)) == 1).all()
                np.testing.assert_array_equal(positions_NRT[i, r][here], np.arange(here.sum()))
        assert sorted(documents) == sorted(tuple(t[:s]) for t, s in zip(row.tokens, row.size, strict=True))


@pytest.mark.parametrize("fewer", [0, 2, 9])
def test_steps_collated_together_equal_each_alone(fewer: int) -> None:
    """Also where the last step has fewer examples, of one model more of them missing than of the other."""
    batch, steps, pad = 5, 4, 0
    first, second = drawn(batch * steps - 1)
    examples = [first, second.select(slice(0, len(second) - fewer))]
    together = collate(examples, pad, 40, batch)
    assert len(together.rows_K) == len(together.predictions_K) == len(together.tokens_KNRT) == steps
    assert together.tokens_KNRT.shape[2] == together.rows_K.max()
    assert together.targets_KNP.shape[2] == together.predictions_K.max()
    assert together.tokens == sum(int(each.size.sum()) for each in examples)
    for step in range(steps):
        alone = collate([each.select(slice(step * batch, (step + 1) * batch)) for each in examples], pad, 40)
        rows, predictions = int(together.rows_K[step]), int(together.predictions_K[step])
        assert [rows] == alone.rows_K.tolist() and [predictions] == alone.predictions_K.tolist()
        for name in Batch.ARRAYS:
            both, one = getattr(together, name), getattr(alone, name)
            size = rows if name.endswith("NRT") else predictions
            assert both.dtype == one.dtype == np.int32
            np.testing.assert_array_equal(both[step, :, :size], one[0], err_msg=f"{name} of step {step}")
            fill = {"tokens_KNRT": pad, "targets_KNP": NO_TARGET}.get(name, 0)
            assert (both[step, :, size:] == fill).all(), f"{name} of step {step} beyond its size"
        device = torch.device("cpu")
        ours, theirs = Batch.of(together, step, device), Batch.of(alone, 0, device)
        assert all(map(torch.equal, ours.arrays(), theirs.arrays())) and ours.consecutive and theirs.consecutive


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


@pytest.mark.parametrize("examples", [0, 300])
def test_batches_of_all_runs_have_one_order_of_size(examples: int) -> None:
    """So models side by side need not wait for each other; and no example is lost or comes twice."""
    config = DataConfig(train_lengths=(2, 12), test_lengths=(13, 14), examples=examples)
    runs = [TrainingData(make_task("copy.words"), config, seed) for seed in (1, 2, 3)]
    ranks = []
    for data in runs:
        for window in (0, 1):
            first = window * WINDOW
            whole = data.batches(first, first + WINDOW, 8)
            plain = data.slice(first * 8, WINDOW * 8)
            width = max(whole.tokens.shape[1], plain.tokens.shape[1])
            texts = [np.pad(each.tokens, ((0, 0), (0, width - each.tokens.shape[1]))) for each in (whole, plain)]
            assert sorted(map(tuple, texts[0].tolist())) == sorted(map(tuple, texts[1].tolist()))
            size_K = whole.size.reshape(WINDOW, 8).sum(axis=1)
            ranks.append(np.argsort(np.argsort(size_K + np.arange(WINDOW) * 1e-9)))
            assert len(set(size_K)) > 10
            sizes = [each.reshape(WINDOW, 8).sum(axis=1) for each in (whole.size, plain.size)]
            assert abs(np.corrcoef(np.arange(WINDOW), sizes[0])[0, 1]) < 0.4, "in time they come as they like"
    for window in (0, 1):
        same = ranks[window::2]
        assert all(np.corrcoef(same[0], other)[0, 1] > 0.98 for other in same[1:])
    assert np.corrcoef(ranks[0], ranks[1])[0, 1] < 0.5


def test_batches_do_not_depend_on_how_steps_are_cut() -> None:
    data = TrainingData(make_task("copy.words"), DataConfig(examples=0), 1)
    whole = data.batches(50, 140, 4)
    parts = [data.batches(first, min(first + 9, 140), 4) for first in range(50, 140, 9)]
    assert np.concatenate([part.size for part in parts]).tolist() == whole.size.tolist()
    assert np.concatenate([part.prompt for part in parts]).tolist() == whole.prompt.tolist()
    rows = [row[:size].tolist() for part in parts for row, size in zip(part.tokens, part.size, strict=True)]
    assert rows == [row[:size].tolist() for row, size in zip(whole.tokens, whole.size, strict=True)]


def test_only_the_lengths_that_are_named_are_tested() -> None:
    task = make_task({"name": "copy.words", "distinct": True, "symbols": 50})
    config = DataConfig(test_lengths=(21, 40), test_at=(24, 40), test_per_length=30, watched=50)
    found = make_test_set(task, config)
    unseen = found.buckets[found.buckets > 20]
    assert sorted(set(unseen.tolist())) == [24, 40] and len(unseen) == 60
    watched = watched_set(task, config)
    assert watched is not None and set(watched.buckets.tolist()) == {24, 40}
    with pytest.raises(ValueError, match="names 41, which is not among the unseen lengths 21-40"):
        DataConfig(test_lengths=(21, 40), test_at=(24, 41)).spans(task)
    with pytest.raises(ValueError, match="ascending order"):
        DataConfig(test_at=(40, 24))


def test_unique_copying_shows_no_symbol_twice() -> None:
    task = make_task({"name": "copy.words", "distinct": True, "symbols": 12})
    for prompt, target in task.sample(12, 20):
        assert sorted(target.split()) == sorted(words(12)) and prompt == f"Copy: {target} [SEP]"
    assert task.buckets(Span(10, 20)) == [10, 11, 12] and task.chance(2) == 1 / (12 * 11)
