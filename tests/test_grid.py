"""A grid varies settings: its runs, its errors, and its axes in tables, figures, files and the page."""

import csv
import io
import json
import re
from pathlib import Path
from typing import Any

import pytest
from conftest import small_table
from typer.testing import CliRunner

import lengthwise as lw
from lengthwise.cli.main import app
from lengthwise.errors import UserError
from lengthwise.executors.local import prepare, run_study
from lengthwise.records.completeness import missing
from lengthwise.records.directory import StudyDirectory
from lengthwise.records.facets import faceted
from lengthwise.records.results import Results
from lengthwise.records.rows import load_results
from lengthwise.report.export import write_report
from lengthwise.report.figures.length_curves import accuracy_by_length
from lengthwise.report.model.length_curves import curves_of
from lengthwise.report.model.opening import opening, opening_sentences
from lengthwise.report.terminal.show import show_values
from lengthwise.selection import select
from lengthwise.study import load_study, study_from
from lengthwise.training.plan import plan

AXES = {"model.layers": [1, 2], "training.learning_rate": [0.01, 0.003], "training.weight_decay": [0.0, 0.5]}


def grid_table(grid: Any = AXES, **changes: Any) -> dict[str, Any]:
    """One task, three encodings, one seed: with AXES 24 runs."""
    table = small_table()
    table |= {"name": "grid", "tasks": table["tasks"][:1], "encodings": ["none", "alibi", "rotary"], "seeds": [1]}
    for section, settings in table.items():
        if isinstance(settings, dict):
            table[section] = {key: value for key, value in settings.items() if f"{section}.{key}" not in grid}
    table["training"] |= {"steps": 2, "validate_every": 1}
    return table | {"grid": grid} | changes


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """24 runs over three axes."""
    folder = tmp_path_factory.mktemp("grid") / "grid"
    run_study(study_from(grid_table()), folder, "cpu")
    return folder


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    return load_results(folder)


def test_runs_are_the_product_of_all_axes() -> None:
    runs = study_from(grid_table()).runs()
    assert len(runs) == len({run.fingerprint for run in runs}) == len({run.name for run in runs}) == 3 * 2 * 2 * 2
    for run in runs:
        assert run.grid == {
            "model.layers": run.model.layers,
            "training.learning_rate": run.training.learning_rate,
            "training.weight_decay": run.training.weight_decay,
        }
    assert runs[-1].name.endswith("/rotary/layers=2,learning_rate=0.003,weight_decay=0.5/seed-1")


def test_a_run_of_a_grid_is_the_run_that_a_study_without_one_has() -> None:
    """The grid says where settings come from and is no setting itself: fingerprints know nothing of it."""
    run = study_from(grid_table()).runs()[0]
    table = grid_table({})
    del table["grid"]
    table["model"]["layers"], table["training"] = 1, table["training"] | {"learning_rate": 0.01, "weight_decay": 0.0}
    alone = study_from(table)
    assert run.fingerprint == alone.runs()[0].fingerprint and "grid" not in alone.description()


def test_a_file_and_the_command_line_say_the_same(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'summary = ""\ntasks = ["copy.repeat"]\nencodings = ["none"]\nseeds = [1]\n[grid]\nmodel.layers = [1, 2]\n'
    )
    named, set_ = load_study(str(file)), load_study(str(file), ["grid.model.layers=[3]", "grid.training.lr=[1e-3]"])
    assert named.axes == {"model.layers": (1, 2)}
    assert set_.axes == {"model.layers": (3,), "training.learning_rate": (0.001,)}
    with pytest.raises(UserError, match=r"--set model.layers: the study's grid varies it; use --set grid.model.layers"):
        load_study(str(file), ["model.layers=3"])


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        ({"model.layer": [2]}, r"grid cannot vary 'model.layer'; did you mean 'model.layers'"),
        ({"layers": [2]}, r"grid cannot vary 'layers'; did you mean 'model.layers'\?"),
        ({"seeds": [2]}, r"grid cannot vary seeds: list all seeds in `seeds = "),
        ({"model.layers": []}, r"grid.model.layers is empty"),
        ({"model.layers": 2}, r"grid.model.layers must be a list of values"),
        ({"model.layers": ["two"]}, r"a value of grid.model.layers must be a whole number, not the text"),
        ({"model.layers": [2, 2]}, r"grid.model.layers names 2 twice"),
        ({"model": {"layers": [1]}, "model.layers": [2]}, r"grid names model.layers twice"),
        ({"training.lr": [1e-3], "training.learning_rate": [1e-2]}, r"grid names training.learning_rate twice"),
        ({"training.learning_rate": [0.1, -1.0]}, r"must be above 0, not -1.0 \(at learning_rate=-1 of the grid\)"),
        (
            {"model.layers": list(range(1, 1001)), "training.warmup": [i / 1000 for i in range(1000)]},
            r"at most 50,000 runs, not 3,000,000",
        ),
        ([1], r"grid must be a table of settings"),
    ],
)
def test_a_grid_that_cannot_be_is_one_line(grid: Any, said: str) -> None:
    with pytest.raises(UserError, match=said) as error:
        study_from(grid_table() | {"grid": grid})
    assert "\n" not in str(error.value)


def test_a_summary_says_what_was_set_otherwise() -> None:
    assert load_study("quickstart").summary.endswith("CPU cores.")
    changed = load_study("quickstart", ["training.steps=20", "seeds=[1]", "training.lr = 1e-3"]).summary
    assert changed.endswith("CPU cores. Changed: training.steps = 20, seeds, training.lr = 1e-3.")
    assert load_study("quickstart", ["seeds=[1]", "summary='Mine.'"]).summary == "Mine."


def test_a_task_with_a_setting_of_its_own_is_not_varied_in_it() -> None:
    tasks = [{"name": "copy.repeat", "learning_rate": 0.1}]
    with pytest.raises(UserError, match=r"has learning_rate for itself, and the grid varies training.learning_rate"):
        study_from(grid_table(tasks=tasks))


@pytest.mark.slow
def test_a_part_is_chosen_by_axes(results: Results) -> None:
    runs = study_from(grid_table()).runs()
    assert {run.model.layers for run in select(runs, "layers=2")} == {2}
    assert len(select(runs, "layers=2,lr=1e-2,encoding=none")) == 2
    with pytest.raises(UserError, match=r"no model.layers '3'; known: 1, 2"):
        select(runs, "layers=3")
    part = results.only("layers=2,lr=1e-2")
    assert len(part.runs) == 6 and missing(part) is None
    assert part.axes == {
        "model.layers": ["2"],
        "training.learning_rate": ["0.01"],
        "training.weight_decay": ["0", "0.5"],
    }


def test_points_are_never_put_together(results: Results) -> None:
    with pytest.raises(UserError, match="several points of a grid"):
        results.accuracies()
    assert len(results.by_point) == 8 and all(len(part.runs) == 3 for part in results.by_point.values())


def test_facets_have_the_numbers_of_their_point(results: Results) -> None:
    whole = faceted(results)
    found = {(title, encoding): by_seed for (title, encoding), by_seed in whole.accuracies().items()}
    assert len(whole.tasks) == 8 and len(found) == 24
    for run in results.runs:
        title = f"{run.description['task']} · " + ", ".join(
            f"{axis.partition('.')[2]}={value}" for axis, value in run.point
        )
        assert found[title, run.description["encoding"]] == {1: run.accuracy("last", seen=False)}
    assert faceted(whole) is whole and missing(whole) is None


def test_the_page_opens_with_what_each_axis_does(results: Results) -> None:
    whole = faceted(results)
    found = opening(whole.encodings, [curves_of(whole, task) for task in whole.tasks])
    assert found is not None
    first, _, *by_axis = opening_sentences(whole, found)
    assert first.startswith("On copy.repeat, over 8 points of a grid, each encoding is right on ")
    assert [line.partition(",")[0].removeprefix("By ") for line in by_axis] == list(results.axes)

    def mean(encoding: str, axis: str = "", value: str = "") -> float:
        chosen = [run for run in results.by_encoding[encoding] if not axis or (axis, value) in run.point]
        return sum(run.accuracy("last", seen=False) for run in chosen) / len(chosen)

    best = max(results.encodings, key=mean)
    for line, (axis, values) in zip(by_axis, results.axes.items(), strict=True):
        told = [float(number) for number in re.findall(r"(\d\.\d+) with", line)]
        assert f"“{best}”" in line and told == pytest.approx([mean(best, axis, value) for value in values], abs=0.006)


def test_fleets_are_told_apart_by_the_axes_that_they_do_not_mix() -> None:
    runs = study_from(grid_table()).runs()
    names = [fleet.name for fleet in plan(runs, StudyDirectory(Path("nowhere")), 10, "cpu")]
    assert len(set(names)) == len(names) > 1 and all("layers=" in name and "grid points" in name for name in names)


def test_what_is_missing_is_named_by_its_axis(results: Results) -> None:
    half = Results([run for run in results.runs if dict(run.point)["model.layers"] == "1"], [], results.study)
    assert (found := missing(faceted(half))) and found.words == "12 of 24 runs of this study; missing: layers=2"


def test_axes_are_columns_for_people_and_programs(folder: Path, results: Results) -> None:
    shown = CliRunner().invoke(app, ["show", str(folder), "--csv", "--only", "layers=2"])
    rows = list(csv.DictReader(io.StringIO(shown.stdout)))
    assert [row["model.layers"] for row in rows] == ["2"] * 12 and {row["task"] for row in rows} == {"copy.repeat"}
    as_json = json.loads(CliRunner().invoke(app, ["show", str(folder), "--json"]).stdout)
    assert as_json == show_values(results).records and as_json[0]["training.learning_rate"] == 0.01
    text = CliRunner().invoke(app, ["show", str(folder)], env={"COLUMNS": "120"}).stdout
    assert "layers learning_rate weight_decay" in text
    compared = json.loads(CliRunner().invoke(app, ["compare", str(folder), "--json"]).stdout)
    assert {point["model.layers"] for point in compared["points"].values()} == {1, 2} and len(compared["points"]) == 8


def test_files_have_the_axes(results: Results, tmp_path: Path) -> None:
    write_report(results, tmp_path / "csv", "csv")
    for name in ("accuracies", "by-length", "runs", "tasks", "validations"):
        with (tmp_path / "csv" / f"{name}.csv").open() as file:
            first = next(csv.DictReader(file))
        assert (first["task"], first["model.layers"], first["training.weight_decay"]) == ("copy.repeat", "1", "0.0")
    write_report(results, tmp_path / "r.md")
    assert "| task | layers | learning\\_rate | weight\\_decay | none |" in (tmp_path / "r.md").read_text()
    figure = accuracy_by_length(faceted(results))
    assert figure.body.count(">layers=1, learning_rate=0.01, weight_decay=0.5<") == 1


def test_nothing_is_left_to_do_and_values_may_be_added(folder: Path) -> None:
    assert not prepare(study_from(grid_table()), folder, "cpu").fleets
    more = {**AXES, "model.layers": [1, 2, 3]}
    job = prepare(study_from(grid_table(more)), folder, "cpu")
    assert {run.model.layers for fleet in job.fleets for run in fleet.runs} == {3}
    with pytest.raises(UserError, match="the grid varied"):
        prepare(study_from(grid_table({"model.layers": [1, 2]})), folder, "cpu")


def test_data_frames_have_the_axes(folder: Path) -> None:
    found = lw.results(folder, only="layers=2")
    polars, pandas = found.to_polars(), found.to_pandas()
    assert set(polars["model.layers"]) == {2} and polars.height == len(pandas)
    assert polars.to_dicts() == pandas.to_dict("records")


@pytest.mark.slow
def test_the_page_opens_in_a_browser(results: Results, tmp_path: Path) -> None:
    chromium = Path("/usr/bin/chromium")
    if not chromium.exists():
        pytest.skip("needs /usr/bin/chromium: apt-get install chromium")
    from playwright.sync_api import sync_playwright

    write_report(results, tmp_path / "r.html")
    problems: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        tab = browser.new_page()
        tab.on("pageerror", lambda error: problems.append(str(error)))
        tab.on("console", lambda message: problems.append(message.text))
        tab.goto((tmp_path / "r.html").as_uri())
        tab.get_by_role("tab", name="By length").click()
        assert tab.locator("#lengths .plot:visible").count() == 8
        tab.locator("#lengths .plot:visible").nth(3).hover()  # its numbers are found by the facet's title
        assert tab.locator(".tip:visible").count() == 1
        tab.get_by_role("tab", name="Runs").click()
        assert "layers" in tab.locator("#run-table thead").inner_text()
        tab.locator("#run-filters select[name=task]").select_option(index=1)
        assert tab.locator("#run-table tbody tr:visible").count() == 3
        browser.close()
    assert not problems
