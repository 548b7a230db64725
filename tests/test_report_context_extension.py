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
from test_report_browser import ACCESSIBILITY, CHROMIUM, CONTRASTS, NAMES, Watched, browser, choose, downloaded
from typer.testing import CliRunner

from lengthwise.cli.main import app
from lengthwise.context_extension.table import TableSettings, lines
from lengthwise.errors import UserError
from lengthwise.records.directory import plain
from lengthwise.records.files import write_json, write_rows
from lengthwise.records.published_ratios import ratios
from lengthwise.report.figures.context_extension import ratio_figures
from lengthwise.report.html.context_extension import content, write_extension_page
from lengthwise.report.model.context_extension import line_words, load_extension_rows
from lengthwise.report.model.context_extension_claims import claims
from lengthwise.report.model.context_extension_tables import extension_values
from lengthwise.report.model.table_csv import to_csv

__all__ = ["browser"]
TRAINED = 512
SETTINGS = TableSettings()
BEST = {TRAINED * times: 1 + 0.3 * math.log(times) for times in (2, 4, 8, 16)}
LINES = lines(SETTINGS, TRAINED, BEST)
LEARNED = {"none": 2.0, "uniform-scale": 1.4, "head-scale": 1.1}
"""How fast perplexity grows with each doubling beyond what a line is made for."""


def growth(line: str, times: int) -> float:
    """A made-up ratio: 1 up to the length that a line is made for, then worse with every doubling."""
    held = re.search(r"for (\d+)x", line)
    until = int(held.group(1)) if held else 1
    slope = next((value for name, value in LEARNED.items() if line.startswith(name)), 1.6)
    worse = 0.04 * ("start" in line) - 0.01 * ("floor" in line) + 0.05 * line.startswith("uniform")
    return 1.02 * slope ** max(0.0, math.log2(times / until)) + worse if times > 1 else 1.0 + worse


LOSS = {"loss": 4.6, "standard_error": 0.1, "perplexity": 99.0}


def write_table(folder: Path, passkeys: bool = True, fits: bool = True, entropy: bool = True) -> Path:
    rows = [
        {"line": line.name, "family": line.family, "times": times, "context": times * TRAINED, "tokens": 65_536,
         "loss": math.log(30 * growth(line.name, times)), "standard_error": 0.01,
         "perplexity": 30 * growth(line.name, times)}
        for line in LINES
        for times in SETTINGS.times
    ]  # fmt: skip
    folder.mkdir(parents=True)
    write_rows(folder / "perplexity.jsonl", rows)
    write_json(
        folder / "table.json",
        {"settings": {"times": list(SETTINGS.times), "steps": 200}, "models": {}, "trained": TRAINED},
    )
    write_json(
        folder / "uniform.json",
        {"trained": TRAINED, "best": {str(n): best for n, best in BEST.items()}, "slope": 0.3, "determination": 0.99,
         "losses": {str(n): [[1.0, 4.0], [best, 3.5]] for n, best in BEST.items()}},
    )  # fmt: skip
    if passkeys:
        keys = [
            {"line": line.name, "family": line.family, "length": times * TRAINED, "depth": depth / 9, "n": 10,
             "correct": round(9 / growth(line.name, times)) - ("floor" in line.name) - 2 * ("start" in line.name)}
            for line in LINES
            for times in SETTINGS.times
            for depth in range(10)
        ]  # fmt: skip
        write_rows(folder / "passkey.jsonl", keys)
    for line in LINES if fits else []:
        if line.fit is not None:
            place = folder / "fits" / plain(line.name)
            place.mkdir(parents=True)
            numbers = 36 if line.fit.head_scale else 16_900_000
            facts = {"settings": {"length": 1024, "steps": 2, "head_scale": line.fit.head_scale},
                     "model": {"name": line.family, "checksum": 1, "trained": TRAINED},
                     "trained_numbers": numbers, "seconds": 4.2,
                     "losses": [4.0, 3.5], "hardware": {"device": "cpu"}}  # fmt: skip
            write_json(place / "fit.json", facts)
            if line.fit.head_scale:
                scales_LH = 1 + np.arange(36, dtype=np.float32).reshape(6, 6) / 40
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
    write_extension_page(load_extension_rows(folder), folder.parent / "report.html")
    return folder.parent / "report.html"


def test_tables_hold_every_row_beside_the_published_ratio(folder: Path) -> None:
    tables = {
        table.name: list(csv.DictReader(io.StringIO(to_csv(table))))
        for table in extension_values(load_extension_rows(folder))
    }
    assert len(tables["perplexity"]) == len(LINES) * 5 and len(tables["passkeys"]) == len(LINES) * 50
    for row in tables["perplexity"]:
        line, times = row["line"], int(row["times"])
        assert float(row["ratio"]) == pytest.approx(growth(line, times))
        known = ratios().get((line, times))
        assert row["published_ratio"] == ("" if known is None else str(known.ratio))
    assert len(tables["head-scales"]) == 9 * 36
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
    assert heat.body.count("<rect") == 50


def test_what_is_not_there_is_not_shown(tmp_path: Path) -> None:
    write_table(tmp_path / "table", passkeys=False, fits=False, entropy=False)
    done = CliRunner().invoke(app, ["extend", "report", str(tmp_path), "--out", str(tmp_path / "r.html")])
    assert done.exit_code == 0, done.exception
    text = (tmp_path / "r.html").read_text(encoding="utf-8")
    assert (
        "Far beyond" not in text
        and 'id="passkeys"' not in text
        and 'id="entropy"' not in text
        and 'id="scales"' in text
    )
    assert "http" not in re.sub(r'http-equiv|xmlns="http://www.w3.org/2000/svg"|"http://www.w3.org/2000/svg"', "", text)
    (tmp_path / "none").mkdir()
    with pytest.raises(UserError, match="holds no rows of a table"):
        load_extension_rows(tmp_path / "none")


def test_tables_and_figures_as_files(folder: Path, tmp_path: Path) -> None:
    def report(*words: str) -> Result:
        return CliRunner().invoke(app, ["extend", "report", str(folder), *words])

    assert report("--format", "csv", "--out", str(tmp_path / "csv")).exit_code == 0
    names = {table.name for table in extension_values(load_extension_rows(folder))}
    assert {path.stem for path in (tmp_path / "csv").iterdir()} == names
    assert report("--format", "svg", "--out", str(tmp_path / "svg")).exit_code == 0
    titles = [ElementTree.parse(path).findtext("{*}title") for path in (tmp_path / "svg").iterdir()]
    assert len(titles) == len(set(titles)) == len(ratio_figures(load_extension_rows(folder))) + len(LINES) + 2
    assert report("--out", str(tmp_path / "one.svg")).exit_code == 0
    alone = (tmp_path / "one.svg").read_text()
    assert all(title in alone for title in ("One scale for all heads", "A scale for each head", "not trained further"))
    assert isinstance(report("--out", str(tmp_path / "one.pdf")).exception, UserError)
    assert isinstance(report("--format", "csv", "--out", str(tmp_path / "one.svg")).exception, UserError)


TABS = ["Perplexity", "Passkeys", "Scales", "Entropy", "Method"]
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
def test_keyboard_and_downloads(page: Path, browser: Any) -> None:
    with Watched(browser, page) as tab:
        tab.get_by_role("tab", name="Perplexity").focus()
        tab.keyboard.press("ArrowRight")
        assert tab.evaluate("document.activeElement.textContent") == "Passkeys"
        tab.keyboard.press("Home")
        panel = choose(tab, "Perplexity")
        assert panel.get_by_role("cell", name="3.0 GiB").is_visible()
        rows = list(csv.DictReader(io.StringIO(downloaded(tab, panel.get_by_role("button", name="CSV").first))))
        assert len(rows) == len(LINES) * 5 and rows[0]["line"] == "none"
        svg = downloaded(tab, panel.get_by_role("button", name="SVG").first)
        assert svg.startswith("<svg") and "uniform-scale for 2x" in svg
        scales = choose(tab, "Scales").get_by_role("button", name="CSV of head scales")
        assert downloaded(tab, scales).startswith("line,layer,head,scale\nhead-scale for 2x,1,1,1\n")
        entropy = choose(tab, "Entropy").get_by_role("button", name="CSV of entropies")
        assert len(downloaded(tab, entropy).splitlines()) == 1 + 2 * 36 * 32
