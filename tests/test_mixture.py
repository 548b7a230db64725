"""Several tasks in one run: what is trained on, in which shares, and that only the first is ever tested."""

from collections import Counter

import numpy as np
import pytest

from lengthwise.data import splits
from lengthwise.data.splits import Split
from lengthwise.errors import UserError
from lengthwise.evaluation import test_set as sets
from lengthwise.seeding import stream
from lengthwise.study import study_from
from lengthwise.tasks.choosing import make_task, task_table
from lengthwise.training.batches import TrainingData
from lengthwise.training.recipe import DataConfig

COPY = {"name": "copy.words", "train_lengths": [1, 4]}
REVERSE = {"name": "reverse.words", "train_lengths": [2, 9], "weight": 3}
ADD = {"name": "addition", "reversed": True, "padded": True, "train_lengths": [1, 3]}
MIXED = {"name": "mixture", "tasks": [COPY, REVERSE, ADD]}
DATA = DataConfig(examples=0, validation=60, test_per_length=10, test_lengths=(5, 8))


def first_words(task, examples) -> Counter:
    return Counter(task.text(examples, i)[0].split()[0] for i in range(len(examples)))


def test_training_sees_every_task_at_its_own_lengths_and_by_its_weight() -> None:
    task = make_task(MIXED)
    drawn = splits.draw(task, Split.TRAIN, task.train_lengths, 5000, 0)
    assert first_words(task, drawn) == {"Copy:": 1000, "Reverse:": 3000, "Compute": 1000}
    lengths: dict[str, set[int]] = {}
    for i in range(len(drawn)):
        lengths.setdefault(task.text(drawn, i)[0].split()[0], set()).add(task.length_of(int(drawn.buckets[i])))
    assert lengths == {"Copy:": {1, 2, 3, 4}, "Reverse:": set(range(2, 10)), "Compute": {1, 2, 3}}


def test_validation_and_test_are_of_the_first_task_alone() -> None:
    task = make_task(MIXED)
    for made in (sets.validation_set(task, DATA), sets.test_set(task, DATA)):
        first = task.vocabulary.id("Copy:")
        assert len(made.tokens) and np.all(made.tokens[:, 0] == first)


@pytest.mark.parametrize("number", range(3))
def test_an_example_reads_as_that_of_its_task_alone(number: int) -> None:
    mixed, table = (
        make_task(MIXED),
        {k: v for k, v in MIXED["tasks"][number].items() if k not in ("weight", "train_lengths")},
    )
    alone = make_task(table)
    bucket = alone.buckets(mixed.members[number].span)[-1]
    code = [
        each for each in mixed.training_buckets(mixed.train_lengths) if mixed.member(each)[0].task.name == alone.name
    ][-1]
    theirs, ours = alone.examples(bucket, 5, stream(3)), mixed.examples(code, 5, stream(3))
    assert [mixed.text(ours, i) for i in range(5)] == [alone.text(theirs, i) for i in range(5)]
    assert mixed.chance(code) == alone.chance(bucket)
    for name, track in alone.tracks(theirs).items():
        assert np.array_equal(mixed.tracks(ours)[name], track) and track.any()


def test_it_trains_on_what_it_names() -> None:
    task = make_task(MIXED)
    ids = TrainingData(task, DATA, 1).slice(0, 500).tokens[:, 0]
    assert {task.vocabulary.symbol(i) for i in ids} == {"Copy:", "Reverse:", "Compute"}


def test_equal_mixtures_have_equal_tables() -> None:
    short = task_table({"name": "mixture", "tasks": ["copy.words", "reverse.words"]})
    long = {"name": "copy.words", "train_lengths": [2, 20], "weight": 1}
    assert task_table({"name": "mixture", "tasks": [{**task_table("copy.words"), **long}, "reverse.words"]}) == short


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        (["copy.words"], "2 to 20 tasks"),
        (["copy.words", "copy.repeat"], "same word, 'Copy:'"),
        (["copy.words", {"name": "reverse.words", "weight": 0}], "weight must be above 0"),
        (["copy.words", {"name": "reverse.words", "train_lengths": [3, 2]}], "1 <= first <= last"),
        (["copy.words", {"name": "reverse.wards"}], "reverse.words"),
        (["copy.words", 3], "a name or a table"),
    ],
)
def test_what_is_refused(tasks: list, message: str) -> None:
    table = {
        "name": "x",
        "summary": "",
        "tasks": [{"name": "mixture", "tasks": tasks}],
        "encodings": ["none"],
        "seeds": [1],
    }
    with pytest.raises(UserError, match=message):
        study_from(table)


def test_lengths_of_the_study_that_are_not_those_of_the_first_task_are_refused() -> None:
    table = {"name": "x", "summary": "", "tasks": [MIXED], "encodings": ["none"], "seeds": [1]}
    with pytest.raises(UserError, match="in the table of the first task"):
        study_from({**table, "data": {"train_lengths": [1, 5], "test_lengths": [6, 8]}})
