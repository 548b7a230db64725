"""The Chomsky hierarchy tasks: every length, long inputs, how inputs are distributed, chance."""

import re
from collections import Counter
from itertools import product

import numpy as np
import pytest
from solutions_chomsky import SOLUTIONS, source

from lengthwise.errors import UserError
from lengthwise.seeding import stream
from lengthwise.tasks.choosing import make_task
from lengthwise.tasks.task import Span

names = pytest.mark.parametrize("name", SOLUTIONS)


def texts(task, length: int, count: int, seed: int = 0) -> list[tuple[str, str]]:
    drawn = task.examples(length, count, stream(seed))
    return [task.text(drawn, i) for i in range(count)]


def near(count: float, expected: float) -> bool:
    """Within five standard deviations of what it should be."""
    return abs(count - expected) < 5 * expected**0.5 + 1


@names
def test_every_length_is_solved_and_has_its_length(name: str) -> None:
    task = make_task(name)
    for length in task.buckets(Span(1, 30)):
        for prompt, target in texts(task, length, 12):
            assert len(source(prompt)) == length and target == SOLUTIONS[name](prompt)


@names
def test_long_inputs_are_solved(name: str) -> None:
    """Beyond what fits into a machine word; Python's parser takes brackets up to some depth only."""
    task = make_task(name)
    (length,) = task.buckets(Span(150, 150)) or task.buckets(Span(151, 151))
    for prompt, target in texts(task, length, 5):
        assert target == SOLUTIONS[name](prompt)


@names
def test_short_inputs_are_listed_or_drawn_completely(name: str) -> None:
    task = make_task(name)
    for length in task.buckets(Span(1, 6)):
        listed = task.all_examples(length)
        if listed is not None:
            found = [task.text(listed, i) for i in range(len(listed))]
            assert len(set(found)) == len(found) < 500
            assert set(texts(task, length, 20 * len(found))) <= set(found)
            assert all(target == SOLUTIONS[name](prompt) for prompt, target in found)


@pytest.mark.parametrize("multiplication", [False, True])
@pytest.mark.parametrize("modulus", [2, 7])
def test_brackets_with_other_numbers_and_products(modulus: int, multiplication: bool) -> None:
    settings = {"name": "chomsky.modular_arithmetic_brackets", "modulus": modulus, "multiplication": multiplication}
    task = make_task(settings)
    signs: Counter[str] = Counter()
    for length in range(1, 40):
        for prompt, target in texts(task, length, 20):
            written = "".join(source(prompt))
            assert int(target) == eval(written) % modulus
            signs.update(re.sub(r"[0-9()]|(?<![0-9)])-", "", written))
    assert set(signs) == (set("+-*") if multiplication else set("+-"))


def test_expressions_with_brackets_are_all_that_there_can_be() -> None:
    """All expressions of a length, by the rule, in Python; each is drawn, in the shares that the rule gives."""

    def shares(length: int) -> dict[str, float]:
        small = {1: "{}", 2: "-{}", 3: "({})", 4: "(-{})"}
        if length in small:
            return {small[length].format(digit): 1 / 2 for digit in range(2)}
        found: dict[str, float] = {}
        for left in range(1, length - 3):
            pairs = product(shares(left).items(), shares(length - 3 - left).items(), "+-")
            for (a, share), (b, also), sign in pairs:
                found[f"({a}{sign}{b})"] = share * also / 2 / (length - 4)
        return found

    task = make_task({"name": "chomsky.modular_arithmetic_brackets", "modulus": 2})
    for length in (5, 6, 9):
        expected = shares(length)
        assert sum(expected.values()) == pytest.approx(1)
        drawn = Counter("".join(source(prompt)) for prompt, _ in texts(task, length, 8000))
        assert set(drawn) <= set(expected)
        assert all(near(drawn[each], 8000 * share) for each, share in expected.items())


def test_any_digit_of_an_equation_may_be_unknown() -> None:
    places = Counter(source(prompt).index("x") for prompt, _ in texts(make_task("chomsky.solve_equation"), 7, 3000))
    assert set(places) == {1, 3} and all(near(count, 1500) for count in places.values())


def test_stacks_have_any_size_and_actions_are_even() -> None:
    sizes, actions = Counter(), Counter()
    for prompt, _ in texts(make_task("chomsky.stack_manipulation"), 9, 4000):
        words = source(prompt)
        bits = [word for word in words if word in "01"]
        assert words[: len(bits)] == bits
        sizes[len(bits)] += 1
        actions.update(words[len(bits) :])
    assert set(sizes) == set(range(1, 9)) and all(near(count, 500) for count in sizes.values())
    assert len(actions) == 3 and all(near(count, actions.total() / 3) for count in actions.values())


@pytest.mark.parametrize("name", ["chomsky.binary_addition", "chomsky.binary_multiplication"])
def test_binary_numbers_are_above_zero_and_split_anywhere(name: str) -> None:
    sizes: Counter[int] = Counter()
    values: Counter[str] = Counter()
    for prompt, target in texts(make_task(name), 8, 6000):
        a, b = re.split(r" [+*] ", " ".join(source(prompt)))
        assert "1" in a and "1" in b and target.endswith("1")
        sizes[len(a.split())] += 1
        values[a] += len(a.split()) == 2
    assert set(sizes) == set(range(1, 7)) and all(near(count, 1000) for count in sizes.values())
    pairs = {bits: count for bits, count in values.items() if count}
    assert set(pairs) == {"1 0", "0 1", "1 1"} and all(near(count, 1000 / 3) for count in pairs.values())


@pytest.mark.parametrize(
    ("name", "length"), [("chomsky.stack_manipulation", 4), ("chomsky.bucket_sort", 3), ("chomsky.odds_first", 3)]
)
def test_chance_is_what_a_blind_guesser_gets(name: str, length: int) -> None:
    task, count = make_task(name), 20_000
    truth, guesses = texts(task, length, count, seed=0), texts(task, length, count, seed=1)
    right = np.mean([one[1] == other[1] for one, other in zip(truth, guesses, strict=True)])
    assert right == pytest.approx(task.chance(length), abs=0.01)


@pytest.mark.parametrize("name", ["chomsky.binary_addition", "chomsky.binary_multiplication", "chomsky.square_root"])
def test_chance_of_long_inputs_is_tiny_and_not_an_error(name: str) -> None:
    assert 0 <= make_task(name).chance(3000) < make_task(name).chance(100) < 0.02


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"name": "chomsky.modular_arithmetic", "modulus": 11}, "modulus must be 2 to 10"),
        ({"name": "chomsky.cycle_navigation", "places": 1}, "places must be 2 to 10"),
        ({"name": "chomsky.solve_equation", "multiplication": True}, "unknown setting"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_task(settings)


def test_lengths_that_cannot_be_are_refused() -> None:
    for name, length in {"chomsky.modular_arithmetic": 4, "chomsky.missing_duplicate": 5}.items():
        with pytest.raises(UserError, match=f"no examples of length {length}"):
            make_task(name).sample(length)
