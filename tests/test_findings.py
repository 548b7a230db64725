"""What analyses found goes along when results are collected, and is read back as it was."""

import shutil
from pathlib import Path

import pytest
from synthetic import write_battery
from synthetic_analysis import write_analysis
from typer.testing import CliRunner

from lengthwise.cli.main import app
from lengthwise.errors import RunError
from lengthwise.records.findings import AnalysisFolder, load_analysis
from lengthwise.records.results import Results
from lengthwise.records.rows import collect, load_results

KINDS = {"distance", "failures", "heads", "maps", "probes"}


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two encodings, two seeds, models of 2 layers and 3 heads, every analysis."""
    folder = tmp_path_factory.mktemp("findings") / "runs"
    write_battery(folder, ["scan"], ("none", "t5"), (1, 2), failures=1, words=4)
    write_analysis(folder, layers=2, heads=3, tokens=12)
    return folder


def packed(folder: Path) -> dict[str, bytes]:
    return {file.name.removesuffix(".jsonl.gz"): file.read_bytes() for file in (folder / "analysis").glob("*.jsonl.gz")}


@pytest.mark.slow
def test_a_collection_has_the_findings_of_the_folder_it_came_from(runs: Path, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["collect", str(runs), "--out", str(tmp_path / "c")])
    assert done.exit_code == 0, done.output
    whole = load_analysis(runs / "analysis")
    assert all(vars(whole).values()), "something of every kind"
    assert load_analysis(tmp_path / "c/analysis") == whole
    assert packed(tmp_path / "c").keys() == KINDS
    size = sum(file.stat().st_size for file in (runs / "analysis").rglob("*.json*"))
    assert sum(map(len, packed(tmp_path / "c").values())) < size / 4
    for name, folder in (("raw", runs), ("collected", tmp_path / "c")):
        done = CliRunner().invoke(app, ["report", str(folder), "--out", str(tmp_path / f"{name}.html")])
        assert done.exit_code == 0, done.output
    page = (tmp_path / "collected.html").read_text()
    assert 'id="why"' in page and 'id="attention"' in page
    assert page == (tmp_path / "raw.html").read_text()


def test_the_same_findings_are_the_same_bytes(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    collect(load_results(runs), tmp_path / "c")
    first = packed(tmp_path / "c")
    monkeypatch.setattr("time.time", lambda: 1e9)
    collect(load_results(tmp_path / "c"), tmp_path / "again")
    assert packed(tmp_path / "again") == first
    collect(load_results(tmp_path / "c"), tmp_path / "c")
    assert packed(tmp_path / "c") == first, "onto itself"


def test_without_analysis_there_is_none_and_none_stays(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs, tmp_path / "plain", ignore=shutil.ignore_patterns("analysis"))
    collect(load_results(tmp_path / "plain"), tmp_path / "c")
    assert not (tmp_path / "c/analysis").exists()
    collect(load_results(runs), tmp_path / "c")
    shutil.copytree(runs / "analysis/heads", tmp_path / "plain/analysis/heads")
    collect(load_results(tmp_path / "plain"), tmp_path / "c")
    assert packed(tmp_path / "c").keys() == {"heads"}
    results = load_results(runs)
    collect(Results(results.runs, [], results.study), tmp_path / "c")
    assert not packed(tmp_path / "c") and not load_analysis(tmp_path / "c/analysis")


def test_only_findings_about_the_collected_runs_go_along(runs: Path, tmp_path: Path) -> None:
    """A folder keeps rows of runs that are gone, and of pairs that one of them was part of."""
    shutil.copytree(runs, tmp_path / "fewer")
    results = load_results(tmp_path / "fewer")
    gone = results.of("scan", "none")[0].description["fingerprint"]
    shutil.rmtree(next((tmp_path / "fewer").glob(f"*/*/seed-1-{gone}")))
    collect(load_results(tmp_path / "fewer"), tmp_path / "c")
    whole, found = load_analysis(runs / "analysis"), load_analysis(tmp_path / "c/analysis")
    assert any(gone in (row["run"], row["reference_run"]) for row in whole.distances)
    assert found.distances == [row for row in whole.distances if gone not in (row["run"], row["reference_run"])]
    assert found.heads == [row for row in whole.heads if row["run"] != gone] != whole.heads


def test_the_published_variant_goes_along(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs, tmp_path / "more")
    rows = [{**load_analysis(runs / "analysis").distances[0], "variant": "distance-published", "distance": 0.1 + 0.2}]
    AnalysisFolder(tmp_path / "more/analysis").write("distance-published", "unit", {}, rows)
    collect(load_results(tmp_path / "more"), tmp_path / "c")
    assert packed(tmp_path / "c").keys() == {*KINDS, "distance-published"}
    assert load_analysis(tmp_path / "c/analysis").distances[-1] == rows[0]


def test_a_damaged_file_is_named(runs: Path, tmp_path: Path) -> None:
    collect(load_results(runs), tmp_path / "c")
    file = tmp_path / "c/analysis/heads.jsonl.gz"
    whole = file.read_bytes()
    for damaged in (whole[:-20], whole[:200] + bytes(100) + whole[300:], b"not gzip"):
        file.write_bytes(damaged)
        with pytest.raises(RunError, match=r"heads\.jsonl\.gz is damaged"):
            load_analysis(tmp_path / "c/analysis")
