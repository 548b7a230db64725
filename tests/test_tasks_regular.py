"""Regular languages: expressions as Python reads them, words drawn and listed, predictions as published."""

import re
from collections import Counter
from itertools import pairwise, product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from solutions_state import word_of

from lengthwise.data import splits
from lengthwise.data.splits import Split
from lengthwise.errors import UserError
from lengthwise.seeding import stream
from lengthwise.tasks.choosing import make_task
from lengthwise.tasks.regular_language import NAMED, Language, language_of, predicted
from lengthwise.tasks.task import Span


def runs_of(word: str) -> list[tuple[str, int]]:
    return [(found[0][0], len(found[0])) for found in re.finditer(r"0+|1+", word)]


def tomita_3(word: str) -> bool:
    """No odd run of ones is followed by an odd run of zeros."""
    runs = runs_of(word)
    pairs = pairwise(runs)
    return not any(a == "1" and odd % 2 and also % 2 for (a, odd), (_, also) in pairs)


def is_nested(word: str, most: int) -> bool:
    depth = 0
    for letter in word:
        depth += 1 if letter == "a" else -1
        if not 0 <= depth <= most:
            return False
    return depth == 0


MEANINGS = {
    "parity": lambda word: word.count("1") % 2 == 0,
    "even_pairs": lambda word: word != "" and (word.count("01") + word.count("10")) % 2 == 0,
    "tomita_1": lambda word: "0" not in word,
    "tomita_2": lambda word: word == "10" * (len(word) // 2),
    "tomita_3": tomita_3,
    "tomita_4": lambda word: "000" not in word,
    "tomita_5": lambda word: word.count("0") % 2 == word.count("1") % 2 == 0,
    "tomita_6": lambda word: (word.count("0") - word.count("1")) % 3 == 0,
    "tomita_7": lambda word: (
        [each for each, _ in runs_of("0" + word)] in [["0"], ["0", "1"], list("010"), list("0101")]
    ),
    "flip_flop": lambda word: word.replace("2", "").endswith("0"),
    **{f"D_{depth}": lambda word, most=depth: is_nested(word, most) for depth in range(2, 13)},
}


def accepts(language: Language, word: str) -> bool:
    state = 0
    for letter in word:
        state = language.moves[state, language.letters.index(letter)]
    return bool(language.accepting[state])


def words_of(letters: str, most: int) -> list[str]:
    return ["".join(word) for length in range(most + 1) for word in product(letters, repeat=length)]


@pytest.mark.parametrize("name", NAMED)
def test_named_languages_are_what_papers_say(name: str) -> None:
    language = language_of(name)
    for word in words_of(language.letters, 9 if len(language.letters) == 2 else 6):
        assert accepts(language, word) == MEANINGS[name](word), word


expressions = st.recursive(
    st.sampled_from(["a", "b", "", "ab", "."]),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from("*+?")).map(lambda pair: f"({pair[0]}){pair[1]}"),
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
    ),
    max_leaves=8,
).filter(lambda expression: set(expression) & set("ab."))


@settings(max_examples=150, deadline=None)
@given(expression=expressions)
def test_expressions_mean_what_they_mean_in_python(expression: str) -> None:
    language = language_of(expression, "ab")
    for word in words_of("ab", 6):
        assert accepts(language, word) == bool(re.fullmatch(expression, word)), (expression, word)


@settings(max_examples=100, deadline=None)
@given(expression=expressions)
def test_automata_are_as_small_as_can_be(expression: str) -> None:
    """Every state is reached, and some word tells every two states apart."""
    language = language_of(expression, "ab")
    states = range(len(language.moves))
    apart = language.accepting[:, None] != language.accepting
    for _ in states:
        apart = apart | apart[language.moves[:, None], language.moves[None]].any(axis=2)
    assert (apart | np.eye(len(states), dtype=bool)).all()
    reached = {0}
    for _ in states:
        reached |= {int(state) for state in language.moves[sorted(reached)].ravel()}
    assert reached == set(states)


def has_group(language: Language) -> bool:
    """Whether some word moves states in a cycle for ever: all maps of words are listed."""
    letters = [tuple(column) for column in language.moves.T.tolist()]
    found, waiting = set(letters), list(letters)
    while waiting:
        word = waiting.pop()
        for letter in letters:
            longer = tuple(letter[state] for state in word)
            if longer not in found:
                found.add(longer)
                waiting.append(longer)
    for word in found:
        power, seen = word, []
        while power not in seen:
            seen.append(power)
            power = tuple(word[state] for state in power)
        if power != seen[-1]:
            return True
    return False


@settings(max_examples=150, deadline=None)
@given(expression=expressions)
def test_languages_with_a_group_are_predicted_to_be_out(expression: str) -> None:
    if has_group(language_of(expression, "ab")):
        assert predicted(expression, "ab") == "out"


OF_A_PUBLIC_PROGRAM = {
    "(aa(ba)*abb(ab)*b)*": "in",
    "(a|b)*bb(a|b)*": "out",
    "(a|b)*b": "out",
    "(aa*bb*)(aa*bb*)*": "out",
    "(aa*bb*)(aa*bb*)(aa*bb*)": "in",
    "(aa*bb*)(aa*bb*)(aa*bb*)(aa*bb*)": "in",
    "(ab)(ab)*aa*": "in",
    "(ab)(ab)*aa*bb*": "in",
    "(ab)(ab)*b(ab)(ab)*": "in",
    "(ab)(ab)*bb*(ab)(ab)*": "in",
    "((ab)(ab)*bb*)*": "out",
    "((ab)(ab)*bb*)((ab)(ab)*bb*)((ab)(ab)*bb*)": "in",
    "(ab|ba)*": "in",
    "(ab|bba)*": "out",
    "(ab|aabb)*": "out",
}
WITHOUT_POSITIONS = {
    **dict.fromkeys(["tomita_1", "tomita_2", *(f"D_{depth}" for depth in range(2, 13))], "in"),
    **dict.fromkeys(["parity", "(aa)*", "(aaaa)*", "(abab)*", "tomita_4", "flip_flop"], "out"),
}
"""Huang et al. 2410.02140: what NoPE Transformers generalize on, and what they do not."""


@pytest.mark.parametrize(
    ("expression", "expected"), [*OF_A_PUBLIC_PROGRAM.items(), *WITHOUT_POSITIONS.items(), ("(ab|bbaa)*", "in")]
)
def test_predictions_are_the_published_ones(expression: str, expected: str) -> None:
    assert predicted(expression) == expected


def test_a_language_too_large_to_decide_is_unknown() -> None:
    assert predicted("a" * 61 + "|" + "b" * 61) == "in", "many small parts"
    assert predicted("(" + "ab" * 40 + ")*") == "unknown"


def test_the_page_shows_every_prediction() -> None:
    page = (Path(__file__).parent.parent / "docs/tasks.md").read_text()
    rows = re.findall(r"^\| (?:`(\w+)`)? ?\| `(.+)` \| (in|out) \|$", page, flags=re.MULTILINE)
    assert {name for name, _, _ in rows if name} == set(NAMED)
    for name, expression, shown in rows:
        expression = expression.replace("\\|", "|")
        assert predicted(name or expression) == shown
        assert not name or NAMED[name].expression == expression


@pytest.mark.parametrize("expression", ["(ab|bbaa)*", "tomita_4", "D_3", "even_pairs", "(aa)*"])
@pytest.mark.parametrize("length", [1, 7, 8])
def test_words_are_uniform_within_each_kind(expression: str, length: int) -> None:
    task = make_task({"name": "regular", "expression": expression})
    language = language_of(expression)
    kinds = {True: set(), False: set()}
    for word in product(language.letters, repeat=length):
        kinds[accepts(language, "".join(word))].add("".join(word))
    count = 20 * len(language.letters) ** length
    drawn = task.examples(length, count, stream(0))
    found = Counter(word_of(task.text(drawn, i)[0]) for i in range(count))
    share = count / sum(bool(words) for words in kinds.values())
    for inside, words in kinds.items():
        assert {word for word in found if accepts(language, word) == inside} == words or len(words) > share / 8
        for word in words:
            assert abs(found[word] - share / len(words)) < 5 * (share / len(words)) ** 0.5 + 1


@pytest.mark.slow
@pytest.mark.parametrize("expression", ["tomita_7", "(ab|bbaa)*", "((a|b)(a|b))*|a*"])
def test_long_words_are_drawn_without_overflow(expression: str) -> None:
    """Words in the language are 2 ** 5000 times rarer than the others."""
    task = make_task({"name": "regular", "expression": expression})
    for length in (5000, 5001):
        drawn = task.examples(length, 20, stream(1))
        texts = [task.text(drawn, i) for i in range(20)]
        assert all((target == "Yes") == accepts(task.language, word_of(prompt)) for prompt, target in texts)
        both = expression != "(ab|bbaa)*" or length == 5000
        assert expression.startswith("((") or len({target for _, target in texts}) == 1 + both


@pytest.mark.parametrize("name", NAMED)
def test_targets_of_named_languages(name: str) -> None:
    task = make_task({"name": "regular.prefixes", "expression": name})
    drawn = task.examples(12, 40, stream(0))
    for i in range(40):
        prompt, target = task.text(drawn, i)
        word = word_of(prompt)
        assert target.split() == ["Yes" if MEANINGS[name](word[: end + 1]) else "No" for end in range(12)]


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("(ab", r"a \( has no \), at character 4"),
        ("ab)", r"a \) without its \(, at character 3"),
        ("*a", r"'\*' cannot stand here"),
        ("tomita_8", "'_' cannot stand here.*named: .*tomita_7"),
        ("()", "has no letter"),
        ("", "1 to 160 characters"),
        ("a" * 161, "1 to 160 characters, not 161"),
        ("(" * 50 + "a" + ")" * 50, "more than 40 deep"),
        ("(a|b)*a" + "(a|b)" * 14, "needs more than 500 states"),
        ("ä", "no letter"),
    ],
)
def test_wrong_expressions_are_refused(expression: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make_task({"name": "regular", "expression": expression})


@pytest.mark.parametrize("name", ["regular", "regular.prefixes"])
def test_every_split_of_a_length_has_both_kinds(name: str) -> None:
    """There are five words of length 8 in the language: were they kept apart, hardly any test would have one."""
    task = make_task(name)
    assert [length for length in range(8, 40) if task.shares(length)] == [8, 10, 12, 14, 16, 18, 20, 22, 24, 26]
    for length in (8, 14, 28):
        for split in Split:
            drawn = splits.draw(task, split, Span(length, length), 400, 0)
            inside = sum(task.text(drawn, i)[1].endswith("Yes") for i in range(400))
            assert 150 < inside < 250
            assert splits.is_shared(task, length) == (length < 28)


def test_few_words_are_shared_and_all_are_there() -> None:
    task = make_task({"name": "regular", "expression": "(aa)*"})
    drawn = splits.draw(task, Split.TEST, Span(8, 32), 25, 0)
    assert {task.text(drawn, i)[1] for i in range(25)} == {"Yes", "No"}


def test_lengths_with_one_kind_are_left_out_unless_all_are_such() -> None:
    assert make_task("regular").buckets(Span(7, 12)) == [8, 10, 12]
    assert make_task({"name": "regular", "expression": "tomita_4"}).buckets(Span(2, 5)) == [3, 4, 5]
    assert make_task({"name": "regular", "expression": "(aa)*"}).buckets(Span(2, 5)) == [2, 3, 4, 5]


def test_words_too_long_to_count_are_refused_at_once() -> None:
    task = make_task({"name": "regular", "expression": "a" * 150 + "(b)*"})
    with pytest.raises(UserError, match="152 states are too long to count; choose lengths up to 131,578"):
        task.examples(10**6, 1, stream(0))


def test_the_alphabet_may_have_more_letters() -> None:
    task = make_task({"name": "regular", "expression": "(aa)*", "letters": "b"})
    assert task.title == "regular(expression=(aa)*,letters=b)" and task.language.letters == "ab"
    with pytest.raises(UserError, match="letters must be of"):
        make_task({"name": "regular", "letters": "-"})
