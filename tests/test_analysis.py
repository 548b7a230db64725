"""Looking into models: divergences and their bound, heads, probes, failures, and the commands on trained runs.

Shape letters: B examples, H heads, G heads of the other model, T queries, S keys, D width.
"""

import base64
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import small_study
from torch import Tensor
from typer.testing import CliRunner

from lengthwise.analysis.analyses import Analysis, AnalysisRequest, parse_lengths
from lengthwise.analysis.analyzed_runs import analyzed_runs, pairs
from lengthwise.analysis.divergence import BOUND, LayerDistances, jensen_shannon, published
from lengthwise.analysis.failures import anatomy
from lengthwise.analysis.head_statistics import (
    GroupedTokens,
    HeadStatistics,
    bin_edges,
    diagonal_share,
    entropy,
    entropy_bound,
    histogram,
    induction_places,
    induction_share,
)
from lengthwise.analysis.inputs import Inputs, repeated_inputs, task_inputs
from lengthwise.analysis.measuring import distance_rows, example_maps, head_rows, probe_rows
from lengthwise.analysis.model_adapter import HuggingFaceAdapter, Watch
from lengthwise.analysis.probe_scores import holds_until
from lengthwise.analysis.probes import ProbeStudy
from lengthwise.analysis.ridge import Moments
from lengthwise.analysis.tables import is_kind
from lengthwise.cli.main import app
from lengthwise.data.sequences import Sequences
from lengthwise.errors import UserError
from lengthwise.evaluation.exact import judge
from lengthwise.executors.local import run_study
from lengthwise.records.findings import read_findings
from lengthwise.records.published_distance import OTHER_SEED, published_distances

CPU = torch.device("cpu")


def attention(*shape: int, seed: int = 0, sharpness: float = 1.0) -> Tensor:
    """Random causal attention (B, H, T, T)."""
    batch, heads, size = shape
    logits = torch.randn(batch, heads, size, size, generator=torch.Generator().manual_seed(seed)) * sharpness
    hidden = torch.ones(size, size, dtype=torch.bool).triu(1)
    return logits.masked_fill(hidden, -math.inf).softmax(-1)


def looking_back(size: int, *back: int) -> Tensor:
    """Heads that look only so many tokens back, or at the first token: (1, H, T, T)."""
    index = torch.arange(size)
    return torch.stack([torch.nn.functional.one_hot((index - b).clamp(min=0), size).float() for b in back])[None]


def kullback_leibler(p: list[float], q: list[float]) -> float:
    return sum(a * math.log(a / b) for a, b in zip(p, q, strict=True) if a > 0)


# Divergence


def test_divergence_is_the_formula_for_all_pairs() -> None:
    p, q = attention(2, 3, 5, seed=1), attention(2, 4, 5, seed=2)
    found, theirs = jensen_shannon(p, q), published(p, q)
    assert found.shape == (2, 3, 4, 5)
    for place in np.ndindex(*found.shape):
        b, h, g, t = place
        one, two = p[b, h, t, : t + 1].tolist(), q[b, g, t, : t + 1].tolist()
        middle = [(x + y) / 2 for x, y in zip(one, two, strict=True)]
        expected = (kullback_leibler(one, middle) + kullback_leibler(two, middle)) / 2
        exchanged = (kullback_leibler(middle, one) + kullback_leibler(middle, two)) / 2
        assert found[place].item() == pytest.approx(expected, abs=1e-5)
        assert theirs[place].item() == pytest.approx(exchanged, abs=1e-5)


def test_divergence_is_bounded_symmetric_and_zero_for_equals() -> None:
    p, q = attention(3, 2, 9, seed=1, sharpness=30), attention(3, 2, 9, seed=2, sharpness=30)
    found = jensen_shannon(p, q)
    assert found.max() > 0.9 * BOUND, "sharp heads that disagree are nearly as far apart as can be"
    assert found.min() >= 0 and found.max() <= math.log(2) + 1e-5
    torch.testing.assert_close(found, jensen_shannon(q, p).transpose(1, 2))
    assert jensen_shannon(p, p).diagonal(dim1=1, dim2=2).max() < 1e-6
    apart = jensen_shannon(looking_back(4, 0), looking_back(4, 1))
    torch.testing.assert_close(apart[0, 0, 0], torch.tensor([0.0, *[math.log(2)] * 3]))


def test_published_variant_is_unbounded_and_finite() -> None:
    apart = published(looking_back(4, 0), looking_back(4, 1))
    assert apart[0, 0, 0, 1] > 10 * math.log(2)
    assert apart.isfinite().all()


def test_nearest_heads_need_not_have_the_same_number() -> None:
    """One who compares head i with head i alone, or only with later ones, finds every head far away."""
    model, reference = looking_back(6, 1, 3), looking_back(6, 2, 1)
    distances = LayerDistances(1, [6], CPU)
    distances.add(0, torch.tensor([0]), model, reference)
    assert distances.rows()[0]["distance"] == pytest.approx(0, abs=1e-6)
    swapped = LayerDistances(1, [6], CPU)
    swapped.add(0, torch.tensor([0]), reference, model)
    assert swapped.rows()[0]["distance"] == pytest.approx(0, abs=1e-6)
    theirs = [LayerDistances(1, [6], CPU, as_published=True) for _ in range(2)]
    theirs[0].add(0, torch.tensor([0]), model, reference)
    theirs[1].add(0, torch.tensor([0]), reference, model)
    assert theirs[0].rows()[0]["distance"] == pytest.approx(0, abs=1e-6), "head 1 of one and head 2 of the other"
    assert theirs[1].rows()[0]["distance"] > 1, "head 2 and head 1 are never compared by them"


def test_distances_are_means_over_examples_of_each_length() -> None:
    p, q = attention(5, 2, 6, seed=3), attention(5, 2, 6, seed=4)
    length_B = torch.tensor([0, 1, 0, 1, 1])
    whole, parts = (LayerDistances(2, [4, 7], CPU) for _ in range(2))
    whole.add(1, length_B, p, q)
    for i in range(5):
        parts.add(1, length_B[i : i + 1], p[i : i + 1], q[i : i + 1])
    assert str(whole.rows()[2:]) == str(parts.rows()[2:])
    nearest_B = jensen_shannon(p, q).mean(-1).flatten(1).amin(1)
    first, second = whole.rows()[2:]
    assert (first["layer"], first["length"], first["n"], second["n"]) == (2, 4, 2, 3)
    assert first["distance"] == pytest.approx(nearest_B[[0, 2]].mean().item(), abs=1e-5)
    assert second["deviation"] == pytest.approx(nearest_B[[1, 3, 4]].std(correction=0).item(), abs=1e-5)


def test_unnormalised_attention_is_refused() -> None:
    distances = LayerDistances(1, [4], CPU)
    distances.add(0, torch.tensor([0]), attention(1, 2, 4) * 2, attention(1, 2, 4))
    with pytest.raises(UserError, match="sum to one"):
        distances.rows()


def test_one_head_has_no_published_pair() -> None:
    with pytest.raises(UserError, match="one head"):
        LayerDistances(1, [4], CPU, as_published=True).add(0, torch.tensor([0]), *[attention(1, 1, 4)] * 2)


def test_published_distances_are_in_the_published_order() -> None:
    found = published_distances("scan")
    means = {name: np.mean(list(values.values())) for name, values in found.items()}
    first, second, *rest = sorted(means, key=lambda name: means[name])
    assert {first, second} == {OTHER_SEED, "t5"} and rest == ["alibi", "sinusoidal", "rotary"]
    assert {layer for layer, _ in found["t5"]} == set(range(1, 13))
    assert max(max(values.values()) for values in found.values()) > math.log(2), "theirs is no Jensen-Shannon"
    assert published_distances("addition") == {}


# Heads


def test_entropy_has_its_bound() -> None:
    weights = attention(2, 3, 7, sharpness=2)
    bound = entropy_bound(7)
    assert (entropy(weights) <= bound + 1e-5).all()
    even = torch.ones(7, 7).tril() / torch.arange(1, 8)[:, None]
    torch.testing.assert_close(entropy(even[None, None])[0, 0], bound)
    assert entropy(looking_back(7, 2)).abs().max() == 0
    assert bound[3].item() == pytest.approx(math.log(4))


def test_diagonals_and_histogram() -> None:
    heads = looking_back(6, 0, 1, 3)
    assert diagonal_share(heads, 0)[0, :, 1:].mean(-1).tolist() == [1, 0, 0]
    assert diagonal_share(heads, 1)[0, 1].tolist() == [0, 1, 1, 1, 1, 1]
    edges = bin_edges(5)
    assert edges == [0, 1, 2, 4, 8]
    bins = histogram(heads, edges)
    torch.testing.assert_close(bins.sum(-1), torch.ones(1, 3, 6))
    assert bins[0, 2].argmax(-1).tolist() == [0, 1, 2, 3, 3, 3], "0, 1, 2 back, then 3 back, which is in 3 to 4"


def test_induction() -> None:
    tokens = torch.tensor([[5, 6, 7, 5, 6, 8]])
    places = induction_places(tokens)
    assert [tuple(place) for place in places[0].nonzero().tolist()] == [(3, 1), (4, 2)]
    induces = looking_back(6, 2)
    assert induction_share(induces, tokens)[0, 0].tolist() == [0, 0, 0, 1, 1, 0]
    assert induction_share(looking_back(6, 1), tokens).sum() == 0


def test_scores_tell_kinds_of_heads() -> None:
    half = torch.arange(10, 18)
    tokens = torch.cat([half, half])[None]
    size = 16
    first = torch.zeros(1, 1, size, size)
    first[..., 0] = 1
    heads = torch.cat([looking_back(size, 0, 1, 7), first], dim=1)
    statistics = HeadStatistics(1, 4, ["seen", "unseen"], size, CPU)
    asked = GroupedTokens(tokens, torch.tensor([1]))
    statistics.begin(asked)
    statistics.add(0, asked, heads)
    rows = statistics.rows()
    assert [row["group"] for row in rows] == ["unseen"] * 4, "a group without examples has no rows"
    kinds = [[kind for kind in ("diagonal", "previous", "induction") if is_kind(row, kind)] for row in rows]
    assert kinds == [["diagonal"], ["previous"], ["induction"], []]
    assert rows[2]["induction"] == 1 and rows[3]["first"] == 1
    assert rows[1]["tokens_back"] == 1
    assert rows[3]["tokens_back"] == pytest.approx(sum(range(1, size)) / (size - 1))
    assert rows[0]["even"]["tokens_back"] == pytest.approx(rows[3]["tokens_back"] / 2)
    assert all(row["entropy_share"] == 0 and len(row["entropy_by_position"]) == size for row in rows)


# Probes


def stream(kind: str, batch: int, tokens: int, seed: int) -> Tensor:
    """A residual stream (B, T, 8) that knows its position in one direction, or not at all."""
    generator = torch.Generator().manual_seed(seed)
    noise = torch.randn(batch, tokens, 8, generator=generator)
    position = torch.arange(tokens).float()
    value = {"linear": position / 10, "saturating": position.clamp(max=20) / 10, "random": torch.zeros(tokens)}[kind]
    noise[..., 0] = 100 + value  # a large mean, as residual streams have
    return noise


@pytest.fixture(scope="module")
def probed() -> dict[tuple[Any, ...], dict[str, Any]]:
    """(target, kind of stream, probe, control) -> row; trained at 20 of 40 tokens."""
    kinds = ("linear", "saturating", "random")
    found = {}
    for target in ("position", "distance"):
        study = ProbeStudy(target, len(kinds), 8, 20, 40, [40] * 48, CPU)  # type: ignore[arg-type]
        for batch in range(6):
            for number, kind in enumerate(kinds):
                study.fit(batch, number, stream(kind, 8, 40, seed=batch * 10 + number))
        study.solve()
        for batch in range(3):
            for number, kind in enumerate(kinds):
                study.examine(batch, number, stream(kind, 8, 40, seed=1000 + batch * 10 + number))
        for row in study.rows():
            found[target, kinds[row["layer"]], row["probe"], row["control"]] = row
    return found


@pytest.mark.slow
@pytest.mark.parametrize("probe", ["linear", "nonlinear"])
def test_a_linear_position_extrapolates(probed: dict[tuple[Any, ...], dict[str, Any]], probe: str) -> None:
    row = probed["position", "linear", probe, False]
    assert row["within"]["r2"] > 0.98
    assert row["beyond"]["slope"] > 0.7
    if probe == "linear":
        assert row["beyond"]["r2"] > 0.98 and row["holds_until"] == 39
        assert row["by_position"]["estimate"][35] == pytest.approx(35, abs=1)
    assert row["beyond"]["n"] == 3 * 8 * 20 and row["within"]["n"] == 3 * 8 * 20


@pytest.mark.parametrize("probe", ["linear", "nonlinear"])
def test_a_saturating_position_does_not(probed: dict[tuple[Any, ...], dict[str, Any]], probe: str) -> None:
    row = probed["position", "saturating", probe, False]
    assert row["within"]["r2"] > 0.98
    assert abs(row["beyond"]["slope"]) < 0.1 and row["beyond"]["r2"] < 0
    assert row["beyond"]["error"] > 5 * row["within"]["error"]
    assert 19 <= row["holds_until"] < 25


@pytest.mark.parametrize("probe", ["linear", "nonlinear"])
def test_controls_and_random_streams_explain_nothing(probed: dict[tuple[Any, ...], dict[str, Any]], probe: str) -> None:
    for target in ("position", "distance"):
        assert probed[target, "random", probe, False]["within"]["r2"] < 0.1
        for kind in ("linear", "saturating", "random"):
            assert probed[target, kind, probe, True]["within"]["r2"] < 0.1


@pytest.mark.parametrize("probe", ["linear", "nonlinear"])
def test_distances_are_read_from_pairs(probed: dict[tuple[Any, ...], dict[str, Any]], probe: str) -> None:
    linear, saturating = (probed["distance", kind, probe, False] for kind in ("linear", "saturating"))
    assert linear["within"]["r2"] > 0.95 and saturating["within"]["r2"] > 0.95
    assert linear["beyond"]["error"] < saturating["beyond"]["error"]


def test_ridge_is_that_of_all_cases_at_once() -> None:
    generator = torch.Generator().manual_seed(0)
    x, noise = (torch.randn(200, width, generator=generator, dtype=torch.float64) for width in (5, 1))
    x = x * torch.tensor([1.0, 10.0, 0.1, 3.0, 1.0]) + 7
    x[:, 4] = 2.0  # a feature that never varies
    y = x[:, :1] * 2 - x[:, 1:2] + noise
    moments = Moments(5, 1, CPU)
    for part in range(0, 200, 30):
        moments.add(x[part : part + 30].float(), y[part : part + 30].float())
    found = moments.ridge(strength=0.01).estimate(x)
    scaled = (x[:, :4] - x[:, :4].mean(0)) / x[:, :4].std(0, correction=0)
    eye = torch.eye(4, dtype=torch.float64)
    weight = torch.linalg.solve(scaled.T @ scaled / 200 + 0.01 * eye, scaled.T @ (y - y.mean()) / 200)
    torch.testing.assert_close(found, scaled @ weight + y.mean(), rtol=1e-3, atol=1e-3)


def test_an_estimate_holds_until_its_error_grows() -> None:
    by_position = {"position": [8, 9, 10, 11, 12, 13], "error": [9, 0.1, 0.5, 1.1, 5, 0.1]}
    assert holds_until(by_position, trained=10, error_within=0.6) == 11
    assert holds_until(by_position, trained=10, error_within=0.1) == 10, "one token is always allowed"
    assert holds_until(by_position, trained=12, error_within=0.1) == 11


# Failures


def test_failures_have_a_kind_and_a_place() -> None:
    end = 1
    tokens = np.array([[9, 3, 4, 5, end], [9, 3, 4, 5, end], [9, 3, 4, 5, end], [9, 3, 4, 5, end], [9, 6, end, 0, 0]])
    prompt, size = np.ones(5, int), np.array([5, 5, 5, 5, 3])
    sequences = Sequences(tokens, prompt, size, np.array([3, 3, 3, 3, 1]))
    predicted = [[3, 4, 5, end], [3, end, 5, end], [7, 4, end, end], [3, 4, 5, 5], [6, end]]
    outcomes = judge(np.concatenate(predicted), sequences, end)
    short, long = anatomy(outcomes, np.array([3, 3, 3, 3, 1]), trained_target=3)
    assert (short["length"], short["n"], short["correct"], short["first_error_share"]) == (1, 1, 1, None)
    assert (long["n"], long["correct"], long["wrong_symbol"], long["stopped_early"], long["ran_on"]) == (4, 1, 1, 1, 1)
    assert long["first_error_place"] == [1, 1, 0, 1]
    assert long["first_error_part"] == [1, 0, 1, 0, 0, 0, 0, 1, 0, 0], "at 0, a quarter and three quarters"
    assert long["first_error_share"] == pytest.approx((0 + 1 / 4 + 3 / 4) / 3, abs=1e-4)
    assert long["beyond_trained"] == 1


# Inputs


def test_batches_hold_every_example_once_and_nothing_padded() -> None:
    (run, *_) = small_study().runs()
    inputs = task_inputs(run, 7)
    assert inputs.lengths == [2, 3, 4, 5, 6]
    assert [inputs.seen(length) for length in inputs.lengths] == [True, True, True, False, False]
    met = []
    for batch in inputs.batches():
        assert (batch.tokens_BT != 0).all(), "the id of padding"
        assert [inputs.lengths[i] for i in batch.length_B] == inputs.length_E[batch.example_B].tolist()
        met += batch.example_B.tolist()
    assert sorted(met) == list(range(len(inputs.sequences)))


def test_repeated_tokens_repeat() -> None:
    inputs = repeated_inputs(50, 3, [8, 12], trained=6)
    (batch,) = [batch for batch in inputs.batches() if batch.tokens_BT.shape[1] == 12]
    assert torch.equal(batch.tokens_BT[:, :6], batch.tokens_BT[:, 6:])


@pytest.mark.parametrize(("text", "lengths"), [("", []), ("5", [5]), ("9, 2-4,3", [2, 3, 4, 9])])
def test_lengths_are_read(text: str, lengths: list[int]) -> None:
    assert parse_lengths(text) == lengths


LOOK, BEGIN = "must look like 5,10,20-24", "lengths begin at 1"


@pytest.mark.parametrize(
    ("text", "told"),
    [("x", LOOK), ("3,,4", LOOK), ("-3", LOOK), ("0", BEGIN), ("0-3", BEGIN), ("9,5-2", "'5-2': .* first, 2-5")],
)
def test_wrong_lengths_are_refused(text: str, told: str) -> None:
    with pytest.raises(UserError, match=told):
        parse_lengths(text)


# A trained study, from the command line


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("analyzed") / "small"
    study = small_study(
        encodings=["none", "alibi", "learned"], model={"layers": 2, "width": 16, "heads": 2}, training__steps=5
    )
    run_study(study, folder, "cpu")
    return folder


def call(*words: str) -> Any:
    return CliRunner().invoke(app, ["analyze", *words])


@pytest.mark.slow
def test_all_analyses_leave_rows_and_show_tables(trained: Path) -> None:
    done = call("all", str(trained), "--device", "cpu", "--count", "4")
    assert done.exit_code == 0, done.output
    for words in ("attention distance to none", "none (other seed)", "tokens back", "entropy", "probe", "first error"):
        assert words in done.output.replace("\n", " "), words
    folder = trained / "analysis"
    distances = read_findings(folder, "distance")
    # 2 seeds x 2 other encodings, and the other seed: 5 pairs, 2 layers, 5 lengths.
    assert len(distances) == 5 * 2 * 5
    assert all(0 <= row["distance"] <= math.log(2) for row in distances)
    # Of the 20 examples of a seen length, training leaves two.
    assert {(row["seen"], row["n"]) for row in distances} == {(True, 2), (False, 4)}
    others = [row for row in distances if row["encoding"] == "none"]
    assert {(row["seed"], row["reference_seed"]) for row in others} == {(2, 1)}
    assert all(row["seed"] == row["reference_seed"] for row in distances if row["encoding"] != "none")
    assert {row["length"]: row["seen"] for row in distances} == {2: True, 3: True, 4: True, 5: False, 6: False}
    heads, probes, failures = (read_findings(folder, kind) for kind in ("heads", "probes", "failures"))
    assert len(heads) == 6 * 2 * 2 * 2, "runs, seen and unseen, layers, heads"
    assert len(probes) == 6 * 2 * 3 * 2 * 2, "runs, targets, residual streams, kinds of probes, controls"
    assert len(failures) == 6 * 5
    for row in heads:
        limits = [bound + 1e-3 for bound in row["entropy_bound"]]
        assert all(value <= limit for value, limit in zip(row["entropy_by_position"], limits, strict=True))
        assert sum(row["distance_share"]) == pytest.approx(1, abs=1e-3)
    assert {row["run"] for row in heads} == {analyzed.fingerprint for analyzed in analyzed_runs(trained)}
    assert len(read_findings(folder, "maps")) == 3, "one run of each encoding"


@pytest.mark.slow
def test_a_second_call_reads_what_is_there(trained: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    words = ["heads", str(trained), "--device", "cpu", "--out", str(tmp_path), "--only", "encoding=none", "--count"]
    first = call(*words, "3", "--json")
    assert first.exit_code == 0, first.output

    def refuse(*_: Any) -> None:
        raise AssertionError("was computed before")

    monkeypatch.setattr("lengthwise.analysis.analyses.head_rows", refuse)
    again = call(*words, "3", "--json")
    assert json.loads(again.stdout) == json.loads(first.stdout)
    assert isinstance(call(*words, "2", "--json").exception, AssertionError), "another number is another question"


@pytest.mark.slow
def test_the_published_variant_is_kept_apart(trained: Path, tmp_path: Path) -> None:
    words = ["distance", str(trained), "--device", "cpu", "--out", str(tmp_path), "--only", "encoding=none", "--json"]
    ours, theirs = json.loads(call(*words).stdout), json.loads(call(*words, "--published-variant").stdout)
    assert list(ours) == ["distance"] and list(theirs) == ["distance-published"]
    assert [row["distance"] for row in ours["distance"]] != [row["distance"] for row in theirs["distance-published"]]
    assert {path.name for path in tmp_path.iterdir()} == {"distance", "distance-published"}


def test_across_seeds_nothing_shares_its_initial_weights(trained: Path) -> None:
    chosen = analyzed_runs(trained)
    for across, expected in ((False, {True}), (True, {False})):
        found = [pair for pair in pairs(chosen, across_seeds=across) if pair.model.run.encoding.label != "none"]
        assert len(found) == 4
        assert {pair.model.run.seed == pair.reference.run.seed for pair in found} == expected
    with pytest.raises(UserError, match="two seeds"):
        pairs([analyzed for analyzed in chosen if analyzed.run.seed == 1], across_seeds=True)


def test_streamed_maps_are_those_of_a_trace(trained: Path) -> None:
    from lengthwise.model.trace import Trace

    adapter = analyzed_runs(trained, "encoding=alibi,seed=1")[0].open(CPU)
    tokens = torch.randint(2, 20, (3, 9), generator=torch.Generator().manual_seed(0))

    class Kept(Watch):
        maps: list[Tensor] = []
        streams: list[Tensor] = []

        def attention(self, layer: int, weights_BHTS: Tensor) -> None:
            assert layer == len(self.maps)
            self.maps.append(weights_BHTS)

        def residual(self, layer: int, x_BTD: Tensor) -> None:
            assert layer == len(self.streams)
            self.streams.append(x_BTD)

    kept, trace = Kept(), Trace()
    adapter.forward(tokens, kept)
    with torch.no_grad():
        adapter.model(tokens, trace=trace)
    assert len(kept.maps) == 2 and len(kept.streams) == 3
    torch.testing.assert_close(kept.maps, [layer.weights_BHTS for layer in trace.layers])
    torch.testing.assert_close(kept.streams, trace.residual_BTD)


def test_example_maps_can_be_read_back(trained: Path) -> None:
    analyzed = analyzed_runs(trained, "encoding=none,seed=1")[0]
    adapter, inputs = analyzed.open(CPU), task_inputs(analyzed.run, 2)
    seen, unseen = example_maps(adapter, inputs)
    assert (seen["length"], unseen["length"], seen["layers"], seen["heads"]) == (4, 5, 2, 2)
    size = len(seen["tokens"])
    weights = np.frombuffer(base64.b64decode(seen["weights"]), np.uint8).reshape(2, 2, size * (size + 1) // 2)
    assert (weights[..., 0] == 255).all(), "the first token sees only itself"
    np.testing.assert_allclose(weights[..., -size:].sum(-1) / 255, 1, atol=size / 255)
    assert seen["tokens"][0] == "Copy:"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["distance", "{folder}", "--only", "encoding=none,seed=1"], "only one run"),
        (["distance", "{folder}", "--only", "encoding=alibi"], "'none' to compare with"),
        (["distance", "{folder}", "--reference", "xpos"], "'xpos' to compare with; known"),
        (["heads", "{folder}", "--lengths", "4-60"], "choose --lengths up to"),
        (["probes", "{folder}", "--lengths", "2-4"], "choose greater --lengths"),
        (["probes", "{folder}", "--count", "1"], "greater --count"),
        (["heads", "{folder}", "--only", "encoding=alibbi"], "alibi"),
        (["heads", "{folder}", "--text", "book.txt"], "Hugging Face"),
        (["heads", "{folder}/nothing"], "no such folder"),
        (["heads", "{folder}/analysis-of-nothing"], "no such folder"),
    ],
)
def test_what_cannot_be_done_is_said(trained: Path, tmp_path: Path, words: list[str], message: str) -> None:
    filled = [word.format(folder=trained) for word in words]
    done = call(*filled, "--device", "cpu", "--out", str(tmp_path))
    assert isinstance(done.exception, UserError), done.output
    assert message in str(done.exception)


def test_folders_without_finished_runs_are_refused(trained: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no runs"):
        analyzed_runs(tmp_path)
    (run,) = list((trained / "copy.repeat").glob("none/seed-1-*"))
    begun = tmp_path / "copy.repeat/none" / run.name
    begun.mkdir(parents=True)
    (begun / "run.json").write_text((run / "run.json").read_text())
    with pytest.raises(UserError, match="finished yet"):
        analyzed_runs(tmp_path)


# Hugging Face


def hugging_face(kind: str) -> Any:
    transformers = pytest.importorskip("transformers")
    shape = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4}
    if kind == "gpt2":
        config = transformers.GPT2Config(vocab_size=60, n_embd=16, n_layer=2, n_head=4, n_positions=32)
    else:
        config = transformers.LlamaConfig(**shape, num_key_value_heads=2, intermediate_size=32)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return transformers.AutoModelForCausalLM.from_config(config)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["gpt2", "llama"])
def test_hugging_face_models_are_looked_into(kind: str) -> None:
    adapter = HuggingFaceAdapter(hugging_face(kind), kind)
    assert adapter.last_position == (31 if kind == "gpt2" else None)
    inputs = repeated_inputs(adapter.vocabulary, 4, [12, 24], trained=12)
    rows = head_rows(adapter, inputs)
    assert len(rows) == 2 * 2 * 4
    assert all(0 <= row["induction"] <= 1 and row["even"]["induction"] < 0.2 for row in rows)
    (same, *_) = distance_rows(adapter, adapter, inputs)
    assert same["distance"] == pytest.approx(0, abs=1e-5) and same["mean_over_pairs"] > 0
    position = [row for row in probe_rows(adapter, inputs) if row["target"] == "position" and not row["control"]]
    assert len(position) == 3 * 2


@pytest.mark.slow
def test_a_hugging_face_folder_from_the_command_line(tmp_path: Path) -> None:
    for name in ("gpt2", "llama"):
        hugging_face(name).save_pretrained(tmp_path / name)
    out = ["--device", "cpu", "--lengths", "10,20", "--count", "2", "--out", str(tmp_path / "out")]
    done = call("heads", str(tmp_path / "llama"), *out)
    assert done.exit_code == 0, done.output
    done = call("distance", str(tmp_path / "llama"), "--with", str(tmp_path / "gpt2"), *out)
    assert done.exit_code == 0, done.output
    assert len(read_findings(tmp_path / "out", "distance")) == 2 * 2
    for words, message in (
        (["distance", "llama"], "--with"),
        (["failures", "llama"], "Hugging Face model has none"),
        (["heads", "gpt2", "--lengths", "40"], "positions up to 31"),
    ):
        done = call(words[0], str(tmp_path / words[1]), *out, *words[2:])
        assert isinstance(done.exception, UserError) and message in str(done.exception)


def test_the_memory_of_an_analysis_does_not_depend_on_the_number_of_examples(trained: Path) -> None:
    """No batch is larger than the limit, and nothing of a batch is kept."""
    analyzed = analyzed_runs(trained, "encoding=none,seed=1")[0]

    def kept(inputs: Inputs) -> int:
        study = ProbeStudy("position", 3, 16, 8, inputs.longest, inputs.sequences.size, CPU)
        adapter = analyzed.open(CPU)

        class Fit(Watch):
            batch = 0

            def residual(self, layer: int, x_BTD: Tensor) -> None:
                assert len(x_BTD) <= 64
                study.fit(self.batch, layer, x_BTD)

        watch = Fit()
        for number, batch in enumerate(inputs.batches()):
            watch.batch = number
            adapter.forward(batch.tokens_BT, watch)
        return sum(len(part) for part in study.sample.x[0])

    few, many = (repeated_inputs(20, count, [10], trained=8) for count in (300, 3000))
    assert kept(few) == 2400
    assert kept(many) == pytest.approx(4096, rel=0.1), "24,000 tokens within, of which about so many are kept"


def test_analysis_is_what_python_users_call(trained: Path, tmp_path: Path) -> None:
    from rich.console import Console

    analysis = Analysis(AnalysisRequest(trained, device="cpu", out=tmp_path, count=2), Console(stderr=True))
    assert analysis.distance() and len(analysis.rows["distance"]) == 5 * 2 * 5
