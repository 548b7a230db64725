"""Some of the hostile rows, runs and collections; all of them: python tests/fuzz_records.py."""

import json
import random
from pathlib import Path

import fuzz_records
import hostile_folders
import pytest

from lengthwise.door import RunError
from lengthwise.records.row_pieces import Pieces
from lengthwise.records.row_table import as_columns
from lengthwise.records.schema import ROW, surely_rows

EVERY = list(fuzz_records.cases(seed=0))
PARTS = 10


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_hostile_collections(part: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every eighth of them; the report, which takes longest, of one in five of these."""
    commands = dict(fuzz_records.COMMANDS)
    without_report = {name: command for name, command in commands.items() if name != "report"}
    # This process has done other tests before: what it took at most says nothing here.
    monkeypatch.setattr(hostile_folders, "MEGABYTES", 10**6)
    for number, (name, run) in list(enumerate(EVERY[::8]))[part::PARTS]:
        monkeypatch.setattr(fuzz_records, "COMMANDS", commands if number % 5 == part % 5 == 0 else without_report)
        try:
            run()
        except AssertionError as problem:
            raise AssertionError(f"{name}: {problem}") from problem


def test_what_means_nothing_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostile_folders, "MEGABYTES", 10**6)
    for name, run in EVERY[1 : 1 + len(fuzz_records.MEANINGLESS)]:
        try:
            run()
        except AssertionError as problem:
            raise AssertionError(f"{name}: {problem}") from problem


def test_whole_columns_and_single_rows_are_judged_alike() -> None:
    """What is surely good at once is good row by row, for every field and every odd value."""
    lines = (fuzz_records.good() / "c/rows.jsonl").read_text().splitlines()[:6]
    rows = [json.loads(line) for line in lines]
    columns = as_columns(rows)
    assert columns is not None and surely_rows(columns)
    surely = 0
    for field in [*rows[0], "later"]:
        for value in (*hostile_folders.VALUES, float("inf"), 7, 100, 0.25):
            changed = [*rows[:3], {**rows[3], field: value}, *rows[4:]]
            columns = as_columns(changed)
            if columns is not None and surely_rows(columns):
                surely += 1
                for row in changed:
                    ROW.checked(row, "row")
    assert surely > 20


def test_an_error_names_the_line_and_the_field(tmp_path: Path) -> None:
    from lengthwise.records.row_files import rows_by_run

    lines = (fuzz_records.good() / "c/rows.jsonl").read_text().splitlines()
    lines[70] = json.dumps({**json.loads(lines[70]), "n": 0})
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    with pytest.raises(RunError, match=r"rows\.jsonl:71: n must be from 1"):
        rows_by_run(tmp_path / "rows.jsonl")


def test_rows_cut_at_their_commas_are_the_rows_of_their_lines() -> None:
    """With every odd value in every field, and with letters and parts of lines changed at random: what is said of the
    whole at once is what every line says, and fits."""
    text = "".join((fuzz_records.good() / "c/rows.jsonl").read_text().splitlines(keepends=True)[:6])
    rows = [json.loads(line) for line in text.splitlines()]
    changed = [
        "".join(json.dumps(row) + "\n" for row in [*rows[:3], {**rows[3], field: value}, *rows[4:]])
        for field in [*rows[0], "later"]
        for value in (*fuzz_records.VALUES, 7, 100, 0.25, "a, b", 'a", "b": "c', "}\n{")
    ]
    generator = random.Random(0)
    parts = [
        '"',
        ", ",
        ": ",
        "}",
        "{",
        "}\n",
        "\n",
        "1",
        "0",
        "-",
        ".",
        "e5",
        "\\",
        "NaN",
        "null",
        "true",
        " ",
        ',"n":1',
    ]
    for _ in range(4000):
        place, other = generator.randrange(len(text)), generator.randrange(len(text))
        part = generator.choice([*parts, text[place : place + 30]])
        changed.append(text[:other] + part + text[other + generator.choice([0, 1, len(part)]) :])
    # One that has seen all others, and one that has seen nothing.
    pieces = Pieces()
    assert pieces.table(text) == rows
    surely = 0
    for each in changed:
        if not each.endswith("\n"):
            continue
        found = [known.table(each) for known in (pieces, Pieces())]
        assert (found[0] is None) == (found[1] is None)
        if found[0] is not None:
            surely += 1
            lines = [ROW.checked(json.loads(line), "row") for line in each.split("\n")[:-1]]
            assert json.dumps(lines) == json.dumps(list(found[0])) == json.dumps(list(found[1] or []))
    assert surely > 50
