"""Tables for the terminal keep every name and number whole, however narrow it is."""

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import slow
from rich.console import Console, RenderableType

from lengthwise.analysis.tables import distance_tables
from lengthwise.records.comparison import compare
from lengthwise.records.findings import read_findings
from lengthwise.records.results import Results
from lengthwise.records.rows import load_results
from lengthwise.report.model.phrases import beside, places
from lengthwise.report.model.table import Column, Table, TableRow, text_cell
from lengthwise.report.terminal.comparison import comparison_tables
from lengthwise.report.terminal.show import show_tables
from lengthwise.report.terminal.table import to_terminal

RESULTS = Path(__file__).parent.parent / "results"
BATTERY, SCAN = RESULTS / "battery-small-symbols", RESULTS / "scan-attention"


@pytest.fixture(scope="module")
def battery() -> Results:
    return load_results(BATTERY)


def small(columns: list[Column], *rows: list[str], **more: Any) -> Table:
    return Table("", "title", tuple(columns), tuple(TableRow(tuple(map(text_cell, row))) for row in rows), **more)


def printed(things: list[RenderableType], width: int) -> list[str]:
    console = Console(width=width)
    with console.capture() as capture:
        for thing in things:
            console.print(thing)
    lines = capture.get().splitlines()
    assert max(map(len, lines)) <= width
    return lines


@pytest.mark.parametrize("width", [60, 80, slow(100), slow(200)])
def test_show_keeps_names_and_numbers_whole(battery: Results, width: int) -> None:
    lines = printed(show_tables(battery), width)
    assert not [line for line in lines if "…" in line]
    for task in battery.tasks:
        assert any(line.split()[:1] == [task] for line in lines), task
        start = lines.index(f"{task}: exact match by length")
        table = lines[start : start + 9]
        for encoding in battery.encodings:
            (row,) = [line.split() for line in table if line.split()[:1] == [encoding]]
            # All shown lengths have a whole number; the longest seen and unseen ones are always among them.
            assert all(re.fullmatch(r"[01]\.\d\d|│|–", word) for word in row[1:]), row
            assert len(row) == len(table[2].split())
        heads = table[2].split()
        assert heads[0] == "encoding" and heads[heads.index("│") - 1] == str(battery.train_length(task))
    pairs = {(line.split()[0], word) for line in lines for word in line.split()[1:] if "→" in word}
    assert len([pair for pair in pairs if pair[0] == "addition"]) == 5
    assert all(re.fullmatch(r"[01]\.\d\d\*?→[01]\.\d\d~?", word) for _, word in pairs if word != "→")


@pytest.mark.parametrize("width", [60, 80, 100])
def test_compare_keeps_names_and_numbers_whole(battery: Results, width: int) -> None:
    lines = printed(comparison_tables(compare(battery), battery), width)
    assert not [line for line in lines if "…" in line]
    rows = [" ".join(line.split()) for line in lines]
    for encoding in battery.encodings:
        of_cells_and_order = [row for row in rows if row.startswith(f"{encoding} ")]
        assert len(of_cells_and_order) == (17 + 1) * (2 if width == 60 else 1)
    if width >= 80:
        *cells, order = [row for row in rows if row.startswith("sinusoidal ")]
        end = r"[+-][01]\.\d{2,4}"
        verdict = "(equivalent|undecided|different|floor|ceiling)"
        whole = rf"sinusoidal( 0\.\d\d ± 0\.\d\d\*?){{2}} {end} \({end} – {end}\) {verdict}"
        assert all(re.fullmatch(whole, cell) for cell in cells)
        assert order == "sinusoidal 0.28 (5.) 0.26 (5.) 0.22 (5.) 0.22 (5.)"


def test_show_begins_with_what_matters(battery: Results) -> None:
    lines = printed(show_tables(battery), 80)
    titles = [
        "Exact match, training",
        "Ranking on unseen",
        "What became",
        "Budgets",
        "copy.repeat: exact match by length",
    ]
    found = [next(i for i, line in enumerate(lines) if line.startswith(title)) for title in titles]
    assert found == sorted(found) and found[0] == 0


def test_a_wide_table_goes_on_below() -> None:
    columns = [Column(heading, "left") for heading in ("name", "of", "first", "second")]
    table = small(columns, ["one", "x", "1.2345", "2.3456"], ["two", "", "", ""], names=2, notes=("[not markup]",))
    table = replace(table, title="A title that is longer than the table")
    lines = [line.strip() for line in printed([to_terminal(table)], 20)]
    assert [line for line in lines if line and "─" not in line] == [
        *("A title that is", "longer than the", "table", "name of first", "one  x  1.2345", "two"),
        *("name of second", "one  x  2.3456", "two", "[not markup]"),
    ]


def test_a_table_that_just_fits_gives_up_its_margins() -> None:
    table = to_terminal(small([Column("name", "left"), Column("number", "left")], ["one", "1.2345"]))
    inside = ["name number", "───────────", "one  1.2345"]
    assert printed([table], 13) == ["title", " " * 13, *(f" {line} " for line in inside), " " * 13]
    for width in (12, 11):
        assert printed([table], width) == ["title", "", *inside, ""]
    assert len(printed([table], 10)) > 6, "too wide: names are folded"


def test_the_accuracies_of_five_encodings_fit_eighty_columns() -> None:
    battery = load_results(RESULTS / "battery-small")
    lines = printed(show_tables(battery), 80)
    (heading,) = [line for line in lines[:6] if line.split()[:1] == ["task"]]
    assert heading.split() == ["task", *battery.encodings]
    assert any(word.endswith("~") for word in lines[4].split()), "with a mark behind some of them"


def test_a_table_without_rows_is_its_title_and_its_caption() -> None:
    table = to_terminal(small([Column("heading")], notes=("nothing yet",)))
    assert printed([table], 40) == ["title", "nothing yet"]


def test_numbers_near_a_limit_get_the_digits_that_tell_them_from_it() -> None:
    assert [beside(value, 0.9) for value in (0.88, 0.899, 0.8996, 0.9, 0.904)] == [
        "0.88",
        "0.899",
        "0.8996",
        "0.90",
        "0.904",
    ]
    assert beside(-0.1723, 0.1698, "+") == "-0.172" and beside(0.1698, 0.1723) == "0.170"


def test_places() -> None:
    assert [places(each) for each in ((1, 1), (2, 3), None)] == ["1.", "2.–3.", ""]


@pytest.mark.parametrize("variant", ["distance", "distance-published"])
def test_published_distances_say_where_they_are_of_another_divergence(variant: str) -> None:
    rows = [{**row, "variant": variant} for row in read_findings(SCAN / "analysis", "distance")]
    text = "\n".join(printed([to_terminal(table) for table in distance_tables(rows)], 100))
    assert "published order, these lengths: " in text and "  published t5" in text
    assert ("t5, another divergence" in text) == (variant == "distance")
    assert ("their values are of another divergence" in text) == (variant == "distance")
