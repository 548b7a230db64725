"""Recall and retrieval: how examples are distributed, long prompts, settings."""

import re
import time
from collections import Counter

import numpy as np
import pytest
from solutions_recall import SOLUTIONS

from lengthwise.errors import UserError
from lengthwise.seeding import stream
from lengthwise.tasks.choosing import make_task
from lengthwise.tasks.distinct import distinct
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


# Dispersion, selection, delay, variables.


def test_the_largest_priority_is_even_at_every_length_and_stands_anywhere() -> None:
    for length in (1, 4, 300):
        largest, places = Counter(), Counter()
        for prompt, target in texts(make_task({"name": "max_retrieval", "priorities": 11}), length, 2000):
            words = prompt.split()[1:-1]
            numbers = [int(word) for word in words[1::2]]
            largest[max(numbers)] += 1
            places[numbers.index(max(numbers))] += 1
            assert numbers.count(max(numbers)) == 1 and words[2 * numbers.index(max(numbers))] == target
        assert set(largest) == set(range(1, 11)) and all(near(count, 200) for count in largest.values())
        assert length > 4 or all(near(places[place], 2000 / length) for place in range(length))


def test_selected_symbols_stand_anywhere() -> None:
    places: Counter[int] = Counter()
    for prompt, target in texts(make_task({"name": "selective_copy", "content": 3}), 10, 3000):
        words = prompt.split()[1:-1]
        assert len(words) == 10 and words.count("_") == 7 and len(target.split()) == 3
        places.update(place for place, word in enumerate(words) if word != "_")
    assert len(places) == 10 and all(near(count, 900) for count in places.values())
    assert make_task("selective_copy").buckets(Span(6, 9)) == [8, 9]
    full = texts(make_task("selective_copy"), 8, 3)
    assert all(prompt == f"Select: {target} [SEP]" for prompt, target in full)


def test_a_delay_changes_the_distance_and_nothing_else() -> None:
    task = make_task("delay_copy")
    sizes = set()
    for distance in (1, 7, 64):
        for prompt, target in texts(task, distance, 20):
            words = prompt.split()
            assert len(words) - 2 - words.index("]") == distance
            assert words[words.index("[") + 1 : words.index("]")] == target.split()
            sizes.add(len(words))
    assert sizes == {1 + 64 + 4 + 2 + 1}
    assert task.buckets(Span(60, 70)) == [60, 61, 62, 63, 64]


@pytest.mark.parametrize(
    "changes", [{}, {"chains": 3, "hops": 2}, {"chains": 13, "hops": 1, "digits": 2}, {"hops": 25}]
)
def test_variables_are_tracked_and_chains_are_apart(changes: dict) -> None:
    task = make_task({"name": "variable_tracking", **changes})
    chains, hops = changes.get("chains", 1), changes.get("hops", 4)
    asked: Counter[int] = Counter()
    for prompt, target in texts(task, 20, 300):
        assert target == SOLUTIONS["variable_tracking"](prompt)
        words = prompt.split()
        values = re.findall("= ([0-9](?: [0-9])+) ;", prompt)
        assert words.count("=") == words.count(";") == chains * (hops + 1) and len(set(values)) == chains
        assert len(target.split()) == hops + 1
        asked[values.index(prompt.split(" ? ")[1].removesuffix(" [SEP]"))] += 1
        filler = re.sub(r"[A-Z] = [A-Z0-9 ]+ ;", "", prompt.split(" ? ")[0].removeprefix("Track:")).split()
        assert len(filler) == 20 and all(word.islower() for word in filler)
    assert len(asked) == chains


def test_assignments_stand_anywhere() -> None:
    first: Counter[int] = Counter()
    for prompt, _ in texts(make_task({"name": "variable_tracking", "hops": 1}), 3, 4000):
        first[prompt.split().index("=") - 2] += 1
    expected = {before: 4000 * (4 - before) / 10 for before in range(4)}
    assert all(near(first[before], count) for before, count in expected.items()), "two of five places"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "max_retrieval", "classes": 1}, "classes must be 2"),
        ({"name": "max_retrieval", "priorities": 2000}, "priorities must be 2 to 1000"),
        ({"name": "selective_copy", "content": 0}, "how many symbols are copied"),
        ({"name": "delay_copy", "context": 10**6}, "1 to 100,000"),
        ({"name": "delay_copy", "content": 2000}, "1 to 1000"),
        ({"name": "variable_tracking", "hops": 26}, "at most 26 variables"),
        ({"name": "variable_tracking", "chains": 6}, "at most 26 variables"),
        ({"name": "variable_tracking", "digits": 1}, "digits must be 2 to 9"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_task(settings)


@pytest.mark.parametrize("name", ["max_retrieval", "selective_copy", "variable_tracking"])
def test_long_prompts(name: str) -> None:
    for prompt, target in texts(make_task(name), 16_384, 2):
        assert target == SOLUTIONS[name](prompt)


@pytest.mark.slow
@pytest.mark.parametrize("name", SOLUTIONS)
def test_a_hundred_thousand_examples_take_seconds(name: str) -> None:
    began = time.process_time()
    drawn = make_task(name).examples(64, 100_000, stream(0))
    assert len(drawn) == 100_000 and time.process_time() - began < 20
    assert np.all(drawn.sizes == drawn.sizes[0])
