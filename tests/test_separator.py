"""What is asked about separators: shares of attention, probes of the count, and the command on trained runs."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import small_study
from separator_doubles import LONGEST, a_run, decoder, even_decoder
from typer.testing import CliRunner

from lengthwise.analysis.count_probes import count_rows, place_names, place_tokens
from lengthwise.analysis.model_adapter import DecoderAdapter
from lengthwise.analysis.probe_scores import ProbeScores
from lengthwise.analysis.regions import REGIONS, Region, RegionInputs, region_inputs
from lengthwise.analysis.separator import at_initial_weights, attention_rows
from lengthwise.cli.main import app
from lengthwise.data.splits import Split
from lengthwise.errors import UserError
from lengthwise.executors.local import run_study
from lengthwise.model.build import Lengths, build
from lengthwise.model.initial_values import initialize
from lengthwise.model.trace import Trace
from lengthwise.records.findings import SEPARATOR_KINDS, read_findings
from lengthwise.records.rows import collect, load_results

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def divided() -> RegionInputs:
    """copy.repeat with 2 + 3 tokens, lengths 2 to 4 seen, 5 to 9 not."""
    return region_inputs(a_run(), 4)


# Attention


def test_even_attention_has_the_shares_of_its_regions(divided: RegionInputs) -> None:
    """Counted by hand: a target token that k of the target stand before sees 2 + n + 3 + k + 1 tokens."""
    rows = attention_rows(DecoderAdapter(even_decoder(a_run()), "even"), divided)
    assert [(row["queries"], row["layer"], row["head"]) for row in rows] == [("target", 1, 1), ("separator", 1, 1)]
    target, separator = rows
    for group, lengths in (("seen", range(2, 5)), ("unseen", range(5, 10))):
        examples = {n: int((divided.inputs.length_E == n).sum()) for n in lengths}
        seen = [(n, k) for n in lengths for _ in range(examples[n]) for k in range(n)]
        expected = {
            "prefix": np.mean([2 / (n + k + 6) for n, k in seen]),
            "source": np.mean([n / (n + k + 6) for n, k in seen]),
            "separator": np.mean([3 / (n + k + 6) for n, k in seen]),
            "target": np.mean([(k + 1) / (n + k + 6) for n, k in seen]),
        }
        for name, share in expected.items():
            assert target[group][name] == pytest.approx(share, abs=2e-5), name
            assert target["even"][group][name] == pytest.approx(share, abs=2e-5)
        assert (target[group]["examples"], target[group]["queries"]) == (sum(examples.values()), len(seen))
        gathered = np.mean([n / (2 + n + j + 1) for n in lengths for _ in range(examples[n]) for j in range(3)])
        assert separator[group]["source"] == pytest.approx(gathered, abs=2e-5)
        assert separator[group]["target"] == 0, "it comes later"
    by_length = target["by_length"]
    assert by_length["length"] == list(range(2, 10))
    assert by_length["separator"][1] == pytest.approx(np.mean([3 / (9 + k) for k in range(3)]), abs=2e-5)


def test_shares_are_those_of_the_maps(divided: RegionInputs) -> None:
    """Against loops over the maps of a model whose heads differ."""
    model = decoder()
    rows = attention_rows(DecoderAdapter(model, "random"), divided)
    assert len(rows) == 2 * 2 * 2, "kinds of queries, layers, heads"
    assert all(sum(row["unseen"][region.title] for region in REGIONS) == pytest.approx(1, abs=1e-4) for row in rows)
    assert len({row["unseen"]["separator"] for row in rows}) == 8
    sums, queries = np.zeros((2, 2, 4)), 0
    for batch in divided.inputs.batches():
        trace = Trace()
        with torch.no_grad():
            model(batch.tokens_BT, trace=trace)
        for b, (length, regions) in enumerate(zip(batch.length_B.tolist(), divided.of(batch).tolist(), strict=True)):
            if divided.inputs.seen(divided.inputs.lengths[length]):
                continue
            for t, region in list(enumerate(regions))[:-1]:  # the end predicts nothing
                if region == Region.TARGET:
                    queries += 1
                    for layer, head, s in product(range(2), range(2), range(t + 1)):
                        sums[layer, head, regions[s]] += trace.layers[layer].weights_BHTS[b, head, t, s].item()
    for row in rows:
        if row["queries"] == "target":
            shares = [row["unseen"][region.title] for region in REGIONS]
            np.testing.assert_allclose(shares, sums[row["layer"] - 1, row["head"] - 1] / queries, atol=2e-5)
            assert row["unseen"]["queries"] == queries


def test_lengths_of_one_kind_leave_the_other_out() -> None:
    row = attention_rows(DecoderAdapter(decoder(), "random"), region_inputs(a_run(), 2, [3, 4]))[0]
    assert row["unseen"] is None and row["even"]["unseen"] is None and row["seen"]["examples"] == 4


# Probes of the count


def test_places_of_probes_are_the_tokens_beside_and_in_the_separator() -> None:
    regions = np.array([[0, 1, 1, 2, 2, 3, 3, 4], [0, 1, 1, 1, 2, 3, 3, 3], [0, 0, 2, 2, 3, 4, 4, 4]])
    assert place_names(2) == ["source", "separator 1", "separator 2", "target"]
    assert place_tokens(regions, 2).tolist() == [[2, 3, 4, 5], [3, 4, -1, 5], [-1, 2, 3, 4]]


def test_a_planted_count_is_found_and_goes_on_and_nothing_is_found_where_there_is_none() -> None:
    """The model knows the position of every token after its layer, and so, at the separator, how many came before."""
    run = a_run()
    fitting, asking = region_inputs(run, 99, [2, 3, 4], Split.TRAIN), region_inputs(run, 20)
    rows = count_rows(DecoderAdapter(even_decoder(run), "knows"), fitting, asking)
    assert len(rows) == 2 * 5, "streams, places"
    assert {row["fitted_to"] for row in rows} == {3 * 16} and {row["counted_up_to"] for row in rows} == {4}
    for row in rows:
        if row["layer"] == 1:
            assert row["within"]["error"] < 0.1 and row["beyond"]["error"] < 0.3, row["place"]
            assert row["beyond"]["slope"] == pytest.approx(1, abs=0.1)
            assert row["within"]["correlation"] > 0.99 and row["beyond"]["correlation"] > 0.99
            assert row["by_length"]["estimate"][-1] == pytest.approx(9, abs=0.5)
        else:
            assert row["within"]["r2"] < 0.2 and row["beyond"]["r2"] < 0, row["place"]
            assert abs(row["beyond"]["slope"]) < 0.1
        assert row["by_length"]["length"] == list(range(2, 10))
        # Of the 20 symbols two are for the test of seen lengths; unseen lengths may show all.
        assert (row["within"]["n"], row["beyond"]["n"]) == (3 * 2, 5 * 20)


def test_correlation_is_the_usual_one() -> None:
    generator = np.random.default_rng(0)
    y, noise = generator.integers(2, 9, size=50).astype(float), generator.normal(size=50)
    scores = ProbeScores(2, 3, CPU)
    scores.add(0, torch.zeros(50, dtype=torch.long), torch.tensor(y), torch.tensor(7 - 2 * y + noise))
    scores.add(1, torch.zeros(50, dtype=torch.long), torch.tensor(y), torch.full((50,), 3.3, dtype=torch.float64))
    assert scores.correlation(0, 0, 1) == pytest.approx(np.corrcoef(y, 7 - 2 * y + noise)[0, 1], abs=1e-4)
    assert scores.correlation(1, 0, 1) is None and scores.correlation(0, 1, 3) is None


def test_the_control_is_the_model_as_it_began() -> None:
    model = decoder(seed=5)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    control = at_initial_weights(DecoderAdapter(model, "m"), seed=5)
    expected = build(model.config, len(model.embedding.weight), [{"name": "alibi"}], Lengths(LONGEST, LONGEST))
    initialize(expected, 5)
    for name, value in control.model.state_dict().items():
        assert torch.equal(value, expected.state_dict()[name]), name
        assert torch.equal(model.state_dict()[name], before[name]), "the trained one stays as it is"


# The command


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two layouts of copying and a task without separator, two encodings each."""
    folder = tmp_path_factory.mktemp("separated") / "small"
    layout = {"name": "copy.repeat", "symbols": 20, "prefix_tokens": 1}
    tasks = [{**layout, "separator_tokens": 1}, {**layout, "separator_tokens": 3}, "parity"]
    model = {"layers": 2, "width": 16, "heads": 2}
    run_study(small_study(tasks=tasks, seeds=[1], model=model, training__steps=40), folder, "cpu")
    return folder


def call(*words: str) -> Any:
    return CliRunner().invoke(app, ["analyze", "separator", *words])


@pytest.mark.slow
def test_all_kinds_leave_rows_and_tables_of_eighty_columns(trained: Path) -> None:
    done = call(str(trained), "--device", "cpu", "--count", "4")
    assert done.exit_code == 0, done.output
    assert "left out, no separator: parity" in done.stderr
    for words in (
        "where target tokens look", "target looks at separator", "counting the source", "before training",
        "exact match when target tokens do not see", "where answers end", "copy.repeat (1 + 3 tokens)",
    ):  # fmt: skip
        assert words in done.stdout, words
    assert max(map(len, done.stdout.splitlines()[:-1])) <= 80
    attention, probes, knockouts, exchanges = (read_findings(trained / "analysis", kind) for kind in SEPARATOR_KINDS)
    assert len(attention) == 4 * 2 * 2 * 2, "runs, kinds of queries, layers, heads"
    assert len(probes) == 2 * 2 * 3 * (3 + 5), "encodings, weights, streams, places of both layouts"
    assert len(knockouts) == 4 * (1 + 5 * 3), "runs; nothing, then knock-outs in all layers and in each"
    assert len(exchanges) == 4 * (1 + 3 * 3)
    for rows in (attention, probes, knockouts, exchanges):
        assert {(row["task"], row["separator_tokens"]) for row in rows} == {
            ("copy.repeat (1 + 1 tokens)", 1),
            ("copy.repeat (1 + 3 tokens)", 3),
        }
        assert {row["encoding"] for row in rows} == {"none", "alibi"} and {row["checkpoint"] for row in rows} == {
            "last"
        }


@pytest.mark.slow
def test_what_is_there_is_read_and_collected(trained: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    words = [str(trained), "--device", "cpu", "--count", "4", "--json"]
    first = call(*words)
    assert first.exit_code == 0, first.output
    assert tuple(json.loads(first.stdout)) == SEPARATOR_KINDS

    def refuse(*_: Any) -> None:
        raise AssertionError("was computed before")

    monkeypatch.setattr("lengthwise.analysis.analyzed_runs.open_checkpoint", refuse)
    assert json.loads(call(*words).stdout) == json.loads(first.stdout)
    assert isinstance(call(*words, "--count", "3").exception, AssertionError), "another number is another question"
    assert isinstance(call(*words, "--checkpoint", "best").exception, AssertionError)
    collect(load_results(trained), tmp_path / "collected")
    for kind in SEPARATOR_KINDS:
        found, kept = (read_findings(folder / "analysis", kind) for folder in (trained, tmp_path / "collected"))
        assert found and sorted(map(str, found)) == sorted(map(str, kept))


@pytest.mark.slow
def test_nothing_hidden_is_what_other_analyses_find(trained: Path) -> None:
    """Exact match and kinds of errors of the same model on the same examples, read in another way."""
    words = [str(trained), "--device", "cpu", "--count", "20", "--json"]
    failures = json.loads(CliRunner().invoke(app, ["analyze", "failures", *words]).stdout)["failures"]
    knockouts = json.loads(call(*words).stdout)["separator_knockouts"]
    plain = [row for row in knockouts if row["hidden"] == "nothing"]
    assert len(plain) == 4
    errors = ("wrong_symbol", "stopped_early", "ran_on")
    for row in plain:
        same = [other for other in failures if other["run"] == row["run"]]
        assert row["by_length"]["correct"] == [other["correct"] for other in same]
        for group, seen in (("seen", True), ("unseen", False)):
            of_group = [other for other in same if other["seen"] == seen]
            for key in ("n", "correct", *errors):
                assert row[group][key] == sum(other[key] for other in of_group), key
    assert len({tuple(row["unseen"][key] for key in errors) for row in plain}) > 1, "not all models alike"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["{folder}", "--only", "task=parity"], "no task here has a separator [SEP] in its prompts: parity"),
        (["{folder}/nothing"], "no such folder"),
        (["{folder}", "--lengths", "x"], "5,10,20-24"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_line(trained: Path, tmp_path: Path, words: list[str], message: str) -> None:
    done = call(*(word.format(folder=trained) for word in words), "--device", "cpu", "--out", str(tmp_path))
    assert isinstance(done.exception, UserError), done.output
    assert message in str(done.exception) and "\n" not in str(done.exception)
