"""The tasks of numbers: naive solutions, published facts, and every scratchpad against one written step by step."""

import inspect
import re
from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from solutions_numbers import SOLUTIONS
from written_steps import scratchpad_text

from lengthwise import registry
from lengthwise.data.examples import STEP_PARTS, Part
from lengthwise.data.scratchpad import PUBLISHED, Scratchpad, parse
from lengthwise.data.splits import is_shared
from lengthwise.seeding import stream
from lengthwise.tasks.task import Span, Task


def make(name: str) -> Task:
    return registry.tasks.get(name)()


def spaced(number: int) -> str:
    return " ".join(str(number))


# Scratchpads, written naively from the prompt: each step is the five texts input, computation, output, variables, rest.


def addition_steps(prompt: str) -> list[tuple[str, ...]]:
    """With whole numbers: what is left of an operand is the operand without its last digit."""
    operands = prompt.removeprefix("Compute ").removesuffix(" ?").split(" + ")
    a, b = (int(operand.replace(" ", "")) for operand in operands)
    places = max(len(operand.split()) for operand in operands)
    steps, carry = [], 0
    for left in reversed(range(places)):
        (a, x), (b, y) = divmod(a, 10), divmod(b, 10)
        total = x + y + carry
        computation = f"{x} + {y} + carry = {x + y} + {carry} = {total}"
        carry = int(total > 9)
        remaining = f"{spaced(a)} + {spaced(b)}" if left else "+"
        steps.append((f"{x}, {y}", computation, str(total)[-1], f"carry: {carry}", remaining))
    if carry:
        steps.append(("0, 0", "0 + 0 + carry = 0 + 1 = 1", "1", "carry: 0", "+"))
    return steps


def summation_steps(prompt: str) -> list[tuple[str, ...]]:
    rest = prompt.removeprefix("Compute: ").removesuffix(" .[SEP]").split(" + ")
    steps, running = [], 0
    while rest:
        digit = int(rest.pop(0))
        computation = f"{digit} + sum = {digit} + {running} ="
        total = spaced(digit + running)
        running = int(total[-1])
        steps.append((f"{digit}", computation, total, f"sum: {total} = {running}", " + ".join(rest)))
    return steps


def parity_steps(prompt: str) -> list[tuple[str, ...]]:
    rest = prompt[prompt.index("[ ") + 2 : prompt.index(" ]")].split(", ")
    steps, running = [], "0"
    while rest:
        bit = rest.pop(0)
        result = "0" if bit == running else "1"
        remaining = f"[ {', '.join(rest)} ]" if rest else "[ ]"
        steps.append((bit, f"{bit} ** par = {bit} ** {running}", result, f"par: {result}", remaining))
        running = result
    return steps


def polynomial_steps(prompt: str) -> list[tuple[str, ...]]:
    point, terms = prompt.removeprefix("Evaluate at x = ").removesuffix(" ?").split(" in ")
    x, rest = int(point.replace(" ", "")), terms.split(" + ")
    steps, running = [], 0
    while rest:
        term = rest.pop(0)
        coefficient, degree = term.split(" * x ** ")
        power = 1
        for _ in range(int(degree)):
            power *= x
        value = int(coefficient.replace(" ", "")) * power
        computation = f"{term.replace('x', point)} = {coefficient} * {spaced(power)}"
        added = f"{running} + {spaced(value)}"
        running = (running + value) % 10
        steps.append((term, computation, spaced(value), f"sum: {added} = {running}", " + ".join(rest)))
    return steps


def multiplication_steps(prompt: str) -> list[tuple[str, ...]]:
    a, b = (text.replace(" ", "") for text in prompt.removeprefix("Multiply ").removesuffix(" ?").split(" * "))
    steps, running, power = [], 0, 1
    while b:
        b, digit = b[:-1], b[-1]
        product = int(a) * int(digit) * power
        running, power = running + product, power * 10
        steps.append((digit, f"{spaced(a)} * {digit}", spaced(product), f"sum: {spaced(running)}", spaced(b)))
    return steps


STEPS = {
    "addition": addition_steps,
    "summation": summation_steps,
    "parity": parity_steps,
    "polynomial": polynomial_steps,
    "multiplication": multiplication_steps,
}
FORMATS = [
    "+".join(part.name.lower() for part in parts) or "none"
    for size in range(len(STEP_PARTS) + 1)
    for parts in combinations(STEP_PARTS, size)
]
names = pytest.mark.parametrize("name", SOLUTIONS)
names_with_steps = pytest.mark.parametrize("name", STEPS)


def steps_of(name: str, prompt: str) -> list[dict[Part, str]]:
    return [dict(zip(STEP_PARTS, step, strict=True)) for step in STEPS[name](prompt)]


@names
@settings(max_examples=30, deadline=None)
@given(length=st.integers(1, 45), seed=st.integers(0, 2**32))
def test_targets_equal_the_naive_solution(name: str, length: int, seed: int) -> None:
    task = make(name)
    for prompt, target in task.sample(length, count=3, seed=seed):
        assert target == SOLUTIONS[name](prompt)
        assert task.vocabulary.decode(task.vocabulary.encode(f"{prompt} {target}")) == f"{prompt} {target}"


@names
def test_documented_examples_hold(name: str) -> None:
    task = make(name)
    documentation = inspect.getdoc(type(task)) or ""
    assert "Length:" in documentation
    examples = re.findall(r"^\s+(\S.*) -> (.*)$", documentation, flags=re.MULTILINE)
    assert examples
    for prompt, target in examples:
        task.vocabulary.encode(f"{prompt} {target}")
        assert SOLUTIONS[name](prompt) == target


@names
def test_lengths_are_the_published_ones(name: str) -> None:
    expected = {
        "addition": ("1-8", "9-16"),
        "summation": ("2-8", "9-16"),
        "parity": ("4-8", "9-16"),
        "polynomial": ("1-8", "9-16"),
        "multiplication": ("1-4", "5-8"),
        "majority": ("2-20", "21-40"),
    }
    task = make(name)
    assert (str(task.train_lengths), str(task.test_lengths)) == expected[name]
    assert bool(task.step_parts) == (name in STEPS)
    assert bool(task.published_split) == (name in STEPS and name != "multiplication")


@names
@pytest.mark.parametrize("length", [1, 2, 5, 16])
def test_length_counts_what_it_says(name: str, length: int) -> None:
    counted = {
        "addition": lambda prompt: max(len(re.findall(r"\d", side)) for side in prompt.split("+")),
        "summation": lambda prompt: len(re.findall(r"\d", prompt)),
        "parity": lambda prompt: len(re.findall(r"\d", prompt.split("[")[1])),
        "polynomial": lambda prompt: prompt.count("**"),
        "multiplication": lambda prompt: len(re.findall(r"\d", prompt)) / 2,
        "majority": lambda prompt: len(re.findall(r"\d", prompt)),
    }
    for prompt, _ in make(name).sample(length, count=20):
        assert counted[name](prompt) == length


@names
def test_parts_stand_in_order_and_the_anchor_is_constant(name: str) -> None:
    anchors = {
        "addition": "Compute",
        "summation": "Compute:",
        "parity": "Is the number of 1's even in the sequence",
        "polynomial": "Evaluate at x =",
        "multiplication": "Multiply",
        "majority": "Majority:",
    }
    task = make(name)
    examples = task.examples(task.buckets(Span(3, 3))[0], 5, stream(0))
    for i in range(5):
        one = slice(examples.starts[i], examples.starts[i + 1])
        tokens, parts = examples.tokens[one], examples.parts[one]
        frame = [min(int(part), int(Part.FRAME)) if part != Part.ANSWER else int(part) for part in parts]
        assert frame == sorted(frame), "anchor, prompt, steps, answer"
        assert task.vocabulary.decode(tokens[parts == Part.ANCHOR]) == anchors[name]


@names
def test_same_seed_same_bytes_and_other_seed_others(name: str) -> None:
    task = make(name)
    bucket = task.buckets(Span(6, 6))[0]
    one, two, other = (task.examples(bucket, 50, stream(seed)) for seed in (3, 3, 4))
    assert one.tokens.tobytes() == two.tokens.tobytes()
    assert one.tokens.tobytes() != other.tokens.tobytes()


@pytest.mark.slow
@names
def test_listed_examples_are_all_different_and_complete(name: str) -> None:
    expected = {
        "addition": {101: 100, 102: None, 201: None},
        "summation": {1: 9, 2: 81, 3: None},
        "parity": {3: 8, 8: 256, 12: 4096, 13: None},
        "polynomial": {1: 140, 2: None},
        "multiplication": {1: 100, 2: None},
        "majority": {3: 8, 8: 256, 12: 4096, 13: None},
    }
    task = make(name)
    for bucket, count in expected[name].items():
        listed = task.all_examples(bucket)
        if count is None:
            assert listed is None
            continue
        assert listed is not None
        texts = [task.text(listed, i) for i in range(len(listed))]
        assert len(set(texts)) == len(texts) == count
        assert all(target.endswith(SOLUTIONS[name](prompt)) for prompt, target in texts)
        assert is_shared(task, bucket) == (count < 20 or task.shares_examples)
        if count <= 256:
            drawn = task.examples(bucket, 4000, stream(0))
            assert {task.text(drawn, i) for i in range(4000)} == set(texts)


# What is drawn.


def test_addition_has_a_bucket_for_each_pair_of_lengths() -> None:
    task = make("addition")
    train, test = task.buckets(task.train_lengths), task.buckets(task.test_lengths)
    assert (len(train), len(test)) == (64, 192)
    assert len({*train, *test}) == 256
    assert {task.length_of(bucket) for bucket in train} == set(range(1, 9))
    assert {task.length_of(bucket) for bucket in test} == set(range(9, 17))
    assert (task.length_of(316), task.length_of(1603)) == (16, 16)
    assert task.buckets(Span(201, 220)) == []
    assert len(task.buckets(Span(100, 100))) == 199


@settings(max_examples=30, deadline=None)
@given(i=st.integers(1, 16), j=st.integers(1, 16))
def test_operands_have_exactly_the_digits_of_the_bucket(i: int, j: int) -> None:
    task = make("addition")
    examples = task.examples(100 * i + j, 40, stream(i, "operands", j))
    for k in range(40):
        a, b = task.text(examples, k)[0].removeprefix("Compute ").removesuffix(" ?").split(" + ")
        for operand, digits in ((a.split(), i), (b.split(), j)):
            assert len(operand) == digits
            assert digits == 1 or operand[0] != "0"


@pytest.mark.parametrize(("name", "bucket"), [("addition", 301), ("multiplication", 1)])
def test_digits_are_drawn_evenly_and_one_digit_may_be_zero(name: str, bucket: int) -> None:
    task, count = make(name), 10_000
    examples = task.examples(bucket, count, stream(0)).keep((Part.PROMPT,))
    grid = examples.tokens.reshape(count, -1) - task.vocabulary.id("0")
    last = np.bincount(grid[:, -2], minlength=10)  # before the question mark
    assert len(last) == 10 and abs(last - count / 10).max() < 5 * 30  # five standard deviations
    if name == "addition":
        first = np.bincount(grid[:, 0], minlength=10)
        assert first[0] == 0 and abs(first[1:] - count / 9).max() < 5 * 32


def test_summation_draws_one_to_nine_evenly() -> None:
    task = make("summation")
    text = " ".join(prompt for prompt, _ in task.sample(5, count=2000))
    counts = Counter(re.findall(r"\d", text))
    assert set(counts) == set("123456789")
    assert abs(np.array(list(counts.values())) - 10_000 / 9).max() < 5 * 32


def test_polynomial_draws_the_published_ranges_evenly() -> None:
    drawn = make("polynomial").sample(5, count=2000)
    terms = [term for prompt, _ in drawn for term in re.findall(r"(- )?(\d) \* x \*\* (\d)", prompt)]
    coefficients = Counter(int(sign.strip() + digit) for sign, digit, _ in terms)
    degrees = Counter(int(degree) for _, _, degree in terms)
    points = Counter(int(re.findall(r"x = (- )?(\d) in", p)[0][0].strip() + p.split(" in ")[0][-1]) for p, _ in drawn)
    for counts, values in ((coefficients, range(-3, 4)), (degrees, range(4)), (points, range(-2, 3))):
        assert set(counts) == set(values)
        expected = sum(counts.values()) / len(values)
        assert abs(np.array(list(counts.values())) - expected).max() < 5 * expected**0.5


@pytest.mark.parametrize("name", ["parity", "majority"])
def test_bits_are_drawn_evenly(name: str) -> None:
    task, count = make(name), 4000
    grid = task.examples(11, count, stream(0)).keep((Part.PROMPT,)).tokens.reshape(count, -1)
    ones = (grid == task.vocabulary.id("1")).sum(axis=0)
    ones = ones[ones > 0]
    assert len(ones) == 11 and abs(ones - count / 2).max() < 5 * 32


def test_a_tie_has_no_majority() -> None:
    task = make("majority")
    listed = task.all_examples(4)
    assert listed is not None
    targets = dict(task.text(listed, i) for i in range(16))
    assert targets["Majority: 1 0 0 1 [SEP]"] == "0"
    assert sum(target == "1" for target in targets.values()) == 5  # four or three ones


@names
def test_chance(name: str) -> None:
    task = make(name)
    expected = {
        "addition": {101: 1 / 19, 102: 1 / (108 - 10 + 1), 202: 1 / (198 - 20 + 1)},
        "summation": {2: 0.1, 9: 0.1},
        "parity": {4: 0.5, 16: 0.5},
        "polynomial": {1: 0.1, 16: 0.1},
        "multiplication": {1: 1 / 82, 2: 1 / (9801 - 100 + 1)},
        "majority": {2: 0.5, 40: 0.5},
    }
    for bucket, chance in expected[name].items():
        assert task.chance(bucket) == chance
    for length in (*task.train_lengths, *task.test_lengths):
        assert all(0 < task.chance(bucket) <= 0.5 for bucket in (length, *task.buckets(Span(length, length))))


# Answers.


@names
def test_answers_are_read(name: str) -> None:
    task = make(name)
    for _, target in task.sample(7, count=20):
        read = task.read_answer(target)
        assert read is not None
        assert read == target.lower().removeprefix("the answer is").rstrip(".").replace(" ", "")
        for broken in (f"{target} 1", f"{target}.", f"1 {target}", target[:-1], "", f" {target}", f"{target}\n"):
            assert task.read_answer(broken) is None


def test_answers_of_another_form_are_none() -> None:
    assert make("addition").read_answer("The answer is 5 5 6.") == "556"
    assert make("addition").read_answer("The answer is 5 + 6.") is None
    assert make("addition").read_answer("The answer is.") is None
    assert make("addition").read_answer("The answer is 5 5 6 .") is None
    assert make("summation").read_answer("The answer is 6 .") == "6"
    assert make("summation").read_answer("The answer is 6.") is None
    assert make("parity").read_answer("The answer is YES.") == make("parity").read_answer("The answer is yes.") == "yes"
    assert make("parity").read_answer("The answer is 1.") is None
    assert make("majority").read_answer("2") is None


# Steps.


@pytest.mark.slow
@names_with_steps
@settings(max_examples=25, deadline=None)
@given(length=st.integers(1, 20), seed=st.integers(0, 2**32))
def test_full_scratchpad_equals_the_naive_one(name: str, length: int, seed: int) -> None:
    task = make(name)
    for prompt, target in task.sample(length, count=3, seed=seed, scratchpad="full"):
        assert target == scratchpad_text(steps_of(name, prompt), STEP_PARTS, SOLUTIONS[name](prompt))
        assert task.vocabulary.decode(task.vocabulary.encode(target)) == target


def test_there_are_32_formats() -> None:
    assert len(set(FORMATS)) == 32


@pytest.mark.slow
@names_with_steps
@pytest.mark.parametrize("scratchpad", [*FORMATS, *PUBLISHED])
def test_every_format_is_read_back(name: str, scratchpad: str) -> None:
    task, form = make(name), Scratchpad(scratchpad)
    for length in (1, 4, 9):
        for prompt, target in task.sample(length, count=6, seed=length, scratchpad=scratchpad):
            steps, answer = steps_of(name, prompt), SOLUTIONS[name](prompt)
            assert target == scratchpad_text(steps, form.steps, answer)
            parsed = parse(target, form, task.step_parts)
            assert parsed is not None and parsed.answer == answer
            expected = [{part: step[part] for part in form.steps} for step in steps]
            assert list(parsed.steps) == (expected if form.steps else [])


@names_with_steps
@settings(max_examples=25, deadline=None)
@given(length=st.integers(1, 16), seed=st.integers(0, 2**32))
def test_the_last_step_gives_the_answer(name: str, length: int, seed: int) -> None:
    task = make(name)
    for _, target in task.sample(length, count=4, seed=seed, scratchpad="full"):
        parsed = parse(target, Scratchpad("full"), task.step_parts)
        assert parsed is not None
        answer, last = task.read_answer(parsed.answer), parsed.steps[-1]
        assert last[Part.REMAINING] == {"addition": "+", "parity": "[ ]"}.get(name, "")
        if name == "addition":
            assert answer == "".join(step[Part.OUTPUT] for step in reversed(parsed.steps))
            assert last[Part.VARIABLES] == "carry: 0"
        elif name == "parity":
            assert last[Part.VARIABLES] == f"par: {last[Part.OUTPUT]}"
            assert answer == {"0": "yes", "1": "no"}[last[Part.OUTPUT]]
        else:
            assert re.split("[:=] ", last[Part.VARIABLES])[-1].replace(" ", "") == answer


def test_addition_carries_only_where_there_is_a_carry() -> None:
    task = make("addition")
    listed = task.all_examples(101)
    assert listed is not None
    for i in range(100):
        prompt, target = task.text(listed, i)
        assert target.count("#") == (sum(map(int, re.findall(r"\d", prompt))) >= 10)
