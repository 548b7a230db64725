"""One table, four ways to draw it: all say the same, and none takes words for markup."""

import csv
import io

from hand_made import made
from rich.console import Console

from lengthwise.report.html.table import to_html
from lengthwise.report.markdown.table import section, to_markdown
from lengthwise.report.model.table import (
    MISSING,
    Cell,
    Column,
    Note,
    Table,
    TableRow,
    Words,
    encoding_cell,
    heading_lines,
    heading_row,
    number_cell,
    text_cell,
    value_cells,
    value_columns,
    value_table,
)
from lengthwise.report.model.table_csv import to_csv
from lengthwise.report.terminal.show import best_encodings, lengths
from lengthwise.report.terminal.table import to_terminal

INTERVAL, SEEDS = Note((Words("0.4 – 0.6"),)), Note((Words("seeds: ", "spoken"), Words("0.4 · 0.6")), detail=True)
UNLEARNED = Note((Words("1 of 2 not learned", "warning"),), sign="*")

TABLE = Table(
    "scores",
    "Scores of <b>",
    (
        Column("encoding", "left", ("encoding",)),
        Column("mean score", fields=("mean", "low", "high")),
        Column("<b>x", encoding="<b>x"),
        *value_columns("runs"),
    ),
    (
        heading_row("first [group]"),
        TableRow(
            (
                encoding_cell("none"),
                Cell((Words("0.50", "main"),), (0.5, 0.4, 0.6), (INTERVAL, SEEDS, UNLEARNED), share=0.5),
                number_cell("1|2"),
                *value_cells([3]),
            ),
            ruled=True,
        ),
        TableRow((encoding_cell("<b>x"), Cell(MISSING.words, (None, None, None)), MISSING, *value_cells([0]))),
    ),
    ("means_over seeds", "* did not learn"),
)


def printed(table: Table, width: int = 60) -> list[str]:
    console = Console(width=width)
    with console.capture() as capture:
        console.print(to_terminal(table))
    return [line.rstrip() for line in capture.get().splitlines()]


def test_csv_has_the_values() -> None:
    assert list(csv.reader(to_csv(TABLE).splitlines())) == [
        ["encoding", "mean", "low", "high", "runs"],
        ["none", "0.5", "0.4", "0.6", "3"],
        ["<b>x", "", "", "", "0"],
    ]
    assert TABLE.data == {"columns": TABLE.fields, "rows": [["none", 0.5, 0.4, 0.6, 3], ["<b>x", None, None, None, 0]]}
    shown = Table("", "t", (Column("a"), Column("b")), (TableRow((text_cell("x"), number_cell("1.0"))),))
    assert to_csv(shown) == "a,b\nx,1.0\n", "what it shows, where it has no fields"
    assert to_csv(value_table("t", "t", ["a", "b"], [[1, None]])) == "a,b\n1,\n"


def test_markdown_is_one_line_a_row() -> None:
    assert to_markdown(TABLE).splitlines() == [
        "| encoding | mean score | \\<b\\>x |",
        "| :-- | --: | --: |",
        "| **first \\[group\\]** |  |  |",
        "| none | 0.50* (0.4 – 0.6) | 1\\|2 |",
        "| \\<b\\>x | – | – |",
    ]
    assert section(TABLE).startswith("## Scores of \\<b\\>\n\n|")
    assert section(TABLE).endswith("\n\nMeans\\_over seeds. * did not learn.")


def test_the_terminal_keeps_it_in_columns() -> None:
    lines = printed(TABLE)
    assert [line for line in lines if line and "─" not in line] == [
        "Scores of <b>",
        " encoding             mean score <b>x",
        " first [group]",
        " none          0.50* (0.4 – 0.6)  1|2",
        " <b>x                          –    –",
        "means_over seeds",
        "* did not learn",
    ]
    assert lines[lines.index(" <b>x                          –    –") - 1] == "", "a row that is set apart"


def test_html_has_signs_notes_and_colours() -> None:
    text = to_html(TABLE, {"none": ("#123456", "m0,0z")})
    assert '<table data-table="scores">' in text and "<caption>Scores of &lt;b&gt;</caption>" in text
    assert '<th scope="rowgroup" colspan="3"><span>first [group]</span></th>' in text
    assert '<tr class="boundary"><th scope="row"><svg class="sign"' in text
    cell = text.split('style="--value: 0.500"')[1].split("</td>")[0]
    assert cell == (
        ' data-value="0.5"><span class="mean">0.50</span> <small>0.4 – 0.6</small> '
        '<small><span class="hidden">seeds: </span>0.4 · 0.6</small> <small class="mark">1 of 2 not learned</small>'
    )
    assert "<b>" not in text and "runs" not in text, "what is for programs is not shown"


def test_a_table_can_be_turned() -> None:
    lengths = Table(
        "", "by length", (Column("length", "left"), Column("none"), Column("t5")),
        (TableRow((text_cell("1"), number_cell("a"), number_cell("b")), ruled=True),
         TableRow((text_cell("2"), number_cell("c"), number_cell("d")))),
    )  # fmt: skip
    turned = lengths.transposed()
    assert [column.heading for column in turned.columns] == ["encoding", "1", "│", "2"]
    assert [[cell.text for cell in row.cells] for row in turned.rows] == [
        ["none", "a", "│", "c"],
        ["t5", "b", "│", "d"],
    ]


def test_headings_break_where_their_column_is_narrow() -> None:
    assert heading_lines("mean reciprocal rank", 4) == ["mean", "reciprocal", "rank"]
    assert heading_lines("mean rank", 9) == ["mean rank"]
    assert heading_lines("95 % CI, over seeds", 4) == ["95 % CI,", "over seeds"]
    assert heading_lines("", 3) == [""]


def test_marks_hang_behind_numbers() -> None:
    marked, plain = Cell((Words("0.50"), Words("~", "mark"))), number_cell("0.25")
    rows = tuple(TableRow((text_cell(name), cell)) for name, cell in (("a", marked), ("b", plain)))
    lines = printed(Table("", "t", (Column("x", "left"), Column("mean")), rows))
    first, second = (line for line in lines if line.split()[:1] in (["a"], ["b"]))
    assert first.index("0.50") == second.index("0.25") and first.endswith("0.50~")


def test_of_many_encodings_the_best_of_a_task_are_shown_by_length() -> None:
    """The k-th of 30 encodings has k / 100 on task a and 1 - k / 100 on task b."""
    names = [f"e{number:02}" for number in range(30)]
    unseen = {("a", name, 1): number / 100 for number, name in enumerate(names)}
    unseen |= {("b", name, 1): 1 - number / 100 for number, name in enumerate(names)}
    results = made(unseen, names, train_lengths=[1, 4])
    assert best_encodings(results, "a", "last") == names[10:] and best_encodings(results, "b", "last") == names[:20]
    few = made({key: value for key, value in unseen.items() if key[1] < "e05"}, names[:5])
    assert best_encodings(few, "a", "last") == names[:5]
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(lengths(results, "a"))
    said = console.export_text()
    assert "e29" in said and "e09" not in said and "the 20 best of 30 encodings; `lengthwise report` has all" in said
