"""The report in a real browser: every tab, filter and download works, everyone can use it, and nothing is fetched."""

import base64
import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from conftest import slow
from synthetic import write_battery
from synthetic_analysis import write_analysis

from lengthwise.records.files import read_rows, write_rows
from lengthwise.records.findings import load_analysis
from lengthwise.records.operand_pairs import bucket_of
from lengthwise.records.results import Results
from lengthwise.records.rows import load_results
from lengthwise.report.html import findings as why_page
from lengthwise.report.html.page import BYTES, write_page

CHROMIUM = Path("/usr/bin/chromium")
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]

pytestmark = pytest.mark.skipif(not CHROMIUM.exists(), reason="needs /usr/bin/chromium: apt-get install chromium")

TABS = ["Overview", "By length", "Tasks × encodings", "Published", "Differences", "Failures", "Runs", "Method"]

CONTRASTS = (Path(__file__).parent / "contrasts.js").read_text()
CUT = (Path(__file__).parent / "cut.js").read_text()
ACCESSIBILITY = (Path(__file__).parent / "accessibility.js").read_text()


@pytest.fixture(scope="module")
def battery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of three tasks, one of which two encodings did not learn; its failures contain `<x>`."""
    folder = tmp_path_factory.mktemp("battery")
    write_battery(folder / "runs", ["copy.repeat", "parity", "addition"], failures=2, words=8)
    for file in (folder / "runs/addition").rglob("rows.jsonl"):
        pairs = [(row, {(row["length"], j) for j in (1, row["length"])}) for row in read_rows(file)]
        write_rows(file, [{**row, "bucket": bucket_of(*pair)} for row, of_row in pairs for pair in of_row])
    write_page(load_results(folder / "runs"), folder / "report.html")
    return folder / "report.html"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


class Watched:
    """A tab that remembers what went wrong in it."""

    def __init__(self, browser: Any, page: Path, width: int = 1280, scheme: str = "light") -> None:
        self.problems: list[str] = []
        self.page = page
        self.tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
        self.tab.on("console", lambda message: self.problems.append(f"{message.type}: {message.text}"))
        self.tab.on("pageerror", lambda error: self.problems.append(str(error)))
        self.tab.on("request", lambda request: self._check(request.url))

    def _check(self, url: str) -> None:
        if url.split("#")[0] != self.page.as_uri() and not url.startswith("blob:"):
            self.problems.append(f"fetched {url}")

    def __enter__(self) -> Any:
        self.tab.goto(self.page.as_uri())
        self.tab.wait_for_selector("html[data-ready]", timeout=60_000)
        return self.tab

    def __exit__(self, kind: object, *_: object) -> None:
        self.tab.close()
        if kind is None:
            assert self.problems == []


def choose(tab: Any, name: str) -> Any:
    """Clicks a tab; its panel."""
    button = tab.get_by_role("tab", name=name, exact=True)
    button.click()
    assert button.get_attribute("aria-selected") == "true"
    panel = tab.locator(f"#{button.get_attribute('aria-controls')}")
    assert panel.is_visible()
    assert tab.locator("[role=tabpanel]:visible").count() == 1
    return panel


def downloaded(tab: Any, button: Any) -> str:
    with tab.expect_download() as waiting:
        button.click()
    return Path(waiting.value.path()).read_text(encoding="utf-8")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), slow(1280, "dark"), slow(390, "light")])
def test_every_tab_shows_and_can_be_read(battery: Path, browser: Any, width: int, scheme: str) -> None:
    with Watched(browser, battery, width, scheme) as tab:
        assert tab.get_by_role("tab").all_inner_texts() == TABS
        for name in TABS:
            panel = choose(tab, name)
            grids = panel.locator(f"svg[data-figure^=operand-grid-addition] image.in-{scheme}:visible").count()
            assert grids == (10 if name == "By length" else 0), "a map and its colours for each encoding"
            wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert tab.evaluate(wider) <= 0, f"{name} scrolls sideways at {width} pixels"
            assert tab.evaluate(CONTRASTS) == [], name
            assert tab.evaluate(CUT) == [], name


NAMES = """() => [...document.querySelectorAll("[role=tabpanel] tbody th:first-child:not([colspan])")]
  .filter((name) => name.offsetParent && getComputedStyle(name).position === "sticky")
  .map((name) => name.getBoundingClientRect().width)"""
"""Widths of what stays in view while tables scroll."""


@pytest.mark.slow
def test_names_leave_room_for_numbers_on_a_phone(battery: Path, browser: Any) -> None:
    with Watched(browser, battery, 390) as tab:
        for name in TABS:
            choose(tab, name)
            assert max(tab.evaluate(NAMES), default=0) <= 0.43 * 390, name
        row = choose(tab, "Runs").locator("#run-table tbody tr", has_text="copy.repeat/sinusoidal/seed-1").first
        assert row.get_by_role("button").inner_text() == "copy.repeat/sinusoidal/seed-1"
        sign, button = row.locator(".sign").bounding_box(), row.get_by_role("button").bounding_box()
        assert sign["y"] < button["y"] + 20 and button["x"] > sign["x"], "a sign stands beside its name"


@pytest.mark.slow
def test_colours_are_switched_and_kept(battery: Path, browser: Any) -> None:
    paper = "getComputedStyle(document.body).backgroundColor"
    with Watched(browser, battery) as tab:
        switch = tab.get_by_role("button", name="Dark colours")
        assert tab.evaluate(paper) == "rgb(255, 255, 255)"
        assert switch.get_attribute("aria-pressed") == "false"
        switch.click()
        assert tab.evaluate(paper) == "rgb(21, 24, 28)"
        assert switch.get_attribute("aria-pressed") == "true"
        for name in TABS:
            choose(tab, name)
            assert tab.evaluate(CONTRASTS) == [], name
        choose(tab, "By length")
        images = [tab.locator(f"image.in-{scheme}:visible") for scheme in ("light", "dark")]
        assert [each.count() for each in images] == [0, 10]
        tab.emulate_media(media="print")
        assert [each.count() for each in images] == [10, 0]
        assert tab.evaluate(paper) == "rgb(255, 255, 255)", "paper is white"
        assert tab.locator("[role=tabpanel]:visible").count() == len(TABS), "all of it is printed"
        tab.emulate_media(media="screen")
        switch.click()
        assert tab.evaluate(paper) == "rgb(255, 255, 255)"


@pytest.mark.slow
def test_keyboard_moves_through_tabs_and_curves(battery: Path, browser: Any) -> None:
    with Watched(browser, battery) as tab:
        tab.get_by_role("tab", name="Overview").focus()
        tab.keyboard.press("ArrowRight")
        assert tab.evaluate("document.activeElement.textContent") == "By length"
        assert tab.locator("#lengths").is_visible()
        tab.keyboard.press("End")
        assert tab.locator("#method").is_visible()
        tab.keyboard.press("Home")
        tab.keyboard.press("ArrowRight")
        slider = tab.get_by_role("slider").first
        slider.focus()
        assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"
        tab.keyboard.press("Home")
        assert slider.get_attribute("aria-valuenow") == "2"
        tab.keyboard.press("ArrowRight")
        assert slider.get_attribute("aria-valuetext").startswith("length 3: none 1.00 (1.00 – 1.00), t5 1.00")
        assert tab.locator(".tip").is_visible()
        tab.keyboard.press("Escape")
        assert not tab.locator(".tip").is_visible()
        tab.goto(battery.as_uri() + "#runs")
        assert tab.locator("#runs").is_visible()


@pytest.mark.slow
def test_curves_show_what_is_chosen(battery: Path, browser: Any) -> None:
    with Watched(browser, battery) as tab:
        panel = choose(tab, "By length")
        assert panel.locator(".plot:visible svg").count() == 3
        curve = panel.locator(".plot:visible [data-encoding=t5]").first
        assert curve.is_visible()
        panel.get_by_role("button", name="t5", exact=True).click()
        assert not curve.is_visible()
        panel.get_by_role("button", name="t5", exact=True).click()
        assert curve.is_visible()
        dashes = panel.locator(".plot:visible .published").first
        panel.get_by_role("button", name="published").click()
        assert not dashes.is_visible()
        panel.get_by_label("Lengths").select_option("own")
        assert panel.locator(".plot.own:visible").count() == panel.locator(".plot:visible").count() == 3
        panel.locator(".plot:visible").nth(1).hover()
        tip = tab.locator(".tip")
        tip.wait_for(state="visible")
        assert "published" in tip.inner_text() and "sinusoidal" in tip.inner_text()
        panel.get_by_text("Numbers of parity").click()
        assert panel.get_by_role("table", name="parity: exact match by length").is_visible()


@pytest.mark.slow
def test_runs_are_filtered_and_described(battery: Path, browser: Any) -> None:
    with Watched(browser, battery) as tab:
        panel = choose(tab, "Runs")
        rows = panel.locator("#run-table tbody tr:visible")
        assert rows.count() == 45
        panel.get_by_label("Task").select_option("parity")
        assert rows.count() == 15
        panel.get_by_label("Outcome").select_option("not learned")
        assert rows.count() == 6
        panel.get_by_label("Encoding").select_option("rotary")
        panel.get_by_label("Seed").select_option("2")
        assert rows.count() == 1
        assert panel.locator("#run-count").inner_text().startswith("1 of 45 runs")
        table = list(csv.DictReader(downloaded(tab, panel.get_by_role("button", name="CSV")).splitlines()))
        assert [row["run"] for row in table] == ["parity/rotary/seed-2"]
        assert (table[0]["device"], table[0]["seconds"]) == ("NVIDIA H200", "60")
        panel.get_by_role("button", name="parity/rotary/seed-2").click()
        dialog = tab.get_by_role("dialog", name="parity/rotary/seed-2")
        assert dialog.get_by_role("row", name="learning rate").inner_text().split() == ["learning", "rate", "0.0003"]
        assert dialog.get_by_role("row", name="outcome").inner_text().split("\t")[-1] == "not learned"
        losses = dialog.get_by_role("img", name="Training loss")
        assert losses.count() == 0, "these runs have no log"
        dialog.get_by_text("As JSON").click()
        assert json.loads(dialog.locator("pre").inner_text())["settings"]["training"]["learning_rate"] == 3e-4
        tab.keyboard.press("Escape")
        assert not dialog.is_visible()
        for name in ("Task", "Outcome", "Encoding", "Seed"):
            panel.get_by_label(name).select_option("")
        panel.get_by_label("Search").fill("addition seed-3 t5")
        assert rows.count() == 1


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 390])
def test_a_run_is_a_card_with_its_curves(
    finished: tuple[Path, Results], browser: Any, tmp_path: Path, width: int
) -> None:
    write_page(finished[1], tmp_path / "report.html")
    with Watched(browser, tmp_path / "report.html", width) as tab:
        overview = tab.get_by_role("tabpanel")
        shown = [
            each for each in ("opening", "opening-narrow") if overview.locator(f"svg[data-figure={each}]").is_visible()
        ]
        assert shown == ["opening" if width > 600 else "opening-narrow"]
        letters = overview.locator("svg[data-figure^=opening]:visible text").first
        assert letters.bounding_box()["height"] >= 11, "letters that can be read"
        choose(tab, "Runs").locator("#run-table tbody button").first.click()
        dialog = tab.locator("#run-dialog")
        for name in ("Exact match at each validation", "Training loss"):
            drawing = dialog.get_by_role("img", name=name)
            frame = drawing.bounding_box()
            assert drawing.locator("path[fill=none]").count() >= 1
            for letters in drawing.locator("text").all():
                box = letters.bounding_box()
                assert box["x"] >= 0 and box["x"] + box["width"] <= frame["x"] + frame["width"] + 1 <= width, name
        assert re.fullmatch(
            r"\d{4}-\d\d-\d\d \d\d:\d\d UTC", dialog.get_by_role("row", name="started").locator("td").inner_text()
        )


@pytest.mark.slow
def test_tables_are_sorted(battery: Path, browser: Any) -> None:
    with Watched(browser, battery) as tab:
        panel = choose(tab, "Runs")
        names, unseen = (panel.locator(f"#run-table tbody tr > :nth-child({column})") for column in (1, 2))
        before = names.all_inner_texts()
        heading = panel.get_by_role("columnheader", name="unseen")
        heading.get_by_role("button").click()
        values = list(map(float, unseen.all_inner_texts()))
        assert values == sorted(values, reverse=True) and len(set(values)) > 2
        assert heading.get_attribute("aria-sort") == "descending"
        heading.get_by_role("button").click()
        assert list(map(float, unseen.all_inner_texts())) == sorted(values)
        heading.get_by_role("button").click()
        assert names.all_inner_texts() == before
        panel.get_by_role("columnheader", name="run").get_by_role("button").click()
        assert names.all_inner_texts() == sorted(before) != before


@pytest.mark.slow
def test_it_opens_with_a_sentence_and_a_picture_that_can_be_enlarged(battery: Path, browser: Any) -> None:
    with Watched(browser, battery) as tab:
        overview = tab.get_by_role("tabpanel")
        assert re.match(
            r"Over 3 tasks, each encoding is right on .* “none” (falls|stays)", overview.locator("p").first.inner_text()
        )
        figure = overview.locator("svg[data-figure=opening]")
        small = figure.bounding_box()
        assert small and small["y"] < 500
        figure.click()
        dialog = tab.locator("#figure-dialog")
        large = dialog.locator("svg").bounding_box()
        assert dialog.is_visible() and large and large["width"] > 1.3 * small["width"]
        dialog.get_by_role("button", name="Close").click()
        assert not dialog.is_visible()
        overview.get_by_role("button", name="Enlarge opening").click()
        assert dialog.is_visible()


@pytest.mark.slow
def test_failures_are_filtered_and_marked(battery: Path, browser: Any) -> None:
    with Watched(browser, battery) as tab:
        panel = choose(tab, "Failures")
        cards = panel.locator(".failure")
        assert cards.count() == 20
        panel.get_by_role("button", name="Show more").click()
        assert cards.count() == 40
        for label, value in {"task": "copy.repeat", "encoding": "rotary", "length": "30", "seed": "1"}.items():
            panel.locator(f"[name={label}]").select_option(value)
        assert cards.count() == 2
        about = cards.first.locator(".about").inner_text()
        assert about.startswith("copy.repeat · rotary · seed 1 · length 30 · ")
        rows = list(csv.DictReader(downloaded(tab, panel.locator("#failure-csv")).splitlines()))
        assert len(rows) == 2 and {row["task"] for row in rows} == {"copy.repeat"}
        for number, row in enumerate(rows):
            right, kind = int(row["right"]), row["kind"]
            target, written = (cards.nth(number).locator(".answer").nth(i) for i in (1, 2))
            due = row["target"][right:].split()[:1]
            assert target.locator("mark").inner_text() == (due[0] if due else "end")
            assert written.locator("mark").inner_text() == ("end" if kind == "stopped early" else "w<x>")
        panel.locator("[name=length]").select_option("")
        panel.locator("[name=kind]").select_option("ran on")
        assert "ran on" in cards.first.inner_text()
        panel.get_by_label("Task").select_option("addition")
        panel.locator("[name=length]").select_option("40")
        assert panel.locator("#failure-count").inner_text().startswith("0 of ")


@pytest.mark.slow
def test_every_table_and_figure_can_be_downloaded(battery: Path, browser: Any) -> None:
    with Watched(browser, battery) as tab:
        panel = choose(tab, "Overview")
        text = downloaded(tab, panel.get_by_role("button", name="CSV of Ranking on unseen lengths"))
        ranking = list(csv.DictReader(text.splitlines()))
        shown = panel.get_by_role("table", name="Ranking").locator("tbody tr").all_inner_texts()
        assert [row["encoding"] for row in ranking] == [row.split()[0] for row in shown]
        assert float(ranking[0]["mean_reciprocal_rank"]) >= float(ranking[1]["mean_reciprocal_rank"])
        drawing = downloaded(tab, panel.get_by_role("button", name="SVG of ranking"))
        root = ElementTree.fromstring(drawing)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert root.get("color") == "#1b1f24" and root[0].get("fill") == "#ffffff", "dark ink on white paper"
        assert {"none", "t5", "alibi", "rotary", "sinusoidal"} <= {text.text for text in root.iter() if text.text}
        text = downloaded(tab, panel.get_by_role("button", name="CSV of What became of the runs"))
        assert text.splitlines()[0] == 'encoding,runs,generalized,"learned, not generalized",not learned'
        panel = choose(tab, "By length")
        drawing = downloaded(tab, panel.get_by_role("button", name="SVG of by length parity").first)
        assert "parity" in {text.text for text in ElementTree.fromstring(drawing).iter()}
        buttons = "[...document.querySelectorAll('.tools .download')].map((button) => button.textContent)"
        offered = tab.evaluate(buttons)
        assert sum(name.startswith("CSV") for name in offered) == tab.locator("main table").count()
        assert sum(name.startswith("SVG") for name in offered) == tab.locator("svg[data-figure]").count()


def test_everybody_can_use_it(battery: Path, browser: Any) -> None:
    with Watched(browser, battery) as tab:
        assert tab.evaluate("document.documentElement.lang") == "en"
        assert tab.evaluate(ACCESSIBILITY) == []
        tab.evaluate("document.querySelector('caption').remove()")
        assert len(tab.evaluate(ACCESSIBILITY)) == 1, "the check itself sees what is wrong"
        tab.evaluate("document.querySelector('h2').style.color = '#888888'")
        assert len(tab.evaluate(CONTRASTS)) == 1


@pytest.mark.slow
def test_page_without_scripts_is_one_long_page(battery: Path, browser: Any) -> None:
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(battery.as_uri())
    assert tab.locator("main > section:visible").count() == len(TABS)
    assert tab.locator(".plot:visible svg").count() == 3
    assert tab.get_by_role("link", name="By length").get_attribute("href") == "#lengths"
    context.close()


@pytest.mark.slow
def test_without_failures_and_with_one_of_everything(tmp_path: Path, browser: Any) -> None:
    write_battery(tmp_path / "runs", ["scan"], ("none",), (1,), failures=0)
    write_page(load_results(tmp_path / "runs"), tmp_path / "report.html")
    with Watched(browser, tmp_path / "report.html") as tab:
        for name in tab.get_by_role("tab").all_inner_texts():
            choose(tab, name)
        assert "recorded no failures" in choose(tab, "Failures").inner_text()
        assert tab.get_by_role("tab", name="Differences").count() == 0


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of two tasks whose runs have ten validations each."""
    folder = tmp_path_factory.mktemp("trained")
    write_battery(folder / "runs", ["copy.repeat", "parity"], failures=0, validations=10)
    write_page(load_results(folder / "runs"), folder / "report.html")
    return folder / "report.html"


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_training_shows_and_can_be_read(trained: Path, browser: Any, width: int, scheme: str) -> None:
    with Watched(browser, trained, width, scheme) as tab:
        for name in ("During training", "Tasks × encodings"):
            panel = choose(tab, name)
            wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert tab.evaluate(wider) <= 0, f"{name} scrolls sideways at {width} pixels"
            assert tab.evaluate(CONTRASTS) == [], name
            assert panel.locator(".swing:visible").count() > 0
        assert tab.evaluate(ACCESSIBILITY) == []
        panel = choose(tab, "During training")
        drawing = panel.locator("[data-figure=over-steps-parity]").bounding_box()
        assert drawing["width"] >= 300, "as wide as a phone, or a column"
        tip = tab.locator("[title*='swing over the last 5 validations']").first
        assert tip.get_attribute("title").startswith("seed 1: ")


@pytest.mark.slow
def test_lines_of_training_show_what_is_chosen(trained: Path, browser: Any) -> None:
    with Watched(browser, trained) as tab:
        panel = choose(tab, "During training")
        shown = {kind: panel.locator(f"[data-figure=over-steps-parity] {kind}") for kind in (".seeds", ".validation")}
        assert {kind: lines.count() for kind, lines in shown.items()} == {".seeds": 15, ".validation": 5}

        def visible(kind: str) -> int:
            return sum(line.is_visible() for line in shown[kind].all())

        panel.get_by_role("button", name="validation", exact=True).click()
        assert (visible(".validation"), visible(".seeds")) == (0, 15)
        panel.get_by_role("button", name="t5", exact=True).click()
        assert visible(".seeds") == 12
        panel.get_by_role("button", name="validation", exact=True).click()
        assert visible(".validation") == 4, "what is hidden stays so"
        curves = choose(tab, "By length")
        assert curves.locator(".plot:visible [data-encoding=t5]").first.is_visible(), "the other tab has its own lines"
        curves.get_by_role("button", name="t5").click()
        assert not curves.locator(".plot [data-encoding=t5]").first.is_visible()
        panel = choose(tab, "Tasks × encodings")
        panel.get_by_role("link", name="During training").click()
        panel = tab.locator("#steps")
        panel.wait_for(state="visible")
        assert panel.get_by_role("heading", name="Accuracy during training").is_visible()
        assert 0 < panel.locator("h2").bounding_box()["y"] < 300, "its beginning is in view"
        panel.get_by_text("Numbers of parity").click()
        caption = "Exact match on parity: unseen lengths / validation, mean over seeds"
        assert panel.get_by_role("table", name=caption).is_visible()
        rows = list(csv.DictReader(downloaded(tab, panel.get_by_role("button", name=f"CSV of {caption}")).splitlines()))
        assert len(rows) == 5 * 3 * 10 and {row["task"] for row in rows} == {"parity"}
        drawing = downloaded(tab, panel.get_by_role("button", name="SVG of over steps parity"))
        assert "training step" in {text.text for text in ElementTree.fromstring(drawing).iter()}


@pytest.mark.slow
def test_whole_battery_is_small_and_opens(tmp_path: Path, browser: Any, capsys: pytest.CaptureFixture[str]) -> None:
    write_battery(tmp_path / "runs", validations=10)
    results = load_results(tmp_path / "runs")
    assert len(results.runs) == 17 * 5 * 3
    write_page(results, tmp_path / "report.html")
    size = (tmp_path / "report.html").stat().st_size
    assert size < BYTES
    with Watched(browser, tmp_path / "report.html") as tab:
        timing = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
        paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
        loaded, painted = tab.evaluate(timing), tab.evaluate(paint)
        for name in (*TABS, "During training"):
            choose(tab, name)
    with capsys.disabled():
        shown = "" if painted is None else f"first painted after {painted:.0f} ms, "
        print(f"\nreport of 255 runs: {size / 1e6:.2f} MB, {shown}all scripts done after {loaded:.0f} ms")
    assert re.search(r"[\d,]+ of the [\d,]+ that\s+the runs recorded", (tmp_path / "report.html").read_text())


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of two tasks whose models, of 3 layers and 4 heads, were looked into."""
    runs = tmp_path_factory.mktemp("analysed") / "runs"
    write_battery(runs, ["parity", "scan"], ("none", "t5"), (1, 2), failures=1, words=4)
    analysis = load_analysis(write_analysis(runs, layers=3, heads=4, tokens=20))
    write_page(load_results(runs), runs / "report.html", analysis)
    return runs / "report.html"


@pytest.mark.slow
@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_findings_show_and_can_be_read(analysed: Path, browser: Any, width: int, scheme: str) -> None:
    with Watched(browser, analysed, width, scheme) as tab:
        assert {"Why", "Attention explorer"} <= set(tab.get_by_role("tab").all_inner_texts())
        for name in ("Why", "Attention explorer"):
            choose(tab, name)
            wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert tab.evaluate(wider) <= 0, f"{name} scrolls sideways at {width} pixels"
            assert tab.evaluate(CONTRASTS) == [], name
            assert tab.evaluate(CUT) == [], name
        assert tab.evaluate(ACCESSIBILITY) == []


@pytest.mark.slow
def test_findings_are_chosen_and_downloaded(analysed: Path, browser: Any) -> None:
    with Watched(browser, analysed) as tab:
        panel = choose(tab, "Why")
        assert panel.locator(".why-task:visible").count() == 1
        assert panel.get_by_text("parity: whose attention is similar").is_visible()
        panel.locator("#why-task").select_option("scan")
        assert not panel.get_by_text("parity: whose attention is similar").is_visible()
        shown = panel.locator(".why-task:visible")
        assert shown.locator(".why-map:visible svg").get_attribute("data-figure") == "attention-heads-tokens-back-scan"
        shown.locator(".why-score").select_option("attention-heads-induction-scan")
        assert shown.locator(".why-map:visible svg").get_attribute("data-figure") == "attention-heads-induction-scan"
        text = downloaded(tab, shown.get_by_role("button", name="CSV of every head on scan"))
        heads = list(csv.DictReader(text.splitlines()))
        analysis = load_analysis(analysed.parent / "analysis")
        rows = [row for row in analysis.heads if row["task"] == "scan" and row["seed"] == 1]
        assert len(heads) == len(rows) == 2 * 2 * 3 * 4, "encodings, seen and unseen, layers, heads"
        assert [float(line["first"]) for line in heads] == [round(row["first"], 4) for row in rows]
        text = downloaded(tab, shown.get_by_role("button", name="CSV of scan: first errors"))
        assert {row["task"] for row in csv.DictReader(text.splitlines())} == {"scan"}
        drawing = downloaded(tab, shown.get_by_role("button", name="SVG of probes scan"))
        assert "distance, linear probe" in {text.text for text in ElementTree.fromstring(drawing).iter()}


@pytest.mark.slow
def test_folded_findings_unfold(analysed: Path, browser: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(why_page, "UNFOLDED", 0)
    analysis = load_analysis(analysed.parent / "analysis")
    write_page(load_results(analysed.parent), tmp_path / "report.html", analysis)
    with Watched(browser, tmp_path / "report.html") as tab:
        panel = choose(tab, "Why")
        assert panel.locator(".why-task").count() == 1
        panel.locator("#why-task").select_option("scan")
        title = panel.get_by_text("scan: whose attention is similar")
        title.wait_for()
        assert panel.locator(".why-task:visible").count() == 1 and panel.locator(".why-map:visible").count() == 1
        text = downloaded(tab, panel.get_by_role("button", name="CSV of scan: probes"))
        rows = list(csv.DictReader(text.splitlines()))
        assert len(rows) == 2 * 2 * 2 * 4 and {row["task"] for row in rows} == {"scan"}
        assert tab.evaluate(ACCESSIBILITY) == []
        panel.locator("#why-task").select_option("parity")
        panel.locator("#why-task").select_option("scan")
        title.wait_for()
        assert panel.locator(".why-task").count() == 2


@pytest.mark.slow
def test_attention_is_explored_by_keyboard(analysed: Path, browser: Any) -> None:
    """The last query of head h of layer 1 looks at key h alone."""
    with Watched(browser, analysed) as tab:
        panel = choose(tab, "Attention explorer")
        cell, strongest = panel.locator("#map-cell"), panel.locator("#map-strongest li")
        image = panel.get_by_role("application")
        assert image.get_attribute("aria-label").startswith(
            "Attention of none on parity, seed 1, unseen length, 6, layer 1"
        )
        image.focus()
        for _ in range(20):
            tab.keyboard.press("ArrowDown")
        tab.keyboard.press("Home")
        assert cell.inner_text() == "Query 20, “w<19>”, looks at key 1, “w<0>” (19 back), with 1.00."
        assert strongest.all_inner_texts() == ["1.00 on key 1, “w<0>” (19 back)"]
        tab.keyboard.press("ArrowRight")
        assert "key 2, “w<1>” (18 back), with 0.00" in cell.inner_text()
        panel.locator("#map-form [name=head]").focus()
        tab.keyboard.press("ArrowDown")
        tab.locator("#map[aria-label$='layer 1, head 2']").wait_for()
        assert "key 2, “w<1>” (18 back), with 1.00" in cell.inner_text(), "the place stays"
        panel.locator("#map-form [name=layer]").focus()
        tab.keyboard.press("ArrowDown")
        tab.locator("#map[aria-label$='layer 2, head 2']").wait_for()
        image.focus()
        tab.keyboard.press("PageUp")
        tab.keyboard.press("PageUp")
        tab.keyboard.press("End")
        assert image.get_attribute("aria-label").endswith("layer 1, head 4")
        assert "key 20, “w<19>” (itself), with 0.00" in cell.inner_text()
        assert strongest.all_inner_texts() == ["1.00 on key 4, “w<3>” (16 back)"]
        panel.locator("#map-form [name=example]").focus()
        tab.keyboard.press("ArrowUp")
        tab.locator("#map[aria-label*=' seen length, 3, layer 1, head 4']").wait_for()
        assert panel.locator("#map svg text").count() == 2 * 10, "10 tokens on both axes"
        panel.locator("#map-form [name=encoding]").select_option("t5")
        tab.locator("#map[aria-label^='Attention of t5 on parity']").wait_for()
        panel.locator("#map-form [name=task]").select_option("scan")
        tab.locator("#map[aria-label^='Attention of t5 on scan']").wait_for()
        assert panel.locator("#map-form [name=head]").input_value() == "3", "what was chosen stays"


@pytest.mark.slow
def test_attention_is_explored_by_pointer(analysed: Path, browser: Any) -> None:
    with Watched(browser, analysed) as tab:
        panel = choose(tab, "Attention explorer")
        drawing = panel.locator("#map svg")
        wide, tall = (float(drawing.get_attribute(name)) for name in ("width", "height"))
        box = drawing.bounding_box()
        side = 20 * 24  # tokens, pixels
        left = wide - side - 6
        assert (box["width"], box["height"]) == (wide, tall)
        tab.mouse.move(box["x"] + left + 0.5 * 24, box["y"] + 19.5 * 24)
        assert panel.locator("#map-cell").inner_text().startswith("Query 20, “w<19>”, looks at key 1")
        before = panel.locator("#map-cell").inner_text()
        tab.mouse.move(box["x"] + left + 18.5 * 24, box["y"] + 2.5 * 24)
        assert panel.locator("#map-cell").inner_text() == before, "no query looks at later keys"
        heads = panel.locator("#map-heads").bounding_box()
        panel.locator("#map-heads").click(position={"x": heads["width"] * 3.5 / 4, "y": heads["height"] * 2.5 / 3})
        tab.locator("#map[aria-label$='layer 3, head 4']").wait_for()
        text = downloaded(tab, panel.get_by_role("button", name="CSV of this map"))
        rows = list(csv.DictReader(text.splitlines()))
        assert len(rows) == 20 * 21 // 2
        (example,) = [
            each
            for run in load_analysis(analysed.parent / "analysis").maps
            for each in run["examples"]
            if (run["task"], run["encoding"], each["seen"]) == ("parity", "none", False)
        ]
        weights = base64.b64decode(example["weights"])[-210:]  # the last layer's last head
        assert [float(row["weight"]) for row in rows] == [round(weight / 255, 4) for weight in weights]
        picture = downloaded(tab, panel.get_by_role("button", name="SVG of attention map"))
        root = ElementTree.fromstring(picture)
        assert "w<19>" in {part.text for part in root.iter()} and "cursor" not in picture


@pytest.mark.slow
def test_hostile_names_do_nothing(browser: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In every field that can hold one; findings are folded up too, where tasks are looked up by name."""
    from hostile import write_hostile

    monkeypatch.setattr(why_page, "UNFOLDED", 1000)
    folder = write_hostile(tmp_path)
    write_page(load_results(folder), tmp_path / "report.html", load_analysis(folder / "analysis"))
    with Watched(browser, tmp_path / "report.html") as tab:
        for name in tab.get_by_role("tab").all_inner_texts():
            choose(tab, name)
        for value in tab.eval_on_selector_all("#why-task option", "found => found.map((each) => each.value)"):
            choose(tab, "Why")
            tab.select_option("#why-task", value)
            shown = "[...document.querySelectorAll('.why-task')].find((block) => !block.hidden)?.dataset.task"
            tab.wait_for_function(f"wanted => {shown} === wanted", arg=value)
        runs = choose(tab, "Runs")
        runs.locator("#run-table tbody button").first.click()
        assert "window.hacked" in (tab.locator("#run-card pre").text_content() or "")
        tab.locator("#run-close").click()
        for button in runs.locator("button.download").all():
            rows = csv.reader(downloaded(tab, button).splitlines())
            assert not [cell for row in rows for cell in row if cell.startswith(("=", "@"))]
        assert tab.evaluate("window.hacked") is None
        assert "\u202e" not in tab.content() and "\x1b" not in tab.content()
