"""Sort, lego, dyck, mqar and needle: naive solutions, how examples are distributed, and steps written out by hand."""

import inspect
import re
from collections import Counter
from itertools import chain, combinations, product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from solutions_lists import SOLUTIONS, items_of, lego_parts, lego_values
from written_steps import scratchpad_text

from lengthwise import registry
from lengthwise.data.examples import STEP_PARTS, Part
from lengthwise.data.scratchpad import Scratchpad, parse
from lengthwise.errors import UserError
from lengthwise.seeding import stream
from lengthwise.tasks.task import Span

LONGEST = {"lego": 26, "mqar": 64}
SHORTEST = {"lego": 2}
WITH_STEPS = ("sort.symbols", "sort.numbers", "lego")
FORMATS = [
    "+".join(part.name.lower() for part in chosen) or "none"
    for chosen in chain.from_iterable(combinations(STEP_PARTS, size) for size in range(6))
]
names = pytest.mark.parametrize("name", SOLUTIONS)
names_with_steps = pytest.mark.parametrize("name", WITH_STEPS)


def make(name: str, **changes: int):
    cls = registry.tasks.get(name)
    return cls(cls.Config(**changes))


def texts(task, length: int, count: int, scratchpad: str = "none", seed: int = 0) -> list[tuple[str, str]]:
    drawn = task.formatted(task.examples(length, count, stream(seed)), Scratchpad(scratchpad))
    return [task.text(drawn, i) for i in range(count)]


def near(count: int, expected: float) -> bool:
    """Within five standard deviations of what it should be."""
    return abs(count - expected) < 5 * expected**0.5 + 1


@names
@settings(max_examples=40, deadline=None)
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_targets_equal_the_naive_solution(name: str, data: st.DataObject, seed: int) -> None:
    length = data.draw(st.integers(SHORTEST.get(name, 1), LONGEST.get(name, 70)))
    for prompt, target in make(name).sample(length, count=4, seed=seed):
        assert target == SOLUTIONS[name](prompt)


@names
def test_texts_are_read_as_they_are_written(name: str) -> None:
    task = make(name)
    for prompt, target in texts(task, 6, 20, "full" if task.step_parts else "none"):
        assert task.vocabulary.decode(task.vocabulary.encode(f"{prompt} {target}")) == f"{prompt} {target}"


@names
def test_documented_examples_hold(name: str) -> None:
    task = make(name)
    documentation = inspect.getdoc(type(task)) or ""
    examples = re.findall(r"^\s+(\S.*) -> (.*)$", documentation, flags=re.MULTILINE)
    assert examples and "Length:" in documentation
    for prompt, target in examples:
        task.vocabulary.encode(f"{prompt} {target}")
        assert SOLUTIONS[name](prompt) == target


@names
def test_published_lengths_and_anchor(name: str) -> None:
    task = make(name)
    lengths = {
        "sort.symbols": (Span(2, 8), Span(9, 16), "Sort the following list ["),
        "sort.numbers": (Span(2, 8), Span(9, 16), "Sort the following list ["),
        "lego": (Span(4, 8), Span(9, 16), "If"),
        "dyck": (Span(2, 20), Span(21, 40), "Close:"),
        "mqar": (Span(2, 16), Span(17, 32), "Recall:"),
        "needle": (Span(8, 32), Span(33, 64), "Find:"),
    }
    train, test, anchor = lengths[name]
    assert (task.train_lengths, task.test_lengths) == (train, test)
    assert bool(task.published_split) == (name in WITH_STEPS)
    drawn = task.examples(5, 4, stream(0))
    assert task.vocabulary.decode(drawn.tokens[drawn.parts == Part.ANCHOR]) == " ".join([anchor] * 4)


@names
def test_length_is_what_it_is_said_to_be(name: str) -> None:
    def length_of(prompt: str) -> int:
        words = prompt.split()
        by_task = {
            "dyck": len(words) - 2,
            "mqar": (words.index("?") - 1) // 2 if "?" in words else 0,
            "needle": len(words) - 8,
            "lego": prompt.count("="),
        }
        return by_task.get(name) or prompt.count(",") + 1

    for length in (2, 5, 16, 26):
        assert {length_of(prompt) for prompt, _ in texts(make(name), length, 20)} == {length}


# ---- How examples are distributed.


def test_numbers_are_uniform_from_10_to_9999() -> None:
    numbers = [int(i.replace(" ", "")) for prompt, _ in texts(make("sort.numbers"), 10, 8000) for i in items_of(prompt)]
    assert min(numbers) >= 10 and max(numbers) <= 9999
    assert min(numbers) < 12 and max(numbers) > 9997  # each end is met 8 times in the mean
    assert near(sum(number < 100 for number in numbers), 80_000 * 90 / 9990)
    thousands = Counter(number // 1000 for number in numbers)
    assert all(near(thousands[k], 80_000 * 1000 / 9990) for k in range(1, 10))
    assert near(thousands[0], 80_000 * 990 / 9990)


def test_sort_draws_50_symbols_evenly() -> None:
    counts = Counter(item for prompt, _ in texts(make("sort.symbols"), 10, 5000) for item in items_of(prompt))
    assert set(counts) == set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwx")
    assert all(near(count, 1000) for count in counts.values())


@pytest.mark.parametrize("length", range(2, 27))
def test_lego_asks_for_the_whole_second_half_of_each_chain(length: int) -> None:
    task = make("lego")
    expected = list(range(length // 2, length)) if length % 2 == 0 else list(range(length // 2 + 1, length))
    asked: dict[tuple[str, ...], list[int]] = {}
    for prompt, _ in texts(task, length, 30 * len(expected)):
        clauses, query = lego_parts(prompt)
        variables = [clause[0] for clause in clauses]
        assert len(set(variables)) == length
        asked.setdefault(tuple(clauses), []).append(variables.index(query))
    assert len(asked) == 30
    assert all(sorted(places) == expected for places in asked.values())


@pytest.mark.slow
def test_lego_values_and_names_are_even_and_a_cut_chain_favours_no_query() -> None:
    drawn = [lego_parts(texts(make("lego"), 8, 1, seed=seed)[0][0]) for seed in range(1200)]
    places = Counter([clause[0] for clause in clauses].index(query) for clauses, query in drawn)
    assert set(places) == {4, 5, 6, 7} and all(near(count, 300) for count in places.values())
    letters = Counter(clause[0] for clauses, _ in drawn for clause in clauses)
    assert len(letters) == 26 and all(near(count, 1200 * 8 / 26) for count in letters.values())
    values = Counter(tuple(lego_values(clauses).values())[:3] for clauses, _ in drawn)
    assert len(values) == 8 and all(near(count, 150) for count in values.values())


@pytest.mark.parametrize(("name", "lengths"), [("lego", (1, 27)), ("mqar", (65,))])
def test_lengths_that_cannot_be_are_refused(name: str, lengths: tuple[int, ...]) -> None:
    for length in lengths:
        with pytest.raises(UserError, match=f"no examples of length {length}"):
            make(name).sample(length)


@pytest.mark.parametrize("length", [1, 2, 3, 8, 21])
def test_dyck_prompts_leave_something_open(length: int) -> None:
    openings: Counter[str] = Counter()
    for prompt, target in texts(make("dyck"), length, 1500):
        assert 1 <= len(target.split()) <= length
        openings.update(word for word in prompt.split()[1:-1] if word in "([{")
    assert len(openings) == 3 and all(near(count, openings.total() / 3) for count in openings.values())


@pytest.mark.parametrize("length", range(1, 7))
def test_dyck_counts_and_lists_every_prompt(length: int) -> None:
    task = make("dyck")

    def is_prefix(brackets: tuple[str, ...]) -> bool:
        stack = ""
        for bracket in brackets:
            if bracket in "([{":
                stack += bracket
            elif not stack or stack[-1] + bracket not in ("()", "[]", "{}"):
                return False
            else:
                stack = stack[:-1]
        return stack != ""

    valid = {f"Close: {' '.join(b)} [SEP]" for b in product("()[]{}", repeat=length) if is_prefix(b)}
    assert task.number(length) == len(valid)
    listed = task.all_examples(length)
    assert (listed is None) == (len(valid) >= 500)
    if listed is not None:
        pairs = [task.text(listed, i) for i in range(len(listed))]
        assert sorted(prompt for prompt, _ in pairs) == sorted(valid)
        assert all(target == SOLUTIONS["dyck"](prompt) for prompt, target in pairs)
        assert {prompt for prompt, _ in texts(task, length, 8000)} == valid


def test_recall_has_distinct_keys_and_asks_for_each_place_evenly() -> None:
    places: Counter[int] = Counter()
    keys_met, values_met = set(), set()
    for prompt, _ in texts(make("mqar"), 16, 3200):
        words = prompt.split()
        keys, values = words[1:33:2], words[2:33:2]
        assert len(set(keys)) == 16
        keys_met.update(keys)
        values_met.update(values)
        places[keys.index(words[-2])] += 1
    assert len(keys_met) == len(values_met) == 64 and not keys_met & values_met
    assert len(places) == 16 and all(near(count, 200) for count in places.values())


def test_recall_of_several_keys() -> None:
    task = make("mqar", queries=3)
    assert task.buckets(Span(1, 5)) == [3, 4, 5]
    for prompt, target in texts(task, 5, 200):
        asked = prompt.split()[-4:-1]
        assert prompt.split()[11] == "?" and len(set(asked)) == 3
        assert target == SOLUTIONS["mqar"](prompt) and len(target.split()) == 3


def test_needle_depth_and_digits_are_uniform() -> None:
    depths: Counter[int] = Counter()
    digits: Counter[str] = Counter()
    filler: Counter[str] = Counter()
    for prompt, target in texts(make("needle"), 9, 5000):
        words = prompt.split()[1:-1]
        place = words.index("KEY")
        depths[place] += 1
        digits.update(target.split())
        filler.update(words[:place] + words[place + 6 :])
    assert len(depths) == 10 and all(near(count, 500) for count in depths.values())
    assert len(digits) == 10 and all(near(count, 2500) for count in digits.values())
    assert len(filler) == 50 and all(near(count, 900) for count in filler.values())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "changes", "length"),
    [
        ("sort.symbols", {"symbols": 3}, 2),
        ("sort.symbols", {"symbols": 2}, 4),
        ("sort.numbers", {"smallest": 8, "largest": 11}, 3),
        ("lego", {}, 5),
        ("dyck", {}, 3),
        ("dyck", {"kinds": 2}, 6),
        ("mqar", {"keys": 4, "values": 3, "queries": 2}, 3),
        ("needle", {"digits": 1}, 4),
    ],
)
def test_chance_is_what_a_blind_guesser_gets(name: str, changes: dict[str, int], length: int) -> None:
    task, count = make(name, **changes), 20_000
    truth, guesses = texts(task, length, count, seed=0), texts(task, length, count, seed=1)
    right = np.mean([one[1] == other[1] for one, other in zip(truth, guesses, strict=True)])
    assert right == pytest.approx(task.chance(length), abs=0.015)


def test_chance_of_long_lists_is_tiny_and_not_an_error() -> None:
    assert 0 < make("sort.numbers").chance(16) < 1e-40
    assert make("sort.symbols").chance(2) == pytest.approx((50 + 50 * 49 * 2) / 50**4)


def test_small_lists_are_listed() -> None:
    task = make("sort.symbols", symbols=3)
    listed = task.all_examples(4)
    assert len({task.text(listed, i)[0] for i in range(len(listed))}) == len(listed) == 81
    assert task.all_examples(6) is None


# ---- Answers that are read back.


@pytest.mark.parametrize(
    ("name", "text", "answer"),
    [
        ("sort.symbols", "The sorted list is [ E, F, M ].", "E,F,M"),
        ("sort.symbols", "The sorted list is [ E ].", "E"),
        ("sort.symbols", "The sorted list is [ ].", None),
        ("sort.symbols", "The sorted list is [ E, F ]. ]", None),
        ("sort.symbols", "The sorted list is [ E, F, ].", None),
        ("sort.symbols", "The sorted list is [ E F ].", None),
        ("sort.symbols", "list The sorted list is [ E, F ].", None),
        ("sort.numbers", "The sorted list is [ 8 8 1, 2 4 6 8 ].", "881,2468"),
        ("sort.numbers", "The sorted list is [ 8 8 1, 2 4 6 8", None),
        ("sort.numbers", "The sorted list is [ 8 8 1, list ].", None),
        ("lego", "The answer is +1.", "+"),
        ("lego", "The answer is -1.", "-"),
        ("lego", "The answer is - 1.", None),
        ("lego", "The answer is +1", None),
        ("lego", "The answer is +1. +1", None),
        ("lego", "The answer is +1.\n", None),
    ],
)
def test_answers_are_read(name: str, text: str, answer: str | None) -> None:
    assert make(name).read_answer(text) == answer


# ---- Steps, written out by hand.


def sort_steps(prompt: str, value_of) -> list[dict[Part, str]]:
    items, steps = items_of(prompt), []
    for i in range(len(items)):
        front = items[i]
        smallest = min(range(i, len(items)), key=lambda j: (value_of(items[j]), j))
        items[i], items[smallest] = items[smallest], items[i]
        rest = ", ".join(items[i + 1 :])
        steps.append(
            {
                Part.INPUT: front,
                Part.COMPUTATION: "The minimum of the unsorted portion",
                Part.OUTPUT: items[i],
                Part.REMAINING: f"[ {rest} ]" if rest else "[ ]",
            }
        )
    return steps


def lego_steps(prompt: str) -> list[dict[Part, str]]:
    clauses, asked = lego_parts(prompt)
    values = lego_values(clauses)
    steps = []
    for i, clause in enumerate(clauses):
        name, right = clause.split(" = ")
        computation = ""
        if i:
            sign, previous = right.split(" ")
            computation = f"{sign} {previous} = {sign} {values[previous]:+d}"
        steps.append(
            {
                Part.INPUT: name,
                Part.COMPUTATION: computation,
                Part.OUTPUT: f"{values[name]:+d}",
                Part.REMAINING: ", ".join(clauses[i + 1 :]),
            }
        )
        if name == asked:
            break
    return steps


STEPS = {
    "sort.symbols": lambda prompt: sort_steps(prompt, str),
    "sort.numbers": lambda prompt: sort_steps(prompt, lambda item: int(item.replace(" ", ""))),
    "lego": lego_steps,
}


@names_with_steps
@settings(max_examples=25, deadline=None)
@given(length=st.integers(2, 20), seed=st.integers(0, 2**32))
def test_full_scratchpad_equals_steps_written_by_hand(name: str, length: int, seed: int) -> None:
    for prompt, target in make(name).sample(length, count=4, seed=seed, scratchpad="full"):
        assert target == scratchpad_text(STEPS[name](prompt), STEP_PARTS, SOLUTIONS[name](prompt))


@names_with_steps
@pytest.mark.parametrize("scratchpad", FORMATS)
def test_every_format_is_read_back(name: str, scratchpad: str) -> None:
    task = make(name)
    for length in (2, 3, 7, 12):
        for prompt, target in texts(task, length, 6, scratchpad):
            kept = Scratchpad(scratchpad).steps
            assert target == scratchpad_text(STEPS[name](prompt), kept, SOLUTIONS[name](prompt))
            read = parse(target, Scratchpad(scratchpad), task.step_parts)
            assert read is not None
            assert read.answer == SOLUTIONS[name](prompt)
            expected = [{p: text for p, text in step.items() if p in kept} for step in STEPS[name](prompt)]
            assert list(read.steps) == (expected if kept else [])


def test_there_are_32_formats() -> None:
    assert len(set(FORMATS)) == 32


@names_with_steps
def test_last_step_agrees_with_the_answer(name: str) -> None:
    task = make(name)
    for length in (2, 5, 16):
        for _, target in texts(task, length, 20, "full"):
            read = parse(target, Scratchpad("full"), task.step_parts)
            assert read is not None
            outputs = [step[Part.OUTPUT] for step in read.steps]
            if name == "lego":
                assert read.answer == f"The answer is {outputs[-1]}."
                assert task.read_answer(read.answer) == outputs[-1][0]
            else:
                assert read.answer == f"The sorted list is [ {', '.join(outputs)} ]."
                assert read.steps[-1][Part.REMAINING] == "[ ]"
