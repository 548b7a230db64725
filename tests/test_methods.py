"""Methods after the first six encodings, and one that a user might bring: each equals its formula and trains.

The contract of encodings is tested in `test_encoding_contract`.
"""

import math
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from attention_by_hand import CONFIGS, ROWS, draw_tokens, read_by_hand, with_noise
from conftest import OUTSIDE, small_study
from formulas import BROUGHT, FORMULAS, Alibi
from torch import Tensor

import lengthwise as lw
from lengthwise.encodings.entmax import entmax_by_bisection, entmax_by_sorting
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.executors.local import run_study
from lengthwise.model import attention
from lengthwise.model.attention import attention_weights
from lengthwise.model.backend import explain, probe
from lengthwise.model.build import Lengths, build
from lengthwise.model.config import ModelConfig
from lengthwise.model.decoder import Block, Decoder
from lengthwise.model.initial_values import initialize
from lengthwise.model.trace import Trace
from lengthwise.presets import PRESETS
from lengthwise.records.rows import collect, load_results
from lengthwise.report.export import write_report
from lengthwise.study import load_study
from lengthwise.tasks.choosing import make_task
from lengthwise.training.batches import TrainingData, collate
from lengthwise.training.examples_of import test_of as examples_of_the_test
from lengthwise.training.fleet import Fleet
from lengthwise.training.optimizer import corrections
from lengthwise.training.recipe import DataConfig, TrainingConfig
from lengthwise.training.state import TrainingState
from lengthwise.training.update import Steps, Updater

TESTS = Path(__file__).parent
NAMES = sorted(FORMULAS)
LENGTH = 9
POSITIONS = {"consecutive": list(range(LENGTH)), "gapped": [1, 2, 5, 6, 7, 11, 12, 18, 20]}
SMALL: dict[str, dict[str, Any]] = {
    "chunk": {"size": 4},
    "cope": {"rows": 3},
    "fire": {"threshold": 4},
    "llama4-temperature": {"step": 3},
    "t5-interpolated": {"buckets": 6, "max_distance": 8},
    "window": {"size": 3},
    "window-rotary-ssmax": {"window": 3},
}
"""Settings under which a sequence of nine tokens meets what else only a long one meets."""


def make_model(name: str, config: str) -> Decoder:
    return with_noise(build(CONFIGS[config], ROWS, [{"name": name, **SMALL.get(name, {})}], Lengths(4, 64)))


MOVED = ["cope", "entmax", "fire", "fox", "gated-output", "ssmax", "xpos"]
"""Methods of the package that nothing in it was written for: each was brought in a file before, and still may be."""


def test_each_is_one_short_file() -> None:
    files = [path for path in OUTSIDE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    names = {path.stem.replace("_", "-") for path in files if path.suffix == ".py"}
    assert names == set(BROUGHT) and len(files) == len(BROUGHT) + 1
    short = set(MOVED) - {"entmax"}  # which has two programs, one of them for any alpha
    for path in [*files, *(file_of(name) for name in sorted(short))]:
        assert len(path.read_text().splitlines()) <= 60, path


def file_of(name: str) -> Path:
    return Path(lw.__file__).parent / "encodings" / f"{name.replace('-', '_')}.py"


@pytest.mark.slow
@pytest.mark.parametrize("name", BROUGHT)
def test_it_keeps_the_contract_of_encodings(name: str) -> None:
    assert contract_of(OUTSIDE, [name])[name] > 100


@pytest.mark.slow
def test_methods_of_the_package_keep_it_as_files_from_outside(tmp_path: Path) -> None:
    """Under other names, so that nothing that the package says of them by name can help."""
    (tmp_path / "encodings").mkdir()
    for name in MOVED:
        text = file_of(name).read_text()
        assert text.count(f'name = "{name}"') == 1
        copy = tmp_path / "encodings" / f"copied_{file_of(name).name}"
        copy.write_text(text.replace(f'name = "{name}"', f'name = "copied-{name}"'))
    found = contract_of(tmp_path, [f"copied-{name}" for name in MOVED])
    assert len(found) == len(MOVED) and min(found.values()) > 100, found


def contract_of(folder: Path, names: list[str]) -> dict[str, int]:
    """How many of the tests of encodings of the package each of these passes, in a process that finds their files."""
    chosen = " or ".join(f"[{name}-" for name in names)
    command = [sys.executable, "-m", "pytest", "-v", "-p", "no:cacheprovider", "-p", "no:xdist", "-k", chosen]
    done = subprocess.run(
        [*command, str(TESTS / "test_encoding_contract.py"), "-o", "addopts="],
        env={**os.environ, "LENGTHWISE_PATH": str(folder)},
        cwd=TESTS.parent,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return {name: len(re.findall(rf"\[{name}-.* PASSED", done.stdout)) for name in names}


@pytest.mark.usefixtures("encodings_outside")
@pytest.mark.parametrize("placed", POSITIONS)
@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_it_equals_its_formula(name: str, config: str, placed: str) -> None:
    model, tokens = make_model(name, config), draw_tokens(1, LENGTH)
    wanted, layers = read_by_hand(model, tokens[0], POSITIONS[placed], FORMULAS[name](model))
    trace = Trace()
    found = model(tokens, positions_BT=torch.tensor([POSITIONS[placed]]), trace=trace)
    torch.testing.assert_close(found[0], wanted, rtol=2e-5, atol=2e-5)
    for traced, attended in zip(trace.layers, layers, strict=True):
        torch.testing.assert_close(traced.logits_BHTS[0], attended.logits_HTS, rtol=2e-5, atol=2e-5)
        torch.testing.assert_close(traced.weights_BHTS[0], attended.weights_HTS, rtol=2e-5, atol=2e-5)


def weights_of(layout: AttentionLayout, model: Decoder, q_BHTK: Tensor, k_BHSK: Tensor) -> Tensor:
    contribution = layout.contribution(model.encoding_at(0))
    return attention_weights(q_BHTK, k_BHSK, contribution, layout, model.config.logit_scale)[2]


@pytest.mark.usefixtures("encodings_outside")
@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_some_queries_get_what_all_get(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model, tokens = make_model(name, "t5"), draw_tokens(2, LENGTH)
    block = model.blocks[0]
    assert isinstance(block, Block)
    positions = torch.tensor([POSITIONS["gapped"], POSITIONS["consecutive"]])
    x_BTD = block.attention_norm(model.embedding(tokens))
    whole = model.layout(tokens, positions).at_layer(0, x_BTD, model.encoding_at(0).token_numbers(x_BTD))
    q, k = block.attention.queries_and_keys(x_BTD, whole.contribution(model.encoding_at(0)), whole)
    wanted = weights_of(whole, model, q, k)
    for chosen in (slice(3, 7), torch.tensor([8, 2])):
        found = weights_of(whole.queries(chosen), model, q[:, :, chosen], k)
        torch.testing.assert_close(found, wanted[:, :, chosen])
    found = weights_of(whole.block(3, 7), model, q[:, :, 3:7], k[:, :, :7])
    torch.testing.assert_close(found, wanted[:, :, 3:7, :7])
    logits = model(tokens, positions_BT=positions)
    monkeypatch.setattr(attention, "LARGEST_LOGITS", 2 * 2 * 4 * LENGTH)  # two queries of four heads of two rows
    torch.testing.assert_close(model(tokens, positions_BT=positions), logits, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("encodings_outside")
@pytest.mark.parametrize("name", NAMES)
def test_it_says_how_it_is_run(name: str) -> None:
    config = ModelConfig(layers=2, width=64, heads=4)
    said = explain(build(config, ROWS, [{"name": name}], Lengths(64, 64)).encoding_at(0), config)
    assert said == "fused"


def test_it_says_why_it_is_not_fused() -> None:
    config = ModelConfig(layers=2, width=512, heads=4)  # heads of 128, the widest that there is a kernel for
    for name, settings, why in (
        ("entmax", {"alpha": 2.0}, "weights are not a softmax"),
        ("pope", {}, "it has no program for heads of 256"),
    ):
        model = build(config, ROWS, [{"name": name, **settings}], Lengths(64, 64))
        assert explain(model.encoding_at(0), config) == f"eager: {why}"


@pytest.mark.usefixtures("encodings_outside")
@pytest.mark.parametrize("name", NAMES)
@torch.no_grad()
def test_extensions_go_on_it(name: str) -> None:
    model, tokens = make_model(name, "llama-grouped"), draw_tokens(2, LENGTH)
    for settings in ({"name": "uniform-scale", "constant": 1.0}, {"name": "head-scale", "initial": 1.0}):
        extended = lw.extended(model, [lw.extension(**settings)])
        torch.testing.assert_close(extended(tokens), model(tokens), rtol=1e-5, atol=1e-5)
        assert len(extended.resolved_layers()) == model.config.layers
    doubled = lw.extended(model, [lw.extension("uniform-scale", constant=2.0)])
    assert (doubled(tokens) - model(tokens)).abs().max() > 1e-3


@torch.no_grad()
def test_dape_changes_logits_by_what_all_heads_say() -> None:
    """A query and a key at a time: the network reads the logits and the biases of all heads."""
    model, tokens = with_noise(build(CONFIGS["t5"], ROWS, [{"name": "dape"}], Lengths(64, 64))), draw_tokens(1, LENGTH)
    trace = Trace()
    model(tokens, trace=trace)
    encoding: Any = model.encoding_at(0)
    block = model.blocks[0]
    assert isinstance(block, Block)
    x_TD = block.attention_norm(model.embedding(tokens[0]))
    q_HTK, k_HTK = (
        (x_TD @ block.attention.projection.weight)[:, part * 32 : (part + 1) * 32].view(LENGTH, 4, 8).transpose(0, 1)
        for part in (0, 1)
    )
    for t in range(LENGTH):
        for s in range(t + 1):
            logits = [float(q_HTK[h, t] @ k_HTK[h, s]) * model.config.logit_scale for h in range(4)]
            p, a = (torch.nn.functional.softplus(raw) for raw in (encoding.base.raw_p, encoding.base.raw_a))
            biases = [-float(p[h]) * math.log(1 + float(a[h]) * (t - s)) for h in range(4)]
            inner = encoding.inner.weight @ torch.tensor([*logits, *biases]) + encoding.inner.bias
            inner = torch.where(inner > 0, inner, 0.01 * inner)
            outer = encoding.outer.weight @ inner + encoding.outer.bias
            wanted = torch.tensor(logits) + torch.tensor(biases) + outer
            torch.testing.assert_close(trace.layers[0].logits_BHTS[0, :, t, s], wanted, rtol=2e-5, atol=2e-5)


@pytest.mark.parametrize("alpha", [1.2, 1.5, 2.0, 3.0])
def test_entmax_of_any_alpha_sums_to_one_and_has_its_gradient(alpha: float) -> None:
    generator = torch.Generator().manual_seed(0)
    logits = (3 * torch.randn(4, 9, generator=generator, dtype=torch.float64)).requires_grad_()
    weights = entmax_by_bisection(logits, alpha)
    torch.testing.assert_close(weights.sum(-1), torch.ones(4, dtype=torch.float64), rtol=0, atol=1e-9)
    if alpha == 1.5:
        torch.testing.assert_close(weights, entmax_by_sorting(logits), rtol=0, atol=1e-7)
    if alpha == 2.0:  # sparsemax: the nearest point of the simplex
        torch.testing.assert_close(weights, _nearest_in_simplex(logits.detach()), rtol=0, atol=1e-9)
    direction = torch.randn(4, 9, generator=generator, dtype=torch.float64)
    (slope,) = torch.autograd.grad((weights * direction).sum(), logits)
    step = 1e-6 * torch.randn(4, 9, generator=generator, dtype=torch.float64)
    moved = entmax_by_bisection(logits.detach() + step, alpha) - entmax_by_bisection(logits.detach() - step, alpha)
    torch.testing.assert_close((moved * direction).sum(-1) / 2, (slope * step).sum(-1), rtol=1e-3, atol=1e-10)


def _nearest_in_simplex(points: Tensor) -> Tensor:
    """By what its multiplier must be, tried for every size of the support."""
    found = []
    for point in points:
        falling = sorted(point.tolist(), reverse=True)
        taus = [(sum(falling[:size]) - 1) / size for size in range(1, len(falling) + 1)]
        tau = next(t for size, t in reversed(list(enumerate(taus, 1))) if falling[size - 1] > t)
        found.append((point - tau).clamp(min=0))
    return torch.stack(found)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_models(name: str, tmp_path: Path) -> None:
    study = small_study(seeds=[1], encodings=[name.upper()], model__layers=4, model__width=32, model__heads=2)
    assert study.labels == [name]
    (run,) = study.runs()
    model = build(ModelConfig(layers=4, width=32, heads=2), ROWS, run.encoding.layers, Lengths(64, 64))
    initialize(model, 0)
    assert torch.isfinite(model(draw_tokens(2, 40))).all()
    assert len(set(model.encoding_names())) == min(2, len(PRESETS[name].layers))


# In a fleet

TASK = make_task({"name": "copy.repeat", "symbols": 20})
RECIPE = TrainingConfig(steps=30, batch=16, learning_rate=3e-3)
DATA = DataConfig(train_lengths=(2, 6), test_lengths=(7, 8), examples=0)
LEARNS_NOTHING = {"chunk", "entmax", "exclusive", "hard-alibi", "llama4-temperature", "logn", "nape", "sandwich"}
LEARNS_NOTHING |= {"stick-breaking", "window", "xpos"}
SEEN_BY_NO_SOFTMAX = {"outer.bias"}
"""Adds the same number to all logits of a head: its gradient is zero but for rounding."""


def fleet_of(name: str, count: int = 2, **settings: Any) -> Fleet:
    config = ModelConfig(layers=2, width=32, heads=2)
    fleet = Fleet(
        build(config, TASK.vocabulary.rows, [{"name": name, **settings}], Lengths(64, 64)), count, torch.device("cpu")
    )
    fleet.initialize(list(range(count)))
    return fleet


def steps_of(count: int) -> Steps:
    data = [TrainingData(TASK, DATA, seed=seed) for seed in range(count)]
    steps = range(RECIPE.steps)
    return Steps(
        collate([each.slice(0, RECIPE.steps * RECIPE.batch) for each in data], 0, 64, RECIPE.batch),
        seeds_KN=np.zeros((RECIPE.steps, count), np.int64),
        rates_KN=np.full((RECIPE.steps, count), RECIPE.learning_rate, np.float32),
        corrections_K2=np.array([corrections(RECIPE, step) for step in steps], np.float32),
    )


@pytest.mark.usefixtures("encodings_outside")
@pytest.mark.parametrize("name", NAMES)
def test_what_is_asked_of_it_is_where_its_parameters_are(name: str) -> None:
    """On a device that is not there, in place of a GPU."""
    encoding = make_model(name, "t5").encoding_at(0).to("meta")
    asked = probe(encoding, encoding.geometry.width)
    held = [*encoding.parameters(), *encoding.buffers()]
    assert not held or asked.query_positions_BT.device.type == "meta"
    if asked.layer_input_BTD is not None and held:
        assert asked.layer_input_BTD.device.type == "meta"


@pytest.mark.slow
@pytest.mark.usefixtures("encodings_outside")
@pytest.mark.parametrize("name", NAMES)
def test_a_fleet_trains_it_and_all_its_parameters(name: str) -> None:
    fleet = fleet_of(name)
    before = {key: value.clone() for key, value in fleet.named(fleet.matrix_NW).items()}
    own = [key for key in before if key.startswith("encodings.")]
    assert bool(own) == (name not in LEARNS_NOTHING)
    updater = Updater(fleet, RECIPE, TrainingState.begin(fleet.matrix_NW))
    losses_K2 = updater.run(steps_of(2)).read()[0]
    assert (np.asarray(losses_K2)[-5:].mean(0) < np.asarray(losses_K2)[:5].mean(0) - 0.2).all()
    for key, value in fleet.named(fleet.matrix_NW).items():
        moved = (value - before[key]).abs().amax(tuple(range(1, value.ndim)))
        if key.split(".", 2)[-1] not in SEEN_BY_NO_SOFTMAX:
            assert (moved > 1e-4).all(), f"{key} does not learn"


@pytest.mark.usefixtures("encodings_outside")
def test_parameters_begin_as_their_encoding_says() -> None:
    """In a fleet of two seeds: constants of `__init__`, numbers without a dimension, and modules of PyTorch."""
    fire = fleet_of("fire")
    ours = {key.removeprefix("encodings.0."): value for key, value in fire.named(fire.matrix_NW).items()}
    assert ours["c"].tolist() == [pytest.approx(0.1)] * 2 and ours["threshold"].tolist() == [1.0, 1.0]
    assert ours["c"].shape == (2,)  # one number for each model
    weights_NW = ours["inner.weight"].flatten(1)
    assert not torch.equal(weights_NW[0], weights_NW[1]) and weights_NW.abs().max() <= 1 and weights_NW.std() > 0.3
    fox = fleet_of("fox", bias=1.5)
    gates = {key: value for key, value in fox.named(fox.matrix_NW).items() if ".gate." in key}
    assert len(gates) == 4  # a weight and a bias in each of two layers
    for key, value in gates.items():
        if key.endswith("bias"):
            assert (value == 1.5).all()
        else:
            assert value.std() == pytest.approx(0.02, rel=0.3)


@pytest.mark.slow
@pytest.mark.usefixtures("encodings_outside")
def test_runs_are_trained_saved_and_loaded(tmp_path: Path) -> None:
    study = small_study(seeds=[1], encodings=["fire", "fox", ["window-rotary-ssmax", "cope"]], model__layers=2)
    run_study(study, tmp_path, "cpu")
    assert len(load_results(tmp_path).runs) == 3
    for path in tmp_path.rglob("last.safetensors"):
        model = lw.load(path)
        assert torch.isfinite(model(draw_tokens(1, 5))).all()
        if model.encoding_names()[0] == "fire":
            numbers = [value for name, value in model.state_dict().items() if name.endswith(".c")]
            assert numbers and all(0 < abs(float(c) - 0.1) < 0.1 for c in numbers), "trained, from 0.1 on"


def test_several_methods_in_a_layer_are_shown_and_collected(tmp_path: Path) -> None:
    layered = {"layers": [["rotary", "ssmax"], "none"], "label": "mine"}
    run_study(small_study(seeds=[1], encodings=["smollm3", layered]), tmp_path / "runs", "cpu")
    results = load_results(tmp_path / "runs")
    assert [run.description["encoding"] for run in results.runs] == ["mine", "smollm3"]
    collect(results, tmp_path / "collected")
    assert load_results(tmp_path / "collected").rows == results.rows
    assert "mine" in write_report(results, tmp_path / "report.html").read_text()


# Placement


def test_alibi_at_randomised_positions_is_a_study(tmp_path: Path) -> None:
    """Trains, is tested at drawn positions, and computes ALiBi's formula at them."""
    study = load_study(
        str(OUTSIDE / "randomized_alibi.toml"), ["training.steps=20", "seeds=[1]", "encodings=['alibi']"]
    )
    run_study(study, tmp_path, "cpu")
    (run,) = study.runs()
    model = lw.load(next(tmp_path.rglob("last.safetensors")))
    test = examples_of_the_test(run)
    assert test.positions is not None
    for row in (0, -1):
        size, positions = int(test.size[row]), test.positions[row].tolist()
        assert positions[:size] != list(range(size)) and max(positions[:size]) > 20
        tokens = torch.from_numpy(test.tokens[row, :size].astype(np.int64))
        with torch.no_grad():
            wanted, _ = read_by_hand(model, tokens, positions[:size], Alibi(model))
            found = model(tokens[None], positions_BT=torch.tensor([positions[:size]]))[0]
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
        assert (model(tokens[None])[0] - wanted).abs().max() > 1e-3, "consecutive positions are others"
    rows = load_results(tmp_path).rows
    assert rows and all(0 <= row["correct"] <= row["n"] and math.isfinite(row["n"]) for row in rows)
