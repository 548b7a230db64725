"""The site builds without a warning; what leads nowhere is found; the tutorial does what it shows."""

from pathlib import Path

import pytest
from conftest import load_script
from test_report_browser import CHROMIUM, FLAGS

SITE = load_script("docs/pages/site.py")
TUTORIAL = load_script("docs/pages/tutorial.py")


@pytest.fixture(scope="module")
def built() -> Path:
    """The folder of the site, whose links have been checked."""
    SITE.build()
    return SITE.SITE


@pytest.mark.slow
def test_the_site_builds_and_every_link_leads_somewhere(built: Path) -> None:
    home = (built / "index.html").read_text()
    assert "pictures/quickstart.svg" in home and "https://fonts" not in home
    assert not list(built.rglob("*.jinja*"))


@pytest.mark.slow
@pytest.mark.skipif(not CHROMIUM.exists(), reason="needs /usr/bin/chromium: apt-get install chromium")
def test_pages_in_a_folder_are_searched_and_ask_no_other_machine(built: Path) -> None:
    from playwright.sync_api import sync_playwright

    asked: list[str] = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        tab = browser.new_page()
        tab.on("request", lambda request: asked.append(request.url))
        for page in ("index.html", "files/lengthwise/encodings/alibi.py.html"):
            tab.goto((built / page).as_uri())
            tab.get_by_role("button", name="Search").first.click()
            tab.get_by_role("combobox", name="Search").fill("passkey")
            tab.get_by_text("Passkey accuracy").first.wait_for(timeout=20_000)
        browser.close()
    assert asked and [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []


def test_what_a_page_would_fetch_from_elsewhere_is_refused(tmp_path: Path) -> None:
    (tmp_path / "below").mkdir()
    shim = '<script src="https://unpkg.com/iframe-worker/shim" type="text/javascript"></script>'
    for page in ("a.html", "below/b.html"):
        (tmp_path / page).write_text(shim)
    SITE.keep_to_itself(tmp_path)
    assert (tmp_path / "below/b.html").read_text() == '<script src="../search_frame.js"></script>'
    assert (tmp_path / "a.html").read_text() == '<script src="search_frame.js"></script>'
    (tmp_path / "a.html").write_text('<img alt="" src="https://example.org/p.png">')
    with pytest.raises(SystemExit, match=r"a\.html fetches https://example\.org/p\.png"):
        SITE.keep_to_itself(tmp_path)


def test_the_navigation_has_every_page_once() -> None:
    nav = SITE.navigation()
    pages = {page.name for page in (SITE.ROOT / "docs").glob("*.md")} | {"contributing.md", "changelog.md"}
    assert len(nav) == len(set(nav)) and {*nav} == pages


def test_links_that_lead_nowhere_are_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text(
        '<p id="here"><a href="#here"><a href="#there"><a href="b.html#x"><img src="p.png">'
    )
    (tmp_path / "b.html").write_text('<p id="x"><a href="a.html"><a href="https://example.org/none">')
    assert SITE.broken_links(tmp_path) == ["a.html: #there", "a.html: p.png"]


def test_a_list_after_a_paragraph_is_a_list() -> None:
    assert SITE.apart("Two:\n- a\n  b\n- c\n") == "Two:\n\n- a\n  b\n- c\n"
    assert SITE.apart("| x |\n\n- a\n") == "| x |\n\n- a\n"


def test_a_page_may_not_link_to_a_file_that_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SITE, "ROOT", tmp_path)
    page = tmp_path / "page.md"
    page.write_text("[a](gone.py)\n```\n[b](not-a-link.py)\n```\n")
    with pytest.raises(SystemExit, match=r"page\.md links to gone\.py"):
        SITE.on_site(page, set())


@pytest.mark.slow
def test_the_tutorial_prints_what_it_shows(tmp_path: Path) -> None:
    page = TUTORIAL.PAGE.read_text()
    found = TUTORIAL.executed(page, tmp_path)
    assert TUTORIAL.same(page, found), found  # make pages
    drawn = (tmp_path / "penalties.svg").read_text()
    assert "logarithm" in drawn and "alibi" in drawn


def test_pages_that_differ_by_more_than_rounding_are_not_the_same() -> None:
    assert TUTORIAL.same("a 0.50 | −0.10", "a  0.55 | -0.05")
    assert not TUTORIAL.same("a 0.50", "a 0.90")
    assert TUTORIAL.same("a 6 runs", "a 5 runs") and not TUTORIAL.same("a 6 runs", "a 4 runs")
    assert not TUTORIAL.same("alibi 0.50", "none 0.50")
