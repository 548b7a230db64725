"""Other names: they lead to the same runs, and words of several meanings are answered with them."""

import pytest
from conftest import small_table

from lengthwise import registry, words
from lengthwise.encodings.choice import read_encoding
from lengthwise.errors import UserError, nearest
from lengthwise.extensions.naming import extension_table
from lengthwise.presets import PRESETS
from lengthwise.study import load_study, shipped_extension_studies, shipped_studies, study_from

REGISTRIES = {
    "encodings": (registry.encodings, words.ENCODINGS),
    "extensions": (registry.extensions, words.EXTENSIONS),
    "tasks": (registry.tasks, words.TASKS),
    "mixers": (registry.mixers, words.MIXERS),
}


@pytest.mark.parametrize("kind", REGISTRIES)
def test_every_alias_has_one_meaning_that_exists(kind: str) -> None:
    known, aliases = REGISTRIES[kind]
    for alias, name in aliases.items():
        assert name in known.entries and alias not in known.entries
        assert known.canonical(alias.upper().replace("-", "_")) == name
        assert not [other for other in aliases if other != alias and words.plain(other) == words.plain(alias)]
        assert words.plain(alias) not in {words.plain(each) for each in known.entries}


def test_every_meaning_exists_somewhere() -> None:
    things = {name for known, _ in REGISTRIES.values() for name in known.entries} | set(registry.placements.entries)
    settings = {"batch", "batch_tokens", "width", "layers", "heads", "steps", "tokens", "seeds", "tasks", "encodings"}
    settings |= {"normalizers", "training", "weight_decay", "base", "small", "1b"}
    studies = {*shipped_studies(), *shipped_extension_studies()}
    commands = {"theory absolute", "theory relative", "extend passkey"}
    for word, names in words.MEANT.items():
        assert set(names) <= things | settings | studies | set(PRESETS) | commands, word


def test_aliases_change_no_fingerprint_and_no_label() -> None:
    named = small_table(encodings=["none", "rotary", "hard-alibi", "p-rope"], tasks=["flip_flop"])
    other = small_table(encodings=["NoPE", "RoPE", "Hard_ALiBi", "P-RoPE"], tasks=["flip-flop"])
    first, second = study_from(named).runs(), study_from(other).runs()
    assert [(run.fingerprint, run.name) for run in first] == [(run.fingerprint, run.name) for run in second]


def test_names_of_studies_and_extensions_are_read_in_any_spelling() -> None:
    assert load_study("QuickStart").name == load_study("quick_start").name == "quickstart"
    assert extension_table("PI:factor=4") == {"name": "position-interpolation", "factor": 4}
    assert extension_table("YaRN:factor=4,ramp=rotations")["name"] == "yarn"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("absolute", r"'sinusoidal' \(Sines and cosines .*\) or 'learned' \("),
        ("relative", r"'t5' \(A learned bias"),
        ("temperature", r"'llama4-temperature' \(Multiplies logits"),
        ("yarn", r"'yarn' is an extension, .* --extension yarn"),
        ("parity", r"'parity' is a task, "),
        ("gemma", r"'p-rope' \(.*Gemma 4\)\)"),
        ("mamba", "'mamba2'"),
        ("roppe", r"'rope' \(rotary: Rotates"),
    ],
)
def test_words_where_an_encoding_stands(name: str, said: str) -> None:
    with pytest.raises(UserError, match=f"unknown encoding '{name}'; .*{said}"):
        read_encoding(name)


@pytest.mark.parametrize(
    ("name", "said"),
    [("copy", "'copy.repeat' .* 'copy.words'"), ("adder", "'addition' .* 'chomsky.binary_addition'"), ("sum", "'sum")],
)
def test_words_where_a_task_stands(name: str, said: str) -> None:
    with pytest.raises(UserError, match=f"unknown task '{name}'; did you mean {said}"):
        registry.tasks.entry(name)


def test_words_where_studies_and_settings_stand() -> None:
    with pytest.raises(UserError, match="did you mean 'quickstart' \\(Five encodings"):
        load_study("demo")
    with pytest.raises(UserError, match="did you mean 'batch'"):
        load_study("quickstart", ["training.batch_size=3"])
    with pytest.raises(UserError, match=r"extension yarn.beta'; did you mean 'beta_slow'"):
        extension_table("yarn:factor=2,beta=3")


def test_rope_is_never_answered_with_none() -> None:
    assert nearest("rope", ["none", "alibi"]) == "known: alibi, none"


def test_two_names_that_differ_in_separators_alone_are_not_mistaken(monkeypatch: pytest.MonkeyPatch) -> None:
    known = registry.Registry("task", "tasks")
    entry = registry.tasks.entries["scan"]
    monkeypatch.setattr(known, "entries", {"a-b": entry, "a_b": entry}, raising=False)
    assert known.canonical("A.B") == "A.B" and known.canonical("a_b") == "a_b"
