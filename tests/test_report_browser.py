"""The report in a real browser: every tab, filter and download works, everyone can use it, and nothing is fetched."""

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from synthetic import write_battery

from lengthwise.records.rows import load_results
from lengthwise.report.page import write_page

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
ACCESSIBILITY = (Path(__file__).parent / "accessibility.js").read_text()


@pytest.fixture(scope="module")
def battery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of three tasks, one of which two encodings did not learn; its failures contain `<x>`."""
    folder = tmp_path_factory.mktemp("battery")
    write_battery(folder / "runs", ["copy.repeat", "parity", "addition"], failures=2, words=8)
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


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_every_tab_shows_and_can_be_read(battery: Path, browser: Any, width: int, scheme: str) -> None:
    with Watched(browser, battery, width, scheme) as tab:
        assert tab.get_by_role("tab").all_inner_texts() == TABS
        for name in TABS:
            choose(tab, name)
            wider = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert tab.evaluate(wider) <= 0, f"{name} scrolls sideways at {width} pixels"
            assert tab.evaluate(CONTRASTS) == [], name


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
        tab.emulate_media(media="print")
        assert tab.evaluate(paper) == "rgb(255, 255, 255)", "paper is white"
        assert tab.locator("[role=tabpanel]:visible").count() == len(TABS), "all of it is printed"
        tab.emulate_media(media="screen")
        switch.click()
        assert tab.evaluate(paper) == "rgb(255, 255, 255)"


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


def test_curves_show_what_is_chosen(battery: Path, browser: Any) -> None:
    with Watched(browser, battery) as tab:
        panel = choose(tab, "By length")
        assert panel.locator(".plot:visible svg").count() == 3
        curve = panel.locator(".plot:visible [data-encoding=t5]").first
        assert curve.is_visible()
        panel.get_by_role("button", name="t5").click()
        assert not curve.is_visible()
        panel.get_by_role("button", name="t5").click()
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
        assert panel.get_by_role("table", name="Exact match on parity, mean over seeds").is_visible()


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
        assert json.loads(dialog.locator("pre").inner_text())["settings"]["training"]["learning_rate"] == 3e-4
        tab.keyboard.press("Escape")
        assert not dialog.is_visible()
        for name in ("Task", "Outcome", "Encoding", "Seed"):
            panel.get_by_label(name).select_option("")
        panel.get_by_label("Search").fill("addition seed-3 t5")
        assert rows.count() == 1


def test_failures_are_filtered_and_marked(battery: Path, browser: Any) -> None:
    with Watched(browser, battery) as tab:
        panel = choose(tab, "Failures")
        cards = panel.locator(".failure")
        assert cards.count() == 20
        panel.get_by_role("button", name="Show more").click()
        assert cards.count() == 40
        for label, value in {"Task": "copy.repeat", "Encoding": "rotary", "Length": "30", "Seed": "1"}.items():
            panel.get_by_label(label).select_option(value)
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
        panel.get_by_label("Length").select_option("")
        panel.locator("[name=kind]").select_option("ran on")
        assert "ran on" in cards.first.inner_text()
        panel.get_by_label("Task").select_option("addition")
        panel.get_by_label("Length").select_option("40")
        assert panel.locator("#failure-count").inner_text().startswith("0 of ")


def test_every_table_and_figure_can_be_downloaded(battery: Path, browser: Any) -> None:
    with Watched(browser, battery) as tab:
        panel = choose(tab, "Overview")
        text = downloaded(tab, panel.get_by_role("button", name="CSV of Ranking over 9 pairs"))
        ranking = list(csv.DictReader(text.splitlines()))
        shown = panel.get_by_role("table", name="Ranking").locator("tbody tr").all_inner_texts()
        assert [row["encoding"] for row in ranking] == [row.split()[0] for row in shown]
        assert float(ranking[0]["mean_reciprocal_rank"]) >= float(ranking[1]["mean_reciprocal_rank"])
        drawing = downloaded(tab, panel.get_by_role("button", name="SVG of ranking"))
        root = ElementTree.fromstring(drawing)
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        assert root.get("color") == "#1b1f24" and root[0].get("fill") == "#ffffff", "dark ink on white paper"
        assert {"none", "t5", "alibi", "rotary", "sinusoidal"} <= {text.text for text in root.iter() if text.text}
        text = downloaded(tab, panel.get_by_role("button", name="CSV of Runs by outcome"))
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


def test_page_without_scripts_is_one_long_page(battery: Path, browser: Any) -> None:
    context = browser.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(battery.as_uri())
    assert tab.locator("main > section:visible").count() == len(TABS)
    assert tab.locator(".plot:visible svg").count() == 3
    assert tab.get_by_role("link", name="By length").get_attribute("href") == "#lengths"
    context.close()


def test_without_failures_and_with_one_of_everything(tmp_path: Path, browser: Any) -> None:
    write_battery(tmp_path / "runs", ["scan"], ("none",), (1,), failures=0)
    write_page(load_results(tmp_path / "runs"), tmp_path / "report.html")
    with Watched(browser, tmp_path / "report.html") as tab:
        for name in tab.get_by_role("tab").all_inner_texts():
            choose(tab, name)
        assert "recorded no failures" in choose(tab, "Failures").inner_text()
        assert tab.get_by_role("tab", name="Differences").count() == 0


def test_whole_battery_is_small_and_opens(tmp_path: Path, browser: Any, capsys: pytest.CaptureFixture[str]) -> None:
    write_battery(tmp_path / "runs")
    results = load_results(tmp_path / "runs")
    assert len(results.runs) == 17 * 5 * 3
    write_page(results, tmp_path / "report.html")
    size = (tmp_path / "report.html").stat().st_size
    assert size < 5_000_000
    with Watched(browser, tmp_path / "report.html") as tab:
        timing = "performance.getEntriesByType('navigation')[0].domContentLoadedEventEnd"
        paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"
        loaded, painted = tab.evaluate(timing), tab.evaluate(paint)
        for name in TABS:
            choose(tab, name)
    with capsys.disabled():
        shown = "" if painted is None else f"first painted after {painted:.0f} ms, "
        print(f"\nreport of 255 runs: {size / 1e6:.2f} MB, {shown}all scripts done after {loaded:.0f} ms")
    assert re.search(r"[\d,]+ of the [\d,]+ that\s+the runs recorded", (tmp_path / "report.html").read_text())
