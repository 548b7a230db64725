"""The tour of the code shows what the code does."""

import doctest
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TOUR = ROOT / "docs/tour.md"


def test_what_the_tour_shows_is_what_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)  # it reads results/
    failed, tried = doctest.testfile(str(TOUR), module_relative=False, optionflags=doctest.NORMALIZE_WHITESPACE)
    assert tried > 20 and failed == 0


def test_the_tour_has_at_most_twelve_stops_and_links_to_files_that_are_there() -> None:
    text = TOUR.read_text()
    assert 8 <= len(re.findall(r"^## \d+\.", text, flags=re.MULTILINE)) <= 12
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert (TOUR.parent / link).exists(), link
