"""Results where Python is typed: data frames of the real packages, a plot, HTML, Rich, a part, a listener."""

import builtins
import warnings
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from conftest import small_study
from rich.console import Console

import lengthwise as lw
from lengthwise.errors import UserError
from lengthwise.records.results import Results
from lengthwise.runtime import Listener


def test_data_frames_are_the_rows(finished: tuple[Path, Results]) -> None:
    results = lw.results(finished[0])
    expected = [row for row in finished[1].rows if row["checkpoint"] == "best"]
    assert results.to_polars("best").to_dicts() == expected == results.to_pandas("best").to_dict("records")
    assert results.to_polars().equals(results.table())
    with pytest.raises(UserError, match="checkpoint must be 'last' or 'best', or None, not 'first'"):
        results.to_pandas("first")


@pytest.mark.parametrize(("package", "extra"), [("polars", "report"), ("pandas", "pandas")])
def test_a_missing_package_is_named(
    finished: tuple[Path, Results], monkeypatch: pytest.MonkeyPatch, package: str, extra: str
) -> None:
    usual = builtins.__import__

    def without(name: str, *others: Any) -> Any:
        if name == package:
            raise ImportError(name)
        return usual(name, *others)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UserError, match=rf"pip install 'lengthwise\[{extra}\]'"):
        getattr(finished[1], f"to_{package}")()


def test_a_plot_is_what_a_notebook_shows(finished: tuple[Path, Results], tmp_path: Path) -> None:
    plot = lw.results(finished[0]).plot()
    drawn = ElementTree.fromstring(plot._repr_svg_())
    assert "copy.repeat" in "".join(drawn.itertext())
    assert plot.save(tmp_path / "p.svg").read_text() == plot._repr_svg_()
    assert plot.save(tmp_path / "p.png").read_bytes().startswith(b"\x89PNG")
    with pytest.raises(UserError, match="columns must be 1 or more"):
        lw.results(finished[0]).plot(columns=0)


def test_what_is_shown_of_results(finished: tuple[Path, Results]) -> None:
    results = lw.results(finished[0], only="encoding=none")
    assert repr(results) == "<Results of small; finished runs: 2, tasks: 1, encodings: 1, seeds: 2>"
    html = results._repr_html_()
    assert "<th" in html and "copy.repeat" in html and "alibi" not in html
    console = Console(width=100, record=True, file=None, quiet=False)
    with console.capture() as printed:
        console.print(results)
    assert "copy.repeat" in printed.get() and "Ranking" in printed.get()


def test_a_part_is_trained_and_a_listener_is_told(tmp_path: Path) -> None:
    told: dict[str, list[dict[str, Any]]] = {}
    listener = Listener(rows=lambda run, rows: told.setdefault(run, []).extend(rows))
    study = small_study(training__steps=2, training__validate_every=1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a study as small as this is no matter for a GPU
        results = lw.run(study, tmp_path / "runs", "cpu", workers=1, only="encoding=none,seed=1", listener=listener)
    assert [run.description["name"] for run in results.runs] == list(told) == ["copy.repeat/none/seed-1"]
    assert {row["step"] for row in told["copy.repeat/none/seed-1"]} >= {1, 2}


def test_results_need_a_folder() -> None:
    with pytest.raises(UserError, match="results needs a folder"):
        lw.results()
