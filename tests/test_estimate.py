"""What a study will need: arithmetic by hand, nothing written, and what is finished left out."""

import dataclasses
from pathlib import Path

import pytest
import torch
from conftest import small_study

from lengthwise.bench.arithmetic import TokenCounts, training_flops
from lengthwise.bench.estimate import Estimate, cpu_warning, estimate, lines, operations
from lengthwise.executors.local import prepare, run_study

STUDY = small_study(training__steps=4, training__validate_every=2)


def test_operations_are_those_of_every_example_of_training() -> None:
    """copy.repeat of n symbols: `Copy:`, n, `[SEP]`, n and the end; lengths 2 to 4 come equally often."""
    run = STUDY.runs()[0]
    examples = [TokenCounts(2 * n + 3, n + 1, (2 * n + 3) * (2 * n + 4) // 2) for n in (2, 3, 4)]
    flops = [training_flops(run.model, run.make_tokens().rows, each) for each in examples]
    expected = sum(flops) / 3 * run.training.batch * run.training.steps
    assert operations(run) == pytest.approx(expected, rel=0.02)


def test_nothing_is_written_and_finished_runs_are_left_out(tmp_path: Path) -> None:
    before = estimate(prepare(STUDY, tmp_path / "runs", "cpu"))
    assert not (tmp_path / "runs").exists()
    assert (before.runs, before.finished) == (len(STUDY.runs()), 0) and before.seconds > 0 and before.memory_gib > 0
    assert before.operations == pytest.approx(sum(map(operations, STUDY.runs())))
    run_study(STUDY, tmp_path / "runs", "cpu", only="encoding=none")
    after = estimate(prepare(STUDY, tmp_path / "runs", "cpu"))
    assert (after.runs, after.finished) == (2, 2) and after.operations < before.operations
    run_study(STUDY, tmp_path / "runs", "cpu")
    assert lines(estimate(prepare(STUDY, tmp_path / "runs", "cpu"))) == ["Nothing left to do: all 4 runs are finished."]


def test_what_people_read() -> None:
    found = Estimate(30, 2, 10, 1, (100, 100), 1.3e13, "none on 2 tasks", 5400.0, 0.42)
    said = "\n".join(lines(found))
    assert "30 in 10 fleets; 2 are finished" in said and "about 1.5 hours in 1 process," in said and "0.4 GiB" in said
    assert "100 a model" in said and "Nothing was written" in said


def test_a_study_for_a_gpu_is_warned_of_on_a_cpu(tmp_path: Path) -> None:
    assert cpu_warning(prepare(STUDY, tmp_path / "runs", "cpu")) == ""
    long = small_study(training__steps=10**10)
    told = cpu_warning(prepare(long, tmp_path / "runs", "cpu"))
    assert told.startswith("this study is made for a GPU: 4 runs train for about ") and " days on this CPU" in told
    assert "continuing" in told and "\n" not in told and not (tmp_path / "runs").exists()
    on_gpu = dataclasses.replace(prepare(long, tmp_path / "runs", "cpu"), device=torch.device("cuda"))
    assert cpu_warning(on_gpu) == ""
