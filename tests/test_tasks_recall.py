"""Recall and retrieval: how examples are distributed, long prompts, settings."""

import time
from collections import Counter

import numpy as np
import pytest
from solutions_recall import SOLUTIONS

from lengthwise.errors import UserError
from lengthwise.seeding import stream
from lengthwise.study import make_task
from lengthwise.tasks.mqmtar import distinct
from lengthwise.tasks.task import Span


def texts(task, length: int, count: int, seed: int = 0) -> list[tuple[str, str]]:
    drawn = task.examples(length, count, stream(seed))
    return [task.text(drawn, i) for i in range(count)]


def near(count: float, expected: float) -> bool:
    """Within five standard deviations of what it should be."""
    return abs(count - expected) < 5 * expected**0.5 + 1


@pytest.mark.parametrize("number", [1, 2, 3, 5, 6])
def test_distinct_numbers_are_distinct_and_every_row_is_equally_likely(number: int) -> None:
    rows = distinct(6000, number, 24 if number < 5 else 6, stream(number))
    assert all(len(set(row)) == number for row in rows.tolist())
    first_two = Counter(tuple(row[:2]) for row in rows.tolist())
    choices = 24 if number < 5 else 6
    expected = 6000 / (choices if number == 1 else choices * (choices - 1))
    assert all(near(count, expected) for count in first_two.values())
    assert len(first_two) == round(6000 / expected)


def test_mqmtar_has_the_parts_that_it_says() -> None:
    begins: Counter[int] = Counter()
    for prompt, target in texts(make_task("mqmtar"), 60, 1500):
        words = prompt.split()
        asked = words.index("?")
        assert asked - 1 == 60 and len(words) == 1 + 60 + 4 * 3 + 1 and len(target.split()) == 8
        assert words.count(":") == 8 and words.count("?") == 4 and words[1:asked].count("_") == 60 - 8 * 5
        questions = [" ".join(words[i + 1 : i + 3]) for i, word in enumerate(words) if word == "?"]
        assert len(set(questions)) == 4
        begins[words.index(":") - 2] += 1
        assert words[asked - 1] == "_", "every pair has a blank behind it"
    assert set(begins) >= set(range(1, 5)), "blanks stand anywhere"


def test_mqmtar_asks_for_every_pair() -> None:
    places: Counter[int] = Counter()
    for prompt, _ in texts(make_task("mqmtar"), 60, 2000):
        source, *questions = prompt.removeprefix("Recall: ").removesuffix(" [SEP]").split(" ? ")
        pairs = [pair.strip().split(" : ")[0] for pair in f" {source} ".split("_") if pair.strip()]
        places.update(pairs.index(question) for question in questions)
    assert len(places) == 8 and all(near(count, 1000) for count in places.values())


@pytest.mark.parametrize(
    "changes", [{}, {"queries": 1, "pairs": 0.1}, {"key_size": 1, "value_size": 3}, {"pairs": 1.0}]
)
def test_mqmtar_with_other_settings(changes: dict) -> None:
    task = make_task({"name": "mqmtar", **changes})
    for length in (96, 200):
        for prompt, target in texts(task, length, 20):
            assert target == SOLUTIONS["mqmtar"](prompt)


def test_mqmtar_of_65536_symbols() -> None:
    task = make_task("mqmtar")
    (prompt, target), *_ = texts(task, 65_536, 2)
    assert prompt.count(":") == 1 + 8738 and target == SOLUTIONS["mqmtar"](prompt)


def test_mqmtar_has_lengths_with_enough_pairs_and_keys() -> None:
    assert make_task("mqmtar").buckets(Span(1, 32)) == [30, 31, 32]
    few = make_task({"name": "mqmtar", "symbols": 3})
    assert few.buckets(Span(60, 80)) == list(range(60, 75)), "there are nine keys"
    for length in (60, 74):
        assert all(target == SOLUTIONS["mqmtar"](prompt) for prompt, target in texts(few, length, 50))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"pairs": 0.0}, "share of the length"),
        ({"pairs": 1.5}, "share of the length"),
        ({"queries": 65}, "queries must be 1 to 64"),
        ({"key_size": 0}, "must be 1 to 8"),
        ({"symbols": 7000}, "2 to 6400"),
        ({"symbols": 6000, "key_size": 8}, "more than .* keys"),
    ],
)
def test_mqmtar_refuses_settings_that_cannot_be(changes: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_task({"name": "mqmtar", **changes})


@pytest.mark.slow
def test_a_hundred_thousand_examples_take_seconds() -> None:
    began = time.monotonic()
    drawn = make_task("mqmtar").examples(64, 100_000, stream(0))
    assert len(drawn) == 100_000 and time.monotonic() - began < 20
    assert np.all(drawn.sizes == 64 + 14 + 8)
