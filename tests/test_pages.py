"""Pages that are made from committed results say what the rows say, and nothing that nobody computed."""

import re
from pathlib import Path

import numpy as np
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
    """Outside of code, links and what templates compute, no number is written by hand but in names, dates and the token
    counts of a template (`2 + 4`)."""
    text = (PAGES.HERE / template).read_text()
    for passage in (r"```.*?```", r"\{\{.*?\}\}", r"\{%.*?%\}", r"`[^`]*`", r"\]\([^)]*\)"):
        text = re.sub(passage, " ", text, flags=re.DOTALL)
    names = r"\b(T5|H200|bf16|beta2|GPT-2|(torch|Python) \d+\.\d+)"  # versions are no results
    for passage in (names, r"\b2026-\d\d-\d\d( and\s+\d\d)?", r"2n \+ \d", r"\b\d \+ \d\b"):
        text = re.sub(passage, " ", text)
    assert re.findall(r"[^\n]*\d[^\n]*", text) == []


def test_words_that_the_results_do_not_bear_out_are_refused() -> None:
    assert PAGES.provided(True, "all of them") == "all of them"
    with pytest.raises(ValueError, match="no longer say: all of them"):
        PAGES.provided(False, "all of them")


def test_a_trend_is_as_likely_as_orders_within_groups_say() -> None:
    """Three values in each of two groups: of 36 pairs of orders two make a line as steep, up and down."""
    tokens = [1, 2, 4]
    steep = np.array([[0.1, 0.2, 0.3], [0.5, 0.6, 0.7]])
    assert PAGES.trend_p(steep, tokens) == PAGES.trend_p(steep[:, ::-1], tokens) == pytest.approx(2 / 36, abs=0.006)
    assert PAGES.trend_p(np.ones((4, 3)), tokens) == 1.0
    apart = np.array([[0.1, 0.2, 0.3], [0.7, 0.6, 0.5]])
    assert PAGES.trend_p(apart, tokens) == 1.0, "one up, one down"
    shifted = steep + np.array([[0.0], [5.0]])
    assert PAGES.trend_p(shifted, tokens) == PAGES.trend_p(steep, tokens), "how far groups are apart does not matter"


@pytest.mark.slow
def test_trends_of_the_layout_computed_again() -> None:
    """T5 on `scan` by the tokens of the first word: means over 12 runs each."""
    runs = [run for run in PAGES.results("layout").runs if run.description["encoding"] == "t5"]
    found: dict[int, list[float]] = {}
    for run in runs:
        if run.description["settings"]["task"]["name"] == "scan":
            right, n = (
                sum(r[k] for r in run.rows if not r["seen"] and r["checkpoint"] == "last") for k in ("correct", "n")
            )
            found.setdefault(run.description["settings"]["data"]["prefix_tokens"], []).append(right / n)
    means = {tokens: sum(each) / len(each) for tokens, each in sorted(found.items())}
    assert PAGES.trend("layout", "scan", "t5", "prefix").means == pytest.approx(means) and len(found[1]) == 12


def test_numbers_of_test_examples_and_buckets() -> None:
    assert PAGES.tested("quickstart") == [600] and PAGES.tested_at_a_length("quickstart", seen=True) == [50, 65]
    # 16 exact distances, then bucket 16 + i from 16 * 8^(i / 16): 45.25 for i = 8, 51.5 for i = 9.
    assert PAGES.bucket_of(46) == (46, 51) and PAGES.bucket_of(7) == (7, 7)


def test_a_number_that_is_not_in_the_results_cannot_be_asked_for() -> None:
    with pytest.raises(KeyError, match="has no copy"):
        PAGES.cell("quickstart", "copy.repeat", "nothing")
