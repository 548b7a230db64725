"""The door: what is no plain, small, well-formed file is one line; what is, comes through unchanged."""

import gzip
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise import door
from lengthwise.door import COUNT, SHARE, List, Number, Object, Text, Truth
from lengthwise.errors import UserError

ROW = Object({"n": COUNT, "share": SHARE, "name": Text(20)}, {"seen": Truth(), "lengths": List(COUNT, nullable=True)})


def test_what_is_no_plain_file_is_refused_before_it_is_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"x" * 100)
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    cases = {
        tmp_path / "pipe": "no plain file",
        Path("/dev/zero"): "no plain file",
        tmp_path: "is a folder",
        tmp_path / "large": "100 bytes; at most 99",
        tmp_path / "absent": "no such file",
        tmp_path / "link": "no such file",
        Path("a\0b"): "no name of a file",
        tmp_path / ("x" * 300): "File name too long",
    }
    for path, words in cases.items():
        with pytest.raises(UserError, match=words):
            door.read_bytes(path, most=99)


def test_text_must_be_utf_8_and_the_line_is_named(tmp_path: Path) -> None:
    (tmp_path / "text").write_bytes(b"one\ntwo\n\xff\xfe")
    with pytest.raises(UserError, match=r"text:3 is no text in UTF-8"):
        door.read_text(tmp_path / "text")


def test_a_bomb_of_gzip_is_not_unpacked(tmp_path: Path) -> None:
    (tmp_path / "bomb.gz").write_bytes(gzip.compress(b"0" * 10**6))
    with pytest.raises(UserError, match="unpacks to more than 100,000 bytes"):
        door.read_unpacked(tmp_path / "bomb.gz", most=10**5)
    (tmp_path / "cut.gz").write_bytes(gzip.compress(b"0" * 10**6)[:-10])
    with pytest.raises(UserError, match="no whole gzip file"):
        door.read_unpacked(tmp_path / "cut.gz")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"a": NaN}', "NaN is no number"),
        ('{"a": -Infinity}', "-Infinity is no number"),
        ('{"a": 1e999}', "too large a number"),
        ('{"a": 99999999999999999999}', "no whole number of 64 bits"),
        ('{"a": ' + "9" * 5000 + "}", "no whole number of 64 bits"),
        ("[" * 65 + "]" * 65, "nested 65 deep"),
        ('{"a":' * 100_000, "nested 100,000 deep"),
        ('{"a": 1', "no JSON"),
        ("", "no JSON"),
    ],
)
def test_json_that_nobody_means_is_refused(text: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        door.parse_json(text, "here")


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)  # fmt: skip


@given(values)
def test_json_that_somebody_means_comes_through(value: Any) -> None:
    assert door.parse_json(json.dumps(value), "here") == value


def test_brackets_in_texts_do_not_count() -> None:
    value = {"a": "[" * 1000 + '"{\\' + "{" * 1000}
    assert door.parse_json(json.dumps(value), "here") == value


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"n": None}, "n must be a whole number, not nothing"),
        ({"n": -1}, "n must be from 0"),
        ({"n": 1.5}, "n must be a whole number, not the number 1.5"),
        ({"n": True}, "n must be a whole number, not the truth value true"),
        ({"share": 5}, "share must be from 0 to 1, not the number 5"),
        ({"share": "0.5"}, 'share must be a number, not the text "0.5"'),
        ({"name": "x" * 21}, "name must have at most 20 letters"),
        ({"seen": 1}, "seen must be true or false"),
        ({"lengths": {}}, "lengths must be a list, not a table"),
        ({"lengths": [1, -1]}, r"lengths\[1\] must be from 0"),
    ],
)
def test_a_field_that_does_not_fit_is_named(change: dict[str, Any], words: str) -> None:
    row = {"n": 3, "share": 0.5, "name": "a", "seen": True, "lengths": [1], "more": "from a newer version"}
    assert ROW.checked(row, "rows:1") is row and ROW.checked({**row, "lengths": None}, "rows:1")
    with pytest.raises(UserError, match=rf"rows:7: {words}"):
        ROW.checked({**row, **change}, "rows:7")
    for missing in ROW.needed:
        with pytest.raises(UserError, match=f"rows:7 has no '{missing}'"):
            ROW.checked({key: value for key, value in row.items() if key != missing}, "rows:7")


def test_only_known_fields_where_a_table_says_so() -> None:
    with pytest.raises(UserError, match=r"unknown field 'x\\u001b'"):
        Object({"a": Number()}, others=False).checked({"a": 1, "x\x1b": 2}, "here")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a = 2026-01-01", "a cannot be the date 2026-01-01"),
        ("a = [1, 12:00:00]", r"a\[1\] cannot be the time"),
        ("a = 9223372036854775808", "a must be a whole number of 64 bits"),
        ("a = " + "[" * 1000 + "]" * 1000, "nested"),
        ("a = " + "{b = " * 100 + "1" + "}" * 100, "nested more than 64 deep"),
        ('a = "\\u202e"', r"has the letter U\+202E, which cannot be seen"),
        ('a = "\\u0000"', r"has the letter U\+0000"),
        ("a = ", "not valid TOML"),
    ],
)
def test_settings_that_nobody_means_are_refused(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "s.toml").write_text(text)
    with pytest.raises(UserError, match=words):
        door.read_toml(tmp_path / "s.toml")


@given(st.text())
def test_what_is_shown_can_be_seen(text: str) -> None:
    shown = door.visible(text)
    assert not any(door.is_odd(letter) for letter in shown) and len(shown) <= 201
