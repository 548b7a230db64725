"""Hostile names in every field of a collection: they reach no terminal, break no table and start no formula."""

import csv
import io
from pathlib import Path

import pytest
from hostile import write_hostile
from rich.console import Console
from typer.testing import CliRunner

from lengthwise.cli.main import app
from lengthwise.door import is_odd
from lengthwise.errors import UserError
from lengthwise.records.findings import load_analysis
from lengthwise.records.results import Results
from lengthwise.records.rows import load_results
from lengthwise.report.export import write_report
from lengthwise.report.html.page import embedded
from lengthwise.report.model.displayed import displayed
from lengthwise.report.model.table import value_table
from lengthwise.report.model.table_csv import to_csv
from lengthwise.report.terminal.show import show_tables


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_hostile(tmp_path_factory.mktemp("hostile"))


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    return load_results(folder)


def unseen(text: str) -> set[str]:
    return {letter for letter in text if is_odd(letter) and letter not in "\n"}


def test_nothing_reaches_the_terminal(results: Results) -> None:
    console = Console(width=200, color_system=None, file=io.StringIO())
    with console.capture() as capture:
        for table in show_tables(results):
            console.print(table)
    text = capture.get()
    assert unseen(text) == set() and "constructor" in text and "\\u001b" in text


@pytest.mark.parametrize("command", ["show", "compare", "collect", "leaderboard"])
def test_commands_print_no_hostile_letter(folder: Path, tmp_path: Path, command: str) -> None:
    outs = {"collect": "c", "leaderboard": "c.md"}
    more = ["--out", str(tmp_path / outs[command])] if command in outs else []
    done = CliRunner().invoke(app, [command, str(folder), *more])
    assert unseen(done.output) == set() and (done.exit_code == 0 or isinstance(done.exception, UserError))


def test_markdown_keeps_its_lines(results: Results, folder: Path, tmp_path: Path) -> None:
    write_report(results, tmp_path / "r.md", analysis=load_analysis(folder / "analysis"))
    text = (tmp_path / "r.md").read_text()
    assert unseen(text) == set()
    assert not [line for line in text.splitlines() if line.startswith(("# heading", "| a | b |"))]
    for line in text.splitlines():
        assert not line.startswith("|") or line.endswith("|"), line
    assert "<script" not in text.replace("\\<", "")


def test_no_cell_of_a_csv_is_a_formula(results: Results, folder: Path, tmp_path: Path) -> None:
    write_report(results, tmp_path / "csv", "csv", load_analysis(folder / "analysis"))
    texts = {file.name: list(csv.reader(file.read_text().splitlines())) for file in (tmp_path / "csv").glob("*.csv")}
    assert len(texts) > 5
    for name, rows in texts.items():
        for cell in (cell for row in rows for cell in row):
            assert not cell.startswith(("=", "@", "\t", "\r")), (name, cell)
            assert not cell.startswith(("+", "-")) or "cmd" not in cell, (name, cell)
    table = value_table("x", "x", ["a"], [["=1+1"], ["-1"], [-1.5], ["+0.1 [0.0, 0.2]"], ["plain"], ["-x"]])
    assert to_csv(table).splitlines()[1:] == ["'=1+1", "-1", "-1.5", '"+0.1 [0.0, 0.2]"', "plain", "'-x"]


def test_pictures_are_files_of_xml(results: Results, folder: Path, tmp_path: Path) -> None:
    from xml.etree import ElementTree

    write_report(results, tmp_path / "svg", "svg", load_analysis(folder / "analysis"))
    files = list((tmp_path / "svg").glob("*"))
    assert len(files) > 3
    for file in files:
        ElementTree.fromstring(file.read_text())
    assert {path.name for path in tmp_path.iterdir()} == {"svg"}, "nothing is written elsewhere"


def test_what_is_no_number_does_not_stop_the_script() -> None:
    assert embedded({"a": [float("nan"), 1.5, (float("inf"),)], "b": "</script>"}) == (
        '{"a":[null,1.5,[null]],"b":"\\u003c/script>"}'
    )


def test_names_that_look_alike_are_refused(results: Results) -> None:
    first = results.runs[0]
    second = next(run for run in results.runs if run.description["task"] != first.description["task"])
    first.description["task"], kept = "a\u202e", first.description["task"]
    second.description["task"], other = "a\\u202e", second.description["task"]
    try:
        with pytest.raises(UserError, match="looks like"):
            displayed(Results([first, second], [], {"name": "x"}))
    finally:
        first.description["task"], second.description["task"] = kept, other
