"""Ranking and intervals against hand-made numbers."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lengthwise.errors import RunError, UserError
from lengthwise.records.directory import StudyDirectory
from lengthwise.records.files import MissingFile, append_rows, read_json, read_rows, replace, write_text
from lengthwise.records.ranking import ranking
from lengthwise.records.results import Results
from lengthwise.records.rows import collect, load_results
from lengthwise.records.run_result import RunResult
from lengthwise.records.statistics import ranks


def made(accuracies: dict[tuple[str, str, int], float], order: list[str]) -> Results:
    """Results with the given overall accuracies on unseen lengths, out of 1000."""
    runs = []
    for (task, encoding, seed), accuracy in accuracies.items():
        row = {"checkpoint": "last", "seen": False, "length": 9, "n": 1000, "correct": round(1000 * accuracy)}
        description = {"task": task, "encoding": encoding, "seed": seed}
        runs.append(RunResult(description, {}, [row, {**row, "seen": True, "length": 4, "correct": 1000}]))
    return Results(runs, [], {"encoding_order": order})


def test_ranks_average_ties() -> None:
    assert ranks(np.array([0.9, 0.5, 0.7])).tolist() == [1, 3, 2]
    assert ranks(np.array([0.5, 0.9, 0.5, 0.1])).tolist() == [2.5, 1, 2.5, 4]
    assert ranks(np.array([0.0, 0.0, 0.0])).tolist() == [2, 2, 2]


@given(st.lists(st.sampled_from([0.0, 0.1, 0.5, 1.0]), min_size=1, max_size=8))
def test_ranks_sum_to_the_same_whatever_the_ties(values: list[float]) -> None:
    assert ranks(np.array(values)).sum() == pytest.approx(len(values) * (len(values) + 1) / 2)


def test_ranking_by_hand() -> None:
    results = made(
        {
            ("x", "none", 1): 0.9, ("x", "t5", 1): 0.5, ("x", "rotary", 1): 0.1,
            ("x", "none", 2): 0.4, ("x", "t5", 2): 0.5, ("x", "rotary", 2): 0.1,
            ("y", "none", 1): 0.3, ("y", "t5", 1): 0.3, ("y", "rotary", 1): 0.0,
        },
        ["none", "t5", "rotary"],
    )  # fmt: skip
    first, second, third = ranking(results)
    assert [p.encoding for p in (first, second, third)] == ["none", "t5", "rotary"]
    assert first.reciprocal_rank == pytest.approx((1 + 1 / 2 + 1 / 1.5) / 3)
    assert second.reciprocal_rank == pytest.approx((1 / 2 + 1 + 1 / 1.5) / 3)
    assert third.reciprocal_rank == pytest.approx(1 / 3)
    assert first.rank == pytest.approx((1 + 2 + 1.5) / 3)
    assert first.accuracy == pytest.approx((0.9 + 0.4 + 0.3) / 3)
    assert first.columns == 3
    # One or two seeds tell nothing of the spread; intervals that there are: tests/test_ranking.py.
    assert all(place.reciprocal_rank_interval is None for place in (first, second, third))


def test_a_seed_that_one_encoding_lacks_is_left_out_for_all() -> None:
    results = made(
        {("x", "none", 1): 0.2, ("x", "t5", 1): 0.9, ("x", "none", 2): 1.0, ("y", "none", 1): 1.0}, ["none", "t5"]
    )
    places = ranking(results)
    assert [p.encoding for p in places] == ["t5", "none"]
    assert places[0].columns == 1 and places[1].reciprocal_rank == 0.5


def test_overall_accuracy_weighs_examples_not_lengths() -> None:
    rows = [
        {"checkpoint": "last", "seen": False, "length": 5, "n": 10, "correct": 10},
        {"checkpoint": "last", "seen": False, "length": 6, "n": 30, "correct": 0},
        {"checkpoint": "best", "seen": False, "length": 6, "n": 30, "correct": 30},
        {"checkpoint": "last", "seen": True, "length": 4, "n": 50, "correct": 50},
    ]
    assert RunResult({}, {}, rows).accuracy("last", seen=False) == 0.25


@pytest.mark.slow
def test_table_is_a_data_frame(finished: tuple[Path, Results]) -> None:
    _, results = finished
    frame = results.table()
    assert {"run", "task", "encoding", "seed", "length", "n", "correct", "seen"} <= set(frame.columns)
    assert set(frame["checkpoint"]) == {"last"} and set(results.table("best")["checkpoint"]) == {"best"}
    assert not frame.select("task", "encoding", "seed", "bucket").is_duplicated().any()
    assert results.table(checkpoint=None).height == len(results.rows) == 2 * frame.height
    with pytest.raises(UserError, match="checkpoint must be 'last' or 'best', or None, not 'all'"):
        results.table("all")


def test_a_table_has_columns_that_only_later_rows_have() -> None:
    rows = [{"checkpoint": "last", "n": number} for number in range(200)]
    rows.append({"checkpoint": "last", "n": 0, "chance": 0.5, "answers": {"right": 1}})
    frame = Results([RunResult({}, {}, rows)], [], {}).table()
    assert frame.columns == ["checkpoint", "n", "chance", "answers"] and frame["chance"][200] == 0.5


def test_a_collection_reads_like_the_folder_it_came_from(finished: tuple[Path, Results], tmp_path: Path) -> None:
    _, results = finished
    collect(results, tmp_path / "c")
    again = load_results(tmp_path / "c")
    assert again.rows == results.rows and again.encodings == results.encodings and again.study == results.study
    assert ranking(again) == ranking(results)


def test_a_collection_remembers_what_was_not_finished(finished: tuple[Path, Results], tmp_path: Path) -> None:
    _, results = finished
    names = ["copy.repeat/t5/seed-1", "copy.repeat/t5/seed-2"]
    collect(Results(results.runs, names, results.study), tmp_path / "c")
    again = load_results(tmp_path / "c")
    assert again.unfinished == names and again.study == results.study
    collect(again, tmp_path / "again")
    assert load_results(tmp_path / "again").unfinished == names
    collect(results, tmp_path / "again")
    assert load_results(tmp_path / "again").unfinished == []


def test_a_damaged_collection_is_named(finished: tuple[Path, Results], tmp_path: Path) -> None:
    """Cut within a line, cut between two lines, empty, gone."""
    folder = tmp_path / "c"
    for name, damages in {
        "rows.jsonl": {
            "is cut off": lambda text: text[:-30],
            "lacks rows of": lambda text: text[: text[:-1].rindex("\n") + 1],
            "rows.jsonl lacks rows": lambda text: "",
            "rows.jsonl is missing": None,
        },
        "runs.jsonl": {
            "is cut off": lambda text: text[:-30],
            "lacks runs": lambda text: text[: text[:-1].rindex("\n") + 1],
        },
        "failures.jsonl": {"is cut off": lambda text: text[:-1]},
        "study.json": {
            "is no JSON": lambda text: text[:50],
            "json must be a table": lambda text: "[]",
            "study.json is missing": None,
        },
    }.items():
        for message, damage in damages.items():
            collect(finished[1], folder)
            if damage is None:
                (folder / name).unlink()
            else:
                (folder / name).write_text(damage((folder / name).read_text()))
            with pytest.raises(RunError, match=f"{folder}.*{message}"):
                assert load_results(folder).runs[0].failures, "which are read when somebody looks at them"


def test_a_damaged_run_is_named(finished: tuple[Path, Results], tmp_path: Path) -> None:
    shutil.copytree(finished[0], tmp_path / "s")
    for run in StudyDirectory(tmp_path / "s").runs():
        whole = run.rows.read_text()
        for damaged in (whole[:-30], whole[: whole[:-1].rindex("\n") + 1], "", '{"not": "\udcff"}\n'):
            run.rows.write_text(damaged, errors="surrogateescape")
            with pytest.raises(RunError, match=rf"{run.path}.*rows\.jsonl"):
                load_results(tmp_path / "s")
        run.rows.write_text(whole)
        assert load_results(tmp_path / "s").rows == finished[1].rows


def test_a_cut_off_last_line_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    append_rows(file, [{"a": 1}, {"a": 2}])
    with file.open("a") as handle:
        handle.write('{"a": 3')
    assert read_rows(file) == [{"a": 1}, {"a": 2}]
    file.write_text('{"a": 1}\nrubbish\n{"a": 2}\n')
    with pytest.raises(RunError, match=r"rows\.jsonl:2"):
        read_rows(file)
    file.write_text('{"a": 1}\n{"a": 2}')
    with pytest.raises(RunError, match="is cut off"):
        read_rows(file, grows=False)
    for absent in (read_rows, read_json):
        with pytest.raises(MissingFile, match="absent is missing; restore it"):
            absent(tmp_path / "absent")
    with pytest.raises(RunError, match="is a folder"):
        read_json(tmp_path)


@pytest.mark.parametrize("cut", range(1, len('{"a": 2, "b": "x"}\n')))
def test_rows_are_never_appended_to_half_a_line(cut: int, tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    append_rows(file, [{"a": 1}, {"a": 2, "b": "x"}])
    file.write_bytes(file.read_bytes()[:-cut])
    append_rows(file, [{"a": 3}])
    # Where the end of the line is all that is lost, the row is whole.
    assert read_rows(file) == [{"a": 1}, *([{"a": 2, "b": "x"}] if cut == 1 else []), {"a": 3}]


def test_rows_are_appended_to_files_of_every_kind(tmp_path: Path) -> None:
    file = tmp_path / "rows.jsonl"
    for before in ("", '{"a": '):
        file.write_text(before)
        append_rows(file, [{"a": 1}])
        append_rows(file, [])
        append_rows(file, [{"a": 2}])
        assert file.read_text() == '{"a": 1}\n{"a": 2}\n'
    append_rows(Path("/dev/null"), [{"a": 1}])
    with pytest.raises(RunError, match="cannot write"):
        append_rows(tmp_path, [{"a": 1}])


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    file = tmp_path / "x"
    write_text(file, "old")

    def fail(partial: Path) -> None:
        partial.write_text("half")
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        replace(file, fail)
    assert file.read_text() == "old" and [f.name for f in tmp_path.iterdir()] == ["x"]


def test_results_of_nothing_are_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no such folder"):
        load_results(tmp_path / "absent")
    with pytest.raises(UserError, match="holds no runs; name the folder that"):
        load_results(tmp_path)
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(UserError, match=r"holds no runs; it is a model: lengthwise evaluate .* --task"):
        load_results(tmp_path)
    (tmp_path / "table.json").write_text("{}")
    with pytest.raises(UserError, match=f"it is of extended models: lengthwise extend report {tmp_path}"):
        load_results(tmp_path)


def test_large_collections_are_packed_and_read_alike(finished: tuple[Path, Results], tmp_path: Path) -> None:
    from lengthwise.records import packed

    folder, results = tmp_path / "c", finished[1]
    collect(results, folder)
    plain = load_results(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(packed, "LARGEST_PLAIN", 10)
        collect(results, folder)
        assert sorted(file.name for file in folder.glob("rows*")) == ["rows.jsonl.gz"], "nothing of before stays"
        first = (folder / "rows.jsonl.gz").read_bytes()
        assert load_results(folder) == plain == results
        collect(load_results(folder), folder)
        assert (folder / "rows.jsonl.gz").read_bytes() == first, "the same rows are the same bytes"
        (folder / "rows.jsonl").write_text("")
        with pytest.raises(RunError, match="plain and packed"):
            load_results(folder)
        (folder / "rows.jsonl").unlink()
        (folder / "rows.jsonl.gz").write_bytes(first[:-20])
        with pytest.raises(RunError, match="damaged"):
            load_results(folder)
    collect(results, folder)
    assert sorted(file.name for file in folder.glob("rows*")) == ["rows.jsonl"] and load_results(folder) == plain


def test_parts_of_a_study_become_one(finished: tuple[Path, Results], tmp_path: Path) -> None:
    from lengthwise.records.merging import merge

    _, results = finished
    first, second = (dataclasses.replace(results, runs=runs) for runs in (results.runs[:3], results.runs[2:]))
    whole = merge([first, dataclasses.replace(second, unfinished=[results.runs[0].description["name"], "another"])])
    assert [run.description["name"] for run in whole.runs] == [run.description["name"] for run in results.runs]
    assert whole.unfinished == ["another"], "what one part has finished is finished"
    other = dataclasses.replace(results.runs[0], description={**results.runs[0].description, "fingerprint": "changed"})
    with pytest.raises(UserError, match="with different settings"):
        merge([first, dataclasses.replace(results, runs=[other])])
    collect(first, tmp_path / "c")
    collect(merge([load_results(tmp_path / "c"), second]), tmp_path / "c")
    assert load_results(tmp_path / "c").runs == results.runs
