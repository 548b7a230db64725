"""Looped models: layers that are passed several times with the same weights, against the same layers written out."""

import re
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import small_study
from torch import Tensor

from lengthwise.analysis.analyzed_runs import analyzed_runs
from lengthwise.errors import UserError
from lengthwise.executors.local import run_study
from lengthwise.kernels.linear import Linear
from lengthwise.language.settings import settings_from
from lengthwise.model.build import Lengths, build
from lengthwise.model.config import ModelConfig
from lengthwise.model.decoder import Decoder
from lengthwise.model.initial_values import initialize
from lengthwise.model.norm import RMSNorm
from lengthwise.model.trace import Trace
from lengthwise.records.rows import load_results
from lengthwise.training.checkpoint import load_model
from lengthwise.training.fleet import Batch, Fleet

ENCODINGS = {"rotary": ["rotary"], "hybrid": ["gated-recurrence", "alibi"]}


def config_of(style: str, loops: int, inject: bool = False, layers: int = 2, dropout: float = 0.0) -> ModelConfig:
    return ModelConfig(
        layers=layers, width=32, heads=2, style=style, loops=loops, inject=inject, dropout=dropout  # pyrefly: ignore
    )  # fmt: skip


def model_of(config: ModelConfig, encodings: list[str], seed: int = 0) -> Decoder:
    model = build(config, 20, [{"name": name} for name in encodings], Lengths(16, 16))
    initialize(model, seed)
    return model


def tokens(*shape: int) -> Tensor:
    return torch.randint(1, 20, shape, generator=torch.Generator().manual_seed(5))


def written_out(model: Decoder, encodings: list[str]) -> Decoder:
    """A model without loops, in which layers come again and again: copies of the weights."""
    config, loops = model.config, model.config.loops
    plain = model_of(config_of(config.style, 1, layers=config.layers * loops), encodings)
    weights = model.state_dict()
    for name in plain.state_dict():
        if found := re.fullmatch(r"blocks\.(\d+)\.(.*)", name):
            weights[name] = model.state_dict()[f"blocks.{int(found[1]) % config.layers}.{found[2]}"]
    plain.load_state_dict(weights)
    return plain


@pytest.mark.parametrize("style", ["t5", "llama"])
@pytest.mark.parametrize("encodings", ENCODINGS.values(), ids=ENCODINGS)
def test_loops_are_the_same_layers_again(encodings: list[str], style: str) -> None:
    """Values, and gradients: those of a weight are the sum of those of its copies."""
    model = model_of(config_of(style, 3), encodings)
    plain, row = written_out(model, encodings), tokens(2, 9)
    found, expected = model(row), plain(row)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    for each in (found, expected):
        each.square().sum().backward()
    total = {name: torch.zeros_like(parameter) for name, parameter in model.named_parameters()}
    for name, parameter in plain.named_parameters():
        own = re.sub(r"^blocks\.(\d+)", lambda found: f"blocks.{int(found[1]) % 2}", name)
        assert parameter.grad is not None
        total[own] += parameter.grad
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, total[name], atol=1e-4, rtol=1e-3)


def test_the_embedding_is_added_before_each_loop_but_the_first() -> None:
    model, row = model_of(config_of("t5", 3, inject=True), ["none"]).requires_grad_(False), tokens(1, 6)
    trace = Trace()
    model(row, trace=trace)
    residuals = trace.residual_BTD
    assert len(residuals) == 1 + 6
    once = written_out(model_of(config_of("t5", 1), ["none"]), ["none"]).requires_grad_(False)
    once.load_state_dict(model.state_dict())
    for loop in (1, 2):
        given = residuals[2 * loop] + residuals[0]

        def begin(layer: int, x_BTD: Tensor, given: Tensor = given) -> Tensor:
            return given if layer == 0 else x_BTD

        kept: list[Tensor] = []

        def keep(layer: int, x_BTD: Tensor, begin=begin, kept=kept) -> Tensor:
            kept.append(begin(layer, x_BTD))
            return kept[-1]

        once.hidden(row, once.layout(row), before=keep)
        torch.testing.assert_close(kept[-1], residuals[2 * loop + 2])


@pytest.mark.parametrize("inject", [False, True])
@pytest.mark.parametrize("encodings", ENCODINGS.values(), ids=ENCODINGS)
@pytest.mark.parametrize("pieces", [[1] * 9, [4, 5]])
def test_cached_equals_uncached(encodings: list[str], inject: bool, pieces: list[int]) -> None:
    """Every loop has keys and values of its own."""
    model, row = model_of(config_of("llama", 3, inject), encodings).requires_grad_(False), tokens(2, 9)
    cache, first, found = model.new_cache(2, 9), 0, []
    for size in pieces:
        found.append(model(row[:, first : first + size], cache=cache))
        first += size
    torch.testing.assert_close(torch.cat(found, dim=1), model(row), atol=1e-5, rtol=1e-5)


def batch_of(count: int) -> Batch:
    rng = np.random.default_rng(0)
    rows = torch.from_numpy(rng.integers(1, 20, (count, 3, 8)))
    segments = torch.tensor([1, 1, 1, 1, 2, 2, 2, 2]).expand(count, 3, 8).contiguous()
    positions = torch.tensor([0, 1, 2, 3, 0, 1, 2, 3]).expand(count, 3, 8).contiguous()
    predicting = torch.tensor([1, 2, 5, 6, 9, 14]).expand(count, 6).contiguous()
    return Batch(rows, segments, positions, predicting, torch.from_numpy(rng.integers(1, 20, (count, 6))), True)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
@pytest.mark.parametrize("encodings", ENCODINGS.values(), ids=ENCODINGS)
def test_a_fleet_trains_loops_as_each_model_alone(encodings: list[str], dropout: float) -> None:
    config = config_of("t5", 3, inject=True, dropout=dropout)
    fleet = Fleet(model_of(config, encodings), 2, torch.device("cpu"))
    fleet.initialize([3, 4])
    seeds = torch.tensor([7, 8])
    batch, keys = batch_of(2), fleet.keys(seeds)
    losses, gradients = fleet.gradients(batch, keys)
    for n, seed in enumerate((3, 4)):
        lone = Fleet(model_of(config, encodings), 1, torch.device("cpu"))
        lone.initialize([seed])
        one = Batch(*(array[n : n + 1] for array in batch.arrays()), consecutive=True)
        loss, alone = lone.gradients(one, lone.keys(seeds[n : n + 1]))
        torch.testing.assert_close(loss[0], losses[n], atol=1e-5, rtol=1e-5)
        for name, gradient in alone.items():
            torch.testing.assert_close(gradient[0], gradients[name][n], atol=2e-5, rtol=2e-4)


def test_sections_are_told_once() -> None:
    """An update waits for each section to be read: told twice, it would be done twice."""
    fleet = Fleet(model_of(config_of("t5", 3), ["none"]), 2, torch.device("cpu"))
    fleet.initialize([1, 2])
    read: list[str] = []
    fleet.gradients(batch_of(2), reads=read.append)
    assert read == ["embedding", "encodings.0", "blocks.0", "blocks.1", "output"]


def test_modules_that_are_called_again_leave_their_gradient_to_pytorch() -> None:
    """A module that writes its gradient itself writes over that of its other calls."""
    linear = Linear(2, 2)
    torch.nn.init.eye_(linear.weight)
    linear.grad_out = torch.zeros(2, 2)
    x = torch.eye(2)
    linear(linear(x.requires_grad_())).sum().backward()
    assert (linear.grad_out == 1).all(), "the true gradient is 2 everywhere"
    looped, once = (Fleet(model_of(config_of("t5", loops), ["none"]), 1, torch.device("cpu")) for loops in (2, 1))
    assert not any(name.startswith("blocks.") for name in looped.self_written)
    assert looped.self_written == {name for name in once.self_written if not name.startswith("blocks.")} != set()
    for module in looped.model.modules():
        if isinstance(module, Linear | RMSNorm):
            assert module.grad_out is None


def test_what_makes_no_sense_is_refused() -> None:
    for wrong, words in (({"loops": 0}, "loops must be 1 to"), ({"inject": True}, "set loops to 2 or more")):
        with pytest.raises(ValueError, match=words):
            ModelConfig(**wrong)
    with pytest.raises((UserError, ValueError), match="passes its layers once"):
        settings_from({"model": {"loops": 2}})


def test_a_looped_study_trains_and_is_another_run(tmp_path: Path) -> None:
    plain, looped = (
        small_study(seeds=[1], encodings=["none"], model={"layers": 1, "width": 16, "heads": 2, **more})
        for more in ({}, {"loops": 3, "inject": True})
    )
    assert plain.runs()[0].fingerprint != looped.runs()[0].fingerprint
    assert "loops" not in plain.runs()[0].table()["model"], "folders that are older than loops can be gone on with"
    run_study(looped, tmp_path, "cpu")
    assert load_results(tmp_path).runs[0].description["settings"]["model"]["loops"] == 3
    model = load_model(next(tmp_path.glob("**/last.safetensors")))
    assert model.config.loops == 3 and len(model.blocks) == 1
    with pytest.raises(UserError, match="passes its layers 3 times"):
        analyzed_runs(tmp_path)[0].open(torch.device("cpu"))
