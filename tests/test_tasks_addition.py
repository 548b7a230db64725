"""The formats of addition, read from the text and added by Python; what the defaults were stays; tracks of symbols."""

import hashlib
import re
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise.data.scratchpad import Scratchpad
from lengthwise.data.sequences import render
from lengthwise.data.tokenization import make_tokens
from lengthwise.errors import UserError
from lengthwise.records.operand_pairs import bucket_of, digits_of
from lengthwise.seeding import stream
from lengthwise.study import study_from
from lengthwise.tasks.choosing import make_task, task_table
from lengthwise.tasks.task import Span
from lengthwise.tasks.words import words

formats = st.fixed_dictionaries(
    {
        "reversed": st.booleans(),
        "padded": st.booleans(),
        "hints": st.sampled_from([0, 12, 40]),
        "operands": st.integers(2, 10),
        "sentence": st.booleans(),
    }
)


def number_of(text: str, settings: dict, hints: dict[int, str]) -> tuple[int, int]:
    """The value of a written number and how many digits it has; `hints`: significance -> hint, filled and compared."""
    read = text.split()
    digits, marks = (read[1::2], read[::2]) if settings.get("hints") else (read, [])
    if settings.get("reversed"):
        digits, marks = digits[::-1], marks[::-1]
    for significance, mark in enumerate(reversed(marks)):
        assert hints.setdefault(significance, mark) == mark, "the same hint for the same significance"
    return int("".join(digits)), len(digits)


def check(prompt: str, target: str, settings: dict, length: int) -> None:
    sentence = settings.get("sentence", True)
    assert prompt.startswith("Compute ") and prompt.endswith(" ?" if sentence else " =")
    if sentence:
        assert target.startswith("The answer is ") and target.endswith(".")
        target = target.removeprefix("The answer is ").removesuffix(".")
    hints: dict[int, str] = {}
    terms = [number_of(side, settings, hints) for side in prompt[len("Compute ") : -2].split(" + ")]
    total, size = number_of(target, settings, hints)
    assert total == sum(value for value, _ in terms) and len(terms) == settings.get("operands", 2)
    sizes = [digits for _, digits in terms]
    assert max(sizes) == length
    if settings.get("padded"):
        assert set(sizes) == {length} and size == length + 1
    else:
        assert sizes == [len(str(value)) for value, _ in terms] and size == len(str(total))
    if settings.get("hints"):
        numbers = [words(settings["hints"]).index(hints[significance]) for significance in sorted(hints)]
        step = 1 if settings.get("reversed") else -1
        assert numbers == list(range(numbers[0], numbers[0] + step * len(numbers), step))


@settings(max_examples=60, deadline=None)
@given(chosen=formats, length=st.integers(1, 11), seed=st.integers(0, 2**32))
def test_sums_are_right_in_every_format(chosen: dict, length: int, seed: int) -> None:
    task = make_task({"name": "addition", **chosen})
    for prompt, target in task.sample(length, count=5, seed=seed):
        check(prompt, target, chosen, length)
        text = f"{prompt} {target}"
        assert task.vocabulary.decode(task.vocabulary.encode(text)) == text
        digits = re.sub("[^0-9]", "", target)
        assert task.read_answer(target) == digits
        assert task.read_answer(f"{target} {target}") is None or not chosen["sentence"]
        assert task.read_answer(f"{target} +") is None


def test_two_hundred_digits() -> None:
    for chosen in ({"padded": True}, {"reversed": True, "operands": 4}, {"hints": 300}):
        task = make_task({"name": "addition", **chosen})
        for prompt, target in task.sample(200, count=3):
            check(prompt, target, chosen, 200)
    with pytest.raises(UserError, match="no examples of length 201"):
        make_task({"name": "addition", "padded": True}).sample(201)
    with pytest.raises(UserError, match="no examples of length 12 "):
        make_task({"name": "addition", "hints": 12}).sample(12)


def test_buckets_are_read_back() -> None:
    pairs = list(product((1, 2, 9, 10, 99, 100, 101, 150, 200), repeat=2))
    codes = [bucket_of(i, j) for i, j in pairs]
    assert len(set(codes)) == len(pairs) and [digits_of(code) for code in codes] == pairs
    assert bucket_of(3, 16) == 316 and max(codes) < 2**31
    task = make_task("addition")
    assert {task.length_of(bucket) for bucket in task.buckets(Span(99, 101))} == {99, 100, 101}


def test_the_defaults_are_what_they_were() -> None:
    """Bytes of examples drawn before there were formats; names of runs are made from the table."""
    task = make_task("addition")
    found = hashlib.sha256()
    for bucket in (101, 305, 1616, 9999):
        drawn = task.examples(bucket, 50, stream(3))
        for array in (drawn.tokens, drawn.parts, drawn.starts, drawn.buckets):
            found.update(array.tobytes())
    assert found.hexdigest() == "224e9c762efffa32cbca09e18f3edec17f7b7eaa653a4ac1079de0f0b8a0a0a3"
    assert task_table("addition") == {"name": "addition"} and task.title == "addition"
    assert task_table({"name": "addition", "padded": True}) == {"name": "addition", "padded": True}


def test_formats_are_entries_of_a_study_of_their_own() -> None:
    tasks = ["addition", {"name": "addition", "reversed": True}, {"name": "addition", "reversed": True, "hints": 30}]
    study = study_from({"name": "x", "summary": "x", "tasks": tasks, "encodings": ["none"], "seeds": [1]})
    assert study.titles == ["addition", "addition(reversed=True)", "addition(reversed=True,hints=30)"]
    with pytest.raises(UserError, match="has no steps"):
        make_task(tasks[1]).sample(3, scratchpad="full")


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"hints": 2}, "3 to 6400"),
        ({"hints": 7000}, "3 to 6400"),
        ({"operands": 1}, "2 to 10"),
        ({"operands": 11}, "2 to 10"),
    ],
)
def test_settings_that_cannot_be_are_refused(chosen: dict, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_task({"name": "addition", **chosen})


def test_listed_sums_of_single_digits() -> None:
    task = make_task({"name": "addition", "reversed": True, "padded": True})
    listed = task.all_examples(101)
    texts = [task.text(listed, i) for i in range(len(listed))]
    assert len(set(texts)) == 100
    for prompt, target in texts:
        check(prompt, target, {"reversed": True, "padded": True}, 1)


def test_several_operands_have_all_sizes_and_sums_at_chance() -> None:
    task = make_task({"name": "addition", "operands": 3})
    drawn = task.examples(4, 3000, stream(0))
    sizes = [sorted(len(side.split()) for side in task.text(drawn, i)[0][8:-2].split(" + ")) for i in range(3000)]
    assert all(each[-1] == 4 for each in sizes) and {each[0] for each in sizes} == {1, 2, 3, 4}
    assert task.chance(1) == 1 / 28 and task.chance(2) == 1 / (3 * 99 - 10 + 1)


# Tracks.


def expected_significance(text: str, settings: dict) -> list[int]:
    """Of each word: where a digit stands in its number, counted in Python."""
    found: list[int] = []
    for side in re.split(r"( \+ | \?| =|Compute |The answer is |\.)", text):
        read = side.split()
        if read and re.fullmatch(r"[0-9]", read[-1]):
            places = range(1, len(read) + 1) if not settings.get("hints") else range(1, len(read) // 2 + 1)
            order = list(places) if settings.get("reversed") else list(places)[::-1]
            found += [place for place in order for _ in range(2 if settings.get("hints") else 1)]
        else:
            found += [0] * len(read)
    return found


@settings(max_examples=60, deadline=None)
@given(chosen=formats, length=st.integers(1, 9), seed=st.integers(0, 2**32))
def test_significance_is_that_of_the_text(chosen: dict, length: int, seed: int) -> None:
    task = make_task({"name": "addition", **chosen})
    examples = task.formatted(task.drawn(length, 5, seed), Scratchpad())
    found = task.tracks(examples)["significance"]
    assert len(found) == len(examples.tokens)
    for i in range(5):
        prompt, target = task.text(examples, i)
        one = found[examples.starts[i] : examples.starts[i + 1]]
        assert one.tolist() == expected_significance(f"{prompt} {target}", chosen)


@pytest.mark.parametrize("tokens", ["symbols", "published"])
def test_significance_follows_the_tokens(tokens: str) -> None:
    task = make_task({"name": "addition", "reversed": True, "padded": True, "hints": 20, "sentence": False})
    chosen = make_tokens(task, tokens)
    sequences = render(task, task.drawn(6, 8, 0), Scratchpad(), tokens=chosen, tracks=("significance",))
    for row, track, size in zip(sequences.tokens, sequences.tracks["significance"], sequences.size, strict=True):
        for piece, significance in zip(chosen.pieces(row[: size - 1]), track, strict=False):
            assert (significance > 0) == (re.fullmatch("▁?[0-9]?", piece) is not None or piece.strip("▁") in words(20))
        assert track[: size - 1].max() == 7


COPIED = {
    "copy.repeat": [1, 2, 3],
    "copy.repeat_twice": [1, 2, 3, 1, 2, 3],
    "copy.replace": [1, 2, 3],
    "copy.words": [1, 2, 3],
    "copy.words_twice": [1, 2, 3, 0, 1, 2, 3],
    "reverse.words": [3, 2, 1],
    "reverse.words_twice": [3, 2, 1, 0, 3, 2, 1],
    "reverse.and_back": [3, 2, 1, 0, 1, 2, 3],
}


@pytest.mark.parametrize("name", COPIED)
@pytest.mark.parametrize("anchor", [True, False])
def test_copied_symbols_have_the_index_of_their_source(name: str, anchor: bool) -> None:
    task = make_task(name)
    sequences = render(task, task.examples(3, 4, stream(0)), Scratchpad(), anchor, tracks=("index",))
    prompt = {"copy.replace": [0, 0, 0, 0, 0, 1, 2, 3, 0]}.get(name, [0, 1, 2, 3, 0])[not anchor :]
    assert (sequences.tracks["index"] == np.array([*prompt, *COPIED[name], 0])).all()


@pytest.mark.parametrize("name", ["copy.words", "reverse.words", "reverse.and_back"])
def test_equal_index_is_equal_symbol(name: str) -> None:
    task = make_task(name)
    for length in (1, 2, 9):
        examples = task.examples(length, 5, stream(length))
        index = task.tracks(examples)["index"]
        for i in range(5):
            one = slice(examples.starts[i], examples.starts[i + 1])
            pairs = {(int(n), int(t)) for n, t in zip(index[one], examples.tokens[one], strict=True) if n}
            assert len(pairs) == length


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("operands", [2, 5])
def test_digits_and_carries_alone(reverse: bool, operands: int) -> None:
    """Both by hand, place by place; together with the carries the digits are the sum."""
    shared = {"name": "addition", "padded": True, "reversed": reverse, "operands": operands}
    digits, carries, sums = (make_task({**shared, "computes": each}) for each in ("digits", "carries", "sum"))
    for task, first in ((digits, "Digits"), (carries, "Carries")):
        for (prompt, target), (as_sum, _) in zip(task.sample(6, 20), sums.sample(6, 20), strict=True):
            assert prompt == as_sum.replace("Compute", first)
            step = -1 if reverse else 1
            terms = [side.split()[::step] for side in prompt.removeprefix(f"{first} ").removesuffix(" ?").split(" + ")]
            expected, carry = [], 0
            for place in zip(*(term[::-1] for term in terms), strict=True):
                found = sum(map(int, place))
                expected.append(carry if task is carries else found % 10)
                carry = (found + carry) // 10
            expected.append(carry if task is carries else 0)
            assert task.read_answer(target) == "".join(map(str, expected[::-1][::step]))
    with pytest.raises(UserError, match="needs padded = true"):
        make_task({"name": "addition", "computes": "digits"})
