"""Help, examples, completion and early refusals, as a shell meets them."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer
from conftest import slow
from test_command_line import lengthwise  # noqa: F401

from lengthwise.cli.app import EXIT_CODES, commands_of
from lengthwise.cli.examples import EXAMPLES
from lengthwise.cli.main import app
from lengthwise.records.results import Results

ROOT = typer.main.get_command(app)
PATHS = ["", *(path for path, _ in commands_of(ROOT))]
Call = Callable[..., tuple[int, str, str]]
PARSED = ("bench", "extend", "language", "export", "dataset", "evaluate")
"""What takes minutes, or what other tests run: examples of these are parsed in full."""


def examples() -> list[str]:
    return list(dict.fromkeys(line for lines in EXAMPLES.values() for line in lines))


def parse(words: list[str]) -> None:
    """Every option and argument is read, and nothing is run."""
    command: Any = ROOT
    context = command.make_context("lengthwise", list(words), resilient_parsing=True)
    while hasattr(command, "commands"):
        name, command, words = command.resolve_command(context, words)
        below = hasattr(command, "commands")
        context = command.make_context(name, list(words), parent=context, resilient_parsing=below)


def test_every_command_has_examples_and_no_other_has() -> None:
    assert set(EXAMPLES) == set(PATHS)
    for path, lines in EXAMPLES.items():
        assert lines and all(line.startswith(f"lengthwise {path}".strip()) and len(line) <= 78 for line in lines)


@pytest.mark.parametrize("path", PATHS)
def test_help_shows_the_examples_as_they_are(lengthwise: Call, path: str) -> None:  # noqa: F811
    code, out, _ = lengthwise(*path.split(), "--help")
    assert code == 0 and "\x1b" not in out
    assert [line.strip() for line in out.splitlines() if line.startswith("  lengthwise ")] == list(EXAMPLES[path])
    assert "…" not in out


@pytest.mark.parametrize(
    "line",
    [
        slow(line) if "run quickstart" in line or "analyze" in line else line
        for line in examples()
        if line.split()[1] not in PARSED
    ],
)
def test_examples_run(line: str, lengthwise: Call, finished: tuple[Path, Results]) -> None:  # noqa: F811
    words = shlex.split(line)[1:]
    if words[0] == "run":
        words += ["--device", "cpu", *([] if "--dry-run" in words else ["--dry-run"])]
    elif "runs/quickstart" in words:
        shutil.copytree(finished[0], "runs/quickstart")
    code, out, error = lengthwise(*words)
    assert code == 0 and out, error
    for following in re.findall(r"^(?:Next:|     ) lengthwise (.*)$", error, flags=re.MULTILINE):
        if not following.startswith("analyze all"):  # an example itself
            assert lengthwise(*shlex.split(following))[0] == 0, following


@pytest.mark.parametrize("line", [line for line in examples() if line.split()[1] in PARSED])
def test_examples_of_what_takes_long_are_read(line: str) -> None:
    parse(shlex.split(line)[1:])


@pytest.mark.slow
def test_examples_of_export_and_evaluate_run(
    lengthwise: Call,  # noqa: F811
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One after the other, from a study of two steps that is called as the examples call it."""
    monkeypatch.chdir(tmp_path)
    short = ("training.steps=2", "data.test_per_length=2", "data.validation=10")
    changes = [word for change in short for word in ("--set", change)]
    part = ["--only", "task=copy.repeat,encoding=none,seed=1", "--device", "cpu", "--workers", "1"]
    assert lengthwise("run", "quickstart", *changes, *part)[0] == 0
    for line, more in ((EXAMPLES["export"][0], []), (EXAMPLES["evaluate"][0], ["--count", "1", "--device", "cpu"])):
        words = [str(next(Path().glob(word), word)) if "*" in word else word for word in shlex.split(line)[1:]]
        code, _, error = lengthwise(*words, *more)
        assert code == 0, error
    assert lengthwise("show", "runs/evaluation")[0] == 0


def test_a_wrong_example_would_not_be_read() -> None:
    for line in ("bench train --flet 3", "extend fit x", "language info"):
        with pytest.raises(Exception, match=r"No such option|Missing"):
            parse(line.split())


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["train"], "`lengthwise run` (Train and evaluate a study"),
        (["train"], "`lengthwise language train` (Train a language model"),
        (["plot"], "`lengthwise report`"),
        (["eval"], "`lengthwise show`"),
        (["ls"], "`lengthwise list`"),
        (["shwo"], "`lengthwise show`"),
        (["perplexity"], "`lengthwise extend perplexity`"),
        (["analyze", "attention"], "`lengthwise analyze heads`"),
        (["zzz"], "there are: list, sample, run"),
        (["run", "quickstart", "--lr", "3"], "--set training.learning_rate=0.001"),
        (["run", "quickstart", "--gpu"], "--device cuda"),
        (["run", "quickstart", "--save_every", "3"], "did you mean --save-every?"),
        (["report", "x", "--output", "y"], "did you mean --out?"),
        (["show", "x", "--zzz"], "see `lengthwise show --help`"),
    ],
)
def test_wrong_commands_and_options_are_answered_with_ours(
    lengthwise: Call,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    meant: str,
) -> None:
    monkeypatch.setenv("TERMINAL_WIDTH", "1000")
    code, _, error = lengthwise(*words)
    assert code == 2 and meant in error, error


def fresh(words: list[str], where: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, which says at its end whether it has imported torch."""
    program = f"import atexit, sys; sys.argv = ['lengthwise', *{words!r}]\nfrom lengthwise.cli import main\n"
    program += "atexit.register(lambda: print('TORCH' if 'torch' in sys.modules else 'LIGHT', file=sys.stderr))\nmain()"
    given = {"COLUMNS": "80", **os.environ, **environment}
    return subprocess.run([sys.executable, "-c", program], cwd=where, capture_output=True, text=True, env=given)


@pytest.mark.parametrize(
    "line",
    [
        "run quickstart --only encoding=rop",
        "run quickstart --set encodings=['rotari']",
        "analyze distance runs/quickstart --only encoding=rop",
        "analyze distance runs/quickstart --reference rop",
        "analyze heads runs/quickstart --checkpoint lst",
        "analyze attention runs/quickstart",
        "extend perplexity runs/none --extension yrn:factor=2",
        "extend fit runs/none yarn:fcator=2 --length 8 --out fit",
        "extend study headscal --corpus . --out pair",
        "bench train --encoding rotari",
        "bench evaluate --task copy",
        "bench profile --size bas",
        "language train texts --out run --encoding rotari",
        "dataset adder --out data",
    ],
)
def test_wrong_names_are_refused_without_torch_and_write_nothing(
    line: str, tmp_path: Path, finished: tuple[Path, Results]
) -> None:
    shutil.copytree(finished[0], tmp_path / "runs/quickstart")
    before = sorted(tmp_path.rglob("*"))
    done = fresh(line.split(), tmp_path)
    assert done.returncode == 2 and done.stderr.endswith("LIGHT\n") and "Traceback" not in done.stderr, done.stderr
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("an", "analyze"),
        ("run quick", "quickstart"),
        ("run mi", "mine.toml"),
        ("sample copy.w", "copy.words"),
        ("bench train --encoding rot", "rotary"),
        ("extend perplexity x --extension ya", "yarn"),
        ("extend study head", "headscale-small"),
        ("show runs/", "runs/quickstart"),
        ("report r", "runs/quickstart"),
        ("show runs/quickstart --checkpoint b", "best"),
    ],
)
def test_shells_complete_names_and_folders(
    line: str, offered: str, tmp_path: Path, finished: tuple[Path, Results]
) -> None:
    shutil.copytree(finished[0], tmp_path / "runs/quickstart")
    (tmp_path / "mine.toml").touch()
    words = f"lengthwise {line}"
    count = str(len(words.split()) - 1)
    done = fresh([], tmp_path, _LENGTHWISE_COMPLETE="complete_bash", COMP_WORDS=words, COMP_CWORD=count)
    assert offered in done.stdout.split() and done.stderr.endswith("LIGHT\n"), (done.stdout, done.stderr)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_complete_parts_of_a_study_and_say_what_names_are(shell: str, tmp_path: Path) -> None:
    asked = {"_LENGTHWISE_COMPLETE": f"complete_{shell}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    done = fresh(
        [], tmp_path, **asked, _TYPER_COMPLETE_ARGS="lengthwise run quickstart --only task=copy.repeat,encoding=ro"
    )
    assert "task=copy.repeat,encoding=rotary" in done.stdout and "alibi" not in done.stdout
    done = fresh([], tmp_path, **asked, _TYPER_COMPLETE_ARGS="lengthwise run ")
    lines = [line for line in done.stdout.splitlines() if "quickstart" in line]
    assert len(lines) == 1 and "Five encodings on three copy tasks" in lines[0]
    assert done.stderr.endswith("LIGHT\n")


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_scripts_of_completion_ask_this_program(shell: str, tmp_path: Path) -> None:
    done = fresh([], tmp_path, _LENGTHWISE_COMPLETE=f"source_{shell}")
    assert "_LENGTHWISE_COMPLETE=complete_" in done.stdout and "lengthwise" in done.stdout


def test_what_is_piped_has_no_colours_and_whole_paths(lengthwise: Call, finished: tuple[Path, Results]) -> None:  # noqa: F811
    deep = Path("a" * 60) / ("b" * 60)
    deep.mkdir(parents=True)
    code, out, error = lengthwise("report", finished[0], "--out", deep / "report.html")
    assert code == 0 and out == f"Wrote {deep / 'report.html'}\n"
    assert "\x1b" not in out + error and error.count("\n") == 1


def test_the_page_of_the_command_line_has_every_exit_code() -> None:
    text = (Path(__file__).parent.parent / "docs/command-line.md").read_text()
    assert [(int(code), said) for code, said in re.findall(r"^\| (\d+) \| (.*) \|$", text, re.MULTILINE)] == [
        *EXIT_CODES.items()
    ]
