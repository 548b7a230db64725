"""What may take the place of attention: the seam, the gated recurrence that proves it, and every mixer in its place."""

import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from lengthwise import registry
from lengthwise.analysis.analyzed_runs import analyzed_runs
from lengthwise.encodings.choice import read_encoding
from lengthwise.encodings.encoding import Geometry
from lengthwise.errors import UserError
from lengthwise.executors.local import run_study
from lengthwise.mixers.gated_recurrence import GatedRecurrence, scan
from lengthwise.model.build import Lengths, build
from lengthwise.model.config import ModelConfig
from lengthwise.model.decoder import Decoder
from lengthwise.model.initial_values import initialize
from lengthwise.model.layer import LayerPass
from lengthwise.records.rows import load_results
from lengthwise.study import load_study
from lengthwise.training.fleet import Batch, Fleet

CONFIG = ModelConfig(style="t5", layers=3, width=32, heads=4, feed_forward=40)
SCHEDULES = {
    "everywhere": "gated-recurrence",
    "hybrid": ["gated-recurrence", "rotary", {"name": "gated-recurrence", "expand": 1.5, "least": 0.3}],
    **{name: [name, "rotary"] for name in registry.mixers.names()},
}


def model_of(choice: object, seed: int = 0) -> Decoder:
    model = build(CONFIG, 20, read_encoding(choice).resolved().layers, Lengths(16, 16))
    initialize(model, seed)
    return model.requires_grad_(False)


def tokens(*shape: int) -> Tensor:
    return torch.randint(1, 20, shape, generator=torch.Generator().manual_seed(5))


def test_a_scan_is_one_step_after_the_other() -> None:
    generator = torch.Generator().manual_seed(0)
    kept, added = (torch.rand(2, 13, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    kept[:, 6] = 0  # where a sequence begins
    state, expected = torch.zeros(2, 3, dtype=torch.float64), []
    for t in range(13):
        state = kept[:, t] * state + added[:, t]
        expected.append(state)
    torch.testing.assert_close(scan(kept, added), torch.stack(expected, dim=1))


def test_the_recurrence_is_its_formula() -> None:
    """h = f h + (1 - f) i, one token and one entry of the state at a time."""
    mixer = GatedRecurrence(GatedRecurrence.Config(expand=0.5, least=0.2), Geometry.of(8, 2))
    model = model_of("gated-recurrence")
    x_TD = torch.randn(5, 8, generator=torch.Generator().manual_seed(1))
    sigmoid, silu = torch.sigmoid, torch.nn.functional.silu
    state, expected = torch.zeros(4), []
    for x_D in x_TD:
        forget = 0.2 + 0.8 * sigmoid(mixer.forget.weight @ x_D + mixer.forget.bias)
        state = forget * state + (1 - forget) * silu(mixer.input.weight @ x_D)
        normed = state / (state.square().mean() + 1e-6).sqrt() * mixer.norm.weight
        expected.append(mixer.output.weight @ (normed * silu(mixer.gate.weight @ x_D)))
    here = LayerPass(model.encoding_at(0), model.layout(torch.ones(1, 5, dtype=torch.long)))
    torch.testing.assert_close(mixer(x_TD[None], here)[0], torch.stack(expected), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("choice", SCHEDULES.values(), ids=SCHEDULES)
class TestSequences:
    def test_packed_rows_are_their_sequences_alone(self, choice: object) -> None:
        model, row = model_of(choice), tokens(1, 12)
        packed = model(row, segments_BT=torch.tensor([[1] * 5 + [2] * 4 + [3] * 3]))
        alone = [model(row[:, first:end]) for first, end in ((0, 5), (5, 9), (9, 12))]
        torch.testing.assert_close(packed, torch.cat(alone, dim=1), atol=2e-5, rtol=2e-5)

    def test_padding_on_the_left_changes_nothing(self, choice: object) -> None:
        model, row = model_of(choice), tokens(1, 7)
        padded = torch.cat([torch.zeros(1, 4, dtype=torch.long), row], dim=1)
        found = model(padded, segments_BT=torch.tensor([[0] * 4 + [1] * 7]))
        torch.testing.assert_close(found[:, 4:], model(row), atol=2e-5, rtol=2e-5)

    @pytest.mark.parametrize("pieces", [[1] * 9, [4, 5], [3, 1, 5]])
    @pytest.mark.parametrize("padded", [False, True])
    def test_cached_equals_uncached(self, choice: object, pieces: list[int], padded: bool) -> None:
        model, row = model_of(choice), tokens(2, 9)
        segments = torch.tensor([[0, 0] + [1] * 7, [1] * 9]) if padded else None
        whole = model(row, segments_BT=segments)
        cache, found, first = model.new_cache(2, 9), [], 0
        for size in pieces:
            part = None if segments is None else segments[:, first : first + size]
            found.append(model(row[:, first : first + size], segments_BT=part, cache=cache))
            first += size
        real = slice(None) if segments is None else segments == 1
        torch.testing.assert_close(torch.cat(found, dim=1)[real], whole[real], atol=2e-5, rtol=2e-5)

    def test_a_fleet_trains_it_as_each_model_alone(self, choice: object) -> None:
        """Ordinary modules: every parameter has a gradient, and stacked models have those that each has alone."""
        layers = read_encoding(choice).resolved().layers
        fleet = Fleet(build(CONFIG, 20, layers, Lengths(16, 16)), 2, torch.device("cpu"))
        fleet.initialize([3, 4])
        batch = _batch(2)
        losses, gradients = fleet.gradients(batch)
        assert all((gradient != 0).any() for gradient in gradients.values())
        for n, seed in enumerate((3, 4)):
            lone = Fleet(build(CONFIG, 20, layers, Lengths(16, 16)), 1, torch.device("cpu"))
            lone.initialize([seed])
            one = Batch(*(array[n : n + 1] for array in batch.arrays()), consecutive=True)
            loss, alone = lone.gradients(one)
            torch.testing.assert_close(loss[0], losses[n], atol=1e-5, rtol=1e-5)
            for name, gradient in alone.items():
                torch.testing.assert_close(gradient[0], gradients[name][n], atol=2e-5, rtol=2e-4)


def _batch(count: int) -> Batch:
    rng = np.random.default_rng(0)
    rows = torch.from_numpy(rng.integers(1, 20, (count, 3, 8)))
    segments = torch.tensor([1, 1, 1, 1, 2, 2, 2, 2]).expand(count, 3, 8)
    positions = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3]).expand(count, 3, 8)
    predicting = torch.tensor([1, 2, 5, 6, 9, 14]).expand(count, 6)
    targets = torch.from_numpy(rng.integers(1, 20, (count, 6)))
    return Batch(rows, segments.contiguous(), positions.contiguous(), predicting.contiguous(), targets, True)


def test_names_and_initial_weights() -> None:
    model = model_of(SCHEDULES["hybrid"])
    assert model.encoding_names() == ["gated-recurrence", "rotary", "gated-recurrence"]
    assert any(name.startswith("blocks.0.gated-recurrence.forget") for name, _ in model.named_parameters())
    assert any(name.startswith("blocks.1.attention.projection") for name, _ in model.named_parameters())
    shares = torch.sigmoid(model.get_parameter("blocks.0.gated-recurrence.forget.bias"))
    assert shares.min() == pytest.approx(0.5, abs=0.01) and shares.max() == pytest.approx(0.999, abs=1e-4)
    alike, other = model_of(SCHEDULES["hybrid"]), model_of(SCHEDULES["hybrid"], seed=1)
    name = "blocks.0.gated-recurrence.input.weight"
    assert torch.equal(model.get_parameter(name), alike.get_parameter(name))
    assert not torch.equal(model.get_parameter(name), other.get_parameter(name))
    attention = build(CONFIG, 20, [{"name": "rotary"}], Lengths(16, 16))
    initialize(attention, 0)
    shared = "blocks.1.attention.projection.weight"
    assert torch.equal(model.get_parameter(shared), attention.get_parameter(shared))


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        ([["gated-recurrence", "alibi"]], "takes the place of attention"),
        ([["alibi", "gated-recurrence"]], "takes the place of attention"),
        ("gated-recurence", "gated-recurrence|unknown encoding"),
    ],
)
def test_what_cannot_be_combined_is_refused(choice: object, words: str) -> None:
    with pytest.raises(UserError, match=words):
        read_encoding(choice)


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(UserError, match="least must be"):
        read_encoding({"name": "gated-recurrence", "least": 1}).resolved()


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("return x_BTD[..., :3]", r"forward must return \(B, T, width\)"),
        ("return x_BTD.cumsum(1)", "must not know other sequences"),
        ("return torch.nn.functional.pad(x_BTD, (0, 0, 1, 0))[:, :-1]", "must not know other sequences"),
        ("return x_BTD.roll(-1, 1)", "must not know later tokens"),
        ("return x_BTD @ 3", "forward fails"),
    ],
)
def test_a_wrong_mixer_of_ones_own_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str, words: str
) -> None:
    (tmp_path / "mixers").mkdir()
    text = "import torch\nfrom lengthwise.mixers.mixer import Mixer\n\n\nclass Mine(Mixer):\n    name = 'mine'\n\n"
    (tmp_path / "mixers/mine.py").write_text(f"{text}    def forward(self, x_BTD, here):\n        {body}\n")
    monkeypatch.setenv(registry.VARIABLE, str(tmp_path))
    registry.mixers.__dict__.pop("entries", None)
    try:
        with pytest.raises(UserError, match=words):
            model_of("mine")
    finally:
        monkeypatch.delenv(registry.VARIABLE)
        registry.mixers.__dict__.pop("entries", None)
        sys.modules.pop("lengthwise_path_mixers_mine", None)


@pytest.mark.slow
def test_a_study_compares_it_with_encodings(tmp_path: Path) -> None:
    study = load_study(
        "quickstart",
        [
            "encodings=['none', 'gated-recurrence', ['gated-recurrence', 'rotary']]",
            "tasks=[{name='copy.repeat', symbols=20}]",
            *("training.steps=40", "training.validate_every=20", "data.validation=20", "data.test_per_length=5"),
            *("seeds=[1]", "data.watched=10"),
        ],
    )
    run_study(study, tmp_path, "cpu")
    results = load_results(tmp_path)
    assert results.encodings == ["none", "gated-recurrence", "gated-recurrence,rotary"]
    (run,) = results.of("copy.repeat", "gated-recurrence,rotary")
    assert run.description["encoding_of_each_layer"][:2] == ["gated-recurrence", "rotary"]
    assert set(run.description["encoding_resolved"]) == {"gated-recurrence", "rotary"}
    with pytest.raises(UserError, match="layer 1 has gated-recurrence; choose other runs with --only"):
        analyzed_runs(tmp_path, "encoding=gated-recurrence,rotary")[0].open(torch.device("cpu"))
