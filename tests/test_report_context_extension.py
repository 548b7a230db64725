"""The page about extended models: what it says is what the rows say, in a real browser too, and nothing is fetched."""

import csv
import io
import json
import math
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from click.testing import Result
from safetensors.numpy import save_file
from test_report_browser import ACCESSIBILITY, CHROMIUM, CONTRASTS, CUT, NAMES, Watched, browser, choose, downloaded
from typer.testing import CliRunner

from lengthwise.cli.main import app
from lengthwise.context_extension.extension_study import load_extension_study
from lengthwise.errors import UserError
from lengthwise.records.files import write_json, write_rows
from lengthwise.records.names import path_part
from lengthwise.records.published_ratios import ratios
from lengthwise.report.context_extension_export import write_extension_report
from lengthwise.report.figures.context_extension import look_figures, ratio_figures
from lengthwise.report.html.context_extension import content, write_extension_page
from lengthwise.report.model.context_extension import line_words, load_extension_rows, load_extension_tables
from lengthwise.report.model.context_extension_claims import claims
from lengthwise.report.model.context_extension_tables import extension_values, look_table, ratio_table
from lengthwise.report.model.table import Cell
from lengthwise.report.model.table_csv import to_csv

__all__ = ["browser"]
TRAINED = 512
(STUDY,) = load_extension_study("headscale-small")
LINES, TIMES = STUDY.all_lines, STUDY.measure.times
BEST = {TRAINED * times: 1 + 0.3 * math.log(times) for times in (2, 4, 8, 16)}
SCALED = [line for line in LINES if line.fit is not None and line.fit.get("head_scale", True)]
HEADS = sum(36 if line.fit and line.fit.get("scales", "head") == "head" else 6 for line in SCALED)
LEARNED = {"none": 2.0, "uniform-scale": 1.4, "head-scale": 1.1}
"""How fast perplexity grows with each doubling beyond what a line is made for."""


def growth(line: str, times: float) -> float:
    """A made-up ratio: 1 up to the length that a line is made for, then worse with every doubling."""
    held = re.search(r"for (\d+)x", line)
    until = int(held.group(1)) if held else 1
    slope = next((value for name, value in LEARNED.items() if line.startswith(name)), 1.6)
    worse = 0.04 * ("start" in line) - 0.01 * ("floor" in line) + 0.05 * line.startswith("uniform")
    return 1.02 * slope ** max(0.0, math.log2(times / until)) + worse if times > 1 else 1.0 + worse


def right(line: str, times: float) -> int:
    """Of ten keys."""
    return round(9 / growth(line, times)) - ("floor" in line) - 2 * ("start" in line)


LOSS = {"loss": 4.6, "standard_error": 0.1, "perplexity": 99.0}


def write_table(
    folder: Path,
    passkeys: bool = True,
    fits: bool = True,
    entropy: bool = True,
    seed: int | None = None,
    targets: str = "0123456789ab",
    worse: float = 1.0,
) -> Path:
    """`worse`: what the perplexity of everything but the models as trained is multiplied by."""

    def perplexity(line: str, times: float) -> float:
        return 30 * growth(line, times) * (worse if times > 1 else 1)

    rows = [
        {"line": line.name, "family": line.model, "times": times, "context": round(times * TRAINED), "tokens": 65_536,
         "loss": math.log(perplexity(line.name, times)), "standard_error": 0.01, "targets": targets,
         "perplexity": perplexity(line.name, times)}
        for line in LINES
        for times in TIMES
    ]  # fmt: skip
    folder.mkdir(parents=True)
    write_rows(folder / "perplexity.jsonl", rows)
    about = {"study": "headscale-small", "summary": "", "grid": {}, "seed": seed}
    write_json(
        folder / "table.json",
        {"settings": {"times": list(TIMES), "windows": 200}, "models": {}, "about": about,
         "trained": {"none": TRAINED, "rotary": TRAINED}},
    )  # fmt: skip
    (folder / "uniform").mkdir()
    write_json(
        folder / "uniform/none.json",
        {"trained": TRAINED, "best": {str(n): best for n, best in BEST.items()}, "slope": 0.3, "determination": 0.99,
         "losses": {str(n): [[1.0, 4.0], [best, 3.5]] for n, best in BEST.items()}},
    )  # fmt: skip
    heads = [
        {"line": line.name, "family": line.model, "targets": targets, "times": times, "context": round(times * TRAINED),
         "layer": layer, "head": head, "n": 8, "bits": 3 + math.log2(times), "distance": 100 * times, "first": 0.25,
         "near": 0.5, "far": 0.25 / times, "beyond": 0.25 - 0.25 / times}
        for line in LINES for times in TIMES for layer in range(2) for head in range(2)
    ]  # fmt: skip
    write_rows(folder / "heads.jsonl", heads)
    if passkeys:
        keys = [
            {"line": line.name, "family": line.model, "length": round(times * TRAINED), "depth": depth / 9, "n": 10,
             "targets": targets,
             "correct": max(0, right(line.name, times))}
            for line in LINES
            for times in TIMES
            for depth in range(10)
        ]  # fmt: skip
        write_rows(folder / "passkey.jsonl", keys)
    for line in LINES if fits else []:
        if line.fit is not None:
            place = folder / "fits" / path_part(line.name)
            place.mkdir(parents=True)
            scaled, columns = line.fit.get("head_scale", True), 6 if line.fit.get("scales", "head") == "head" else 1
            facts = {"settings": {"length": 1024, "steps": 2, "head_scale": scaled},
                     "model": {"name": line.model, "checksum": 1, "trained": TRAINED},
                     "trained_numbers": 6 * columns if scaled else 16_900_000, "seconds": 4.2,
                     "losses": [4.0, 3.5], "hardware": {"device": "cpu"}}  # fmt: skip
            write_json(place / "fit.json", facts)
            if scaled:
                scales_LH = 1 + np.arange(6 * columns, dtype=np.float32).reshape(6, columns) / 40
                save_file({"scales_LH": scales_LH}, place / "learned.safetensors")
    if entropy:
        bits = [
            {"model": "none", "variant": variant, "layer": layer, "head": head, "position": position, "n": 8,
             "bits": math.log2(position + 1) * share, "bound": math.log2(position + 1)}
            for variant, share in (("as trained", 0.8), ("head-scale, fitted at 2048", 0.5))
            for layer in range(6)
            for head in range(6)
            for position in range(0, 2048, 64)
        ]  # fmt: skip
        by_layer = [-0.5, -0.25, None, -0.75, -0.1, -0.2]
        found = {"model": "none", "kind": "correlation", "overall": -0.31, "within_layers": -0.36, "by_layer": by_layer}
        write_rows(folder / "entropy.jsonl", [*bits, found])
        far = {"kind": "perplexity", "model": "none", "variant": "head-scale, fitted at 2048", "context": 65_536}
        write_rows(folder / "long.jsonl", [{**far, **LOSS, "tokens": 16_384, "memory_bytes": 3 * 2**30}])
    return folder


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_table(tmp_path_factory.mktemp("extended") / "table")


@pytest.fixture(scope="module")
def page(folder: Path) -> Path:
    write_extension_page([load_extension_rows(folder)], folder.parent / "report.html")
    return folder.parent / "report.html"


def test_tables_hold_every_row_beside_the_published_ratio(folder: Path) -> None:
    tables = {
        table.name: list(csv.DictReader(io.StringIO(to_csv(table))))
        for table in extension_values(load_extension_rows(folder))
    }
    assert len(tables["perplexity"]) == len(LINES) * 7 and len(tables["passkeys"]) == len(LINES) * 70
    assert len(tables["heads"]) == len(LINES) * 7 * 4
    for row in tables["perplexity"]:
        line, times = row["line"], float(row["times"])
        assert float(row["ratio"]) == pytest.approx(growth(line, times))
        known = ratios().get((line, times))
        assert row["published_ratio"] == ("" if known is None else str(known.ratio))
    assert len(tables["head-scales"]) == HEADS == 18 * 36 + 3 * 6
    assert float(tables["head-scales"][35]["scale"]) == pytest.approx(1 + 35 / 40)
    assert len(tables["uniform-search"]) == 8 and len(tables["entropy"]) == 2 * 36 * 32


def test_claims_follow_the_rows(folder: Path, tmp_path: Path) -> None:
    found = claims(load_extension_rows(folder))
    assert len(found) == 7 and all(claim.holds for claim in found if "rotary" not in claim.words)
    held = next(claim for claim in found if "within 15%" in claim.words)
    assert held.found == "1.02 with 36 trained parameters (published 1.45)"
    assert not next(claim for claim in found if "rotary" in claim.words).holds, "1.63 is not broken"
    # The same rows but for two: head scales that do worse than one scale for all, an ablation in another order.
    rows = [json.loads(text) for text in (folder / "perplexity.jsonl").read_text().splitlines()]
    changed = {("head-scale for 4x", 4), ("head-scale for 8x, without floor", 8)}
    worse = [{**row, "perplexity": 90.0} if (row["line"], row["times"]) in changed else row for row in rows]
    (tmp_path / "table").mkdir()
    write_rows(tmp_path / "table/perplexity.jsonl", worse)
    other = {claim.words: claim.holds for claim in claims(load_extension_rows(tmp_path))}
    assert [words for words, holds in other.items() if not holds and "rotary" not in words] == [
        "Head scales fitted at 4x hold the perplexity there within 15% of 1x",
        "They do better at 4x than one scale for all heads",
        "Head scales for 8x and their ablations have the published order of perplexities at 8x",
    ]


def test_every_line_is_in_a_figure_and_the_published_ones_are_dashed(folder: Path) -> None:
    shown = content(load_extension_rows(folder))
    drawn = " ".join(figure.description for figure in shown["ratio_figures"])
    assert all(f"{line_words(line.name)}: " in drawn for line in LINES)
    assert "no init" in drawn and "without start" not in drawn, "readers see the words of the paper"
    uniform = next(figure for figure in shown["ratio_figures"] if figure.name.endswith("uniform"))
    assert uniform.body.count("stroke-dasharray") == 4, "as trained and three uniform scales; by position is ours alone"
    assert len(shown["passkeys"]) == len(LINES)
    _, heat = shown["passkeys"][0]
    assert heat.body.count("<rect") == 70


@pytest.mark.parametrize(
    ("highest", "end", "edge"), [(1.7, "2", None), (2.1, "5", None), (60.0, "100", None), (400.0, "100", 100)]
)
def test_the_axis_ends_where_the_ratios_do(tmp_path: Path, highest: float, end: str, edge: int | None) -> None:
    """Ratios from 1 to 2 are the answer for a good extension: on an axis to 100 they could not be told apart."""
    rows = [
        {
            **LOSS,
            "line": line,
            "family": "mine",
            "times": times,
            "context": 64 * times,
            "tokens": 9,
            "perplexity": value,
        }
        for line, found in {"as trained": {1: 50.0, 2: 50 * highest}, "yarn": {1: 50.0, 2: 55.0}}.items()
        for times, value in found.items()
    ]
    (tmp_path / "table").mkdir()
    write_rows(tmp_path / "table/perplexity.jsonl", rows)
    shown = content(load_extension_rows(tmp_path))
    (figure,) = shown["ratio_figures"]
    labels = re.findall(r"<text[^>]*>([\d.]+)</text>", figure.body)
    assert end in labels and all(float(each) <= float(end) for each in labels) and shown["edge"] == edge


def test_what_is_not_there_is_not_shown(tmp_path: Path) -> None:
    write_table(tmp_path / "table", passkeys=False, fits=False, entropy=False)
    done = CliRunner().invoke(app, ["extend", "report", str(tmp_path), "--out", str(tmp_path / "r.html")])
    assert done.exit_code == 0, done.exception
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert (
        "Far beyond" not in text
        and 'id="passkeys"' not in text
        and "Entropy of attention by position" not in text
        and 'id="scales"' in text
    )
    assert "http" not in re.sub(r'http-equiv|xmlns="http://www.w3.org/2000/svg"|"http://www.w3.org/2000/svg"', "", text)
    (tmp_path / "none").mkdir()
    with pytest.raises(UserError, match="holds no rows of a table"):
        load_extension_rows(tmp_path / "none")


@pytest.mark.slow
def test_tables_and_figures_as_files(folder: Path, tmp_path: Path) -> None:
    def report(*words: str) -> Result:
        return CliRunner().invoke(app, ["extend", "report", str(folder), *words])

    assert report("--format", "csv", "--out", str(tmp_path / "csv")).exit_code == 0
    names = {table.name for table in extension_values(load_extension_rows(folder))}
    assert {path.stem for path in (tmp_path / "csv").iterdir()} == names
    assert report("--format", "svg", "--out", str(tmp_path / "svg")).exit_code == 0
    titles = [ElementTree.parse(path).findtext("{*}title") for path in (tmp_path / "svg").iterdir()]
    assert len(titles) == len(set(titles)) == 2 * len(ratio_figures(load_extension_rows(folder))) + len(LINES) + 2
    assert report("--out", str(tmp_path / "one.svg")).exit_code == 0
    alone = (tmp_path / "one.svg").read_text()
    assert all(title in alone for title in ("One scale for all heads", "A scale for each head", "not trained further"))
    assert isinstance(report("--out", str(tmp_path / "one.pdf")).exception, UserError)
    assert isinstance(report("--format", "csv", "--out", str(tmp_path / "one.svg")).exception, UserError)


TABS = ["Perplexity", "Passkeys", "Heads", "Scales", "Method"]
needs_chromium = pytest.mark.skipif(not CHROMIUM.exists(), reason="needs /usr/bin/chromium: apt-get install chromium")


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_every_tab_shows_and_can_be_read(page: Path, browser: Any, width: int, scheme: str) -> None:
    with Watched(browser, page, width, scheme) as tab:
        assert tab.get_by_role("tab").all_inner_texts() == TABS
        for name in TABS:
            choose(tab, name)
            wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert tab.evaluate(wider) <= 0, f"{name} scrolls sideways at {width} pixels"
            assert tab.evaluate(CONTRASTS) == [], name
            assert tab.evaluate(ACCESSIBILITY) == [], name
            assert tab.evaluate(CUT) == [], name


@pytest.mark.slow
@needs_chromium
def test_names_leave_room_for_numbers_on_a_phone(page: Path, browser: Any) -> None:
    with Watched(browser, page, 390) as tab:
        for name in TABS:
            choose(tab, name)
            assert max(tab.evaluate(NAMES), default=0) <= 0.43 * 390, name
        group = choose(tab, "Perplexity").locator(".group span").first
        before = group.bounding_box()["x"]
        tab.evaluate("document.querySelector('[data-table=perplexity]').parentElement.scrollLeft = 150")
        assert group.bounding_box()["x"] == before, "titles of groups stay, too"


def test_claims_have_a_heading(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    heading = '<h3 id="claims-title">What the published table says, and whether it is so here</h3>\n<ul class="shown"'
    assert heading in text


@pytest.mark.slow
@needs_chromium
def test_figures_are_enlarged_and_tables_sorted(page: Path, browser: Any) -> None:
    with Watched(browser, page) as tab:
        figure = choose(tab, "Perplexity").locator("svg[data-figure^=perplexity-ratio]").first
        assert "perplexity, 1x as trained = 1" in figure.text_content()
        small = figure.bounding_box()
        figure.click()
        dialog = tab.locator("#figure-dialog")
        assert dialog.is_visible() and dialog.locator("svg").bounding_box()["width"] > 1.3 * small["width"]
        dialog.get_by_role("button", name="Close").click()
        table = choose(tab, "Passkeys").get_by_role("table").first
        heading = table.get_by_role("columnheader").nth(1)
        heading.get_by_role("button").click()
        assert heading.get_attribute("aria-sort") == "descending"


@pytest.mark.slow
@needs_chromium
def test_keyboard_and_downloads(page: Path, browser: Any) -> None:
    with Watched(browser, page) as tab:
        tab.get_by_role("tab", name="Perplexity").focus()
        tab.keyboard.press("ArrowRight")
        assert tab.evaluate("document.activeElement.textContent") == "Passkeys"
        tab.keyboard.press("Home")
        panel = choose(tab, "Perplexity")
        assert panel.get_by_role("cell", name="3.0 GiB").is_visible()
        rows = list(csv.DictReader(io.StringIO(downloaded(tab, panel.get_by_role("button", name="CSV").first))))
        assert len(rows) == len(LINES) * 7 and rows[0]["line"] == "none"
        svg = downloaded(tab, panel.get_by_role("button", name="SVG").first)
        assert svg.startswith("<svg") and "uniform-scale for 2x" in svg
        scales = choose(tab, "Scales").get_by_role("button", name="CSV of head scales")
        assert downloaded(tab, scales).startswith("line,seed,layer,head,scale\nhead-scale for 2x,,1,1,1\n")
        entropy = choose(tab, "Heads").get_by_role("button", name="CSV of entropies")
        assert len(downloaded(tab, entropy).splitlines()) == 1 + 2 * 36 * 32


# Several seeds, several targets.


def said(cell: Cell) -> str:
    return " ".join(word.text for words in (cell.words, *(note.words for note in cell.notes)) for word in words)


@pytest.mark.slow
def test_seeds_stand_together_with_their_range(tmp_path: Path) -> None:
    for seed, worse in ((1, 1.0), (2, 1.2), (3, 1.5)):
        write_table(tmp_path / f"study/seed-{seed}/table", seed=seed, worse=worse)
    (rows,) = load_extension_tables([tmp_path / "study"])
    assert rows.seeds == [1, 2, 3] and rows.title == "headscale-small"
    expected = growth("head-scale for 4x", 4)
    assert rows.ratios("head-scale for 4x", 4) == pytest.approx([expected, expected * 1.2, expected * 1.5])
    assert rows.ratio("head-scale for 4x", 4) == pytest.approx(expected * (1.2 * 1.5) ** (1 / 3))
    assert rows.ratio_interval("head-scale for 4x", 4) == pytest.approx((expected, expected * 1.5))
    assert rows.ratio_interval("none", 1) == pytest.approx((1, 1))
    table = ratio_table(rows)
    assert any("means of 3 seeds, in brackets their range" in note for note in table.notes)
    (cell,) = [row.cells[5] for row in table.rows if said(row.cells[0]) == "head-scale for 4x"]
    assert f"{expected * (1.2 * 1.5) ** (1 / 3):.2f} ({expected:.2f} to {expected * 1.5:.2f}) ours" in said(cell)
    values = next(table for table in extension_values(rows) if table.name == "perplexity")
    assert len(values.rows) == 3 * len(LINES) * 7
    assert len(rows.uniform["none"]) == 3 and len({fit.seed for fit in rows.fits}) == 3


@pytest.mark.slow
def test_tables_of_other_targets_are_apart_and_said_to_be(tmp_path: Path) -> None:
    write_table(tmp_path / "a", seed=1)
    write_table(tmp_path / "b", seed=2)
    write_table(tmp_path / "c", seed=3, targets="ba9876543210")
    write_table(tmp_path / "again", seed=1)
    groups = load_extension_tables([tmp_path / name for name in ("a", "b", "c", "again")])
    assert [rows.seeds for rows in groups] == [[1, 2], [3], [1]], "nothing is counted twice"
    write_extension_page(groups[:2], tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert "These tables are not of the same targets." in text and text.count('data-table="perplexity-') == 2
    write_extension_page(groups[:1], tmp_path / "page.html")
    assert "not of the same targets" not in (tmp_path / "page.html").read_text()
    with pytest.raises(UserError, match="2 tables of different targets do not go into one picture"):
        write_extension_report([tmp_path / "a", tmp_path / "c"], tmp_path / "one.svg")
    written = write_extension_report([tmp_path / "a", tmp_path / "c"], tmp_path / "csv", "csv")
    assert len(list(written.glob("*/perplexity.csv"))) == 2


def test_where_heads_look_is_a_mean_over_heads(folder: Path) -> None:
    rows = load_extension_rows(folder)
    table = look_table(rows)
    (row,) = [row for row in table.rows if said(row.cells[0]) == "yarn"]
    assert [said(cell) for cell in row.cells[1:]] == ["7.00", "1,600", "0.25", "0.50", "0.02", "0.23"]
    drawn = " ".join(figure.description for figure in look_figures(rows))
    assert all(f"{line_words(line.name)}: " in drawn for line in LINES)
