"""Our results beside the published ones: verdicts, what is missing, how orders agree."""

import json
import math
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest
from hand_made import Key, made
from rich.console import Console

from lengthwise.errors import UserError
from lengthwise.records import published
from lengthwise.records.comparison import compare, score
from lengthwise.records.equivalence import Verdict
from lengthwise.records.published import Score
from lengthwise.records.results import Results
from lengthwise.records.rows import load_results
from lengthwise.records.run_result import RunResult
from lengthwise.report.terminal.comparison import comparison_tables

QUICKSTART = Path(__file__).parent.parent / "results/quickstart"


def printed(results: Results, checkpoint: str = "last") -> str:
    console = Console(width=100)
    with console.capture() as capture:
        for thing in comparison_tables(compare(results, checkpoint), results):
            console.print(thing)
    assert all(len(line) <= 100 for line in capture.get().splitlines())
    return " ".join(capture.get().split())


def as_published(**changes: float) -> dict[Key, float]:
    """Every published cell without steps, three seeds, `changes` added to the encodings named."""
    return {
        (cell.task, cell.encoding, seed): min(1.0, max(0.0, cell.unseen.mean + changes.get(cell.encoding, 0.0)))
        for cell in published.cells().values()
        if cell.scratchpad == "none"
        for seed in (1, 2, 3)
    }


def test_published_figures_are_whole() -> None:
    cells = published.cells()
    plain = [cell for cell in cells.values() if cell.scratchpad == "none"]
    assert len(plain) == 17 * 5 and {cell.encoding for cell in plain} == set(published.ENCODINGS)
    assert {cell.task for cell in plain} == set(published.LENGTHS)
    assert cells["copy.repeat", "none", "t5"].unseen.mean == pytest.approx(0.77, abs=0.01)
    assert cells["lego", "full", "none"].unseen == Score(0.5798, None, 1)
    assert "6 runs pooled" in cells["lego", "full-input", "t5"].unseen.note
    assert {cell.task for cell in cells.values() if cell.scratchpad != "none"} == {
        *("addition", "summation", "polynomial", "parity", "sort.symbols", "sort.numbers", "lego")
    }
    assert list(published.ENCODINGS) == sorted(published.ENCODINGS, key=lambda e: -published.reciprocal_ranks()[e])


def test_published_protocol_is_what_the_tasks_and_encodings_have_by_default() -> None:
    """All settings, those included that tables leave out where nobody has set them."""
    from lengthwise import configuration, registry
    from lengthwise.training.recipe import DataConfig, TrainingConfig

    for name, (train, test) in published.LENGTHS.items():
        task = registry.tasks.get(name)()
        assert (task.train_lengths.first, task.train_lengths.last) == train, name
        assert (task.test_lengths.first, task.test_lengths.last) == test, name
        assert asdict(task.config) == published.TASK_SETTINGS.get(name, {}), name
        assert task.published_split
        data = DataConfig()
        counts = data.training_count(task), data.validation_count(task), data.test_counts(task)[1]
        assert counts == published.COUNTS[name], name
    for name in published.ENCODINGS:
        assert asdict(registry.encodings.get(name).Config()) == published.ENCODING_SETTINGS.get(name, {}), name
    table = {**configuration.table(TrainingConfig()), "precision": "fp32"}
    assert {key: table[key] for key in published.PROTOCOL["training"]} == published.PROTOCOL["training"]


def test_published_curves_have_the_published_lengths_and_means() -> None:
    for (task, encoding), points in published.curves().items():
        (first, last), (first_unseen, last_unseen) = published.LENGTHS[task]
        assert all(first <= length <= last for seen, length in points if seen), task
        unseen = [length for seen, length in points if not seen]
        assert (min(unseen), max(unseen)) == (first_unseen, last_unseen), task
        if task not in ("addition", "scan", "pcfg"):  # whose lengths have different numbers of examples
            mean = np.mean([figure.mean for (seen, _), figure in points.items() if not seen])
            assert mean == pytest.approx(published.cells()[task, "none", encoding].unseen.mean, abs=0.02), task


def test_the_same_numbers_agree_entirely() -> None:
    results = made(as_published(), list(published.ENCODINGS))
    comparison = compare(results)
    counts, baselines = comparison.counts, comparison.baselines
    assert counts is not None and baselines is not None and baselines.permuted is not None
    assert len(comparison.shared) == counts.judged == counts.equivalent_of_all + counts.undecided == 85
    # Some published seeds are so far apart that even the same mean without any spread is undecided (t is 2.92).
    deviations = [cell.published.deviation or 0.0 for cell in comparison.shared if cell.published]
    assert counts.undecided == sum(2.92 * deviation / math.sqrt(3) > 0.1 for deviation in deviations) == 12
    assert counts.close == counts.informative and counts.different == counts.no_verdict == 0
    assert baselines.ours == counts and baselines.permuted.p_equivalent == baselines.permuted.p_close == 1 / 120
    assert baselines.task_means.equivalent < counts.equivalent / 3
    assert comparison.only_ours == comparison.only_published == comparison.departures[:-1] == []
    # Our double counts in thousandths, which ties a few cells that differ less.
    found = comparison.correlations
    assert found.plain == pytest.approx(1, abs=1e-3) and found.residual_pearson == pytest.approx(1, abs=1e-3)
    assert found.residual_spearman == pytest.approx(1, abs=1e-2) and found.residual_cells == 85
    assert [place.encoding for place in comparison.order] == list(published.ENCODINGS)
    for place in comparison.order:
        assert place.ours == pytest.approx(place.published_here, abs=0.05)
        assert place.published == published.reciprocal_ranks()[place.encoding]


def test_cells_by_hand() -> None:
    """copy.repeat: t5 is published as 0.77 +- 0.05, alibi as 0.29 +- 0.03, from three seeds each."""
    study = {
        ("copy.repeat", "t5", 1): 0.9,
        ("copy.repeat", "t5", 2): 0.7,
        ("copy.repeat", "alibi", 1): 0.5,
        ("copy.repeat", "mine", 1): 0.5,
        ("dyck", "t5", 1): 0.5,
    }
    comparison = compare(made(study, ["t5", "alibi", "mine"], seen={("copy.repeat", "t5", 2): 0.5}))
    t5, alibi = comparison.shared
    theirs = published.cells()["copy.repeat", "none", "t5"].unseen
    assert theirs.deviation is not None
    assert t5.ours == Score(pytest.approx(0.8), pytest.approx(math.sqrt(0.02)), 2) and t5.published == theirs
    assert t5.difference == pytest.approx(0.8 - theirs.mean)
    assert t5.interval is not None and np.mean(t5.interval) == pytest.approx(t5.difference)
    assert (t5.verdict, t5.close, t5.informative, t5.borrowed_deviation) == (Verdict.undecided, True, True, False)
    assert t5.unlearned == [2] and t5.ours_seen == pytest.approx(0.75) and t5.chance == 0.0
    assert alibi.ours == Score(0.5, None, 1) and alibi.published is not None and alibi.published.deviation is not None
    half = 2.919986 * alibi.published.deviation * math.sqrt(1 + 1 / 3)
    assert alibi.interval == pytest.approx((0.5 - alibi.published.mean - half, 0.5 - alibi.published.mean + half))
    assert (alibi.verdict, alibi.close, alibi.borrowed_deviation) == (Verdict.different, False, True)
    assert [(cell.task, cell.encoding) for cell in comparison.only_ours] == [("copy.repeat", "mine"), ("dyck", "t5")]
    assert len(comparison.only_published) == 85 - 2
    assert comparison.correlations.plain is None and comparison.by_task[0].correlation is None  # of two cells
    text = printed(made(study, ["t5", "alibi", "mine"], seen={("copy.repeat", "t5", 2): 0.5}))
    assert "Not published (2 cells): copy.repeat [mine], dyck [t5]" in text
    assert "of 2 informative cells" in text and "(2)*" in text and "did not learn" in text
    assert "different†" in text and "† One side has a single seed" in text
    assert "these results 0 1 1 1 0 1 task means" in text


def test_figures_have_the_sample_deviation() -> None:
    assert score([0.1]) == Score(0.1, None, 1)
    assert score([0.1, 0.3]) == Score(pytest.approx(0.2), pytest.approx(math.sqrt(0.02)), 2)


def test_the_order_is_given_at_both_checkpoints() -> None:
    study = as_published()
    best = {key: 1.0 for key in study if key[1] == "alibi"}
    results = made(study, list(published.ENCODINGS), best=best)
    last, other = compare(results), compare(results, "best")
    assert (last.checkpoint, last.other_checkpoint) == ("last", "best")
    for here, there in zip(last.order, other.order, strict=True):
        assert (here.ours, here.places) == (there.at_other, there.places_at_other)
    by_name = {place.encoding: place for place in last.order}
    assert by_name["alibi"].places == [3, 3] and by_name["alibi"].places_at_other == [1, 1]
    text = printed(results)
    assert "ours, ours, published, published, encoding last best these tasks all 17 tasks" in text
    only_last = [replace(run, rows=[row for row in run.rows if row["checkpoint"] == "last"]) for run in results.runs]
    assert compare(Results(only_last, [], results.study)).order[0].at_other is None


def test_a_reversed_order_correlates_negatively() -> None:
    cells = {e: published.cells()["copy.replace", "none", e].unseen.mean for e in published.ENCODINGS}
    results = made({("copy.replace", e, 1): 1 - mean for e, mean in cells.items()}, list(published.ENCODINGS))
    comparison = compare(results)
    assert comparison.by_task[0].correlation == pytest.approx(comparison.correlations.plain)
    assert comparison.correlations.plain is not None and comparison.correlations.plain < -0.99
    assert comparison.correlations.residual_spearman == comparison.correlations.plain, "of a single task"
    assert comparison.order[0].encoding == "none" and comparison.order[0].ours == pytest.approx(1 / 5)


def test_an_encoding_of_our_own_does_not_change_the_order_of_the_others() -> None:
    study = as_published()
    mine = {**study, **{(task, "mine", seed): 1.0 for task, _, seed in study}}
    assert compare(made(mine, ["mine"])).order == compare(made(study, [])).order


def scratchpad_runs(scratchpad: str, encodings: list[str]) -> list[RunResult]:
    settings = {"task": {"name": "lego"}, "data": {"scratchpad": scratchpad}}
    keys = {(f"lego ({scratchpad})", encoding, 1): 0.6 for encoding in encodings}
    return made(keys, encodings, settings=settings).runs


def test_scratchpads_are_compared_by_format() -> None:
    runs = [*scratchpad_runs("full", ["none", "t5"]), *scratchpad_runs("full-input", ["none"])]
    comparison = compare(Results([*runs, *scratchpad_runs("input+output", ["none"])], [], {}))
    assert [(c.title, c.task, c.scratchpad, c.encoding) for c in comparison.shared] == [
        ("lego (full)", "lego", "full", "none"),
        ("lego (full)", "lego", "full", "t5"),
        ("lego (full-input)", "lego", "full-input", "none"),
    ]
    assert [cell.published.mean for cell in comparison.shared if cell.published] == [0.5798, 0.5662, 0.5518]
    assert {cell.scratchpad for cell in comparison.only_published} == {"full", "full-input"}
    assert [cell.scratchpad for cell in comparison.only_ours] == ["input+output"]
    assert comparison.curves == [] and all(place.published is None for place in comparison.order)
    text = printed(Results(runs, [], {}))
    assert "6 runs pooled in the source" in text and "addition (full)" in text


def test_curves_lay_lengths_side_by_side() -> None:
    comparison = compare(made({("copy.repeat", "none", 1): 0.25, ("copy.repeat", "none", 2): 0.75}, []))
    points = {point.length: point for point in comparison.curves}
    assert sorted(points) == list(range(2, 41))
    assert points[9].ours == Score(0.5, pytest.approx(math.sqrt(0.125)), 2) and points[9].ours_seen is False
    assert points[9].published_seen is True and points[9].published is not None
    assert points[40].ours is None and points[40].ours_seen is None and points[40].published_seen is False


def test_cells_at_other_lengths_are_not_judged() -> None:
    results = load_results(QUICKSTART)
    comparison = compare(results)
    assert len(comparison.shared) == 15 and comparison.judged == []
    assert comparison.counts is None and comparison.baselines is None
    verdicts = ("interval", "borrowed_deviation", "verdict", "close", "informative", "extreme")
    assert all(getattr(cell, name) is None for cell in comparison.cells for name in verdicts)
    assert all(cell.difference is not None for cell in comparison.shared)
    text = printed(results)
    assert "verdict" not in text and "interval)" not in text and "informative" not in text
    said = "Lengths are not the published ones, so these cells are not judged: trained on 2-6, tested on 7-12"
    assert said in text and text.index(said) < text.index("Accuracy on unseen lengths")


def test_only_cells_at_the_published_lengths_are_judged() -> None:
    """Two tasks: the published lengths of addition, and parity tested a little further."""
    alike = made({("addition", "t5", 1): 0.1}, [], train_lengths=[1, 8], test_lengths=[9, 16])
    further = made({("parity", "t5", 1): 0.5}, [], train_lengths=[4, 8], test_lengths=[9, 20])
    both = Results([*alike.runs, *further.runs], [], {})
    comparison = compare(both)
    assert [(cell.task, cell.verdict) for cell in comparison.shared] == [("addition", "equivalent"), ("parity", None)]
    assert comparison.counts is not None and comparison.counts.judged == len(comparison.judged) == 1
    assert [line.split(" (")[0] for line in comparison.other_lengths] == ["trained on 4-8, tested on 9-20"]
    text = printed(both)
    assert "Some lengths are not the published ones" in text and "of 1 informative cell" in text


def test_baselines_are_over_tasks_with_every_encoding() -> None:
    """addition lacks alibi: it is counted, and the baselines are about the other two tasks."""
    study = {key: value for key, value in as_published().items() if key[0] in ("addition", "scan", "copy.replace")}
    del study["addition", "alibi", 1], study["addition", "alibi", 2], study["addition", "alibi", 3]
    results = made(study, list(published.ENCODINGS))
    comparison = compare(results)
    assert comparison.counts is not None and comparison.baselines is not None
    assert comparison.counts.judged == 14 and comparison.baselines.ours.judged == 10 and comparison.baselines.tasks == 2
    assert comparison.correlations.residual_cells == 10 and len(comparison.shared) == 14
    text = printed(results)
    assert "complete tasks" in text and "Complete tasks: 2 tasks with every encoding" in text
    apart = {("scan", "t5", 1): 0.5, ("copy.replace", "alibi", 1): 0.5}
    assert compare(made(apart, [])).baselines is None
    assert "No baselines: no task has every encoding." in printed(made(apart, []))


def test_two_single_seeds_have_no_verdict() -> None:
    """lego with `full` steps and none has one published seed."""
    results = Results(scratchpad_runs("full", ["none"]), [], {})
    (cell,) = compare(results).shared
    assert cell.interval is None and cell.verdict is None and cell.close and cell.informative
    counts = compare(results).counts
    assert counts is not None and (counts.no_verdict, counts.close, counts.equivalent) == (1, 1, 0)
    text = printed(results)
    assert "none 0.60 0.58 +0.02 –" in text and "1 cell without a verdict: both sides have a single seed" in text


def test_nothing_to_compare_is_a_clear_error() -> None:
    with pytest.raises(UserError, match=r"nothing to compare: the runs have dyck with mine; published are addition, "):
        compare(made({("dyck", "mine", 1): 0.5}, []))
    with pytest.raises(UserError, match="nothing to compare"):
        compare(made({("addition", "learned", 1): 0.5}, []))
    with pytest.raises(UserError, match="no run is finished"):
        compare(Results([], [], {}))


@pytest.mark.slow
def test_quickstart_beside_published(tmp_path: Path) -> None:
    results = load_results(QUICKSTART)
    comparison = compare(results)
    assert len(comparison.shared) == 15 and len(comparison.only_published) == 70
    assert any(line.startswith("lengths: trained on 2-6, tested on 7-12") for line in comparison.departures)
    text = printed(results)
    assert "copy.repeat" in text and "not the published protocol" in text and "Not published" not in text
    program = "import sys; from lengthwise.cli import main; main()"
    words = [sys.executable, "-c", program, "compare", str(QUICKSTART), "--with", "published", "--checkpoint", "best"]
    done = subprocess.run([*words, "--json"], capture_output=True, text=True, check=True)
    expected = {"with": "published", **asdict(compare(results, "best"))}
    assert json.loads(done.stdout) == json.loads(json.dumps(expected))
    top = json.loads(done.stdout)
    assert top["correlations"].keys() >= {"plain", "residual_spearman", "residual_pearson"}
    assert top["cells"][0].keys() >= {"difference", "interval", "verdict", "close", "informative", "chance"}
    assert top["counts"] is None and top["baselines"] is None, "other lengths"
    assert "Order of the encodings" in subprocess.run(words, capture_output=True, text=True, check=True).stdout
    empty = subprocess.run([*words[:4], str(tmp_path)], capture_output=True, text=True)
    assert empty.returncode == 2 and "holds no runs" in empty.stderr


def test_comparison_needs_no_torch() -> None:
    program = "import sys\nfrom lengthwise.report.terminal import comparison, show\n"
    subprocess.run([sys.executable, "-c", program + "assert 'torch' not in sys.modules"], check=True)
