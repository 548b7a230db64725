"""SCAN and PCFG SET: the whole languages, the published facts, and a sampler that resembles the original."""

import inspect
import os
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from solutions_grammars import SOLUTIONS, solve_pcfg, solve_scan

from lengthwise import registry
from lengthwise.data.examples import Examples, Part
from lengthwise.data.splits import Split, draw
from lengthwise.errors import UserError
from lengthwise.seeding import stream
from lengthwise.tasks.pcfg import PUBLISHED_TEST, Pcfg, evaluate, published
from lengthwise.tasks.pcfg_files import import_pairs
from lengthwise.tasks.pcfg_language import BINARY, FUNCTIONS, SYMBOLS
from lengthwise.tasks.pcfg_sampling import LONGEST_PROMPT, LONGEST_RESULT
from lengthwise.tasks.scan import Scan, language
from lengthwise.tasks.task import Span, Task

names = pytest.mark.parametrize("name", list(SOLUTIONS))

SCAN_TEST_LENGTHS = [26, 27, 28, 30, 32, 33, 36, 40, 48]

# pcfgset_dev by number of functions: pairs, share of binary functions, mean words of a prompt, mean symbols of a result
PCFG_DEV = {
    1: (71, 0.141, 4.8, 4.2),
    2: (627, 0.301, 8.1, 5.6),
    3: (907, 0.426, 12.2, 6.9),
    4: (952, 0.422, 15.7, 8.7),
    5: (595, 0.456, 19.5, 9.6),
    6: (501, 0.439, 22.1, 10.4),
    7: (336, 0.426, 24.8, 11.8),
    8: (260, 0.441, 28.2, 12.1),
}
# The same of the published test set.
PCFG_TEST = {9: (3232, 0.392, 29.2, 12.8), 12: (1175, 0.319, 33.4, 16.0), 18: (154, 0.255, 42.3, 27.5)}
# Leaves of two, three, four, five symbols in pcfgset_dev.
PCFG_LEAVES = (2339, 4438, 4243, 3915)


def texts(task: Task, examples: Examples) -> list[tuple[str, str]]:
    return [task.text(examples, i) for i in range(len(examples))]


def words_of(prompt: str) -> list[str]:
    """The words between the anchor and the separator."""
    return prompt.removeprefix("Solve: ").removesuffix("[SEP]").split()


def listed_by(task: Task, length: int) -> Examples:
    examples = task.all_examples(length)
    assert examples is not None
    return examples


@names
def test_documented_examples_hold(name: str) -> None:
    task = registry.tasks.get(name)()
    documentation = inspect.getdoc(type(task)) or ""
    assert "Length:" in documentation
    examples = re.findall(r"^\s+(\S.*) -> (.*)$", documentation, flags=re.MULTILINE)
    assert len(examples) >= 4
    for prompt, target in examples:
        task.vocabulary.encode(f"{prompt} {target}")
        assert SOLUTIONS[name](prompt) == target


@names
def test_parts_in_order(name: str) -> None:
    task = registry.tasks.get(name)()
    examples = task.examples(5, 20, stream(0))
    for i in range(20):
        one = slice(examples.starts[i], examples.starts[i + 1])
        assert list(examples.parts[one]) == sorted(examples.parts[one])
        assert task.vocabulary.decode(examples.tokens[one][examples.parts[one] == Part.ANCHOR]) == "Solve:"
        prompt = task.text(examples, i)[0]
        assert prompt.endswith("[SEP]") and not prompt.endswith(" [SEP]")


@names
def test_same_seed_same_bytes_and_other_seed_others(name: str) -> None:
    task = registry.tasks.get(name)()
    for length in (5, 12):
        one, two, other = (task.examples(length, 50, stream(seed)) for seed in (3, 3, 4))
        assert one.tokens.tobytes() == two.tokens.tobytes()
        assert one.tokens.tobytes() != other.tokens.tobytes()


@names
def test_published_facts(name: str) -> None:
    task = registry.tasks.get(name)()
    train, test, split = {"scan": ("1-25", "26-48", "mdlen_tr25_ts48"), "pcfg": ("1-8", "9-35", "md_productivity")}[
        name
    ]
    assert (str(task.train_lengths), str(task.test_lengths), task.published_split) == (train, test, split)


# SCAN


@pytest.mark.slow
def test_scan_has_every_command_once() -> None:
    task = Scan()
    assert task.buckets(task.test_lengths) == SCAN_TEST_LENGTHS
    assert task.buckets(Span(1, 100)) == list(language())
    prompts = set()
    counts = {"train": 0, "test": 0}
    for length in task.buckets(Span(1, 100)):
        listed = listed_by(task, length)
        assert len(listed) == task.share(length)
        counts["train" if length <= 25 else "test"] += len(listed)
        for prompt, target in texts(task, listed):
            assert solve_scan(prompt) == target
            assert len(target.split()) == length
            prompts.add(prompt)
    assert counts == {"train": 17_774, "test": 3_136}
    assert len(prompts) == 20_910


def test_scan_uses_every_symbol() -> None:
    task = Scan()
    used = {id for length in language() for id in listed_by(task, length).tokens.tolist()}
    assert used == set(range(2, len(task.vocabulary)))  # all but padding and end


def test_scan_draws_all_and_only_what_is_listed() -> None:
    task = Scan()
    listed = set(texts(task, listed_by(task, 1)))
    assert set(texts(task, task.examples(1, 200, stream(0)))) == listed
    assert len(listed) == 6


def test_scan_test_set_is_the_published_one() -> None:
    drawn = draw(Scan(), Split.TEST, Scan.test_lengths, 3_136, 0, apart=False)
    assert len(drawn) == len(set(drawn.fingerprints().tolist())) == 3_136


def test_scan_chance_counts_different_outputs() -> None:
    task = Scan()
    for length in (1, 2, 48):
        outputs = {target for _, target in texts(task, listed_by(task, length))}
        assert task.chance(length) == 1 / len(outputs)


def test_scan_without_commands_of_a_length_says_so() -> None:
    with pytest.raises(UserError, match="no examples of length 29"):
        Scan().sample(29)


# PCFG: the interpreter


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("copy A1 B2 C3", "A1 B2 C3"),
        ("reverse A1 B2 C3", "C3 B2 A1"),
        ("shift A1 B2 C3", "B2 C3 A1"),
        ("echo A1 B2 C3", "A1 B2 C3 C3"),
        ("swap_first_last A1 B2 C3 D4", "D4 B2 C3 A1"),
        ("swap_first_last A1 B2", "B2 A1"),
        ("swap_first_last A1", "A1"),
        ("repeat A1 B2", "A1 B2 A1 B2"),
        ("append A1 B2 , C3", "A1 B2 C3"),
        ("prepend A1 B2 , C3", "C3 A1 B2"),
        ("remove_first A1 B2 , C3", "C3"),
        ("remove_second A1 B2 , C3", "A1 B2"),
        ("append swap_first_last F1 H1 , repeat T1 A1", "H1 F1 T1 A1 T1 A1"),
        ("append prepend A1 , B1 , prepend C1 , D1", "B1 A1 D1 C1"),
        ("remove_first reverse A1 B1 , remove_second shift C1 D1 , echo E1 F1", "D1 C1"),
        ("A1 B2", "A1 B2"),
    ],
)
def test_pcfg_functions(expression: str, result: str) -> None:
    assert evaluate(expression) == result


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("", "word 1: the expression ends where symbols should be"),
        ("copy", "word 2: the expression ends where symbols should be"),
        ("append A1 B2", "word 4: the expression ends before the second argument of 'append' (word 1)"),
        ("copy append A1 , prepend B2", "word 7: the expression ends before the second argument of 'prepend' (word 5)"),
        ("append A1 ,", "word 4: the expression ends where symbols should be"),
        ("append , A1", "word 2: ',' where symbols should be"),
        ("append A1 , , B2", "word 4: ',' where symbols should be"),
        ("append A1 , B2 , C3", "word 5: ',' but no function takes another argument"),
        ("copy A1 , B2", "word 3: ',' but no function takes another argument"),
        ("copy A1 reverse B2", "word 3: 'reverse' follows a symbol"),
        ("revers A1", "word 1: 'revers' is neither a function nor a symbol A1 to Z20 (did you mean 'reverse'"),
        ("copy A21", "word 2: 'A21' is neither a function nor a symbol A1 to Z20"),
    ],
)
def test_pcfg_malformed_expressions(expression: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        evaluate(expression)


def test_pcfg_deep_expressions_need_no_recursion() -> None:
    assert evaluate("shift " * 5_001 + "A1 B2") == "B2 A1"


# PCFG: the published test set


def test_pcfg_published_test_set() -> None:
    pairs = [pair for listed in published().values() for pair in listed]
    assert len(set(pairs)) == 11_333
    assert (min(published()), max(published())) == (9, 35)
    for functions, listed in published().items():
        for expression, result in listed:
            assert sum(word in FUNCTIONS for word in expression.split()) == functions
            assert evaluate(expression) == result
            assert solve_pcfg(f"Solve: {expression}[SEP]") == result
    assert {word for expression, _ in pairs for word in expression.split()} == {",", *FUNCTIONS, *SYMBOLS}
    assert PUBLISHED_TEST.stat().st_size < 700_000
    assert "MIT License" in (PUBLISHED_TEST.parent / "README.md").read_text()


def test_pcfg_tests_on_the_published_pairs() -> None:
    task = Pcfg()
    assert task.buckets(task.test_lengths) == list(published())
    drawn = draw(task, Split.TEST, task.test_lengths, 11_333, 0, apart=False)
    expected = {(f"Solve: {e}[SEP]", r) for listed in published().values() for e, r in listed}
    assert set(texts(task, drawn)) == expected
    assert {n: task.share(n) for n in (9, 35)} == {9: 3232, 35: 1}
    assert set(task.sample(35, count=3)) <= expected


def test_pcfg_test_set_can_be_sampled() -> None:
    task = Pcfg(Pcfg.Config(test_set="sampled"))
    assert task.buckets(task.test_lengths) == list(range(9, 36))
    assert task.all_examples(9) is None
    assert len(draw(task, Split.TEST, Span(31, 31), 20, 0)) == 20  # there is no published pair of 31 functions
    with pytest.raises(ValueError, match="published or sampled"):
        Pcfg.Config(test_set="other")  # type: ignore[arg-type]


# PCFG: the sampler


@pytest.mark.parametrize("functions", [1, 2, 3, 5, 8, 9, 20, 35])
def test_pcfg_samples_are_well_formed(functions: int) -> None:
    task = Pcfg(Pcfg.Config(test_set="sampled"))
    for prompt, target in texts(task, task.examples(functions, 300, stream(functions))):
        assert solve_pcfg(prompt) == target
        words = words_of(prompt)
        assert sum(word in FUNCTIONS for word in words) == functions
        leaves = re.findall(r"[A-Z]\d+(?: [A-Z]\d+)*", " ".join(words))
        assert all(2 <= len(leaf.split()) <= 5 for leaf in leaves)
        assert len(words) <= LONGEST_PROMPT and len(target.split()) <= LONGEST_RESULT


@pytest.mark.slow
@pytest.mark.parametrize(("functions", "original"), [*PCFG_DEV.items(), *PCFG_TEST.items()])
def test_pcfg_samples_resemble_the_original(functions: int, original: tuple[int, float, float, float]) -> None:
    task = Pcfg(Pcfg.Config(test_set="sampled"))
    pairs = texts(task, task.examples(functions, 4_000, stream(0)))
    used = Counter(word for prompt, _ in pairs for word in prompt.split() if word in FUNCTIONS)
    _, binary, prompt_words, result_symbols = original
    assert sum(used[name] for name in BINARY) / used.total() == pytest.approx(binary, abs=0.05)
    assert np.mean([len(words_of(prompt)) for prompt, _ in pairs]) == pytest.approx(prompt_words, rel=0.08)
    assert np.mean([len(target.split()) for _, target in pairs]) == pytest.approx(result_symbols, rel=0.2)


@pytest.mark.slow
def test_pcfg_training_set_resembles_the_original() -> None:
    task = Pcfg()
    drawn = draw(task, Split.TRAIN, task.train_lengths, 10_000, 0)
    total = sum(pairs for pairs, *_ in PCFG_DEV.values())
    for functions, (pairs, *_) in PCFG_DEV.items():
        assert (drawn.buckets == functions).mean() == pytest.approx(pairs / total, abs=1e-3)
    words = [words_of(prompt) for prompt, _ in texts(task, drawn)]
    used = Counter(word for prompt in words for word in prompt if word in FUNCTIONS)
    assert set(used) == set(FUNCTIONS)
    assert all(0.09 < times / used.total() < 0.115 for times in used.values())  # each a tenth, as in the original
    leaves = Counter(
        len(leaf.split()) for prompt in words for leaf in re.findall(r"[A-Z]\d+(?: [A-Z]\d+)*", " ".join(prompt))
    )
    for size, original in zip(range(2, 6), PCFG_LEAVES, strict=True):
        assert leaves[size] / leaves.total() == pytest.approx(original / sum(PCFG_LEAVES), abs=0.03)
    symbols = Counter(word for prompt in words for word in prompt if word in set(SYMBOLS))
    mean = symbols.total() / 520
    assert len(symbols) == 520
    assert max(abs(times - mean) for times in symbols.values()) < 5 * mean**0.5


def test_pcfg_symbols_are_drawn_independently_of_each_other() -> None:
    task = Pcfg()
    prompts = [words_of(prompt)[1:] for prompt, _ in texts(task, task.examples(1, 4_000, stream(0)))]
    same = np.mean([words[0] == words[1] for words in prompts])
    assert same == pytest.approx(1 / 520, abs=0.004)


# PCFG: original files


def write_pairs(folder: Path, expressions: list[str], results: list[str]) -> tuple[Path, Path]:
    source, target = folder / "some.src", folder / "some.tgt"
    source.write_text("".join(f"{line}\n" for line in expressions))
    target.write_text("".join(f"{line}\n" for line in results))
    return source, target


def test_import_pairs(tmp_path: Path) -> None:
    files = write_pairs(tmp_path, ["reverse A1 B2 ", "append A1 , B2"], ["B2 A1", "A1 B2 "])
    assert import_pairs(*files) == [("reverse A1 B2", "B2 A1"), ("append A1 , B2", "A1 B2")]


@pytest.mark.parametrize(
    ("expressions", "results", "message"),
    [
        (["copy A1", "append A1"], ["A1", "A1"], "some.src:2: word 3: the expression ends before"),
        (["copy A1", ""], ["A1", ""], "some.src:2: word 1"),
        (["copy A1", "echo A1"], ["A1", "A1"], "some.tgt:2: 'echo A1' gives 'A1 A1', not 'A1'"),
        (["copy A1", "echo A1"], ["A1"], "has 2 lines"),
    ],
)
def test_import_pairs_names_the_bad_line(
    tmp_path: Path, expressions: list[str], results: list[str], message: str
) -> None:
    with pytest.raises(UserError, match=re.escape(message)):
        import_pairs(*write_pairs(tmp_path, expressions, results))


def test_import_pairs_of_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"none\.src"):
        import_pairs(tmp_path / "none.src", tmp_path / "none.tgt")


def test_a_pipe_or_a_device_is_no_file_of_pcfg(tmp_path: Path) -> None:
    """Neither is waited for, nor read without end."""
    os.mkfifo(tmp_path / "some.src")
    (tmp_path / "other.src").symlink_to("/dev/zero")
    for name in ("some", "other"):
        with pytest.raises(UserError, match=rf"{name}\.src is no plain file"):
            import_pairs(tmp_path / f"{name}.src", tmp_path / f"{name}.tgt")
