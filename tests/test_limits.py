"""More than the machine has is refused in a line, at once; what fits is not."""

import re
import time
from pathlib import Path

import pytest
import torch
from conftest import small_study, small_table
from test_command_line import Call, lengthwise, toml  # noqa: F401 (a fixture)

from lengthwise.errors import RunError, UserError
from lengthwise.executors import local
from lengthwise.model.config import SIZES, ModelConfig
from lengthwise.records.directory import StudyDirectory
from lengthwise.study import load_study, shipped_studies
from lengthwise.training import limits, plan
from lengthwise.training.recipe import TrainingConfig

TOO_MUCH = {
    "model.layers=4294967296": "model.layers: at most 1,000",
    "model.layers=100000": "model.layers: at most 1,000",
    "model.width=1073741824": "would need at least",
    "model.feed_forward=1000000000000000": "would need at least",
    "data.test_per_length=4294967296": "data.test_per_length would need at least",
    "data.test_lengths=[5, 1000000000000]": "test_lengths go up to 100,000",
    "data.train_lengths=[5, 1000000000000]": "train_lengths|test_lengths",
    "data.examples=1000000000000000": "data.examples would need at least",
    "data.validation=1000000000000000": "data.validation would need at least",
    "data.watched=1000000000000000": "data.watched would need at least",
    "training.batch=1000000000000": "training.batch would need at least",
    "tasks=[{name='copy.repeat', symbols=10000000000}]": "symbols is at most",
    "data.placement='randomized(range=1000000000000)'": "range must be 1 to 100,000",
}


@pytest.mark.parametrize("setting", TOO_MUCH)
def test_refused_at_once(lengthwise: Call, tmp_path: Path, setting: str) -> None:  # noqa: F811
    Path("toy.toml").write_text(toml(small_table()))
    began = time.process_time()
    code, out, error = lengthwise("run", "toy.toml", "--set", setting, "--device", "cpu", "--out", "out")
    assert code == 2 and not out and error.count("\n") == 1 and re.search(TOO_MUCH[setting], error), error
    assert time.process_time() - began < 5 and not Path("out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", shipped_studies())
def test_what_is_shipped_fits_into_24_gb(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "host_memory", lambda: 24 * 2**30)
    study = load_study(name)
    limits.refuse_large_models([(study.model, study.training)], 24 * 2**30, "cpu")


def test_named_sizes_fit_into_24_gb() -> None:
    for size, shape in SIZES.items():
        limits.refuse_large_models([(ModelConfig(size=size, **shape), TrainingConfig())], 24 * 2**30, "cpu")


def test_an_estimate_is_from_below() -> None:
    """Of the weights that a model has, all but embeddings, norms and encodings."""
    from lengthwise.model.build import Lengths, build

    for shape in ({"style": "t5"}, {"style": "llama", "key_value_heads": 2}, {"feed_forward": 40}):
        config = ModelConfig(layers=3, width=64, heads=4, **shape)
        with torch.device("meta"):
            model = build(config, 10, [{"name": "none"}], Lengths(8, 8))
        matrices = sum(p.numel() for name, p in model.named_parameters() if name.startswith("blocks") and p.ndim == 2)
        assert limits.weights_of(config) == matrices


def test_attention_that_does_not_fit_is_refused() -> None:
    with pytest.raises(UserError, match="attention to 100,000 tokens would need at least 298 GB; this machine has 24"):
        limits.refuse_long_attention("it", 100_000, ModelConfig(), 24 * 2**30, "this machine")


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")], ids=str)
def test_out_of_memory_is_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Two models are cut into one and one; one alone is refused."""

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(local, "Trainer", fail)
    with pytest.raises(RunError, match="does not fit into the memory of cpu; use a smaller model or batch"):
        local.run_study(small_study(encodings=["none"]), tmp_path, "cpu")
    assert len(list(StudyDirectory(tmp_path).fleets.glob("*/fleet.json"))) == 2
    monkeypatch.setattr(local, "plan", fail)
    with pytest.raises(RunError, match="the examples of small do not fit"):
        local.run_study(small_study(encodings=["none"]), tmp_path / "other", "cpu")


@pytest.mark.slow
def test_fleets_of_a_cpu_are_as_large_as_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system kills a process that takes more; so it must be known before."""
    long = load_study("scratchpads", ["tasks=[{name='polynomial', scratchpad='full'}]", "encodings=['none']"]).runs()
    (short,) = small_study(encodings=["none"], seeds=[1]).runs()
    monkeypatch.setattr(plan.os, "cpu_count", lambda: 2)
    monkeypatch.setattr(plan, "memory", lambda: 24 * 2**30)
    one = plan.memory_of_step(long[0], "cpu")
    assert 3 * 2**30 < one < 4.5 * 2**30
    assert plan.fitting(long[0], "cpu") == 2 and plan.fitting(long[0], "cuda") > 64 and plan.fitting(short, "cpu") > 10
    monkeypatch.setattr(plan, "memory", lambda: 2**40)
    assert plan.fitting(long[0], "cpu") == plan.MOST_WEIGHTS["cpu"] // (12 * 4 * 256**2)
    with pytest.raises(UserError, match=r"it: a training step would need at least [34] GB; this machine has 1 GB"):
        limits.refuse_large_step("it", one, 2**30)


@pytest.mark.slow
def test_memory_of_a_step_is_about_what_it_takes() -> None:
    """Of two models, as measured: each of them has states and half its attention weights once for every layer."""
    run = load_study("scratchpads", ["tasks=[{name='addition', scratchpad='full'}]"]).runs()[0]
    measured = (5.68 - 0.93) / 2 * 2**30  # GiB of a process that trained two, less those before
    assert 0.8 < plan.memory_of_step(run, "cpu") / measured < 1.2
