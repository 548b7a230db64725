"""The leaderboard: what may be compared is compared, what differs is never averaged, and a page shows it."""

import csv
import io
import json
import re
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from conftest import slow
from hostile import write_hostile
from synthetic import write_battery
from test_report_browser import ACCESSIBILITY, CHROMIUM, CONTRASTS, Watched, browser, choose, downloaded
from typer.testing import CliRunner

from lengthwise.cards.leaderboard import load_leaderboard, write_leaderboard
from lengthwise.cli.main import app
from lengthwise.door import is_odd
from lengthwise.errors import UserError
from lengthwise.model.config import ModelConfig
from lengthwise.records.boards import Board, boards, source_names
from lengthwise.records.budgets import budget_warnings
from lengthwise.records.costs import costs_of_runs, measured_costs
from lengthwise.records.earlier import UNSAID, in_full
from lengthwise.records.files import write_json
from lengthwise.records.results import Results
from lengthwise.records.rows import collect, load_results
from lengthwise.records.run_result import RunResult
from lengthwise.report.html import leaderboard as page_module
from lengthwise.report.model.leaderboard import Leaderboard, leaderboard, leaderboard_table, leaderboard_values
from lengthwise.study import load_study
from lengthwise.training.recipe import DataConfig, TrainingConfig

__all__ = ["browser"]
ROOT = Path(__file__).parent.parent
TASKS = ["copy.repeat", "parity"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    methods = ("none", "alibi", "rotary")
    return write_battery(tmp_path_factory.mktemp("board") / "methods", TASKS, methods, failures=0)


@pytest.fixture(scope="module")
def results(folder: Path) -> Results:
    return load_results(folder)


def changed(run: RunResult, **changes: Any) -> RunResult:
    """The same rows as of another run: `training__steps=3` changes a setting, others change the description."""
    about = json.loads(json.dumps(run.description))
    for key, value in changes.items():
        section, _, name = key.partition("__")
        if name:
            about["settings"][section][name] = value
        else:
            about[key] = value
    about["fingerprint"] = f"{abs(hash((about['fingerprint'], repr(changes)))) % 16**12:012x}"
    return replace(run, description=about)


def part(name: str, runs: list[RunResult]) -> Results:
    return Results(runs, [], {"name": name}, (Path(name),))


def of(results: Results, method: str, seeds: tuple[int, ...] = (1, 2, 3), tasks: list[str] = TASKS) -> list[RunResult]:
    found = results.by_encoding[method]
    return [run for run in found if run.description["seed"] in seeds and run.description["task"] in tasks]


def order(board: Board) -> list[str]:
    return [standing.method for standing in board.standings]


# Folders


def test_the_same_run_in_two_folders_counts_once(results: Results, folder: Path, tmp_path: Path) -> None:
    collect(results, tmp_path / "shared")
    (board,) = boards([results, load_results(tmp_path / "shared")])
    assert len(board.results.runs) == len(results.runs) and board.differs == ()
    assert {*order(board)} == {"none", "alibi", "rotary"}


def test_the_same_run_with_other_numbers_is_said_to_be_left_out(results: Results) -> None:
    """Another device rounds otherwise: the second folder's numbers must not vanish without a word."""
    once, again = of(results, "alibi", (1,), ["parity"]), of(results, "none", (1,), ["parity"])
    (other,) = [replace(run, rows=[{**row, "correct": 0} for row in run.rows]) for run in once]
    found = leaderboard([results, part("mine", [other, *again])], ["methods", "mine"])
    assert found.boards[0].left_out == {("mine", "alibi"): 1}
    assert found.boards[0].results.of("parity", "alibi")[0].totals == once[0].totals
    said = "1 run of alibi in mine gave other numbers than the same in an earlier folder, whose numbers are shown."
    assert said in leaderboard_table(found).sentences


def test_more_seeds_of_a_method_join_and_another_run_of_a_cell_is_told_apart(results: Results) -> None:
    more = [changed(run, seed=run.description["seed"] + 3) for run in of(results, "alibi")]
    again = [changed(run, commit="other") for run in of(results, "rotary", (1,))]
    (board,) = boards([results, part("mine", [*more, *again])])
    assert len(board.results.of("parity", "alibi")) == 6 and board.sources["alibi"] == ("methods", "mine")
    assert len(board.results.of("parity", "rotary")) == 3
    assert len(board.results.of("parity", "rotary · mine")) == 1


def test_runs_of_two_versions_of_a_file_are_told_apart(results: Results) -> None:
    def of_version(sha: str) -> list[RunResult]:
        outside = {"outside": {"encodings/alibi.py": sha}}
        return [replace(run, description={**run.description, **outside}) for run in of(results, "alibi")]

    mine, theirs = of_version("1" * 64), of_version("2" * 64)
    (board,) = boards([part("a", mine), part("b", theirs)])
    assert {*order(board)} == {"alibi", "alibi · b"}
    (board,) = boards([part("a", mine), part("collected", mine)])
    assert order(board) == ["alibi"]


def test_a_name_that_means_two_methods_is_told_apart_or_refused(results: Results) -> None:
    steep = [changed(run, encoding="alibi") for run in of(results, "rotary")]
    (board,) = boards([part("a", of(results, "alibi")), part("b", steep)])
    assert {*order(board)} == {"alibi", "alibi · b"}
    with pytest.raises(UserError, match="a has two methods that are called 'alibi'"):
        boards([part("a", [*of(results, "alibi"), *(changed(run, seed=9) for run in steep)])])


def test_other_settings_are_a_board_of_their_own_and_change_nothing_of_the_first(results: Results) -> None:
    (alone,) = boards([results])
    short = [changed(run, training__steps=300) for run in of(results, "none")]
    long = [changed(run, test_lengths=[41, 60]) for run in of(results, "none", tasks=["parity"])]
    first, second, third = boards([results, part("short", short), part("long", long)])
    assert first.standings == alone.standings and first.differs == ()
    assert second.differs == ("training.steps 300, not 10,000",)
    assert third.differs == ("parity: data.test_lengths [41, 60], not [9, 16]",)
    assert order(second) == order(third) == ["none"], "the board has said already that it is another one"


def test_a_heading_names_every_setting_that_differs(results: Results) -> None:
    others = {"training__steps": 300, "training__batch": 8, "data__watched": 9, "model__loops": 2, "data__seed": 5}
    runs = [changed(run, **others) for run in of(results, "none")]
    found = leaderboard([results, part("other", runs)], ["methods", "other"])
    (heading,) = [
        row.cells[0].text for row in leaderboard_table(found).rows if "not to be compared" in row.cells[0].text
    ]
    assert all(f"{name.replace('__', '.')} {value}, not" in heading for name, value in others.items())


def test_a_task_that_the_first_folder_lacks_brings_no_other_recipe(results: Results) -> None:
    (whole,) = boards([results])
    short = [
        changed(run, training__steps=300) for name in ("none", "alibi") for run in of(results, name, tasks=["parity"])
    ]
    first, second = boards([part("short", short), results])
    assert first.results.tasks == ["parity"] and first.sources == {"none": ("short",), "alibi": ("short",)}
    assert second.differs == ("training.steps 10,000, not 300",) and second.standings == whole.standings
    of_copy = [changed(run, training__steps=300) for run in of(results, "none", tasks=["copy.repeat"])]
    (joined,) = boards([part("short", short), part("more", of_copy)])
    assert {*joined.results.tasks} == {"parity", "copy.repeat"}, "the same recipe, and the task's own lengths"
    slow_parity = [changed(run, training__steps=20_000) for run in of(results, "none", tasks=["parity"])]
    (study,) = boards([part("study", [*slow_parity, *of(results, "none", tasks=["copy.repeat"])])])
    assert study.differs == (), "a study may say how each of its tasks is trained"


def test_a_new_run_joins_results_that_are_older_than_some_setting() -> None:
    shipped = load_results(ROOT / "results/quickstart")
    now = {run.fingerprint: run.table() for run in load_study("quickstart").runs()}
    new = [
        changed(run, seed=run.description["seed"] + 2, settings=now[run.description["fingerprint"]])
        for run in shipped.runs
    ]
    assert "placement" in new[0].description["settings"]["data"], "which the shipped ones do not say"
    (board,) = boards([shipped, part("mine", new)])
    assert len(board.results.of("copy.repeat", "alibi")) == 4
    beside = [changed(run, encoding="mine", seed=run.description["seed"] - 2) for run in new[:1]]
    assert not [words for words in budget_warnings(part("both", [shipped.runs[0], *beside])) if "differs" in words]
    for setting, value in (("data__placement", "randomized"), ("model__loops", 2), ("data__test_at", [11])):
        _, other = boards([shipped, part("mine", [changed(run, **{setting: value}) for run in new])])
        assert other.differs and all(setting.replace("__", ".") in words for words in other.differs)


CONFIGS = {"model": ModelConfig, "data": DataConfig, "training": TrainingConfig}
ALWAYS_SAID = {
    "model": "size style layers width heads key_value_heads feed_forward dropout",
    "data": "train_lengths test_lengths examples validation test_per_length scratchpad anchor",
    "training": "steps batch learning_rate final_learning_rate warmup weight_decay clip beta1 beta2 epsilon "
    "validate_every precision",
}
"""By the first results that anybody has; a setting that is added belongs into `records.earlier`."""


@pytest.mark.parametrize("section", CONFIGS)
def test_what_older_results_leave_unsaid_is_the_default(section: str) -> None:
    config = CONFIGS[section]()
    younger = {field.name for field in fields(config)} - set(ALWAYS_SAID[section].split())
    assert UNSAID[section] == {name: getattr(config, name) for name in younger}
    first_version = {section: {}, "numerics": 4}
    assert in_full(first_version)[section].get("decay_norms") is (False if section == "training" else None)


def test_one_method_on_few_tasks_takes_no_task_from_the_ranking_of_others(results: Results) -> None:
    (whole,) = boards([results])
    few = [changed(run, encoding="mine", encoding_x=1) for run in of(results, "none", tasks=["parity"])]
    (board,) = boards([results, part("mine", few)])
    assert board.standings[:3] == whole.standings
    last = board.standings[3]
    assert last.method == "mine" and last.rank is None and last.tasks == 1
    (table,) = [row for row in leaderboard_table(Leaderboard([board], [costs_of_runs(results)])).rows[3:]]
    assert "not ranked" in table.cells[0].text and table.cells[-2].text == "–" and table.cells[-1].share is not None


def test_mean_rank_and_mean_are_those_of_a_plain_loop(results: Results) -> None:
    (board,) = boards([results])
    accuracies = results.accuracies()
    ranked: dict[str, list[float]] = {}
    for task in TASKS:
        for seed in (1, 2, 3):
            own = {method: accuracies[task, method][seed] for method in results.encodings}
            for method, value in own.items():
                better = sum(other > value for other in own.values())
                same = sum(other == value for other in own.values())
                ranked.setdefault(method, []).append(better + (same + 1) / 2)
    for standing in board.standings:
        ranks = ranked[standing.method]
        values = [accuracies[task, standing.method][seed] for task in TASKS for seed in (1, 2, 3)]
        assert standing.rank == pytest.approx(sum(ranks) / len(ranks)) and board.pairs == len(ranks) == 6
        assert standing.accuracy == pytest.approx(sum(values) / len(values))
        assert standing.interval and standing.interval[0] <= standing.accuracy <= standing.interval[1]
    assert [each.rank for each in board.standings] == sorted(each.rank or 0 for each in board.standings)


def test_folders_are_called_by_as_much_of_their_path_as_it_takes() -> None:
    assert source_names([Path("/a/x/runs"), Path("/b/y/runs")]) == ["x/runs", "y/runs"]
    assert source_names([Path("/a/runs"), Path("/a/runs")]) == ["runs", "runs"]


# Costs


def bench(**rows: list[float]) -> dict[str, Any]:
    """Method -> milliseconds in fleets of 1 and 5."""
    return {
        "hardware": {"device": "a card"},
        "training": [
            {"encoding": name, "size": "small", "fleet": fleet, "end_to_end_ms": value}
            for name, values in rows.items()
            for fleet, value in zip((1, 5), values, strict=False)
        ],
    }


def test_costs_are_ratios_at_one_size_of_fleet(tmp_path: Path) -> None:
    write_json(tmp_path / "bench.json", bench(none=[2.0, 8.0], alibi=[3.0], t5=[5.0]))
    found = measured_costs(tmp_path / "bench.json")
    assert found.ratios == {"none": 1.0, "alibi": 1.5, "t5": 2.5} and "fleet of 1" in found.words
    write_json(tmp_path / "bench.json", bench(alibi=[3.0]))
    with pytest.raises(UserError, match="has no time of `none`"):
        measured_costs(tmp_path / "bench.json")
    real = measured_costs(ROOT / "results/bench/h200-train-base.json")
    assert real.ratios["t5"] > 1 and "NVIDIA H200" in real.words


def test_costs_of_runs_compare_only_the_same_machine_and_fleet(results: Results) -> None:
    def timed(run: RunResult, seconds: float, together: int = 15) -> RunResult:
        return replace(run, finished={**run.finished, "seconds_together": seconds, "trained_together": together})

    runs = [timed(run, 900.0) for run in of(results, "none")]
    runs += [timed(run, 1350.0) for run in of(results, "alibi")]
    alone = [timed(run, 1350.0, together=1) for run in of(results, "rotary")]
    assert costs_of_runs(part("x", [*runs, *alone])).ratios == pytest.approx({"none": 1.0, "alibi": 1.5})
    assert costs_of_runs(part("x", alone)).ratios == {}


# Files


def test_markdown_csv_and_json_say_the_same(folder: Path, tmp_path: Path) -> None:
    for ending in ("md", "csv", "json"):
        done = CliRunner().invoke(app, ["leaderboard", str(folder), "--out", str(tmp_path / f"board.{ending}")])
        assert done.exit_code == 0, done.output
    rows = list(csv.DictReader(io.StringIO((tmp_path / "board.csv").read_text())))
    found = json.loads((tmp_path / "board.json").read_text())
    assert len(rows) == len(found["rows"]) == 6 and found["folders"] == ["methods"]
    assert [float(row["unseen"]) for row in rows] == [row["unseen"] for row in found["rows"]]
    best = rows[0]
    assert (best["method"], best["kinds"], best["family"], best["seeds"]) == ("none", "none", "copying", "3")
    text = (tmp_path / "board.md").read_text()
    assert f"| none | {best['first_place']}." in text and "Sorted by mean rank over 6 pairs" in text
    with pytest.raises(UserError, match="must end in"):
        write_leaderboard([folder], tmp_path / "board.pdf")


def test_a_page_that_would_be_too_large_leaves_its_pictures_out(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_leaderboard([folder], tmp_path / "whole.html")
    size = (tmp_path / "whole.html").stat().st_size
    monkeypatch.setattr(page_module, "LARGEST", size - 1)
    write_leaderboard([folder], tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert len(text.encode()) < size and "svg data-figure" not in text and "make it of fewer methods" in text
    monkeypatch.setattr(page_module, "LARGEST", 1000)
    with pytest.raises(UserError, match="larger than 1,000 bytes"):
        write_leaderboard([folder], tmp_path / "page.html")


def test_hostile_names_reach_no_file_of_it(tmp_path: Path) -> None:
    folder = write_hostile(tmp_path, analysis=False)
    for ending in ("html", "md", "csv", "json"):
        write_leaderboard([folder], tmp_path / f"board.{ending}")
        text = (tmp_path / f"board.{ending}").read_text()
        assert not {letter for letter in text if is_odd(letter) and letter != "\n"}, ending
    page = (tmp_path / "board.html").read_text()
    assert "<script>window" not in page and "<img" not in page and "&lt;script&gt;window" in page
    assert all(line.endswith("|") for line in (tmp_path / "board.md").read_text().splitlines() if line[:1] == "|")
    cells = [cell for row in csv.reader((tmp_path / "board.csv").read_text().splitlines()) for cell in row]
    assert not [cell for cell in cells if cell.startswith(("=", "@", "+", "-")) and "cmd" in cell]


# The page in a browser

chromium = pytest.mark.skipif(not CHROMIUM.exists(), reason="needs /usr/bin/chromium: apt-get install chromium")
SECTIONS = ["Leaderboard", "Methods", "Tasks", "Folders and settings"]


@pytest.fixture(scope="module")
def page(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three methods on two tasks, one of them not run on the second, and two of them with other settings."""
    place = tmp_path_factory.mktemp("page")
    mine = write_battery(place / "mine", ["copy.repeat"], ("t5",), failures=0)
    other = write_battery(place / "other", ["parity"], ("none", "rotary"), (1, 2, 3), failures=0)
    for file in other.rglob("run.json"):
        about = json.loads(file.read_text())
        about["settings"]["training"]["steps"] = 300
        about["fingerprint"] = about["fingerprint"][::-1]
        file.write_text(json.dumps(about))
        rows = file.with_name("rows.jsonl")
        rows.write_text(re.sub(r'"run": "(\w+)"', lambda found: f'"run": "{found[1][::-1]}"', rows.read_text()))
    return write_leaderboard([folder, mine, other], place / "leaderboard.html")


@chromium
@pytest.mark.parametrize(("width", "scheme"), [slow(1400, "light"), slow(1400, "dark"), slow(390, "light")])
def test_everybody_can_read_every_section(page: Path, browser: Any, width: int, scheme: str) -> None:
    with Watched(browser, page, width, scheme) as tab:
        assert tab.get_by_role("tab").all_inner_texts() == SECTIONS
        for name in SECTIONS:
            choose(tab, name)
            wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert tab.evaluate(wider) <= 0, name
            assert tab.evaluate(CONTRASTS) == [], name
        assert tab.evaluate(ACCESSIBILITY) == []


@chromium
@pytest.mark.slow
def test_the_board_is_sorted_and_filtered_with_keys_alone(page: Path, browser: Any) -> None:
    names = "#board tbody tr:not(.group):visible th a"
    with Watched(browser, page) as tab:
        board = tab.locator("#board")
        assert tab.locator(names).all_inner_texts() == ["none", "alibi", "rotary", "t5", "none", "rotary"]
        assert board.locator("th[aria-sort=ascending]").inner_text().startswith("mean rank")
        assert board.locator("td.missing.number").count() > 0
        button = board.get_by_role("button", name="copy.repeat, sort")
        button.focus()
        tab.keyboard.press("Enter")
        bodies = "[...document.querySelectorAll('#board tbody')]"
        values = f"{bodies}.map((body) => [...body.rows].slice(1).map((row) => row.cells[5].dataset.value))"
        first, second = tab.evaluate(values)
        assert first == sorted(first, key=float, reverse=True) and second == [None, None], "within its heading"
        tab.keyboard.press("Enter")
        assert tab.evaluate(values)[0] == first[::-1]
        assert "least first" in tab.locator("#board-state").inner_text()
        form = tab.locator("#board-filters")
        form.get_by_label("Tasks").select_option("formal languages")
        assert board.get_by_role("columnheader", name="copy.repeat").count() == 0
        assert "1 of 2 tasks" in tab.locator("#board-state").inner_text()
        form.get_by_label("Kind").select_option("bias")
        assert {*tab.locator(names).all_inner_texts()} == {"alibi", "t5"}
        assert tab.locator("#board .group:visible").count() == 1, "a heading with nothing below it goes too"
        form.get_by_label("Name").fill("ALI")
        assert tab.locator(names).all_inner_texts() == ["alibi"]
        rows = list(csv.DictReader(downloaded(tab, tab.locator("#leaderboard .download")).splitlines()))
        assert {row["method"] for row in rows} == {"none", "alibi", "rotary", "t5"}, "all of it"


@pytest.mark.slow
@chromium
def test_a_name_leads_to_its_card(page: Path, browser: Any) -> None:
    with Watched(browser, page) as tab:
        tab.locator("#board").get_by_role("link", name="alibi").click()
        card = tab.get_by_role("article", name="alibi")
        card.wait_for(state="visible")
        assert tab.evaluate("document.activeElement.dataset.method") == "alibi"
        assert card.locator("math").count() == 2 and card.locator("svg[data-figure]").count() == 1
        assert card.locator("math").first.bounding_box()["width"] > 20, "the browser draws it"
        tab.locator("#card-filters").get_by_label("Kind").select_option("rotation")
        assert tab.locator(".card:visible h3").inner_text().strip() == "rotary"


@chromium
@pytest.mark.slow
def test_hostile_names_run_nothing(tmp_path: Path, browser: Any) -> None:
    page = write_leaderboard([write_hostile(tmp_path, analysis=False)], tmp_path / "board.html")
    with Watched(browser, page) as tab:
        for name in SECTIONS:
            choose(tab, name)
        assert tab.evaluate("window.hacked") is None and tab.evaluate(ACCESSIBILITY) == []


@pytest.mark.slow
def test_the_committed_battery_is_on_one_board_in_the_order_of_its_ranks() -> None:
    found = load_leaderboard([ROOT / "results/battery-small"])
    (board,) = found.boards
    assert board.pairs == 51 and order(board)[0] == "none" and order(board)[3:] == ["rotary", "sinusoidal"]
    assert len(leaderboard_values(found).rows) == 17 * 5
