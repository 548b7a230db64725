"""Every task against a second, naive solution, its own documentation, and the published facts."""

import inspect
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lengthwise import registry
from lengthwise.examples import Part
from lengthwise.seeding import stream
from lengthwise.tasks.words import words


def copy_solution(prompt: list[str]) -> list[str]:
    return prompt[1:-1]


def replace_solution(prompt: list[str]) -> list[str]:
    start = prompt.index("in") + 1
    return [prompt[3]] * (len(prompt) - start - 1)


SOLUTIONS = {
    "copy.repeat": copy_solution,
    "copy.repeat_twice": lambda prompt: copy_solution(prompt) * 2,
    "copy.replace": replace_solution,
    "copy.words": copy_solution,
    "copy.words_twice": lambda prompt: [*copy_solution(prompt), "[NEXT]", *copy_solution(prompt)],
    "reverse.words": lambda prompt: list(reversed(copy_solution(prompt))),
    "reverse.words_twice": lambda prompt: [
        *reversed(copy_solution(prompt)),
        "[NEXT]",
        *reversed(copy_solution(prompt)),
    ],
    "reverse.and_back": lambda prompt: [*reversed(copy_solution(prompt)), "[NEXT]", *copy_solution(prompt)],
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
names = pytest.mark.parametrize("name", registry.tasks.names())


def test_every_task_has_a_second_solution() -> None:
    assert set(SOLUTIONS) == set(registry.tasks.names())


@names
@settings(max_examples=30, deadline=None)
@given(length=st.integers(1, 45), seed=st.integers(0, 2**32))
def test_targets_equal_the_naive_solution(name: str, length: int, seed: int) -> None:
    for prompt, target in registry.tasks.get(name)().sample(length, count=3, seed=seed):
        assert target.split() == SOLUTIONS[name](prompt.split())


@names
def test_documented_examples_hold(name: str) -> None:
    task = registry.tasks.get(name)()
    documentation = inspect.getdoc(type(task)) or ""
    assert "Length:" in documentation
    examples = re.findall(r"^\s+(\S.*) -> (.*)$", documentation, flags=re.MULTILINE)
    assert examples, f"{name} documents no example"
    for prompt, target in examples:
        task.vocabulary.encode(f"{prompt} {target}")  # made of the task's symbols
        assert SOLUTIONS[name](prompt.split()) == target.split()


@names
def test_length_counts_source_symbols(name: str) -> None:
    task = registry.tasks.get(name)()
    for length in (1, 2, 7, 40):
        prompt, _ = task.sample(length)[0]
        frame = 6 if name == "copy.replace" else 2
        assert len(prompt.split()) == length + frame


@names
def test_published_facts(name: str) -> None:
    task = registry.tasks.get(name)()
    assert (task.train_lengths.first, task.train_lengths.last) == (2, 20)
    assert (task.test_lengths.first, task.test_lengths.last) == (21, 40)
    assert task.published_split == PUBLISHED[name]
    symbols = {"copy.repeat": 6052, "copy.repeat_twice": 6052, "copy.replace": 78}.get(name, 100)
    assert task.config.symbols == symbols


@names
def test_prompt_begins_with_the_anchor(name: str) -> None:
    task = registry.tasks.get(name)()
    examples = task.examples(5, 4, stream(0))
    for i in range(4):
        parts = examples.parts[examples.starts[i] : examples.starts[i + 1]]
        assert list(parts) == sorted(parts), "anchor, prompt, answer, in this order"
        assert (parts == Part.ANCHOR).sum() == 1


@names
def test_same_seed_same_bytes_and_other_seed_others(name: str) -> None:
    task = registry.tasks.get(name)()
    one, two, other = (task.examples(9, 50, stream(seed)) for seed in (3, 3, 4))
    assert one.tokens.tobytes() == two.tokens.tobytes()
    assert one.tokens.tobytes() != other.tokens.tobytes()


@names
def test_listed_examples_are_all_different_and_complete(name: str) -> None:
    cls = registry.tasks.get(name)
    task = cls(cls.Config(symbols=5))
    listed = task.all_examples(3)
    if listed is None:
        assert name not in ("copy.repeat", "copy.repeat_twice", "copy.replace")
        return
    texts = {task.text(listed, i) for i in range(len(listed))}
    assert len(texts) == len(listed) == (20 if name == "copy.replace" else 5)
    drawn = task.examples(3, 500, stream(0))
    assert {task.text(drawn, i) for i in range(500)} == texts


@names
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
