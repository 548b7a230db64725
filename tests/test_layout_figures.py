"""The figure of layouts says of every layout what the rows say, and is made only for studies that vary the layout."""

import copy
from pathlib import Path

import pytest

from lengthwise.records.results import Results
from lengthwise.records.rows import load_results
from lengthwise.report.figures.gallery import figures
from lengthwise.report.figures.layouts import layout_figure
from lengthwise.report.model.layouts import Layout, ahead, layouts

RESULTS = Path(__file__).parent.parent / "results"


@pytest.fixture(scope="module")
def varied() -> Results:
    return load_results(RESULTS / "layout-tiny-slow")


def test_layouts_are_found_in_settings_not_in_titles(varied: Results) -> None:
    renamed = copy.deepcopy(varied.runs)
    for run in renamed:
        run.description["task"] = f"any title {run.description['settings']['data']['separator_tokens']}"
    found = layouts(Results(renamed, [], varied.study))
    assert found == {
        "copy.repeat": {Layout(1, 1): "any title 1", Layout(1, 4): "any title 4", Layout(1, 8): "any title 8"}
    }


def test_every_cell_has_the_mean_of_its_seeds(varied: Results) -> None:
    figure = layout_figure(varied)
    assert figure
    for encoding in varied.encodings:
        for separator in (1, 4, 8):
            runs = varied.of(f"copy.repeat (1 + {separator} tokens)", encoding)
            mean = sum(run.accuracy("last", seen=False) for run in runs) / len(runs)
            assert f"{encoding} 1 + {separator}: {mean:.2f}" in figure.description
            assert f">{mean:.2f}<" in figure.body
    assert figure.name in {each.name for each in figures(varied)}


def test_a_study_of_one_layout_has_no_such_figure() -> None:
    assert layout_figure(load_results(RESULTS / "quickstart")) is None


def test_ahead_counts_layouts_beyond_the_margin(varied: Results) -> None:
    titles, (slow, slower) = layouts(varied)["copy.repeat"], ("t5(initial=0,rate=0.1)", "t5(rate=0.01)")
    differences = [
        sum(run.accuracy("last", seen=False) for run in varied.of(title, slow)) / 3
        - sum(run.accuracy("last", seen=False) for run in varied.of(title, slower)) / 3
        for title in titles.values()
    ]
    for least in (0.0, 0.1, 0.2, 0.5):
        assert ahead(varied, titles, slow, slower, least) == sum(each > least for each in differences)
        assert ahead(varied, titles, slower, slow, least) == sum(-each > least for each in differences)
