"""What nobody would write into a study on purpose: one line, at once, and nothing is written."""

import os
import re
import time
from pathlib import Path

import pytest
from conftest import small_table
from test_command_line import Call, lengthwise, toml  # noqa: F401 (a fixture)

DEEP = "[" * 1000 + "]" * 1000
FILES = {
    "a date": ("summary = 2020-01-01", "cannot be the date"),
    "a time among tasks": ("tasks = [07:32:00]", "cannot be the time"),
    "a number beyond 64 bits": (f"seeds = [{2**64}]", "whole number of 64 bits"),
    "a number of many digits": ("seeds = [" + "9" * 5000 + "]", "limit"),
    "nesting": (f"tasks = {DEEP}", "nested"),
    "a null": (r'name = "a\u0000b"', "U\\+0000"),
    "an escape": (r'encodings = [{name = "none", label = "\u001b[31mred"}]', "U\\+001B"),
    "a newline in a label": (r'encodings = [{name = "none", label = "a\nb"}]', "U\\+000A"),
    "letters from right to left": (r'name = "\u202eabc"', "U\\+202E"),
    "a list for a table": ("model = []", "must be a table"),
    "a table for a list": ("tasks = {}", "must be a list"),
    "many seeds": (f"seeds = {list(range(100_000))}", "at most 50,000 runs"),
    "a long name": (f'name = "{"a" * 1000}"', "at most 200 letters"),
}


def rest(line: str) -> str:
    """A whole study, without what `line` says."""
    return "\n".join(each for each in toml(small_table()).split("\n") if each.split(" ")[0] != line.split(" ")[0])


def refused(call: Call, *words: str) -> str:
    before = sorted(Path().rglob("*"))
    began = time.process_time()
    code, out, error = call("run", *words, "--device", "cpu", "--out", "out")
    assert code == 2 and not out and error.startswith("error: ") and error.count("\n") == 1, (out, error)
    assert error.removesuffix("\n").isprintable()
    assert time.process_time() - began < 5  # of a processor, which no neighbour lengthens
    assert sorted(Path().rglob("*")) == before
    return error


@pytest.mark.parametrize("kind", FILES)
def test_files(lengthwise: Call, kind: str) -> None:  # noqa: F811
    line, message = FILES[kind]
    Path("bad.toml").write_text(f"{line}\n{rest(line)}")

    assert re.search(message, refused(lengthwise, "bad.toml"))


SETTINGS = {
    "another table": ("training.steps=2\n[evil]", "must be one value"),
    "another setting": ("training.steps=2\nbatch=3", "must be one value"),
    "a date": ("summary=2020-01-01", "cannot be the date"),
    "a number beyond 64 bits": (f"training.steps={2**70}", "whole number of 64 bits"),
    "a number of many digits": ("training.steps=" + "9" * 5000, "must be a whole number"),
    "nesting": (f"tasks={DEEP}", "nested"),
    "a path of many parts": (".".join("a" * 5000) + "=1", "too long"),
    "a list for a size": ("model.size=[]", "model.size cannot be"),
    "a table for a size": ("model.size={a=1}", "model.size cannot be"),
    "an escape in a name": ("\x1b[31m=1", "U\\+001B|unknown setting"),
    "an escape in a text": ("name=\x1b[31m", "U\\+001B"),
    "a long unknown name": ("a" * 100_000 + "=1", "unknown setting"),
    "a list for a table": ("model=[]", "model must be a table"),
    "a table for a number": ("training.steps={}", "must be a whole number"),
}


@pytest.mark.parametrize("kind", SETTINGS)
def test_settings(lengthwise: Call, kind: str) -> None:  # noqa: F811

    setting, message = SETTINGS[kind]
    Path("toy.toml").write_text(toml(small_table()))
    assert re.search(message, refused(lengthwise, "toy.toml", "--set", setting))


def test_files_that_are_none(lengthwise: Call) -> None:  # noqa: F811
    os.mkfifo("pipe.toml")
    Path("zero.toml").symlink_to("/dev/zero")
    Path("folder.toml").mkdir()
    Path("large.toml").write_text("#" * 2**21)
    for name, message in (("pipe", "no plain file"), ("zero", "no plain file"), ("folder", "a folder")):
        assert message in refused(lengthwise, f"{name}.toml")
    assert "at most 1,048,576 are read" in refused(lengthwise, "large.toml")
