"""Every task against a second, naive solution and its own documentation; copy and reverse against published facts."""

import importlib
import inspect
import os
import re
import sys
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise import registry
from lengthwise.data.examples import Part
from lengthwise.data.scratchpad import Scratchpad
from lengthwise.data.splits import Split, draw, is_shared
from lengthwise.seeding import stream
from lengthwise.tasks.choosing import make_task
from lengthwise.tasks.task import Span
from lengthwise.tasks.words import words

# A task of one's own brings its solution with it: my_folder/tests/solutions_mine.py with LENGTHWISE_PATH=my_folder.
FOLDERS = [
    Path(__file__).parent,
    *(Path(f) / "tests" for f in os.environ.get("LENGTHWISE_PATH", "").split(os.pathsep) if f),
]
sys.path.extend(str(folder) for folder in FOLDERS[1:])
SOLUTIONS = {
    name: solution
    for folder in FOLDERS
    for file in sorted(folder.glob("solutions_*.py"))
    for name, solution in importlib.import_module(file.stem).SOLUTIONS.items()
}
PUBLISHED = {
    "copy.repeat": "rsc",
    "copy.repeat_twice": "rsc2x",
    "copy.replace": "rdc",
    "copy.words": "cmc",
    "copy.words_twice": "cmc2x",
    "reverse.words": "mc",
    "reverse.words_twice": "mc2x",
    "reverse.and_back": "mcrv",
}
NAMES = [name for name in registry.tasks.names() if name != "file"]
names = pytest.mark.parametrize("name", NAMES)
copies = pytest.mark.parametrize("name", PUBLISHED)


def test_every_task_has_a_second_solution() -> None:
    assert set(SOLUTIONS) == set(NAMES)


@names
@settings(max_examples=30, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_targets_equal_the_naive_solution(name: str, data: st.DataObject, seed: int) -> None:
    task = registry.tasks.get(name)()
    span = Span(task.train_lengths.first, task.test_lengths.last)
    bucket = data.draw(st.sampled_from(task.buckets(span)))
    examples = task.formatted(task.examples(bucket, 3, stream(seed)), Scratchpad())
    for i in range(3):
        prompt, target = task.text(examples, i)
        assert target == SOLUTIONS[name](prompt)


@names
def test_documented_examples_hold(name: str) -> None:
    task = registry.tasks.get(name)()
    documentation = inspect.getdoc(type(task)) or ""
    assert "Length:" in documentation
    examples = re.findall(r"^\s+(\S.*) -> (.*)$", documentation, flags=re.MULTILINE)
    assert examples, f"{name} documents no example"
    for prompt, target in examples:
        assert task.vocabulary.decode(task.vocabulary.encode(prompt)) == prompt
        assert task.vocabulary.decode(task.vocabulary.encode(target)) == target
        assert SOLUTIONS[name](prompt) == target


@names
def test_buckets_of_training_and_test_are_apart(name: str) -> None:
    task = registry.tasks.get(name)()
    train, test = task.buckets(task.train_lengths), task.buckets(task.test_lengths)
    assert train and test and not set(train) & set(test)
    for bucket in (*train, *test):
        span = task.train_lengths if bucket in train else task.test_lengths
        assert span.first <= task.length_of(bucket) <= span.last
        assert task.share(bucket) > 0
        assert 0 <= task.chance(bucket) <= 0.5


@names
def test_parts_stand_in_order_and_begin_with_the_anchor(name: str) -> None:
    task = registry.tasks.get(name)()
    bucket = task.buckets(task.train_lengths)[-1]
    examples = task.formatted(task.examples(bucket, 4, stream(0)), Scratchpad())
    anchors = set()
    for i in range(4):
        one = slice(examples.starts[i], examples.starts[i + 1])
        parts = examples.parts[one]
        assert list(parts) == sorted(parts), "anchor, prompt, answer, in this order"
        assert parts[0] == Part.ANCHOR and parts[-1] == Part.ANSWER
        anchors.add(tuple(examples.tokens[one][parts == Part.ANCHOR]))
    assert len(anchors) == 1, "the first words are the same in every prompt"


@names
def test_same_seed_same_bytes_and_other_seed_others(name: str) -> None:
    task = registry.tasks.get(name)()
    bucket = task.buckets(task.train_lengths)[-1]
    one, two, other = (task.examples(bucket, 50, stream(seed)) for seed in (3, 3, 4))
    assert one.tokens.tobytes() == two.tokens.tobytes()
    assert one.tokens.tobytes() != other.tokens.tobytes()


@names
def test_gold_answers_are_read_back(name: str) -> None:
    task = registry.tasks.get(name)()
    bucket = task.buckets(task.train_lengths)[-1]
    examples = task.formatted(task.examples(bucket, 20, stream(0)), Scratchpad())
    for i in range(20):
        target = task.text(examples, i)[1]
        assert task.read_answer(target) is not None
        if task.step_parts:
            assert task.read_answer(f"{target} {target}") is None


@pytest.mark.slow
@names
def test_listed_examples_are_all_different_and_what_is_drawn(name: str) -> None:
    task = registry.tasks.get(name)()
    for bucket in task.buckets(task.train_lengths)[:3]:
        listed = task.all_examples(bucket)
        if listed is not None and len(listed) < 10_000:
            texts = {task.text(listed, i) for i in range(len(listed))}
            assert len(texts) == len(listed)
            drawn = task.examples(bucket, 200, stream(0))
            assert {task.text(drawn, i) for i in range(200)} <= texts


@copies
def test_length_counts_source_symbols(name: str) -> None:
    task = registry.tasks.get(name)()
    for length in (1, 2, 7, 40):
        prompt, _ = task.sample(length)[0]
        frame = 6 if name == "copy.replace" else 2
        assert len(prompt.split()) == length + frame


@copies
def test_published_facts(name: str) -> None:
    task = registry.tasks.get(name)()
    assert (task.train_lengths.first, task.train_lengths.last) == (2, 20)
    assert (task.test_lengths.first, task.test_lengths.last) == (21, 40)
    assert task.published_split == PUBLISHED[name]
    symbols = {"copy.repeat": 6052, "copy.repeat_twice": 6052, "copy.replace": 78}.get(name, 100)
    assert task.config.symbols == symbols


@copies
def test_few_symbols_are_listed_completely(name: str) -> None:
    cls = registry.tasks.get(name)
    task = cls(cls.Config(symbols=5))
    listed = task.all_examples(3)
    texts = {task.text(listed, i) for i in range(len(listed))}
    number = {"copy.repeat": 5, "copy.repeat_twice": 5, "copy.replace": 20}.get(name, 125)
    assert len(texts) == len(listed) == number
    drawn = task.examples(3, 30 * number, stream(0))
    assert {task.text(drawn, i) for i in range(len(drawn))} == texts


def test_different_words_are_listed_where_they_are_few() -> None:
    task = make_task({"name": "copy.words", "symbols": 5, "distinct": True})
    listed = task.all_examples(3)
    assert listed is not None
    assert {task.text(listed, i)[1] for i in range(len(listed))} == {
        " ".join(chosen) for chosen in permutations(words(5), 3)
    }


@pytest.mark.parametrize("symbols", [2, 3, 7, 19, 20, 22])
@pytest.mark.parametrize("name", ["copy.words", "reverse.and_back"])
def test_few_words_leave_examples_for_every_split(name: str, symbols: int) -> None:
    """Two words make eight sequences of three: of so few, drawing left none to be tested."""
    task = make_task({"name": name, "symbols": symbols})
    kept = {split: draw(task, split, Span(2, 12), 120, 0) for split in (Split.TRAIN, Split.TEST)}
    prompts = {
        split: {
            task.text(examples, i)[0] for i in range(len(examples)) if not is_shared(task, int(examples.buckets[i]))
        }
        for split, examples in kept.items()
    }
    assert not prompts[Split.TRAIN] & prompts[Split.TEST]


@pytest.mark.slow
@copies
def test_chance_is_what_a_blind_guesser_gets(name: str) -> None:
    cls = registry.tasks.get(name)
    task = cls(cls.Config(symbols=3))
    count = 20_000
    truth, guesses = task.examples(2, count, stream(0)), task.examples(2, count, stream(1))
    right = np.mean([task.text(truth, i)[1] == task.text(guesses, i)[1] for i in range(count)])
    assert right == pytest.approx(task.chance(2), abs=0.015)


def test_words_are_distinct_and_nested() -> None:
    assert len(set(words(6400))) == 6400
    assert words(6400)[:100] == words(100)
    with pytest.raises(ValueError, match="6400"):
        words(6401)


def test_symbols_are_drawn_evenly() -> None:
    task = registry.tasks.get("copy.words")()
    examples = task.examples(10, 20_000, stream(0))
    counts = np.bincount(examples.tokens[examples.parts == Part.ANSWER])[task.first_symbol :]
    assert len(counts) == 100
    assert counts.min() > 2000 - 5 * 45 and counts.max() < 2000 + 5 * 45  # five standard deviations
