"""The page of findings says what the committed rows say: its tables, orders and figures, computed again."""

import json
import re
from collections import defaultdict
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from conftest import load_script

from lengthwise.records.findings import AnalysisRows, distance_label, load_analysis
from lengthwise.records.results import Results
from lengthwise.records.rows import load_results
from lengthwise.report.model.attention_distances import comparisons
from lengthwise.report.model.findings import relevant
from lengthwise.report.model.first_errors import first_errors
from lengthwise.report.model.head_statistics import LayerStatistics, layer_statistics
from lengthwise.report.model.probes import best_layers, probed
from lengthwise.report.model.summaries import ERROR_KINDS

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs/why.md").read_text()
STUDIES = {"base": "scan-attention", "small": "battery-small-symbols"}
NAMES = ("none", "t5", "alibi", "rotary", "sinusoidal")
NEAREST_FIRST = ("t5", "none (other seed)", "alibi", "sinusoidal", "rotary")


@cache
def found(size: str) -> tuple[Results, AnalysisRows]:
    folder = ROOT / "results" / STUDIES[size]
    results = load_results(folder)
    return results, relevant(results, load_analysis(folder / "analysis"))


def table(heading: str) -> dict[str, list[str]]:
    """The first table below a heading of the page: first cell of each row -> the others."""
    lines = PAGE.split(f"### {heading}\n")[1].split("\n\n|")[1].split("\n\n")[0].splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]
    return {row[0]: row[1:] for row in rows}


def test_the_study_is_the_one_that_was_run() -> None:
    from lengthwise.study import load_study

    results, _ = found("base")
    runs = load_study("scan-attention").runs()
    assert results.study["name"] == "scan-attention"

    def settings(tables: list[dict[str, Any]]) -> list[str]:
        """Sorted; another engine, or a setting that the results do not know yet, does not make it another study."""
        known = results.runs[0].description["settings"]
        plain = [
            {
                "encoding": [layer["name"] for layer in table["encoding"]],
                **{key: table[key] for key in ("task", "seed", "model")},
                **{part: {key: table[part][key] for key in known[part]} for part in ("data", "training")},
            }
            for table in tables
        ]
        return sorted(json.dumps(table, sort_keys=True) for table in plain)

    assert settings([run.table() for run in runs]) == settings([run.description["settings"] for run in results.runs])


def test_every_analysis_of_every_run_is_there() -> None:
    for size in STUDIES:
        results, analysis = found(size)
        wanted = {run.description["fingerprint"] for run in results.runs if run.description["task"] == "scan"}
        assert len(wanted) == 15
        for rows in (analysis.heads, analysis.probes, analysis.failures):
            assert {row["run"] for row in rows} == wanted
        assert len({(row["run"], row["reference_run"]) for row in analysis.distances}) == 15
        assert {(row["encoding"], row["seed"]) for row in analysis.maps} == {(name, 1) for name in NAMES}


def test_distances_and_their_order() -> None:
    said = table("The order of the five distances is the published one")
    for size in STUDIES:
        _, analysis = found(size)
        (comparison,) = comparisons(analysis, "scan")
        lines = {line.label: line for line in comparison.lines}
        assert said[size] == [f"{lines[label].overall:.3f}" for label in NEAREST_FIRST]
        published = [f"{lines[label].published_overall:.3f}" for label in NEAREST_FIRST]
        assert said["published (another divergence)"] == published == sorted(published)
        assert (list(lines) == list(NEAREST_FIRST)) == (size == "base"), "nearest first"
        pairs = defaultdict(list)
        for row in analysis.distances:
            pairs[distance_label(row), row["seed"], row["reference_seed"]].append(row["distance"])
        means = [[np.mean(d) for (label, *_), d in pairs.items() if label == name] for name in NEAREST_FIRST]
        assert said[f"{size}, least and greatest pair"] == [f"{min(each):.3f}, {max(each):.3f}" for each in means]
        furthest = sum(
            lines["rotary"].by_layer[layer] == max(line.by_layer[layer] for line in lines.values())
            for layer in lines["rotary"].by_layer
        )
        assert furthest == {"base": 6, "small": 3}[size]


def test_heads() -> None:
    said = table("Rotary looks at one or two tokens; the first token is nothing special")
    for size, heads in (("base", 144), ("small", 32)):
        looks = [each for each in layer_statistics(found(size)[1], "scan") if each.group == "unseen"]
        own = {name: [each for each in looks if each.encoding == name] for name in NAMES}

        def means(score: str, digits: int, own: dict[str, list[LayerStatistics]] = own) -> list[str]:
            return [f"{np.mean([each.scores[score] for each in own[name]]):.{digits}f}" for name in NAMES]

        assert said[f"{size}: entropy, share of its bound"] == ["1", *means("entropy_share", 2)]
        assert said[f"{size}: tokens back"] == [f"{looks[0].even['tokens_back']:.1f}", *means("tokens_back", 1)]
        first = [f"{looks[0].even['first']:.3f}", *means("first", 3)]
        assert said[f"{size}: attention on the first token"] == first
        induction = [f"{sum(each.kinds['induction'] for each in own[name]):.1f}" for name in NAMES]
        assert said[f"{size}: induction heads, of {heads}"] == ["–", *induction]
        assert all(len(each) * each[0].heads == heads for each in own.values())
        assert all(each.scores["first"] < 0.09 for each in looks)
        for layer in range(len(own["none"])):
            assert min(NAMES, key=lambda name: own[name][layer].scores["entropy_share"]) == "rotary"


def test_probes() -> None:
    said = table("Position can be read to about a token, as far as training went")
    for size in STUDIES:
        results, analysis = found(size)
        best = {
            each.encoding: each
            for each in best_layers(probed(analysis, "scan"))
            if (each.target, each.probe) == ("position", "linear")
        }
        own = [best[name] for name in NAMES]
        assert said[f"{size}: error within, tokens"] == [f"{each.within['error']:.2f}" for each in own]
        assert said[f"{size}: error beyond, tokens"] == [f"{each.beyond['error']:.1f}" for each in own]
        assert said[f"{size}: slope beyond"] == [f"{each.beyond['slope']:.2f}" for each in own]
        assert said[f"{size}: accuracy holds until, tokens"] == [f"{each.accuracy_until:.0f}" for each in own]
        unseen = results.accuracies()
        assert said[f"{size}: right on unseen lengths"] == [
            f"{np.mean(list(unseen['scan', name].values())):.2f}" for name in NAMES
        ]
        order = sorted(NAMES, key=lambda name: best[name].beyond["error"])
        assert order == ["alibi", "none", "t5", "rotary", "sinusoidal"]
        assert [each.holds_until for each in own] == [36, 36, 36, 36, 37]
        assert all(-0.105 < each.control["within_r2"] < -0.025 for each in own)


def test_failures() -> None:
    said = table("Failures are wrong symbols as well as wrong ends")
    for name in NAMES:
        numbers = []
        for size in STUDIES:
            (each,) = (a for a in first_errors(found(size)[1], "scan", False) if a.encoding == name and not a.seen)
            assert each.n == 2592
            numbers += [each.wrong, *(each.kinds[kind] for kind in ERROR_KINDS[1:])]
        assert said[f"`{name}`"] == [f"{number:,}" for number in numbers]
    alibi = {a.lengths[0]: a for a in first_errors(found("base")[1], "scan", True) if a.encoding == "alibi"}
    trained = [alibi[length] for length in alibi if 19 <= length <= 25]
    assert sum(each.n for each in trained) == 702 and sum(each.kinds["correct"] for each in trained) == 0
    assert [alibi[length].kinds["correct"] for length in (27, 30)] == [221, 221]


def test_every_picture_is_drawn_from_rows_and_shown() -> None:
    """`make pages` draws them, and test_pages.py compares."""
    shown = set(re.findall(r"\(pictures/([^)]*)\)", PAGE))
    made = {name for name in load_script("docs/pages/render.py").PICTURES if name.startswith("why-")}
    assert {file.name for file in (ROOT / "docs/pictures").glob("why-*")} == shown == made
