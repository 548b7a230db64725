"""Flip-flop and state tracking: settings, how instructions and elements are distributed, what groups are."""

from collections import Counter
from itertools import product

import numpy as np
import pytest
from solutions_state import SOLUTIONS

from lengthwise.errors import UserError
from lengthwise.seeding import stream
from lengthwise.study import study_from
from lengthwise.tasks.choosing import make_task
from lengthwise.tasks.state_tracking import CYCLES, OF_PERMUTATIONS, elements_of
from lengthwise.tasks.task import Span


def texts(task, length: int, count: int, seed: int = 0) -> list[tuple[str, str]]:
    drawn = task.examples(length, count, stream(seed))
    return [task.text(drawn, i) for i in range(count)]


def near(count: float, expected: float) -> bool:
    """Within five standard deviations of what it should be."""
    return abs(count - expected) < 5 * expected**0.5 + 1


@pytest.mark.parametrize("name", ["flip_flop", "flip_flop.all_reads"])
@pytest.mark.parametrize(("length", "share"), [(32, 0.8), (33, 0.98), (40, 0.98)])
def test_instructions_have_the_shares_of_their_length(name: str, length: int, share: float) -> None:
    task = make_task({"name": name, "test_ignore": 0.98})
    found: Counter[str] = Counter()
    for prompt, target in texts(task, length, 500):
        instructions = [word for word in prompt.split()[1:] if word in "wir"]
        assert len(instructions) == length and instructions[0] == "w" and instructions[-1] == "r"
        assert target == SOLUTIONS[name](prompt)
        found.update(instructions[1:-1])
    inner = 500 * (length - 2)
    for instruction, expected in {"i": share, "w": (1 - share) / 2, "r": (1 - share) / 2}.items():
        assert near(found[instruction], inner * expected)


def test_reads_before_the_last_one_show_the_bit_that_was_written() -> None:
    for prompt, _ in texts(make_task({"name": "flip_flop", "ignore": 0.1}), 20, 200):
        words, memory = prompt.split()[1:-1], ""
        for instruction, bit in zip(words[::2], words[1::2], strict=True):
            memory = bit if instruction == "w" else memory
            assert instruction != "r" or bit == memory


@pytest.mark.parametrize("name", ["flip_flop", "flip_flop.all_reads"])
def test_short_prompts_are_listed(name: str) -> None:
    task = make_task({"name": name, "ignore": 0.3})
    assert task.buckets(Span(1, 3)) == [2, 3]
    for length, number in {2: 2, 3: 10, 4: 50, 5: 250}.items():
        listed = task.all_examples(length)
        prompts = {task.text(listed, i)[0] for i in range(len(listed))}
        assert len(prompts) == len(listed) == number
        assert {prompt for prompt, _ in texts(task, length, 20 * number)} <= prompts
    assert task.all_examples(6) is None


def test_three_tests_of_flip_flop_are_three_entries_of_a_study() -> None:
    tasks = ["flip_flop", *({"name": "flip_flop", "test_ignore": share} for share in (0.98, 0.1))]
    study = study_from({"name": "x", "summary": "x", "tasks": tasks, "encodings": ["none"], "seeds": [1]})
    assert study.titles == ["flip_flop", "flip_flop(test_ignore=0.98)", "flip_flop(test_ignore=0.1)"]


def test_the_share_of_the_test_begins_where_the_test_does() -> None:
    table = {"name": "x", "summary": "x", "encodings": ["none"], "seeds": [1]}
    table["data"] = {"train_lengths": [8, 16], "test_lengths": [17, 20]}
    sparse = {"name": "flip_flop", "test_ignore": 0.98}
    with pytest.raises(UserError, match=r"lengths 8-16 and the test 17-20; set test_from = 17"):
        study_from({**table, "tasks": [sparse]})
    assert study_from({**table, "tasks": ["flip_flop", {**sparse, "test_from": 17}]}).titles


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "flip_flop", "ignore": 1.5}, "ignore is a share of instructions, 0 to 1, not 1.5"),
        ({"name": "flip_flop", "test_from": 1}, "test_from must be 2 or more"),
        ({"name": "state_tracking", "group": "S6"}, "one of S3, S4, S5, A4, A5 or Z2 to Z60, not 'S6'"),
        ({"name": "state_tracking", "group": "Z61"}, "Z2 to Z60"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_task(settings)


def test_chance_of_all_reads_is_what_a_coin_for_each_read_gets() -> None:
    task = make_task({"name": "flip_flop.all_reads", "ignore": 0.2})
    reads = [len(target.split()) for _, target in texts(task, 9, 20_000)]
    assert np.mean(0.5 ** np.array(reads)) == pytest.approx(task.chance(9), abs=0.005)


@pytest.mark.parametrize("group", [*OF_PERMUTATIONS, "Z2", "Z7", "Z60"])
def test_groups_are_groups(group: str) -> None:
    orders = {"S3": 6, "S4": 24, "S5": 120, "A4": 12, "A5": 60}
    task = make_task({"name": "state_tracking", "group": group})
    table, order = task.products, len(elements_of(group))
    assert order == orders.get(group) or order == int(group[1:])
    assert (table[0] == np.arange(order)).all() and (table[:, 0] == np.arange(order)).all(), "the first is neutral"
    assert all(sorted(row) == list(range(order)) for row in table), "each product once in a row"
    some = stream(0).integers(order, size=(3, 200))
    assert (table[table[some[0], some[1]], some[2]] == table[some[0], table[some[1], some[2]]]).all()
    assert (table == table.T).all() == (group in CYCLES)


@pytest.mark.parametrize("group", OF_PERMUTATIONS)
@pytest.mark.parametrize("name", ["state_tracking", "state_tracking.prefixes"])
def test_permutations_are_followed(name: str, group: str) -> None:
    for prompt, target in texts(make_task({"name": name, "group": group}), 15, 60):
        assert target == SOLUTIONS[name](prompt)


@pytest.mark.parametrize("order", [2, 10, 60])
def test_cycles_are_added(order: int) -> None:
    for prompt, target in texts(make_task({"name": "state_tracking", "group": f"Z{order}"}), 15, 100):
        assert int(target) == sum(map(int, prompt.split()[1:-1])) % order


def test_few_words_are_listed_and_products_are_even() -> None:
    task = make_task("state_tracking")
    listed = task.all_examples(3)
    prompts = [task.text(listed, i)[0] for i in range(len(listed))]
    assert sorted(prompts) == sorted(f"Track: {' '.join(word)} [SEP]" for word in product(task.written, repeat=3))
    assert task.all_examples(4) is None
    counts = Counter(target for _, target in texts(task, 12, 6000))
    assert len(counts) == 6 and all(near(count, 1000) for count in counts.values())
