"""Pages that are made from committed results say what the rows say, and nothing that nobody computed."""

import re
from pathlib import Path

import pytest
from conftest import load_script, slow
from drawings import assert_same_drawing

ROOT = Path(__file__).parent.parent


PAGES = load_script("docs/pages/render.py")


DRAWN = [*(page for page in PAGES.PAGES.values() if page.name != "README.md"), *PAGES.PICTURES]


@pytest.mark.parametrize("file", [PAGES.PAGES["README.md.jinja"], *map(slow, DRAWN)], ids=lambda file: Path(file).name)
def test_pages_and_pictures_are_what_the_results_make_them(file: Path | str) -> None:
    if isinstance(file, str):
        assert_same_drawing((ROOT / "docs/pictures" / file).read_text(), PAGES.picture(file))  # make pages
    else:
        (template,) = [name for name, page in PAGES.PAGES.items() if page == file]
        assert file.read_text() == PAGES.render(template), "make pages"


@pytest.mark.parametrize("template", PAGES.PAGES)
def test_every_number_of_a_page_is_computed_or_given(template: str) -> None:
    """Outside of code, links and what templates compute, no decimal number is written by hand."""
    text = (PAGES.HERE / template).read_text()
    for passage in (r"```.*?```", r"\{\{.*?\}\}", r"\{%.*?%\}", r"`[^`]*`", r"\]\([^)]*\)"):
        text = re.sub(passage, " ", text, flags=re.DOTALL)
    text = re.sub(r"(torch|Python) \d+\.\d+", r"\1", text)  # versions are no results
    assert re.findall(r"[^\n]*\d\.\d[^\n]*", text) == []


def test_a_number_that_is_not_in_the_results_cannot_be_asked_for() -> None:
    with pytest.raises(KeyError, match="has no copy"):
        PAGES.cell("quickstart", "copy.repeat", "nothing")
