"""Several folders side by side: studies by their names, parts of one study as one, conflicts refused."""

import json
from pathlib import Path

import pytest
from conftest import small_study
from typer.testing import CliRunner

from lengthwise.cli.main import app
from lengthwise.errors import UserError
from lengthwise.executors.local import run_study
from lengthwise.records.facets import faceted, listed
from lengthwise.records.files import read_rows, write_rows
from lengthwise.records.merging import load_together, told_apart
from lengthwise.records.results import Results
from lengthwise.report.export import write_report
from lengthwise.report.terminal.show import show_values

BRIEF = {"training__steps": 2, "training__validate_every": 1, "seeds": [1]}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Two studies: the second has another encoding, another batch and a grid."""
    one, two = (tmp_path_factory.mktemp("together") / name for name in ("one", "two"))
    run_study(small_study(name="one", **BRIEF), one, "cpu")
    varied = {"grid": {"model.layers": [1, 2]}, "training__batch": 4, "encodings": ["none", "t5"]}
    model = {"width": 16, "heads": 2}
    run_study(small_study(name="two", **BRIEF, **varied, model=model), two, "cpu")
    return one, two


def test_studies_are_named_and_what_one_varies_is_said_of_all(folders: tuple[Path, Path]) -> None:
    results = load_together(folders)
    assert results.axes == {"study": ["one", "two"], "model.layers": ["1", "2"]} and len(results.runs) == 2 + 4
    rows = [(row["study"], row["model.layers"], row["encoding"]) for row in show_values(results).records]
    assert sorted(rows) == [
        ("one", 1, "alibi"), ("one", 1, "none"), ("two", 1, "none"), ("two", 1, "t5"), ("two", 2, "none"),
        ("two", 2, "t5"),
    ]  # fmt: skip
    assert told_apart(results) == ["two is not to be compared with one: training.batch 4, not 8"]
    assert told_apart(results.only("study=one")) == []


def test_commands_take_several_folders(folders: tuple[Path, Path], tmp_path: Path) -> None:
    names = [str(folder) for folder in folders]
    shown = CliRunner().invoke(app, ["show", *names], env={"COLUMNS": "200"})
    assert shown.exit_code == 0 and "two is not to be compared with one" in shown.stdout
    page = tmp_path / "r.html"
    written = CliRunner().invoke(app, ["report", *names, "--out", str(page)])
    assert written.exit_code == 0 and "one + two" in page.read_text() and "not to be compared" in page.read_text()
    compared = json.loads(CliRunner().invoke(app, ["compare", *names, "--json"]).stdout)
    assert {point["study"] for point in compared["points"].values()} == {"one", "two"}
    claim = CliRunner().invoke(app, ["compare", *names, "--with", "claim"])
    assert isinstance(claim.exception, UserError) and "one study, not of one and two" in str(claim.exception)


def test_a_ranking_needs_encodings_that_the_studies_share(folders: tuple[Path, Path], tmp_path: Path) -> None:
    write_report(load_together(folders), tmp_path / "r.md")
    assert "No study has finished every encoding" in (tmp_path / "r.md").read_text()


def test_parts_of_one_study_are_one(folders: tuple[Path, Path], tmp_path: Path) -> None:
    run_study(small_study(name="one", **{**BRIEF, "seeds": [2]}), tmp_path / "more", "cpu")
    whole = load_together([folders[0], tmp_path / "more", folders[0]])
    assert whole.axes == {} and sorted(run.description["seed"] for run in whole.runs) == [1, 1, 2, 2]


def test_the_same_run_with_other_numbers_is_refused(folders: tuple[Path, Path], tmp_path: Path) -> None:
    run_study(small_study(name="one", **BRIEF), tmp_path / "again", "cpu")
    assert len(load_together([folders[0], tmp_path / "again"]).runs) == 2, "the same numbers are no conflict"
    file = next((tmp_path / "again").rglob("rows.jsonl"))
    first, *others = read_rows(file)
    write_rows(file, [{**first, "chance": first["chance"] / 2}, *others])
    with pytest.raises(UserError, match=r"one and .*again both hold copy.repeat/\w+/seed-1, with different results"):
        load_together([folders[0], tmp_path / "again"])


def test_one_folder_is_as_it_was(folders: tuple[Path, Path]) -> None:
    found = load_together(folders[:1])
    assert isinstance(found, Results) and found.axes == {} and found.facets == {} and found.studies == {}


def test_studies_that_differ_in_every_task_are_told_apart_in_a_line(tmp_path: Path) -> None:
    """As a study of templates does: naming all its tasks would fill the page."""
    tokens = [(1, 1), (1, 2), (1, 4), (1, 8), (2, 1), (2, 2)]
    tasks = [{"name": "copy.repeat", "symbols": 20, "prefix_tokens": p, "separator_tokens": s} for p, s in tokens]
    short = {**BRIEF, "encodings": ["none"]}
    run_study(small_study(name="one", tasks=["copy.repeat"], **short), tmp_path / "one", "cpu")
    run_study(small_study(name="two", tasks=tasks, **short, training__batch=4), tmp_path / "two", "cpu")
    results = faceted(load_together([tmp_path / "one", tmp_path / "two"]))
    (told,) = told_apart(results)
    assert "; training.batch 4, not 8" in told and ": 4 of 6 tasks: data.prefix_tokens 1, not 0" in told
    assert "copy.repeat (1 + 4 tokens): data.separator_tokens 4, not 0" in told and "study=" not in told
    assert listed(results, results.tasks).endswith(f", {len(results.tasks) - 4} more")
