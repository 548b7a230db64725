"""Reports say what the rows say: every number here is computed by hand from rows written by hand."""

import csv
import html
import importlib
import itertools
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal
from xml.etree import ElementTree

import numpy as np
import pytest
from rich.console import Console
from synthetic import write_battery
from typer.testing import CliRunner

from lengthwise.cli.main import app
from lengthwise.errors import UserError
from lengthwise.model.config import ModelConfig
from lengthwise.records.comparison import compare
from lengthwise.records.files import read_json, read_rows, write_json, write_rows
from lengthwise.records.results import Results
from lengthwise.records.rows import ROWS, collect, load_results
from lengthwise.report.export import write_report
from lengthwise.report.figures.drawing import number
from lengthwise.report.figures.length_curves import accuracy_by_length, panel
from lengthwise.report.figures.opening import NARROW, WIDE, opening_figure
from lengthwise.report.figures.palette import DARK_PALETTE, DARK_SCALE, PALETTE, contrast, diverging, shade, text_on
from lengthwise.report.model import summaries
from lengthwise.report.model.accuracy_tables import pair_tables
from lengthwise.report.model.difference_tables import difference_table
from lengthwise.report.model.length_curves import curves_of
from lengthwise.report.model.length_tables import length_values
from lengthwise.report.model.numbers import digits
from lengthwise.report.model.opening import Opening, where_it_falls
from lengthwise.report.model.ranking_table import ranking_table
from lengthwise.report.model.settings import inner_width, resolved_settings
from lengthwise.report.terminal.show import lengths
from lengthwise.report.terminal.table import to_terminal

ROOT = Path(__file__).parent.parent
N = 40
"""Examples of each length in the synthetic studies."""


def write_run(
    folder: Path,
    task: str,
    encoding: str,
    seed: int,
    correct: dict[int, int],
    best: dict[int, int] | None = None,
    validations: list[dict[str, float]] | None = None,
) -> Path:
    """A finished run with training lengths 1 to 2; `correct`: of N examples, by length."""
    run = folder / task / re.sub(r"\W", "_", encoding) / f"seed-{seed}-abc"
    run.mkdir(parents=True)
    write_json(run / "run.json", description(task, encoding, seed, max(correct)))
    rows = [
        {
            "run": f"{task}-{encoding}-{seed}",
            "task": task,
            "encoding": encoding,
            "seed": seed,
            "checkpoint": checkpoint,
            "seen": length <= 2,
            "length": length,
            "n": N,
            "correct": right,
            "wrong_symbol": 0,
            "stopped_early": (N - right) // 4,
            "ran_on": N - right - (N - right) // 4,
            "chance": 0.125,
        }
        for checkpoint, counts in (("last", correct), ("best", best or correct))
        for length, right in counts.items()
    ]
    write_rows(run / "rows.jsonl", rows)
    finished = {"diverged_at": None, "trained_together": 2, "seconds_together": 30.0}
    write_json(run / "finished.json", {**finished, **({"validations": validations} if validations else {})})
    return run


def description(task: str, encoding: str, seed: int, longest: int) -> dict[str, Any]:
    return {
        "fingerprint": f"{task}-{encoding}-{seed}",
        "name": f"{task}/{encoding}/seed-{seed}",
        "task": task,
        "encoding": encoding,
        "seed": seed,
        "settings": {
            "task": {"name": task, "symbols": 8},
            "encoding": [{"name": encoding}],
            "model": {"layers": 2},
            "data": {"train_lengths": None},
            "training": {"steps": 1000},
        },
        "train_lengths": [1, 2],
        "test_lengths": [3, longest],
        "encoding_of_each_layer": [encoding, encoding],
        "encoding_resolved": {encoding: {"slopes": [0.5, 0.25]}},
        "attention_scale": 1.0,
        "parameters": 12345,
        "parameters_of_encoding": 67,
        "started": "2026-01-02T03:04:05+00:00",
        "commit": "0123456789ab",
        "versions": {"python": "3.11", "torch": "2.11"},
        "hardware": {"device": "NVIDIA H200", "processors": 16, "machine": "x86_64"},
    }


def write_study(folder: Path) -> Path:
    """Two tasks, two encodings, two seeds; `<b>x` did not learn task `b` with seed 1."""
    folder.mkdir(exist_ok=True)
    write_json(
        folder / "study.json", {"name": "trial & error", "summary": "A <study>.", "encoding_order": ["none", "<b>x"]}
    )
    write_run(folder, "a", "none", 1, {1: 40, 2: 40, 3: 40, 4: 20})
    write_run(folder, "a", "none", 2, {1: 40, 2: 40, 3: 30, 4: 10})
    write_run(folder, "a", "<b>x", 1, {1: 40, 2: 40, 3: 4, 4: 0})
    write_run(folder, "a", "<b>x", 2, {1: 40, 2: 40, 3: 12, 4: 0}, best={1: 40, 2: 40, 3: 20, 4: 0})
    write_run(folder, "b", "none", 1, {1: 40, 2: 40, 3: 40, 4: 40})
    write_run(folder, "b", "none", 2, {1: 40, 2: 40, 3: 40, 4: 40})
    write_run(folder, "b", "<b>x", 1, {1: 20, 2: 10, 3: 0, 4: 0})
    write_run(folder, "b", "<b>x", 2, {1: 40, 2: 40, 3: 40, 4: 40})
    return folder


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Results:
    return load_results(write_study(tmp_path_factory.mktemp("study")))


@pytest.fixture(scope="module")
def page(results: Results, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(results, tmp_path_factory.mktemp("page") / "report.html")


def write(results: Results, path: Path) -> Path:
    from lengthwise.report.html.page import write_page

    write_page(results, path)
    return path


def visible(page: Path) -> str:
    """The text of the page without tags, scripts and styles, white space as one space."""
    text = re.sub(r"<(script|style)\b.*?</\1>", " ", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    return " ".join(html.unescape(re.sub(r"<[^>]*>", " ", text)).split())


def table(page: Path, caption: str) -> list[list[str]]:
    """The cells of the table with that caption, row by row."""
    text = page.read_text(encoding="utf-8")
    (body,) = re.findall(rf"<caption>{re.escape(caption)}</caption>(.*?)</table>", text, flags=re.DOTALL)
    rows = re.findall(r"<tr.*?</tr>", body, flags=re.DOTALL)
    cells = [re.findall(r"<t[hd]\b.*?</t[hd]>", row, flags=re.DOTALL) for row in rows]
    return [[" ".join(html.unescape(re.sub(r"<[^>]*>", " ", cell)).split()) for cell in row] for row in cells]


def test_page_has_the_numbers_of_the_rows(page: Path) -> None:
    # Task a, unseen: none has (40 + 20) / 80 and (30 + 10) / 80; two seeds are too few for an interval.
    assert table(page, "Exact match on unseen lengths, last checkpoint") == [
        ["task", "none", "<b>x"],
        ["a chance 0.125", "0.62 seeds: 0.75 · 0.50", "0.10 seeds: 0.05 · 0.15"],
        ["b chance 0.125", "1.00 seeds: 1.00 · 1.00", "0.50 seeds: 0.00 · 1.00 1 of 2 not learned"],
    ]
    seen = table(page, "Exact match on training lengths, last checkpoint")
    assert seen[2][2] == "0.69 seeds: 0.38 · 1.00 1 of 2 not learned"  # (20 + 10) / 80 = 0.375
    assert table(page, "Exact match on unseen lengths: last checkpoint / best checkpoint") == [
        ["task", "none", "<b>x"],
        ["a", "0.62 / 0.62", "0.10 / 0.15"],  # best, seed 2: 20 / 80, so (0.05 + 0.25) / 2
        ["b", "1.00 / 1.00", "0.50 / 0.50"],
    ]


def test_page_ranks_by_hand(page: Path) -> None:
    # none is first in both seeds of a and in seed 1 of b; in seed 2 of b both share rank 1.5.
    ranked = table(page, "Ranking on unseen lengths, last checkpoint")
    assert ranked[1][0] == "none"
    assert ranked[1][1] == "0.92"  # (1 + 1 + 1 + 1 / 1.5) / 4
    assert ranked[1][2:] == ["1.12", "0.81", "0.89"]  # (1 + 1 + 1 / 1.5) / 3 where both learned
    assert ranked[2][0] == "<b>x"
    assert ranked[2][1] == "0.54"  # (3 / 2 + 1 / 1.5) / 4
    assert ranked[2][2:] == ["1.88", "0.30", "0.56"]
    assert table(page, "What became of the runs")[2] == ["<b>x", "4", "1", "2", "1"]
    # At the best checkpoint, too; two seeds do not distinguish them.
    said = visible(page).split("Order on unseen lengths (out of distribution), by mean reciprocal rank: ")[1]
    assert said.startswith("none (0.92) , <b>x (0.54) . Too few seeds to distinguish them.")
    assert "At the best one: none (0.92) , <b>x (0.54) ." in said


def test_page_counts_kinds_of_errors(page: Path) -> None:
    # none: 260 of 320 right; 20 + 10 + 30 wrong, of which 5 + 2 + 7 stopped early and 15 + 8 + 23 ran on.
    assert table(page, "Answers to unseen lengths, last checkpoint")[1][:5] == ["none", "0.81", "0.00", "0.04", "0.14"]


def test_every_task_weighs_the_same_in_kinds_of_errors(tmp_path: Path) -> None:
    """Task a: 0 of 40 right; b: 120 of 120. Examples pooled would say 0.75."""
    write_run(tmp_path, "a", "none", 1, {1: 40, 2: 40, 3: 0})
    write_run(tmp_path, "b", "none", 1, {1: 40, 2: 40, 3: 40, 4: 40, 5: 40})
    found = load_results(tmp_path)
    assert summaries.error_kinds(found, "none")["correct"] == pytest.approx(0.5)
    assert summaries.error_kinds(found, "none")["stopped_early"] == pytest.approx(0.125)


def test_examples_of_a_length_are_those_of_all_its_buckets(tmp_path: Path) -> None:
    run = write_run(tmp_path / "study", "a", "none", 1, {1: 40, 2: 40, 3: 10, 4: 0})
    rows = read_rows(run / "rows.jsonl")
    write_rows(run / "rows.jsonl", [*rows, *(row for row in rows if row["length"] == 3)])
    found = load_results(tmp_path / "study")
    assert summaries.examples_by_length(found, "a") == {1: 40, 2: 40, 3: 80, 4: 40}
    page = write(found, tmp_path / "report.html")
    assert table(page, "Tasks")[1][4] == "40 – 80"
    assert "fewest examples at a length: 40" in page.read_text(encoding="utf-8")
    assert curves_of(found, "a").few
    (row,) = [row for row in length_values([curves_of(found, "a")]).values if row[2] == 3]
    assert row[4] == 80


def test_a_range_of_seeds_is_called_so(tmp_path: Path) -> None:
    for seed in range(1, 6):
        write_run(tmp_path / "study", "a", "none", seed, {1: 40, 2: 40, 3: 5 * seed})
    found = load_results(tmp_path / "study")
    cell = summaries.accuracy(found, "a", "none", seen=False)
    assert cell and cell.interval == (5 / 40, 25 / 40) and summaries.spread_words(found) == "range of the seeds"
    text = visible(write(found, tmp_path / "report.html"))
    assert "the shade the range of the seeds" in text and "95 % CI over seeds" not in text
    write_report(found, tmp_path / "report.md")
    assert "Mean over seeds (range of the seeds)" in (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "shade: range of the seeds" in accuracy_by_length(found).body
    write_run(tmp_path / "study", "a", "none", 6, {1: 40, 2: 40, 3: 40})
    more = load_results(tmp_path / "study")
    assert summaries.spread_words(more) == "95 % CI" and "shade: 95 % CI" in accuracy_by_length(more).body


def test_each_task_has_its_own_axis_of_lengths(results: Results, tmp_path: Path) -> None:
    write_run(tmp_path, "a", "none", 1, {length: 40 for length in range(1, 41)})
    write_run(tmp_path, "b", "none", 1, {length: 40 for length in range(1, 5)})
    found = load_results(tmp_path)
    short = curves_of(found, "b")
    assert panel(short, ["none"], short.span).body in accuracy_by_length(found).body
    page = write(found, tmp_path / "report.html").read_text(encoding="utf-8")
    assert 'data-axis="own"' in page and page.index('<option value="own">') < page.index('<option value="alike">')


def test_settings_are_those_that_were_used(tmp_path: Path) -> None:
    run = write_run(tmp_path / "study", "a", "none", 1, {1: 40, 2: 40, 3: 40})
    about = read_json(run / "run.json")
    about["settings"]["model"] = {
        "style": "llama",
        "layers": 2,
        "width": 64,
        "heads": 4,
        "key_value_heads": 0,
        "feed_forward": 0,
    }
    about["settings"]["training"] |= {"precision": "auto"}
    write_json(run / "run.json", {**about, "precision": "bf16"})
    found = resolved_settings(load_results(tmp_path / "study"))
    assert (found["model"]["key_value_heads"], found["model"]["feed_forward"]) == (4, 192)
    assert found["training"]["precision"] == "bf16" and found["data"] == {"train_lengths": None}


@pytest.mark.parametrize("style", ["t5", "llama"])
def test_the_report_knows_the_width_that_models_have(style: Literal["t5", "llama"]) -> None:
    for width in (64, 256, 768, 2048):
        assert inner_width(style, width) == ModelConfig(style=style, width=width, heads=4).inner_width


def test_page_says_where_numbers_come_from(page: Path) -> None:
    text = visible(page)
    for fact in ("0123456789ab", "NVIDIA H200", "12,345", "67", "slopes 0.5, 0.25", "steps 1000", "the task's own"):
        assert fact in text
    assert "training time 2 min" in text  # eight runs, each half of a pair that took 30 s
    assert "Runs that did not learn their training lengths b/<b>x/seed-1 (0.38)" in text
    assert "unfinished" not in text


def test_page_escapes_what_users_wrote(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "<b>" not in text
    assert "&lt;b&gt;x" in text
    assert "trial &amp; error" in text
    assert "A &lt;study&gt;." in text


def watched(*unseen: float) -> list[dict[str, float]]:
    """Validations every 100 steps."""
    return [{"step": 100 * i, "validation": 0.875, "unseen": value} for i, value in enumerate(unseen, start=1)]


@pytest.fixture(scope="module")
def swinging(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unseen 0.5, 0.625, 0.75 on task a, 0.25 apart: `none` swings by 0.5, `<b>x` by 0.125; on b neither has a record.

    The best checkpoint of `none` is the same in all seeds, that of `<b>x` is as the last.
    """
    folder = tmp_path_factory.mktemp("swinging")
    for seed in (1, 2, 3):
        correct = {1: 40, 2: 40, 3: 15 + 5 * seed}
        best = {1: 40, 2: 40, 3: 10}
        write_run(folder, "a", "none", seed, correct, best, watched(0.9, 0.25, 0.5, 0.5, 0.75, 0.5))
        write_run(folder, "a", "<b>x", seed, correct, validations=watched(0.25, 0.25 + seed / 16))
        for encoding in ("none", "<b>x"):
            write_run(folder, "b", encoding, seed, correct)
    return folder


def test_numbers_that_swing_are_marked_in_every_format(swinging: Path, tmp_path: Path) -> None:
    found = load_results(swinging)
    page = write(found, tmp_path / "report.html")
    cells = table(page, "Exact match on unseen lengths, last checkpoint")
    ranged = "0.50 – 0.75 seeds: 0.50 · 0.62 · 0.75"
    assert cells[0] == ["task", "<b>x", "none"]
    assert cells[1] == ["a chance 0.125", f"0.62 {ranged}", f"0.62 ~ swing 0.50 {ranged}"]
    assert cells[2] == ["b chance 0.125", f"0.62 {ranged}", f"0.62 {ranged}"]
    both = table(page, "Exact match on unseen lengths: last checkpoint / best checkpoint")
    assert both[1] == ["a", "0.62 / 0.62", "0.62 ~ swing 0.50 / 0.25 ~ swing 0.50"]
    titles = re.findall(r'title="(seed 1: 0.500, [^"]*)"', page.read_text(encoding="utf-8"))
    assert titles == [
        "seed 1: 0.500, seed 2: 0.625, seed 3: 0.750; swing over the last 5 validations: 0.125",
        "seed 1: 0.500, seed 2: 0.625, seed 3: 0.750; swing over the last 5 validations: 0.500",
        "seed 1: 0.500, seed 2: 0.625, seed 3: 0.750",
        "seed 1: 0.500, seed 2: 0.625, seed 3: 0.750",
    ]
    said = "Largest swings (range over the last 5 validations, mean over seeds): none on a 0.50."
    assert said in visible(page)
    text = write_report(found, tmp_path / "r.md").read_text()
    assert "| a (chance 0.125) | 0.62 (0.50 – 0.75) | 0.62~ (0.50 – 0.75) |" in text
    assert text.count("0.62~") == 1 and said in text
    with (write_report(found, tmp_path / "csv", "csv") / "accuracies.csv").open() as file:
        rows = {(row["task"], row["encoding"]): row["swing"] for row in csv.DictReader(file)}
    assert rows == {("a", "<b>x"): "0.125", ("a", "none"): "0.5", ("b", "<b>x"): "", ("b", "none"): ""}


def test_what_validations_found_is_drawn_and_can_be_taken_along(swinging: Path, tmp_path: Path) -> None:
    found = load_results(swinging)
    page = write(found, tmp_path / "report.html")
    text = visible(page)
    assert "Unseen lengths were watched and never used to choose a checkpoint" in text
    assert "The best checkpoint is the one with the highest exact match in distribution." in text
    shown = table(page, "Exact match on a: unseen lengths / validation, mean over seeds")
    assert shown[0] == ["step", "<b>x", "none"]
    assert shown[1:3] == [["100", "0.25 / 0.88", "0.90 / 0.88"], ["200", "0.38 / 0.88", "0.25 / 0.88"]]
    assert shown[6] == ["600", "–", "0.50 / 0.88"]
    assert page.read_text(encoding="utf-8").count('data-figure="over-steps-') == 1, "b has no record"
    swings = table(page, "Swing of exact match on unseen lengths over the last 5 validations, mean over seeds")
    assert swings[1:] == [["a", "0.125", "0.500 ~"], ["b", "–", "–"]]
    with (write_report(found, tmp_path / "csv", "csv") / "validations.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * 2 + 3 * 6
    assert rows[-1] == {
        "task": "a", "encoding": "none", "seed": "3", "step": "600", "validation": "0.875", "unseen": "0.5",
    }  # fmt: skip
    for kind in ("svg", "png"):
        assert (write_report(found, tmp_path / kind, kind) / f"accuracy-over-steps.{kind}").exists()
    ElementTree.parse(tmp_path / "svg/accuracy-over-steps.svg")


def test_results_of_earlier_versions_have_nothing_from_training(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "over-steps" not in text and "During training" not in text and "~" not in visible(page)


def test_page_loads_nothing(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert "default-src 'none'" in text
    markup = re.sub(r"<(script|style)\b([^>]*)>.*?</\1>", r"<\1\2>", text, flags=re.DOTALL)
    assert not re.search(r"\bsrc\s*=", markup)
    assert "<link" not in markup
    assert all(target.startswith("#") for target in re.findall(r"\bhref\s*=\s*[\"']?([^\"'\s>]*)", markup))
    assert "@import" not in text
    assert "url(" not in re.findall(r"<style>(.*?)</style>", text, flags=re.DOTALL)[0]
    assert not re.search(r"\bimport\s*[\"'{*(]", text), "a module that imports would fetch"
    assert set(re.findall(r"https?://([\w.]+)", text)) <= {"www.w3.org"}, "the namespace of SVG is a name"


def test_single_seed_and_single_task(tmp_path: Path) -> None:
    write_run(tmp_path / "study", "a", "none", 7, {1: 40, 2: 40, 3: 20})
    page = write(load_results(tmp_path / "study"), tmp_path / "report.html")
    assert table(page, "Exact match on unseen lengths, last checkpoint")[1] == ["a chance 0.125", "0.50"]
    assert "1 seed (7): 1 finished run." in visible(page)


def test_unfinished_runs_are_listed(tmp_path: Path) -> None:
    folder = write_study(tmp_path / "study")
    (folder / "b" / "none" / "seed-2-abc" / "finished.json").unlink()
    text = visible(write(load_results(folder), tmp_path / "report.html"))
    assert "1 unfinished run" in text
    assert "b/none/seed-2" in text
    assert "Over 3 pairs of task and seed" in text


def test_nothing_finished_is_a_clear_error(tmp_path: Path) -> None:
    folder = tmp_path / "study"
    (write_run(folder, "a", "none", 1, {1: 40, 3: 1}) / "finished.json").unlink()
    with pytest.raises(UserError, match="no run is finished"):
        write(load_results(folder), tmp_path / "report.html")


def test_missing_packages_are_a_clear_error(results: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import lengthwise.report.html.page
    from lengthwise.report.export import write_report

    monkeypatch.setitem(sys.modules, "vl_convert", None)
    with pytest.raises(UserError, match=r"vl_convert.*pip install 'lengthwise\[report\]'"):
        write_report(results, tmp_path / "curves.png")
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(UserError, match=r"jinja2.*pip install 'lengthwise\[report\]'"):
        importlib.reload(lengthwise.report.html.page)


def test_pictures(results: Results, tmp_path: Path) -> None:
    from lengthwise.report.figures.picture import write_picture

    write_picture(results, tmp_path / "curves.svg")
    write_picture(results, tmp_path / "curves.png")
    drawing = (tmp_path / "curves.svg").read_text()
    assert drawing.startswith("<svg")
    assert drawing.count("trained to 2") == 2
    assert "&lt;b&gt;x" in drawing
    ElementTree.fromstring(drawing)
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UserError, match=r"\.svg or \.png"):
        write_picture(results, tmp_path / "curves.pdf")


def test_every_format(results: Results, tmp_path: Path) -> None:
    from lengthwise.report.export import write_report

    assert write_report(results, tmp_path / "r.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    text = write_report(results, tmp_path / "r.md").read_text()
    assert "| a (chance 0.125) | 0.62 | 0.10 |" in text
    assert "| b (chance 0.125) | 1.00 | 0.50* |" in text
    assert "<" not in text.replace("\\<", ""), "an encoding's name is no markup"
    folder = write_report(results, tmp_path / "tables", "csv")
    cells = list(csv.DictReader((folder / "accuracies.csv").read_text().splitlines()))
    assert [(cell["task"], cell["encoding"], cell["unseen"]) for cell in cells] == [
        ("a", "none", "0.625"),
        ("a", "<b>x", "0.1"),
        ("b", "none", "1.0"),
        ("b", "<b>x", "0.5"),
    ]
    assert {file.stem for file in folder.iterdir()} == {
        "accuracies", "by-length", "errors", "failures", "paired-differences", "ranking", "runs", "tasks",
    }  # fmt: skip
    folder = write_report(results, tmp_path / "figures", "svg")
    names = {"accuracy-by-length", "by-length-a", "by-length-b", "heat-map-ours", "paired-differences", "ranking"}
    assert {file.stem for file in folder.iterdir()} == names
    for file in folder.iterdir():
        ElementTree.parse(file)
    folder = write_report(results, tmp_path / "pixels", "png")
    assert all(file.read_bytes().startswith(b"\x89PNG") for file in folder.iterdir())
    with pytest.raises(UserError, match="no format 'pdf'"):
        write_report(results, tmp_path / "r", "pdf")
    with pytest.raises(UserError, match="does not go into"):
        write_report(results, tmp_path / "r.html", "csv")


def test_encodings_never_look_alike() -> None:
    from lengthwise.report.figures.palette import KNOWN, styles

    many = [*KNOWN, *(f"rotary(fraction={i / 40})" for i in range(56 - len(KNOWN)))]
    assert len(set(styles(many).values())) == len(many) == 56
    assert len({colour for colour, _ in styles([*KNOWN[:6], "new", "newer"]).values()}) == 8
    for name in KNOWN:  # the same on every page
        assert styles([name])[name] == styles(["none", "mine", *KNOWN])[name]
    assert styles(["mine"])["mine"] == styles(["fox", "mine"])["mine"]


def test_numbers_on_the_heat_map_can_be_read() -> None:
    from lengthwise.report.figures.palette import contrast, shade, text_on

    shades = [shade(i / 200) for i in range(201)]
    assert min(contrast(colour, text_on(colour)) for colour in shades) >= 4.5
    lightness = [contrast(colour, "#000000") for colour in shades]
    assert lightness == sorted(lightness, reverse=True), "darker is more, also in grey"
    assert contrast("#000000", "#ffffff") == pytest.approx(21)


def test_the_dark_has_its_own_colours() -> None:
    """Near-black paper: nothing is dim on it, and an accuracy of 0 does not shine."""
    paper = "#15181c"
    css = (ROOT / "lengthwise/report/html/templates/page.css").read_text()
    for colour, dark in zip(PALETTE, DARK_PALETTE, strict=True):
        assert contrast(dark, paper) >= 5.5, colour
        assert f'[stroke="{colour}"] {{ stroke: light-dark({colour}, {dark}); }}' in css
        assert f'[fill="{colour}"] {{ fill: light-dark({colour}, {dark}); }}' in css
    shades = [shade(value / 100, DARK_SCALE) for value in range(101)]
    assert contrast(shades[0], paper) < 1.5 and contrast(shades[-1], paper) > 10
    assert all(contrast(text_on(each), each) >= 4.5 for each in shades)
    darker = [contrast(each, "#000000") for each in shades]
    assert darker == sorted(darker)


SIGHT = {
    "usual": [[1, 0, 0], [0, 1, 0], [0, 0, 1]],
    "without red": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "without green": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]],
    "without blue": [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]],
}
"""What linear red, green and blue become (Machado, Oliveira and Fernandes 2009, severity 1)."""


def oklab(colour: str, sight: list[list[float]]) -> np.ndarray:
    """Lightness and two hues, in which distances are about as people see them (Ottosson 2020)."""
    share = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(sight) @ linear, 0, 1)
    cones = [
        [0.41222147, 0.53633254, 0.05144599],
        [0.2119035, 0.68069955, 0.10739696],
        [0.08830246, 0.28171884, 0.6299787],
    ]
    hues = [
        [0.21045426, 0.79361779, -0.00407205],
        [1.9779985, -2.4285922, 0.45059371],
        [0.02590404, 0.78277177, -0.80867577],
    ]
    return np.array(hues) @ np.cbrt(np.array(cones) @ seen)


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize(("palette", "least"), [(PALETTE, 0.077), (DARK_PALETTE, 0.085)], ids=["light", "dark"])
def test_everybody_tells_the_colours_apart(palette: tuple[str, ...], least: float, sight: str) -> None:
    places = [oklab(colour, SIGHT[sight]) for colour in palette]
    gaps = [float(np.linalg.norm(a - b)) for a, b in itertools.combinations(places, 2)]
    assert min(gaps) >= least


def test_names_are_kept_apart() -> None:
    from lengthwise.report.figures.drawing import apart, ticks

    assert apart([10, 50, 90], 12, 0, 100) == [10, 50, 90]
    assert apart([95, 95, 95], 12, 0, 100) == [76, 88, 100]
    assert apart([2, 1], 12, 0, 100) == [13, 1]
    assert ticks(1.5, 40.5, 8) == [5, 10, 15, 20, 25, 30, 35, 40]
    assert ticks(0.5, 4.5, 8) == [1, 2, 3, 4]


def test_published_numbers_only_beside_the_same_lengths(tmp_path: Path) -> None:
    from lengthwise.report.model import reference

    battery = load_results(write_battery(tmp_path / "battery", ["addition"], ("none", "t5"), (1, 2, 3), failures=0))
    assert reference.cell(battery, "addition", "none") is not None
    assert set(reference.curve(battery, "addition", "none")) == set(range(1, 17))
    page = write(battery, tmp_path / "report.html")
    assert "Beside the published numbers" in visible(page)
    assert 'class="published"' in page.read_text(encoding="utf-8")
    write_run(tmp_path / "short", "addition", "none", 1, {1: 40, 2: 40, 3: 30})
    short = load_results(tmp_path / "short")
    assert reference.cell(short, "addition", "none") is None
    assert "Beside the published numbers" not in visible(write(short, tmp_path / "short.html"))


def test_published_ranks_are_over_the_same_tasks(tmp_path: Path) -> None:
    """copy.repeat alone: published none 0.99, t5 0.77, alibi 0.29, and rotary before sinusoidal."""
    from lengthwise.report.figures.gallery import ranking_of
    from lengthwise.report.model import reference

    more = load_results(Path(__file__).parent.parent / "results/nope-paper-symbols")
    one = replace(more, runs=[run for run in more.runs if run.description["task"] == "copy.repeat"])
    assert one.tasks == ["copy.repeat"]
    expected = {"none": 1, "t5": 1 / 2, "alibi": 1 / 3, "rotary": 1 / 4, "sinusoidal": 1 / 5}
    found = reference.reciprocal_ranks(one)
    assert found.scores == pytest.approx(expected) and (found.called, found.tasks) == ("published, these tasks", 1)
    page = write(one, tmp_path / "report.html")
    ranked = table(page, "Ranking on unseen lengths, last checkpoint")
    place = ranked[0].index("published, these tasks")
    assert {row[0]: row[place] for row in ranked[1:]} == {name: f"{score:.2f}" for name, score in expected.items()}
    assert "Circles: published, these tasks." in visible(page)
    figure = ranking_of(one)
    assert figure and ">published, these tasks<" in figure.body
    assert "| published, these tasks |" in write_report(one, tmp_path / "r.md").read_text()
    with (write_report(one, tmp_path / "csv", "csv") / "ranking.csv").open() as file:
        assert next(csv.DictReader(file))["published_tasks"] == "1"


def test_published_ranks_are_as_published_for_the_whole_battery(tmp_path: Path) -> None:
    from lengthwise.records import published
    from lengthwise.report.model import reference

    write_battery(tmp_path / "runs", seeds=(1,), failures=0)
    whole = load_results(tmp_path / "runs")
    assert reference.reciprocal_ranks(whole) == reference.PublishedRanks(published.reciprocal_ranks(), "published", 17)
    two = Results([run for run in whole.runs if run.description["encoding"] in ("none", "t5")], [], whole.study)
    assert reference.reciprocal_ranks(two).called == "published, these tasks", (
        "ranks among two are not ranks among five"
    )
    assert sum(reference.reciprocal_ranks(two).scores.values()) == pytest.approx(1.5)
    write_run(tmp_path / "more", "addition", "none", 1, {1: 40, 2: 40, 3: 30})
    (own,) = load_results(tmp_path / "more").runs
    titled = {**own.description, "task": "mine", "settings": {**own.description["settings"], "task": {"name": "mine"}}}
    rows = [{**row, "task": "mine"} for row in own.rows]
    mine = [
        type(own)({**titled, "encoding": e}, own.finished, [{**r, "encoding": e} for r in rows]) for e in two.encodings
    ]
    few = Results([*mine, *(run for run in two.runs if run.description["task"] == "parity")], [], {})
    assert reference.reciprocal_ranks(few).called == "published, 1 of these tasks"
    alone = Results([run for run in two.runs if run.description["encoding"] == "t5"], [], whole.study)
    assert reference.reciprocal_ranks(alone).scores == {}, "one encoding has no order"


def test_why_there_is_nothing_published_is_said(results: Results, page: Path, tmp_path: Path) -> None:
    from lengthwise.report.model import reference

    unknown = "No published numbers beside these: there are none for these tasks with these encodings."
    assert reference.why_nothing(results) == unknown and unknown in visible(page)
    quickstart = load_results(Path(__file__).parent.parent / "results/quickstart")
    said = "trained up to other lengths: 20, here 6 (copy.repeat, copy.repeat_twice, copy.replace)."
    assert said in visible(write(quickstart, tmp_path / "r.html"))
    assert said.replace("_", "\\_") in write_report(quickstart, tmp_path / "r.md").read_text()
    battery = load_results(write_battery(tmp_path / "battery", ["addition"], ("none", "t5"), (1,), failures=0))
    assert reference.why_nothing(battery) == ""
    assert "No published numbers" not in visible(write(battery, tmp_path / "b.html"))


def test_cells_at_other_test_lengths_are_not_judged(tmp_path: Path) -> None:
    """Trained as published, tested further: both numbers are shown, no verdict."""
    folder = write_battery(tmp_path / "runs", ["addition"], ("none", "t5"), (1,), failures=0)
    for file in folder.rglob("run.json"):
        write_json(file, {**read_json(file), "test_lengths": [9, 24]})
    found = load_results(folder)
    page = visible(write(found, tmp_path / "r.html"))
    assert "informative cells" not in page and "undecided" not in page and ", not judged" in page
    lengths = "Not judged, since lengths are not the published ones: trained on 1-8, tested on 9-24 (published: "
    assert lengths in page
    text = write_report(found, tmp_path / "r.md").read_text()
    assert lengths in text and "informative cells" not in text and " ?" not in text
    with (write_report(found, tmp_path / "csv", "csv") / "comparison.csv").open() as file:
        columns = ("low", "high", "borrowed_deviation", "verdict", "close", "informative")
        assert {row[column] for row in csv.DictReader(file) for column in columns} == {""}
    with (tmp_path / "csv/agreement.csv").open() as file:
        assert list(csv.DictReader(file)) == []


def test_published_numbers_have_their_tables(tmp_path: Path) -> None:
    write_battery(tmp_path / "runs", ["copy.repeat", "parity", "addition"], failures=0)
    found = load_results(tmp_path / "runs")
    write_report(found, tmp_path / "tables", "csv")
    comparison = compare(found)
    with (tmp_path / "tables/comparison.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 15 and comparison.counts is not None and comparison.baselines is not None
    informative = [row for row in rows if row["informative"] == "True"]
    assert len(informative) == comparison.counts.informative
    assert sum(row["verdict"] == "equivalent" for row in informative) == comparison.counts.equivalent
    assert sum(row["close"] == "True" for row in rows) == comparison.counts.close_of_all
    assert all(float(row["low"]) <= float(row["difference"]) <= float(row["high"]) for row in rows)
    with (tmp_path / "tables/agreement.csv").open() as file:
        agreement = {row["results"]: row for row in csv.DictReader(file)}
    assert agreement["ours"]["judged"] == "15" and agreement["ours"]["tasks"] == "3"
    assert int(agreement["task means"]["equivalent"]) == comparison.baselines.task_means.equivalent
    assert float(agreement["permuted encodings, p"]["close"]) > 0
    with (tmp_path / "tables/paired-differences.csv").open() as file:
        for row in csv.DictReader(file):
            assert row["comparisons"] == "4"
            for kind in ("p_over_pairs", "p_over_tasks", "p_wilcoxon_over_tasks"):
                assert float(row[kind]) <= float(row[f"holm_{kind}"]) <= 1
    (cell,) = [row for row in rows if (row["task"], row["encoding"]) == ("parity", "rotary")]
    assert cell["seeds_not_learned"] == "3" and cell["seeds"] == "3" and float(cell["published_deviation"]) > 0
    with (tmp_path / "tables/order.csv").open() as file:
        order = {row["encoding"]: row for row in csv.DictReader(file)}
    for place in comparison.order:
        row = order[place.encoding]
        assert float(row["ours_last"]) == pytest.approx(place.ours, abs=1e-4)
        assert [int(row["ours_best_from_rank"]), int(row["ours_best_to_rank"])] == place.places_at_other
    with (tmp_path / "tables/accuracies.csv").open() as file:
        first = next(csv.DictReader(file))
    assert (first["n"], first["training_lengths_n"]) == ("2000", "1900")  # 20 and 19 lengths of 100
    page = visible(write(found, tmp_path / "report.html"))
    assert f"of {comparison.counts.informative} informative cells" in page and "permuted encodings" in page
    assert "3 of 3 not learned" in page and re.search(r"± 0\.\d\d \(3\) / ± 0\.\d\d \(3\)", page)


def test_small_probabilities_are_not_nothing() -> None:
    assert [digits(value) for value in (5e-05, 0.00012345, 0.5, 0.0)] == [5e-05, 0.000123, 0.5, 0.0]


def test_scratchpads_have_their_table(tmp_path: Path) -> None:
    from lengthwise.report.export import write_report

    run = write_run(tmp_path / "study", "a", "none", 1, {1: 40, 2: 40, 3: 10})
    rows = [
        {**row, "answers": {"right": row["correct"] + (10 if row["length"] > 2 else 0)}}
        for row in read_rows(run / ROWS)
    ]
    write_rows(run / ROWS, rows)
    steps = load_results(tmp_path / "study")
    page = write(steps, tmp_path / "report.html")
    assert table(page, "Unseen lengths, last checkpoint: final answer / whole text")[1] == ["a", "none", "0.50 / 0.25"]
    folder = write_report(steps, tmp_path / "tables", "csv")
    assert (folder / "scratchpads.csv").read_text().splitlines()[1].startswith("a,none,none,0.5,,,0.25,")


def failure(length: int, target: str, predicted: list[str], kind: str = "wrong symbol") -> dict[str, Any]:
    about = {"run": "a-none-1", "length": length, "prompt": "Copy: x y", "target": target, "predicted": predicted}
    return {**about, "first_error": len(predicted) - 1, "kind": kind}


def test_failures_are_collected_and_packed(tmp_path: Path) -> None:
    from lengthwise.report.html.failures import packed

    run = write_run(tmp_path / "study", "a", "none", 1, {1: 40, 2: 40, 3: 10, 4: 5})
    kept = [
        failure(3, "x y z", ["x", "q"]),
        failure(3, "x y z.", ["x", "y", "<end>"], "stopped early"),
        failure(4, "The answer is 5.", ["The", "answer", "is", "5", "\u2040.", "5"], "ran on"),
    ]
    write_rows(run / "failures.jsonl", kept)
    found = load_results(tmp_path / "study")
    assert found.runs[0].failures == kept
    collect(found, tmp_path / "collected")
    found = load_results(tmp_path / "collected")
    assert found.runs[0].failures == kept
    collect(found, tmp_path / "fewer", failures_of_a_length=1)
    assert load_results(tmp_path / "fewer").runs[0].failures == [kept[0], kept[2]]
    collect(load_results(write_study(tmp_path / "without")), tmp_path / "collected")
    assert not any(run.failures for run in load_results(tmp_path / "collected").runs)
    pack = packed(found)
    assert pack["examples"] == [("Copy: x y", "The answer is 5."), ("Copy: x y", "x y z"), ("Copy: x y", "x y z.")]
    assert pack["failures"] == [
        (0, 3, 1, 1, "q", "wrong symbol"),  # one character of the target is right
        (0, 3, 2, 3, "", "stopped early"),
        (0, 4, 0, 16, "5", "ran on"),
    ]
    assert pack["recorded"] == 3
    few = packed(found, most=130)
    assert 1 <= len(few["failures"]) < 3 and few["recorded"] == 3


def printed(renderable: object) -> str:
    console = Console(width=100)
    with console.capture() as capture:
        console.print(renderable)
    assert all(len(line) <= 100 for line in capture.get().splitlines())
    return capture.get()


def row(text: str, name: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.split()[:1] == [name]]
    return line.split()[1:]


def test_terminal_tables(results: Results) -> None:
    assert row(printed(to_terminal(ranking_table(results))), "none")[0] == "0.92"
    overall = printed(to_terminal(pair_tables(results)[0]))
    assert row(overall, "a") == ["1.00→0.62", "1.00→0.10"]
    assert row(overall, "b") == ["1.00→1.00", "0.69*→0.50"]
    assert "did not learn" in overall
    first, second = (printed(lengths(results, task)) for task in results.tasks)
    assert row(first, "encoding") == ["1", "2", "│", "3", "4"]
    assert row(first, "none") == ["1.00", "1.00", "│", "0.88", "0.38"]
    assert row(first, "<b>x") == ["1.00", "1.00", "│", "0.20", "0.00"]
    assert row(second, "<b>x") == ["0.75", "0.62", "│", "0.50", "0.50"]


def test_terminal_tables_thin_many_lengths(tmp_path: Path) -> None:
    write_run(tmp_path, "a", "sinusoidal_longer", 1, {length: N - length for length in range(1, 41)})
    text = printed(lengths(load_results(tmp_path), "a"))
    shown = row(text, "encoding")
    assert shown == ["2", "│", "3", *(str(length) for length in range(4, 41, 3))], "the first unseen one is there"
    assert "only every 3rd length is shown" in text


def test_thinning_keeps_the_longest_of_each_kind() -> None:
    assert summaries.thinned([1, 2, 3], [4, 5, 6, 7], 16) == ([1, 2, 3], [4, 5, 6, 7], 1)
    assert summaries.thinned([1, 2, 3], [4, 5, 6, 7], 5) == ([1, 3], [4, 5, 7], 2)
    assert summaries.thinned([1, 2, 3], [4, 5, 6, 7], 3) == ([3], [4, 7], 3)
    assert summaries.thinned([], list(range(41)), 2) == ([], [0, 20, 40], 20)


def test_terminal_needs_no_charts() -> None:
    loaded = "{'altair', 'torch', 'jinja2'} & set(sys.modules)"
    code = f"import sys, lengthwise.report.terminal.show; assert not {loaded}"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("means", "said"),
    [
        ([1.0, 0.9, 0.6, 0.2], "falls below one half at length 5, 1.7 times the longest training length."),
        ([1.0, 0.4, 0.3, 0.2], "falls below one half at length 3, within the lengths of training."),
        ([0.1, 0.9, 0.6, 0.7], "stays above one half up to length 5, 1.7 times the longest training length, the end"),
        ([0.1, 0.9, 0.3, 0.7], "falls below one half at length 4, 1.3 times the longest training length."),
        ([0.3, 0.2, 0.1, 0.0], "is below one half at every length."),
    ],
)
def test_the_opening_says_where_the_best_falls(means: list[float], said: str) -> None:
    found = Opening(["copy.repeat"], 3.0, {"none": [*zip([2.0, 3.0, 4.0, 5.0], means, strict=True)]}, False)
    assert where_it_falls("none", found).startswith(f"“none” {said}")


def test_the_border_of_the_opening_picture_lies_behind_the_last_length_of_training() -> None:
    found = Opening(["copy.repeat"], 3.0, {"none": [(2.0, 1.0), (3.0, 1.0), (4.0, 0.5), (5.0, 0.1)]}, False)
    for frame in (WIDE, NARROW):
        body = opening_figure(found, ["none"], frame).body
        border = frame.left + (3.5 - 2) / 3 * (frame.right - frame.left)
        assert f'<path d="M{number(border)},{frame.top - 6}L{number(border)},{frame.bottom}"' in body


def test_a_scale_of_0_has_the_colour_of_the_least_not_that_of_1() -> None:
    dark, white, light = diverging(1 / 4, 4), diverging(1, 4), diverging(4, 4)
    assert len({dark, white, light}) == 3
    assert diverging(0, 4) == dark and diverging(0.01, 4) == dark and diverging(1, 1) == white


def test_differences_are_from_the_baseline_that_is_asked_for(tmp_path: Path) -> None:
    write_battery(tmp_path, ["copy.repeat"], encodings=("none", "rotary", "alibi"))
    results = load_results(tmp_path).against("RoPE")
    table = difference_table(results)
    assert table.title.startswith("Accuracy on unseen lengths minus that of rotary")
    means = {row[0]: row[2] for row in table.values}
    accuracies = results.accuracies()
    for encoding in ("none", "alibi"):
        pairs = accuracies["copy.repeat", encoding], accuracies["copy.repeat", "rotary"]
        expected = sum(pairs[0][seed] - pairs[1][seed] for seed in pairs[0]) / len(pairs[0])
        assert means[encoding] == pytest.approx(expected, abs=1e-4)
    assert means.keys() == {"none", "alibi"}
    with pytest.raises(UserError, match=r"--baseline rotory: no run has it; did you mean 'rotary'"):
        results.against("rotory")
    shown = CliRunner().invoke(app, ["show", str(tmp_path), "--baseline", "RoPE"]).stdout
    assert "Accuracy on unseen lengths minus that of rotary" in shown
