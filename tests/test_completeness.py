"""Studies that are not whole say so first: in words, in the terminal, as Markdown and on the page."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hand_made import made
from rich.console import Console, RenderableType
from test_report import visible, write

from lengthwise.records.comparison import compare
from lengthwise.records.completeness import Missing, missing
from lengthwise.records.results import Results
from lengthwise.records.rows import load_results
from lengthwise.report.export import write_report
from lengthwise.report.terminal.comparison import comparison_tables
from lengthwise.report.terminal.show import show_tables

RESULTS = Path(__file__).parent.parent / "results"
LINE = "5 of 255 runs of this study; missing: 16 tasks, seeds 2 and 3"


@pytest.fixture(scope="module")
def few() -> Results:
    """One task, five encodings and one seed of 17, 5 and 3."""
    results = load_results(RESULTS / "nope-paper-symbols")
    return replace(results, runs=[run for run in results.runs if run.description["task"] == "copy.repeat"])


def study(finished: dict[tuple[str, str, int], float], tasks: list[str], encodings: list[str], seeds: list[int]) -> str:
    """What is said of these finished runs."""
    asked = {"task_order": tasks, "encoding_order": encodings, "seeds": seeds}
    found = missing(replace(made(finished, encodings), study=asked))
    return found.words if found else ""


def printed(things: list[RenderableType]) -> list[str]:
    console = Console(width=100)
    with console.capture() as capture:
        for thing in things:
            console.print(thing)
    return capture.get().splitlines()


def test_what_is_missing_is_counted_from_the_description(few: Results) -> None:
    found = missing(few)
    assert found == Missing(5, 255, few.study["task_order"][1:], [], [2, 3], 0)
    assert found.words == LINE


@pytest.mark.parametrize("name", ["battery-small", "quickstart", "t5-rate", "scan-attention", "families"])
def test_whole_studies_miss_nothing(name: str) -> None:
    results = load_results(RESULTS / name)
    assert missing(results) is None
    assert missing(replace(results, runs=results.runs[1:])) is not None


def test_a_single_run_of_the_quickstart() -> None:
    results = load_results(RESULTS / "quickstart")
    one = replace(results, runs=results.of("copy.repeat", "none")[:1])
    words = "1 of 30 runs of this study; missing: tasks copy.repeat_twice and copy.replace, 4 encodings, seed 2"
    assert printed(show_tables(one))[0] == words


def test_words() -> None:
    whole = {(task, encoding, seed): 1.0 for task in "ab" for encoding in ("none", "t5") for seed in (1, 2)}
    parts = ["a", "b"], ["none", "t5"], [1, 2]
    assert study(whole, *parts) == ""
    without = {key: 1.0 for key in whole if key != ("b", "t5", 2)}
    assert study(without, *parts) == "7 of 8 runs of this study; missing: 1 run"
    assert study({key: 1.0 for key in without if key[0] == "b"}, *parts) == (
        "3 of 8 runs of this study; missing: task a, 1 other run"
    )
    assert study({**whole, ("c", "none", 1): 1.0}, *parts) == "", "more than was asked for is no lack"
    assert study({key: 1.0 for key in whole if key[0] == "a"}, ["a"], ["none", "t5"], [1, 2, 3, 4, 5, 6]) == (
        "4 of 12 runs of this study; missing: 4 seeds"
    )
    assert missing(made({("a", "none", 1): 1.0}, ["none"])) is None, "nothing is said of what was asked for"


def test_it_is_said_first_everywhere(few: Results, tmp_path: Path) -> None:
    assert printed(show_tables(few))[0] == LINE
    assert printed(comparison_tables(compare(few), few))[0] == LINE
    markdown = write_report(few, tmp_path / "r.md").read_text()
    assert f"**{LINE}.**" in markdown.split("## ")[0]
    summary = few.study["summary"]
    assert summary.endswith("three seeds.") and f"The whole study: {summary}" in markdown
    page = write(few, tmp_path / "r.html")
    header = re.findall(r"<header>.*?</header>", page.read_text(encoding="utf-8"), flags=re.DOTALL)[0]
    assert f"{LINE}." in header and "The whole study: " in visible(page)
    whole = write(load_results(RESULTS / "quickstart"), tmp_path / "whole.html")
    assert "of this study" not in visible(whole) and "The whole study" not in visible(whole)
