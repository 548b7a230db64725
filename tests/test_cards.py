"""Cards of methods: what files say, what pages draw of it, and pictures that show what methods do."""

import dataclasses
import math
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import torch
from test_early_checks import Write, forget, write  # noqa: F401 (a fixture)

import lengthwise as lw
from lengthwise import registry
from lengthwise.cards import method_cards
from lengthwise.cards.pictures import LOGITS, MASK, AskedEncoding, pictures_of
from lengthwise.encodings.card import Card
from lengthwise.encodings.choice import kinds_of, read_encoding
from lengthwise.encodings.encoding import Geometry
from lengthwise.equation import problem, text_of, to_mathml
from lengthwise.errors import UserError
from lengthwise.listing import encoding_rows
from lengthwise.records.results import Results
from lengthwise.records.run_result import RunResult
from lengthwise.report.model.method_card import MethodCard

PACKAGE = Path(lw.__file__).parent


def with_cards(components: registry.Registry) -> list[str]:
    """All that come with the package, and those from outside that have one."""
    return [name for name, entry in components.entries.items() if entry.card or entry.file.is_relative_to(PACKAGE)]


COMPONENTS = [(each, name) for each in (registry.encodings, registry.mixers) for name in with_cards(each)]


def card(choice: Any, label: str = "") -> MethodCard:
    """Of a method as results describe it."""
    found = read_encoding(choice)
    name = label or found.label
    about = {
        "encoding": name,
        "task": "copy.repeat",
        "seed": 1,
        "settings": {"encoding": list(found.layers)},
        "parameters_of_encoding": 7,
    }
    return method_cards.method_card(name, Results([RunResult(about, {}, [])], [], {}))


@pytest.mark.parametrize(("components", "name"), COMPONENTS, ids=lambda each: each if isinstance(each, str) else "")
def test_every_method_has_a_card_that_is_read_without_importing_it(components: registry.Registry, name: str) -> None:
    cls, entry = components.get(name), components.entry(name)
    assert "card" in vars(cls), "an inherited card is another method's"
    said = {key: value for key, value in dataclasses.asdict(cls.card).items() if value}
    assert said == entry.card
    assert entry.kind in ("position", said["kind"])
    drawn = to_mathml(said["equation"])
    assert "<math" in drawn, "it must be drawn, not fall back to its text"
    ElementTree.fromstring(drawn)


CARD = """
from lengthwise.encodings.card import Card
from lengthwise.encodings.encoding import Encoding

EQ = "b(d) = -d"
CARD = Card(kind="bias", equation=EQ)


class Mine(Encoding):
    name = "mine"
    {card}
"""
WRONG_CARDS = {
    'card = Card(kind="penalty", equation="-d")': 'card.kind cannot be the text "penalty"; known: bias, embedding',
    'card = Card(kind="bias", equation="b_h(d = -d")': "equation cannot be drawn, a ) is missing: b_h(d = -d",
    'card = Card(kind="bias", equation="z d^")': "equation cannot be drawn, ^ has nothing behind it: z d^",
    'card = Card(kind="bias", equation=EQ)': "mine.py:11: card.equation must be a text in quotes",
    'card = Card(kind="bias", equation=f"{EQ}")': "mine.py:11: card.equation must be a text in quotes",
    'card = Card(kind="bias", equation="\\\\frac{a}{b}")': "equation cannot be drawn, '\\\\' is LaTeX; write it as one",
    'card = Card(kind="bias", equation="-d", arxiv="abc")': "a card's arxiv is a number such as 2108.12409, not 'abc'",
    'card = Card("bias", "-d")': 'mine.py:11: a card is read without importing its file: write card = Card(kind="bias"',
    "card = CARD": "mine.py:11: a card is read without importing its file",
    'card: Card = Card(kind="bias", equation=EQ)': "mine.py:11: card.equation must be a text in quotes",
    'card = Card(kind="bias", equaton="-d")': "mine.py: unknown setting 'card.equaton'; did you mean 'equation'",
    'card = Card(kind="bias")': "missing setting",
}


@pytest.mark.parametrize("line", WRONG_CARDS)
def test_a_wrong_card_is_one_line_when_it_is_listed(write: Write, line: str) -> None:  # noqa: F811
    write("encodings/mine.py", CARD.replace("{card}", line))
    forget()
    with pytest.raises(UserError) as caught:
        encoding_rows()
    said = str(caught.value)
    assert WRONG_CARDS[line] in said and "mine.py" in said and "\n" not in said


def test_a_wrong_card_is_one_line_when_it_is_imported(write: Write) -> None:  # noqa: F811
    write("encodings/mine.py", CARD.replace("{card}", 'card = Card(kind="penalty", equation="-d")'))
    forget()
    with pytest.raises(UserError, match=r"mine.py could not be imported: .*kind must be one of bias, .*not 'penalty'"):
        lw.encoding("mine")
    with pytest.raises(ValueError, match=r"equation cannot be drawn, a \) closes nothing: -d\)"):
        Card(kind="bias", equation="-d)")


def test_kinds_of_cards_are_what_methods_contribute() -> None:
    """A card that says rotation and adds a bias would be a mistake; what changes scores may do anything."""
    for name in with_cards(registry.encodings):
        kind = registry.encodings.entry(name).card["kind"]
        contribution = AskedEncoding.of(lw.encoding(name, Geometry.of(256, 8)), 0).contribution
        derived = {method_cards.DERIVED[part] for part in contribution.names if part != "score"}
        if contribution.score is None and kind not in ("embedding", "none"):
            assert kind in derived, name
        assert derived or kind in ("embedding", "none", "bias", "mask", "rotation"), name


def test_kinds_of_choices() -> None:
    assert kinds_of(read_encoding("smollm3").layers) == ["schedule", "rotation"]
    assert kinds_of(read_encoding([["none", "ssmax"]]).layers) == ["scale"]
    assert kinds_of(read_encoding("none").layers) == ["none"]
    assert kinds_of(read_encoding(["mamba2", "rotary"]).layers) == ["schedule", "mixer", "rotation"]
    assert kinds_of(({"name": "of somebody else"},)) == []


# Equations


def test_an_equation_becomes_what_it_says() -> None:
    drawn = to_mathml('b_h(d) = -(a + 1)/d^2 "or" Σ_(m=1)^n x_m')
    assert "<msub><mi>b</mi><mi>h</mi></msub><mrow><mo>(</mo><mi>d</mi><mo>)</mo></mrow>" in drawn
    fraction = "<mfrac><mrow><mi>a</mi><mo>+</mo><mn>1</mn></mrow><msup><mi>d</mi><mn>2</mn></msup></mfrac>"
    assert f"<mo>−</mo>{fraction}" in drawn, "brackets of a fraction are not drawn"
    assert "</math></span> or <span" in drawn, "words stand between formulas"
    assert "<munderover><mo>∑</mo><mrow><mi>m</mi><mo>=</mo><mn>1</mn></mrow><mi>n</mi></munderover>" in drawn
    assert "<mrow><mi>i</mi><mo>/</mo><mn>2</mn></mrow>" in to_mathml("2^(i/2)"), "no fraction in a script"
    assert text_of('a "or" b') == "a or b"


def test_a_root_covers_what_stands_behind_it() -> None:
    assert "<mi>a</mi><msqrt><msub><mi>d</mi><mi>h</mi></msub></msqrt><mo>+</mo>" in to_mathml("a √d_h + 1")
    root = "<msqrt><mrow><mi>d</mi><mo>+</mo><mn>1</mn></mrow></msqrt>"
    assert root in to_mathml("√(d + 1)") and root in to_mathml("sqrt(d + 1)")
    assert f"<mfrac><mn>1</mn>{root}</mfrac>" in to_mathml("1/sqrt(d + 1)")
    assert problem("a √") == "√ has nothing behind it"


@pytest.mark.parametrize("wrong", ["(a", "a)", "_h", "a/", "a^", "(" * 200 + ")" * 200, "x" * 5000, '<script>"&'])
def test_what_is_no_equation_is_shown_as_text_and_refused(wrong: str) -> None:
    assert problem(wrong)
    drawn = to_mathml(wrong)
    ElementTree.fromstring(drawn)
    assert "<script" not in drawn and ("<math" not in drawn or wrong.startswith("<"))


# Pictures


def asked(name: str, **settings: Any) -> AskedEncoding:
    return AskedEncoding.of(lw.encoding(name, Geometry.of(256, 8), **settings), 0)


def test_pictures_show_what_formulas_say() -> None:
    with torch.no_grad():
        bias = asked("alibi").distance_bias()
        assert bias[2, 10].item() == pytest.approx(-10 * 2 ** (-8 * 3 / 8))
        logits = [LOGITS[0] + (LOGITS[1] - LOGITS[0]) * i / (MASK - 1) for i in range(MASK)]
        left, weights = 1.0, asked("stick-breaking").weights()
        for i, logit in enumerate(logits):  # the nearest key first
            share = 1 / (1 + math.exp(-logit))
            assert weights[0, i].item() == pytest.approx(left * share, abs=1e-6)
            left *= 1 - share
        pairs = asked("rotary", fraction=1.0).pairs()
        assert pairs[0, 5].item() == pytest.approx(math.cos(5)) and pairs[-1, 0].item() == 1
        shrinks = asked("xpos").pairs()
        assert shrinks[0, 5].item() == pytest.approx(math.cos(5) * (0.4 / 1.4) ** (5 / 512), rel=1e-4)
        assert asked("ssmax").scale()[0, 9].item() == pytest.approx(math.log(10) / math.log(512))


def test_a_mask_shows_the_keys_that_are_seen() -> None:
    (picture,) = pictures_of(lw.encoding("window", Geometry.of(256, 8), size=5), "window").drawn
    assert picture.figure.description.endswith("the last of 32 queries sees 5 keys, the first 1.")
    (picture,) = pictures_of(lw.encoding("chunk", Geometry.of(256, 8), size=12), "chunk").drawn
    assert "sees 8 keys" in picture.figure.description, "24 to 31"
    (picture,) = pictures_of(lw.encoding("hard-alibi", Geometry.of(256, 8)), "hard-alibi").drawn
    assert "the more heads" in picture.caption and "sees 32 keys" in picture.figure.description


@pytest.mark.parametrize("name", ["fox", "cope", "path", "selective-rotary", "gated-output"])
def test_what_depends_on_tokens_is_not_drawn(name: str) -> None:
    """CoPE begins with a table of zeros, which no token changes."""
    found = card(name)
    assert found.pictures == () and any("depends on the tokens" in note for note in found.notes)


def test_cards_say_what_fresh_models_are() -> None:
    found = card("swan")
    facts = dict(found.facts)
    assert facts["layers"] == "none+logn × 1, rotary+window × 3" and found.arxiv == "2504.08719"
    assert facts["acts on"] == "logits, as a factor; queries and keys; which keys are seen" and facts["learned"] == "no"
    assert [part.name for part in found.parts] == ["logn", "rotary", "window"]
    assert found.parts[1].settings == "fraction 1, pairs halves"
    assert len(found.pictures) == 3 and found.pictures[0].caption.startswith("none+logn: ")
    both = card([["rotary", "ssmax"]])
    assert ["before training" in picture.caption for picture in both.pictures] == [False, True]
    assert dict(card("dape").facts)["on a GPU"] == "partly fused: logits are made before the kernel"
    assert card("rotary", label="swan").arxiv == "", "a name alone is not the published choice"


def test_a_method_without_a_card_is_known_by_what_it_declares(encodings_outside: None) -> None:
    found = card("window-rotary-ssmax")
    assert found.kinds == ("rotation", "scale", "mask") and found.parts[0].equation == ""
    assert len(found.pictures) == 3 and dict(found.facts)["learned"] == "yes"


@pytest.mark.parametrize(
    ("table", "why"),
    [
        ({"name": "t5", "max_distance": 10**12}, "more than cards are drawn for"),
        ({"name": "rotary", "fraction": 0.3}, "no even number"),
        ({"name": "rotary", "no_setting": 1}, "no_setting"),
    ],
)
def test_what_cannot_be_built_is_said_on_the_card(table: dict[str, Any], why: str) -> None:
    about = {"encoding": "x", "task": "t", "seed": 1, "settings": {"encoding": [table]}, "parameters_of_encoding": 0}
    found = method_cards.method_card("x", Results([RunResult(about, {}, [])], [], {}))
    assert found.pictures == () and any(why in note for note in found.notes)


def test_a_method_whose_file_is_missing_says_so_once() -> None:
    tables = [{"name": "of somebody else"}, {"name": "alibi"}]
    about = {"encoding": "x", "task": "t", "seed": 1, "settings": {"encoding": tables}, "parameters_of_encoding": 0}
    found = method_cards.method_card("x", Results([RunResult(about, {}, [])], [], {}))
    assert found.pictures == () and found.notes == ()
    assert "Its file is not found here" in found.parts[0].summary and "learned" not in dict(found.facts)


def test_lists_show_cards_and_families() -> None:
    rows = {row["name"]: row for row in encoding_rows()}
    assert rows["alibi"]["card"] == {
        "kind": "bias",
        "equation": "b_h(d) = -m_h d, m_h = 2^(-8h/H)",
        "source": "Press et al. 2022",
        "arxiv": "2108.12409",
    }
    assert rows["smollm3"]["card"]["kind"] == "schedule and rotation"
    silent = {name for name in registry.tasks.names() if registry.tasks.get(name).family == "other"}
    assert silent == {"file"}
    assert Path(registry.tasks.entry("file").file).name == "file.py"
