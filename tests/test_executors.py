"""Executors: a Ray cluster that loses a worker and a node, SLURM's arrays, and what is told when something is wrong."""

import math
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from conftest import small_study
from typer.testing import CliRunner

from lengthwise.cli.main import app
from lengthwise.errors import UserError
from lengthwise.executors.executor import make_executor
from lengthwise.executors.local import run_study
from lengthwise.executors.slurm import minutes_of
from lengthwise.runtime import Listener
from lengthwise.training.loop import STEPS_AT_ONCE
from lengthwise.training.plan import FleetPlan


def contents(folder: Path) -> dict[str, bytes]:
    chosen = [file for file in folder.rglob("*") if file.suffix in (".jsonl", ".safetensors")]
    return {str(file.relative_to(folder)): file.read_bytes() for file in chosen}


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Two nodes of one core each: a head, and one that may go."""
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    monkeypatch.setenv("RAY_health_check_period_ms", "1000")  # a node that is gone is missed in seconds
    monkeypatch.setenv("RAY_worker_niceness", "0")  # else workers stand still beside whatever else the machine does
    # Workers import what the tests import.
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[1]))
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.second = made.add_node(num_cpus=1)
    yield made
    made.shutdown()


def parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def lose(cluster: Any, fleets: Path) -> None:
    """The second node goes, as a machine does: with its workers, which would work on for a while without it."""
    node = cluster.second.all_processes["raylet"][0].process.pid
    locks = "".join(lock.read_text() for lock in fleets.glob("*/lock"))
    there = [pid for pid in map(int, re.findall(r"process (\d+)", locks)) if parent(pid) == node]
    assert there
    for pid in there:
        os.kill(pid, signal.SIGSTOP)
    cluster.remove_node(cluster.second, allow_graceful=False)
    for pid in there:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.slow
def test_a_killed_worker_and_a_lost_node_cost_nothing(cluster: Any, tmp_path: Path) -> None:
    study = small_study(training__steps=1000, training__validate_every=500)
    run_study(study, tmp_path / "local", "cpu")
    begun: list[list[int]] = []
    """Of each task that began, the steps it told of."""
    notes: list[str] = []
    killed: list[str] = []

    def step(number: int, done: int) -> None:
        begun[number].append(done)
        saved = list((tmp_path / "ray/fleets").glob("*/state.safetensors"))
        if not killed and saved:
            killed.extend(re.findall(r"process (\d+)", (saved[0].parent / "lock").read_text()))
            os.kill(int(killed[0]), signal.SIGKILL)
        elif len(killed) == 1 and len(begun) == 3 and all(begun):  # both nodes are at work again
            killed.append("node")
            lose(cluster, tmp_path / "ray/fleets")

    def watch(number: int, fleets: int, plan: FleetPlan) -> Listener:
        begun.append([])
        number = len(begun) - 1
        return Listener(step=lambda done, steps: step(number, done), note=notes.append)

    executor = make_executor("ray", [f'address="{cluster.address}"'])
    assert run_study(study, tmp_path / "ray", "cpu", watch, save_every=0, executor=executor) == 2
    assert len(killed) == 2 and len(begun) == 4 and len([note for note in notes if "was lost" in note]) == 2
    # One that had only its tests before it tells of no step.
    assert all(min(steps, default=math.inf) > STEPS_AT_ONCE["cpu"] for steps in begun[2:]), "resumed, not begun anew"
    assert contents(tmp_path / "ray") == contents(tmp_path / "local")
    assert not list((tmp_path / "ray/fleets").iterdir())


SBATCH = """#!/bin/bash
# Does what SLURM does with an array, two tasks at a time.
array=$(sed -n 's/^#SBATCH --array=0-//p' "$1")
for task in $(seq 0 "$array"); do SLURM_ARRAY_TASK_ID=$task bash "$1" >"$(dirname "$1")/7_$task.log" 2>&1 & done
wait
echo "Submitted batch job 7"
"""
SMALL = ["--set", "training.steps=4", "--set", "seeds=[1]", "--set", "encodings=['none', 'alibi']"]


def ran(*words: str) -> Any:
    return CliRunner().invoke(app, ["run", "quickstart", *SMALL, *words])


@pytest.mark.slow
def test_tasks_of_an_array_share_a_study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sbatch = tmp_path / "bin/sbatch"
    sbatch.parent.mkdir()
    sbatch.write_text(SBATCH)
    sbatch.chmod(0o755)
    monkeypatch.setenv("PATH", f"{sbatch.parent}{os.pathsep}{os.environ['PATH']}")
    out = tmp_path / "a study's folder"
    settings = ["--executor-set", "tasks=2", "--executor-set", "time=30", "--executor-set", "partition=short"]
    said = ran("--out", str(out), "--executor", "slurm", *settings)
    assert said.exit_code == 0 and "Submitted batch job 7" in said.output, said.output
    script = out / "slurm/run.sh"
    assert subprocess.run(["bash", "-n", str(script)]).returncode == 0
    text = script.read_text()
    assert "#SBATCH --partition=short\n" in text and "#SBATCH --time=30\n" in text and "--minutes 28\n" in text
    assert ran("--out", str(tmp_path / "local"), "--device", "cpu", "--executor", "local").exit_code == 0
    assert contents(out) == contents(tmp_path / "local")
    assert "Nothing left to do" in ran("--out", str(out), "--executor", "slurm").output


def test_a_script_is_printed_or_left_for_another_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = ["--executor", "slurm", "--executor-set", "gpus=2", "--executor-set", "lines=['--account=abc']"]
    said = ran("--out", str(tmp_path / "s"), *gpu, "--print")
    assert said.exit_code == 0 and not (tmp_path / "s").exists()
    assert "#SBATCH --gpus-per-task=2\n" in said.output and "#SBATCH --account=abc\n" in said.output
    assert said.output.rstrip().endswith("--device cuda --workers 2")
    monkeypatch.setenv("PATH", "/nowhere")
    said = ran("--out", str(tmp_path / "s"), *gpu)
    assert said.exit_code == 0 and "sbatch is not on this machine" in said.output
    assert (tmp_path / "s/slurm/run.sh").exists() and not (tmp_path / "s/study.json").exists()


@pytest.mark.parametrize(
    ("time", "minutes"),
    [("90", 90), ("90:30", 90.5), ("4:00:00", 240), ("1-12", 2160), ("1-0:30", 1470), ("2-1:01:30", 2941.5)],
)
def test_times_are_read_as_slurm_reads_them(time: str, minutes: float) -> None:
    assert minutes_of(time) == minutes


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--executor", "slrm"], "unknown executor 'slrm'; did you mean 'slurm'"),
        (["--executor", "slurm", "--executor-set", "tme=3"], "did you mean 'time'?"),
        (["--executor", "slurm", "--executor-set", "time=soon"], "'soon' is no time of SLURM"),
        (["--executor", "slurm", "--executor-set", "lines=['rm -r x']"], "lines are options of sbatch"),
        (["--executor", "slurm", "--device", "cuda"], "add --executor-set gpus=1"),
        (["--executor", "ray", "--device", "cuda:1"], "use --device cuda instead of cuda:1"),
        (["--address", "auto"], "add --executor ray"),
        (["--executor-set", "gpus=1"], "needs --executor; there are local, processes, ray, slurm"),
    ],
)
def test_what_is_wrong_is_told(words: list[str], told: str, tmp_path: Path) -> None:
    said = ran("--out", str(tmp_path / "s"), *words)
    assert isinstance(said.exception, UserError) and told in str(said.exception)
    assert not (tmp_path / "s").exists()


def test_ray_is_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'lengthwise\[ray\]'"):
        make_executor("ray").device("auto")
