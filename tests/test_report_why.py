"""What analyses found, in the report: numbers computed again from the rows, figures, attention maps and their size."""

import base64
import csv
import json
import re
import zlib
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from synthetic import write_battery
from synthetic_analysis import write_analysis

from lengthwise.records.findings import AnalysisFolder, AnalysisRows, Row, distance_label, load_analysis
from lengthwise.records.results import Results
from lengthwise.records.rows import load_results
from lengthwise.report.export import write_report
from lengthwise.report.html import attention_maps
from lengthwise.report.html.page import write_page
from lengthwise.report.model.attention_distances import comparisons
from lengthwise.report.model.findings import relevant
from lengthwise.report.model.first_errors import first_errors
from lengthwise.report.model.head_statistics import SCORES, layer_statistics
from lengthwise.report.model.probes import best_layers, probed


@pytest.fixture(scope="module")
def battery(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two tasks, three encodings, two seeds, models of 2 layers and 3 heads."""
    folder = tmp_path_factory.mktemp("why") / "runs"
    write_battery(folder, ["parity", "scan"], ("none", "t5", "alibi"), (1, 2), failures=1, words=4)
    write_analysis(folder, layers=2, heads=3, tokens=12)
    return folder


@pytest.fixture(scope="module")
def results(battery: Path) -> Results:
    return load_results(battery)


@pytest.fixture(scope="module")
def analysis(battery: Path) -> AnalysisRows:
    return load_analysis(battery / "analysis")


def text_of(results: Results, path: Path, analysis: AnalysisRows | None) -> str:
    write_page(results, path, analysis)
    return path.read_text(encoding="utf-8")


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


@pytest.mark.slow
def test_without_findings_the_page_is_as_it_was(results: Results, analysis: AnalysisRows, tmp_path: Path) -> None:
    plain = text_of(results, tmp_path / "plain.html", None)
    assert plain == text_of(results, tmp_path / "empty.html", AnalysisRows())
    for word in ("attention", "why"):
        assert f'id="{word}"' not in plain
    assert "exploreAttention" not in plain and "chooseScores" not in plain and ".explorer" not in plain
    whole = text_of(results, tmp_path / "whole.html", analysis)
    assert 'id="why"' in whole and 'id="attention"' in whole
    gone = AnalysisRows(*([{**row, "run": "gone"} for row in rows] for rows in vars(analysis).values()))
    assert text_of(results, tmp_path / "gone.html", gone) == plain, "rows of runs that are not there any more"
    best = AnalysisRows(*([{**row, "checkpoint": "best"} for row in rows] for rows in vars(analysis).values()))
    assert text_of(results, tmp_path / "best.html", best) == plain, "the report is about the last checkpoint"


def distance(encoding: str, seed: int, reference_seed: int, value: float, **others: Any) -> Row:
    about = {"run": f"{encoding}{seed}", "task": "scan", "encoding": encoding, "seed": seed, "checkpoint": "last"}
    known = {"reference": "none", "reference_run": f"none{reference_seed}", "reference_seed": reference_seed}
    row = {"variant": "distance", "layers": 2, "layer": 1, "length": 5, "n": 10, "seen": True, "distance": value}
    return {**about, **known, **row, **others}


def test_pairs_of_the_same_seed_and_of_different_seeds_are_not_mixed() -> None:
    rows = [
        distance("t5", 1, 1, 0.1), distance("t5", 2, 2, 0.3), distance("t5", 1, 2, 0.5),
        distance("t5", 1, 2, 0.7, layer=2, seen=False, length=30), distance("none", 2, 1, 0.15),
    ]  # fmt: skip
    same, different = comparisons(AnalysisRows(distances=rows), "scan")
    assert (same.same_seed, different.same_seed) == (True, False)
    assert [(line.label, line.overall, line.pairs) for line in same.lines] == [
        ("none (other seed)", 0.15, 1),
        ("t5", pytest.approx(0.2), 2),
    ]
    assert [line.overall for line in different.lines] == [0.15, pytest.approx(0.6)]
    t5 = different.lines[1]
    assert (t5.by_layer, t5.seen, t5.unseen) == ({1: 0.5, 2: 0.7}, {1: 0.5}, {2: 0.7})


def test_published_distances_stand_beside_ours(tmp_path: Path) -> None:
    from lengthwise.records.published_distance import published_distances

    theirs = published_distances("scan")["t5"]
    rows = [distance("t5", 1, 1, 0.1, layer=layer, layers=12, length=9) for layer in range(1, 13)]
    (found,) = comparisons(AnalysisRows(distances=rows), "scan")
    (line,) = found.lines
    assert line.published == {layer: theirs[layer, 9] for layer in range(1, 13)}
    assert line.published_overall == pytest.approx(mean(list(line.published.values())))
    (small,) = comparisons(AnalysisRows(distances=[distance("t5", 1, 1, 0.1)]), "scan")
    assert small.lines[0].published == {}, "layer 1 of 2 is not layer 1 of 12"
    from lengthwise.report.figures.attention import distance_figure

    ours = distance_figure(found, ["none", "t5"])
    assert "Published, their divergence" in ours.body, "another divergence has another axis"
    variant = [{**row, "variant": "distance-published"} for row in rows]
    beside = distance_figure(comparisons(AnalysisRows(distances=variant), "scan")[0], ["none", "t5"])
    assert "Published, their" not in beside.body and beside.body.count('stroke-dasharray="5 3"') == 2, "line and legend"


@pytest.mark.parametrize(
    ("layers", "variant", "unlike"),
    [
        (2, "distance", ["another divergence", "of 12 layers"]),
        (12, "distance", ["another divergence"]),
        (2, "distance-published", ["of 12 layers"]),
        (12, "distance-published", []),
    ],
)
def test_published_distances_say_what_they_are_of(
    results: Results, tmp_path: Path, layers: int, variant: str, unlike: list[str]
) -> None:
    runs = {(r.description["encoding"], r.description["seed"]): r.description["fingerprint"] for r in results.runs
            if r.description["task"] == "scan"}  # fmt: skip
    of = {"run": runs["t5", 1], "reference_run": runs["none", 1], "layers": layers, "variant": variant, "length": 9}
    rows = [distance("t5", 1, 1, 0.1, layer=layer, **of) for layer in range(1, layers + 1)]
    analysis = AnalysisRows(distances=rows)
    text = text_of(results, tmp_path / "r.html", analysis)
    ((label, cells),) = re.findall(r'<tr class="quiet"><th scope="row">([^<]*)</th>(.*?)</tr>', text)
    assert label.strip() == ", ".join(["published t5", *unlike])
    found = re.findall(r">\d\.\d{3}<", cells)
    assert len(found) == (13 if layers == 12 else 1), "each layer and all of them"
    markdown = write_report(results, tmp_path / "r.md", None, analysis).read_text()
    assert f"| {', '.join(['published t5', *unlike])} |" in markdown
    lines = read_csv(write_report(results, tmp_path / "csv", "csv", analysis) / "attention-distance.csv")
    assert [line["published_is"] for line in lines if line["published"]] == ["; ".join(unlike)] * len(found)


def read_csv(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.read_text().splitlines()))


def test_tables_are_the_rows(results: Results, analysis: AnalysisRows, tmp_path: Path) -> None:
    folder = write_report(results, tmp_path / "tables", "csv", analysis)
    analysis = relevant(results, analysis)
    assert [row["encoding"] for row in analysis.failures if row["task"] == "scan"][::48] == [
        encoding for encoding in ("none", "t5", "alibi") for _ in (1, 2)
    ], "the study's order, then seeds"
    heads = read_csv(folder / "attention-heads.csv")
    keys = {
        "task": "task",
        "encoding": "encoding",
        "seed": "seed",
        "lengths": "group",
        "layer": "layer",
        "head": "head",
    }
    assert [{k: line[k] for k in keys} for line in heads] == [
        {k: str(row[name]) for k, name in keys.items()} for row in analysis.heads
    ]
    assert [float(line["induction"]) for line in heads] == [round(row["induction"], 4) for row in analysis.heads]

    def rows_of(rows: list[Row], line: dict[str, str], *names: str) -> list[Row]:
        return [row for row in rows if all(str(row[name]) == line[name] for name in names)]

    layers = read_csv(folder / "attention-by-layer.csv")
    assert len(layers) == 2 * 3 * 2 * 2, "tasks, encodings, seen and unseen, layers"
    for line in layers:
        own = [r for r in rows_of(analysis.heads, line, "task", "encoding", "layer") if r["group"] == line["lengths"]]
        assert float(line["previous"]) == pytest.approx(mean([row["previous"] for row in own]), abs=1e-4)
        kinds = sum(row["previous"] >= 0.5 for row in own) / 2  # even attention has 0.1; two runs
        assert float(line["previous_heads"]) == kinds
    for line in read_csv(folder / "attention-distance.csv"):
        own = [r for r in rows_of(analysis.distances, line, "task") if distance_label(r) == line["encoding"]]
        if line["layer"] != "all":
            own = [row for row in own if str(row["layer"]) == line["layer"]]
        assert float(line["distance"]) == pytest.approx(mean([row["distance"] for row in own]), abs=1e-4)
    for line in read_csv(folder / "probes.csv"):
        own = [
            r for r in rows_of(analysis.probes, line, "task", "encoding", "probe", "layer") if r["target"] == line["of"]
        ]
        true, control = ([row for row in own if row["control"] == kind] for kind in (False, True))
        assert float(line["r2_beyond"]) == pytest.approx(mean([row["beyond"]["r2"] for row in true]), abs=1e-4)
        assert float(line["control_error_within"]) == pytest.approx(
            mean([r["within"]["error"] for r in control]), abs=1e-4
        )
    errors = read_csv(folder / "first-errors.csv")
    for line in errors:
        own = rows_of(analysis.failures, line, "task", "encoding", "length")
        assert len(own) == 2 and int(line["n"]) == 100
        assert int(line["in_tenth_4"]) == sum(row["first_error_part"][3] for row in own)
        assert int(line["wrong_symbol"]) == sum(row["wrong_symbol"] for row in own)


def test_probes_are_shown_at_the_layer_that_reads_best(analysis: AnalysisRows) -> None:
    every = probed(analysis, "scan")
    best = best_layers(every)
    assert len(best) == 3 * 2 * 2, "encodings, targets, kinds of probes"
    for each in best:
        rivals = [e for e in every if (e.encoding, e.target, e.probe) == (each.encoding, each.target, each.probe)]
        assert len(rivals) == 3 and each.within["r2"] == max(rival.within["r2"] or 0 for rival in rivals)
        assert list(each.error_at) == list(range(12))


def test_the_place_of_errors_is_a_mean_over_errors() -> None:
    row = {"run": "x", "task": "a", "encoding": "none", "seed": 1, "checkpoint": "last", "seen": False, "n": 10,
           "wrong_symbol": 0, "stopped_early": 0, "first_error_part": [0] * 10, "beyond_trained": 1}  # fmt: skip
    rows = [
        {**row, "length": 7, "correct": 9, "ran_on": 1, "first_error_share": 1.0},
        {**row, "length": 8, "correct": 7, "ran_on": 3, "first_error_share": 0.2},
        {**row, "length": 9, "correct": 10, "ran_on": 0, "first_error_share": None},
    ]
    (found,) = first_errors(AnalysisRows(failures=rows), "a", by_length=False)
    assert (found.n, found.wrong, found.kinds["ran_on"], found.lengths) == (30, 4, 4, (7, 8, 9))
    assert found.place == pytest.approx((1.0 + 3 * 0.2) / 4)


def test_runs_that_were_asked_at_different_lengths(analysis: AnalysisRows) -> None:
    """One run's rows reach less far than the other's: means are over those that reach so far."""
    rows = [row for row in analysis.heads if row["task"] == "scan" and row["encoding"] == "t5"]
    cut = [
        {
            **row,
            "distance_up_to": row["distance_up_to"][:3],
            "distance_share": [1.0, 0.0, 0.0],
            **{name: row[name][:2] for name in ("entropy_by_position", "entropy_bound", "first_by_position")},
        }
        if row["seed"] == 2
        else row
        for row in rows
    ]
    (first, *_) = layer_statistics(AnalysisRows(heads=cut), "scan")
    whole = [row for row in cut if (row["seed"], row["group"], row["layer"]) == (1, first.group, 1)]
    assert len(first.reach) == 8 and sum(share for _, share in first.reach) == pytest.approx(1, abs=1e-3)
    assert first.first[5] == pytest.approx(mean([row["first_by_position"][5] for row in whole]))


def test_markdown_and_figures(results: Results, analysis: AnalysisRows, tmp_path: Path) -> None:
    text = write_report(results, tmp_path / "r.md", None, analysis).read_text()
    for title in ("attention distance to none", "how heads look", "probes", "first errors"):
        assert f"## scan: {title}" in text and f"## parity: {title}" in text
    assert "##" in text and "scan: probes" not in write_report(results, tmp_path / "plain.md").read_text()
    folder = write_report(results, tmp_path / "figures", "svg", analysis)
    names = {file.stem for file in folder.iterdir()}
    for name in ("attention-distance-same-seeds", "attention-reach", "attention-entropy", "attention-first", "probes"):
        assert f"{name}-scan" in names
    assert {f"attention-heads-{score.replace('_', '-')}-parity" for score in SCORES} <= names
    assert "first-errors-parity" in names
    for file in folder.iterdir():
        words = " ".join(part.text or "" for part in ElementTree.parse(file).iter())
        assert "nan" not in words.split()


def test_heads_of_a_kind_are_framed(results: Results, analysis: AnalysisRows) -> None:
    from lengthwise.report.figures.head_maps import head_map_figures

    figures = {each.name: each for each in head_map_figures(analysis, "scan", results.encodings)}
    rows = [r for r in analysis.heads if (r["task"], r["seed"], r["group"]) == ("scan", 1, "unseen")]
    expected = sum(row["previous"] >= 0.5 for row in rows)
    assert 0 < expected < len(rows)
    frames = re.findall(r'd="([^"]*)" fill="none" stroke="#d9480f"', figures["attention-heads-previous-scan"].body)
    assert sum(path.count("z") for path in frames) == expected
    assert "#d9480f" not in figures["attention-heads-first-scan"].body


def test_maps_are_packed_whole(results: Results, analysis: AnalysisRows) -> None:
    pack = attention_maps.packed(results, analysis, 10_000_000)
    assert len(pack["maps"]) == pack["found"] == 2 * 3 * 2, "tasks, encodings, examples; of seed 1"
    by_key = {(run["task"], run["encoding"], e["seen"]): e for run in analysis.maps for e in run["examples"]}
    for entry in pack["maps"]:
        example = by_key[entry["task"], entry["encoding"], entry["seen"]]
        assert zlib.decompress(base64.b64decode(entry["weights"])) == base64.b64decode(example["weights"])
    order = [(entry["task"], entry["encoding"], entry["seen"]) for entry in pack["maps"]]
    assert order[:3] == [("parity", "none", True), ("parity", "none", False), ("parity", "t5", True)]


def test_what_does_not_fit_is_left_out_seen_lengths_first(
    results: Results, analysis: AnalysisRows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attention_maps, "ROOM", 0)
    whole = attention_maps.packed(results, analysis, 10_000_000)["maps"]
    unseen = [entry for entry in whole if not entry["seen"]]
    few = attention_maps.packed(results, analysis, sum(len(json.dumps(entry)) for entry in unseen))
    assert [entry for entry in few["maps"] if not entry["seen"]] == unseen and few["found"] == len(whole)
    assert attention_maps.packed(results, analysis, 0)["maps"] == []


@pytest.mark.slow
@pytest.mark.parametrize("sharp", [True, False])
def test_base_size_stays_below_five_megabytes(tmp_path: Path, sharp: bool) -> None:
    """Five encodings, 12 layers of 12 heads, examples of 60 tokens: trained heads fit whole; noise does not."""
    write_battery(tmp_path / "runs", ["scan"], seeds=(1, 2))
    analysis = load_analysis(write_analysis(tmp_path / "runs", sharp=sharp))
    text = text_of(load_results(tmp_path / "runs"), tmp_path / "report.html", analysis)
    assert len(text.encode()) < 5_000_000
    (data,) = re.findall(r'id="attention-maps">(.*?)</script>', text)
    pack = json.loads(data)
    assert pack["found"] == 10 and len(pack["maps"]) >= (10 if sharp else 5)
    assert ("maps are here" in text) == (len(pack["maps"]) < 10)


@pytest.mark.slow
def test_a_whole_battery_stays_below_five_megabytes(tmp_path: Path) -> None:
    """All analyses of all 17 tasks: the first stands in the page, the others are folded up, none is lost."""
    write_battery(tmp_path / "runs", seeds=(1,))
    analysis = load_analysis(write_analysis(tmp_path / "runs", layers=4, heads=8))
    text = text_of(load_results(tmp_path / "runs"), tmp_path / "report.html", analysis)
    assert len(text.encode()) < 5_000_000
    (data,) = re.findall(r'id="why-packed">(.*?)</script>', text)
    folded = {task: json.loads(zlib.decompress(base64.b64decode(each))) for task, each in json.loads(data).items()}
    standing = re.findall(r'class="why-task" data-task="([^"]*)"', text)
    assert [*standing, *folded] == load_results(tmp_path / "runs").tasks
    assert all(f'data-task="{task}"' in each["html"] for task, each in folded.items())
    rows = folded["scan"]["tables"]["attention-heads"]["rows"]
    assert len(rows) == 5 * 2 * 4 * 8, "encodings, seen and unseen, layers, heads"


def test_a_folder_is_read_as_it_is_written(tmp_path: Path) -> None:
    folder = AnalysisFolder(tmp_path)
    assert not load_analysis(tmp_path)
    folder.write("distance", "a-b-last", {}, [distance("t5", 1, 1, 0.1)])
    folder.write("distance-published", "a-b-last", {}, [distance("t5", 1, 1, 3.0, variant="distance-published")])
    found = load_analysis(tmp_path)
    assert found and [row["distance"] for row in found.distances] == [0.1, 3.0]
    assert not found.of_runs({"t51"}), "the run that it is compared with must be there too"
    assert len(found.of_runs({"t51", "none1"}).distances) == 2
