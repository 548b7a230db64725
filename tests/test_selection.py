"""A part of a study is what it names, and a wrong name is a clear error."""

from pathlib import Path

import pytest
from conftest import small_table

from lengthwise.errors import UserError
from lengthwise.executors.local import run_study
from lengthwise.records.rows import load_results
from lengthwise.selection import select
from lengthwise.study import load_study, study_from
from lengthwise.training.plan import shape_key


def test_only_chooses_what_it_names() -> None:
    runs = load_study("battery-small").runs()
    assert len(runs) == 17 * 5 * 3 and select(runs, "") == runs
    chosen = select(runs, "task=addition, task=scan,encoding=none,seed=2")
    assert [run.name for run in chosen] == ["addition/none/seed-2", "scan/none/seed-2"]
    assert len(select(runs, "encoding=t5")) == 51


def test_a_schedule_is_chosen_by_its_name() -> None:
    table = small_table()
    table["encodings"] = ["none", ["rotary", "none"]]
    runs = study_from(table).runs()
    chosen = select(runs, "encoding=rotary,none,seed=1")
    assert {run.encoding.label for run in chosen} == {"rotary,none"} and len(chosen) < len(runs)


@pytest.mark.parametrize("label", ["t5(initial=0,rate=0.01)", "none,t5(initial=0,rate=0.01)"])
def test_an_encoding_with_settings_is_chosen_by_its_name(label: str) -> None:
    settings = {"name": "t5", "initial": 0, "rate": 0.01}
    table = small_table()
    table["encodings"] = ["t5", settings, ["none", settings]]
    chosen = select(study_from(table).runs(), f"seed=1,encoding={label},task=copy.repeat")
    assert [run.encoding.label for run in chosen] == [label]


@pytest.mark.parametrize(
    ("only", "message"),
    [
        ("task=adition", "no task 'adition'; did you mean 'addition'"),
        ("encoding=cope", "no encoding 'cope'"),
        ("encoding=absolute", "no encoding 'absolute'; did you mean 'sinusoidal'"),
        ("size=small", "cannot choose by 'size'"),
        ("task", "must look like task=addition"),
        ("task=", "must look like task=addition"),
    ],
)
def test_wrong_names_are_clear_errors(only: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        select(load_study("battery-small").runs(), only)


def test_other_names_choose_what_results_call_otherwise() -> None:
    runs = load_study("battery-small").runs()
    for other, name in (("encoding=NoPE", "none"), ("encoding=RoPE", "rotary"), ("encoding=t5_bias", "t5")):
        assert {run.encoding.label for run in select(runs, other)} == {name}


@pytest.mark.slow
def test_parts_of_a_study_come_together_in_one_folder(tmp_path: Path) -> None:
    study = study_from(small_table())
    first = study.runs()[0].encoding.label
    run_study(study, tmp_path, "cpu", only=f"encoding={first}")
    assert {run.description["encoding"] for run in load_results(tmp_path).runs} == {first}
    run_study(study, tmp_path, "cpu")
    assert len(load_results(tmp_path).runs) == len(study.runs())


def test_a_task_may_have_its_own_learning_rate_and_scratchpad() -> None:
    table = small_table()
    table["tasks"] = [
        {"name": "addition", "scratchpad": "full", "train_lengths": [1, 2], "test_lengths": [3, 3]},
        {"name": "addition", "scratchpad": "minimal", "train_lengths": [1, 2], "test_lengths": [3, 3]},
        {"name": "copy.words", "learning_rate": 1e-4},
        {"name": "copy.words", "learning_rate": 1e-3},
    ]
    study = study_from(table)
    assert study.titles == [
        "addition (full)",
        "addition (minimal)",
        "copy.words (rate 0.0001)",
        "copy.words (rate 0.001)",
    ]
    runs = {run.title: run for run in study.runs()}
    assert runs["addition (full)"].data.scratchpad == "full"
    assert runs["copy.words (rate 0.001)"].training.learning_rate == 1e-3
    assert len({run.fingerprint for run in study.runs()}) == len(study.runs())
    assert shape_key(runs["copy.words (rate 0.0001)"], "cpu") == shape_key(runs["copy.words (rate 0.001)"], "cpu")


def test_failures_show_the_first_wrong_token(tmp_path: Path) -> None:
    study = study_from(small_table(training__steps=8))
    run_study(study, tmp_path, "cpu")
    files = sorted(tmp_path.rglob("failures.jsonl"))
    assert len(files) == len(study.runs())
    seen = 0
    for run in load_results(tmp_path).runs:
        wrong = {}
        for row in run.rows:
            if row["checkpoint"] == "last":
                wrong[row["length"]] = wrong.get(row["length"], 0) + row["n"] - row["correct"]
        for failure in run.failures:
            target = [*failure["target"].split(), "<end>"]
            first, written = failure["first_error"], failure["predicted"]
            assert len(written) == first + 1 and written[:first] == target[:first] and written[first] != target[first]
            assert (failure["kind"] == "ran on") == (first == len(target) - 1)
            seen += 1
        counts = {length: sum(f["length"] == length for f in run.failures) for length in wrong}
        assert counts == {length: min(3, count) for length, count in wrong.items()}
    assert seen > 0
