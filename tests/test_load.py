"""Many runs: nothing grows with their square, rows are kept in little room, and a page stays small."""

import copy
import functools
import gzip
import json
import operator
import time
from pathlib import Path

import load
import pytest

from lengthwise.errors import RunError
from lengthwise.records.findings import AnalysisRows
from lengthwise.records.packed import write_packed
from lengthwise.records.ranking import paired_differences, rankings
from lengthwise.records.results import Results
from lengthwise.records.row_table import RowTable, as_columns
from lengthwise.records.rows import collect, load_results
from lengthwise.records.schema import DESCRIPTION
from lengthwise.records.sharing import Shared
from lengthwise.report.export import write_report
from lengthwise.report.html import page
from lengthwise.report.model.page_part import page_part


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    folder = tmp_path_factory.mktemp("load") / "c"
    load.write(folder, runs=600, lengths=24, collected=True)
    return load_results(folder)


def test_rows_in_little_room_are_the_same_rows() -> None:
    about = next(load.descriptions(1, 30))
    rows = [{**row, "later": None, "mixed": i or 0.5} for i, row in enumerate(load.rows(about, 30))]
    columns = as_columns(rows)
    assert columns is not None
    table = RowTable(columns)
    assert list(table) == rows and table == rows and len(table) == 60 and table[3] == rows[3] and table[:2] == rows[:2]
    assert json.dumps(list(table)) == json.dumps(rows), "whole numbers stay whole, fractions stay fractions"
    assert list(table.column("length")) == [row["length"] for row in rows]
    assert as_columns([*rows, {}]) is None and as_columns([]) is None and as_columns([1, 2]) is None  # type: ignore


def test_run_folders_and_their_collection_are_read_alike(tmp_path: Path) -> None:
    load.write(tmp_path / "f", runs=40, lengths=22, collected=False)
    folders = load_results(tmp_path / "f")
    collect(folders, tmp_path / "c")
    collected = load_results(tmp_path / "c")
    by_name = {run.description["name"]: run for run in collected.runs}
    for run in folders.runs:
        other = by_name[run.description["name"]]
        assert other == run and other.totals == run.totals and list(other.failures) == list(run.failures) != []


def test_shared_parts_of_descriptions_are_judged_as_by_themselves() -> None:
    """Also where equal ones were seen before, and where others are equal only to Python: 1, 1.0 and true."""
    about = next(load.descriptions(1))
    odd = (None, True, 1, 1.0, -1, 0.5, 10**30, "", "x", [], {}, [1], {"name": 1}, [{"name": "x"}])
    places = [(name,) for name in about] + [("settings", name) for name in about["settings"]]
    shared = Shared()
    for place in [*places, ("later",), ("settings", "model", "width"), ("hardware", "processors")]:
        for value in odd:
            changed = copy.deepcopy(about)
            inner = functools.reduce(operator.getitem, place[:-1], changed)
            inner[place[-1]] = value
            try:
                DESCRIPTION.checked(changed, "run.json")
            except RunError:
                for known in (shared, Shared()):
                    with pytest.raises(RunError, match=r"^run\.json"):
                        known.checked(changed, DESCRIPTION, "run.json")
            else:
                for known in (shared, Shared()):
                    assert json.dumps(known.checked(changed, DESCRIPTION, "run.json")) == json.dumps(changed)
    first, second = (shared.checked(copy.deepcopy(about), DESCRIPTION, "run.json") for _ in range(2))
    assert first is not second and first["settings"] is second["settings"]


def test_packed_in_pieces_is_packed_at_once(tmp_path: Path) -> None:
    rows = [{"a": i, "b": "x" * (i % 50)} for i in range(5000)]
    write_packed(tmp_path / "a.gz", iter(rows))
    text = "".join(json.dumps(row) + "\n" for row in rows)
    assert (tmp_path / "a.gz").read_bytes() == gzip.compress(text.encode(), mtime=0)


@pytest.mark.slow
def test_time_does_not_grow_with_the_square_of_encodings(tmp_path: Path) -> None:
    def seconds(encodings: int) -> float:
        load.write(tmp_path / str(encodings), runs=encodings * 6, lengths=22, collected=True)
        found = load_results(tmp_path / str(encodings))
        began = time.process_time()
        rankings(found)
        paired_differences(found)
        return time.process_time() - began

    load.TASKS, load.SEEDS, before = 2, 3, (load.TASKS, load.SEEDS)
    try:
        seconds(10)
        few, many = seconds(20), seconds(160)
    finally:
        load.TASKS, load.SEEDS = before
    assert many < 24 * few + 1, "eight times as many; pair by pair it would be 64 times"


@pytest.mark.slow
def test_a_page_of_many_runs_is_small_and_all_numbers_are_beside_it(
    results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(page, "MOST_RUNS", 400)
    monkeypatch.setattr(page, "LARGEST", 1_000_000)
    write_report(results, tmp_path / "r.html", analysis=AnalysisRows())
    text = (tmp_path / "r.html").read_text()
    assert len(text.encode()) <= 1_000_000 and "600 runs are too many for a page" in text and "r-tables" in text
    assert len((tmp_path / "r-tables/runs.csv").read_text().splitlines()) == 601
    for encoding in results.encodings:
        assert encoding in text, "all are ranked"


def test_what_is_left_of_too_many_runs(results: Results) -> None:
    assert page_part(results, 600) is results
    part = page_part(results, 400)
    assert len(part.runs) == 400 and len(part.encodings) == 2 and part.tasks == results.tasks
    few = page_part(results, 50)
    assert 1 <= len(few.runs) <= 50 and len(few.encodings) == 2
