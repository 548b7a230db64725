"""Training killed at any moment goes on and ends with the same bits; nothing half-written is ever read."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
import torch
from conftest import slow, small_study, small_table

import lengthwise.training.plan as planning
from lengthwise.data.packing import pack
from lengthwise.errors import RunError, UserError
from lengthwise.executors.claims import Claims
from lengthwise.executors.local import run_study
from lengthwise.records import directory as directories
from lengthwise.records.directory import StudyDirectory
from lengthwise.records.results import Results
from lengthwise.records.rows import load_results
from lengthwise.runtime import Listener
from lengthwise.training.batches import TrainingData, best_row_width
from lengthwise.training.examples_of import test_of as examples_of_the_test
from lengthwise.training.examples_of import watched_of
from lengthwise.training.fleet import Fleet
from lengthwise.training.plan import FleetPlan, plan, run_directory
from lengthwise.training.run_sizes import MEASURED, row_width_of
from lengthwise.training.state import Saver, TrainingState, load_tensors, previous, save_tensors
from lengthwise.training.trainer import Trainer
from lengthwise.training.update import Measured, Steps, Updater
from lengthwise.training.validation import is_best

PROGRAM = """
import json, sys, torch
torch.set_num_threads(1)
from pathlib import Path
from lengthwise.executors.local import run_study
from lengthwise.study import study_from
study = study_from(json.load(open(sys.argv[1])))
run_study(study, Path(sys.argv[2]), "cpu", save_every=float(sys.argv[3]), workers=int(sys.argv[4]))
"""


def contents(folder: Path) -> dict[str, bytes]:
    """Every result file of a study: rows, logs, weights."""
    chosen = [f for f in folder.rglob("*") if f.suffix in (".jsonl", ".safetensors")]
    return {str(f.relative_to(folder)): f.read_bytes() for f in chosen}


def start(
    table: dict, name: Path, save_every: float = 0.0, workers: int = 1, folder: Path | None = None
) -> subprocess.Popen:
    """Runs a study in a process of its own, in the folder `name` where no other is given."""
    settings = name.with_suffix(".json")
    settings.write_text(json.dumps(table))
    folder = folder or name
    return subprocess.Popen([sys.executable, "-c", PROGRAM, str(settings), str(folder), str(save_every), str(workers)])


def saved_states(folder: Path) -> dict[Path, tuple[int, int]]:
    """Every saved state, with what tells it from the one that it replaced: each is a new file."""
    found = {}
    for file in folder.glob("fleets/*/state.safetensors"):
        with suppress(FileNotFoundError):  # it may be replaced or done with between two looks
            found[file] = (file.stat().st_ino, file.stat().st_mtime_ns)
    return found


def wait_for_progress(process: subprocess.Popen, folder: Path, before: dict | None = None, saves: int = 1) -> None:
    """Until the process has been seen to save so many states of its own, or has ended.

    `before`: the states that were there when it was started.
    """
    last, seen, deadline = before or {}, 0, time.monotonic() + 240
    while seen < saves and process.poll() is None:
        assert time.monotonic() < deadline, "no progress"
        now = saved_states(folder)
        seen += any(now[file] != last.get(file) for file in now)
        last = now
        time.sleep(0.01)


def interrupted(study, folder: Path, steps: list[int]) -> None:
    """Runs a study in this process, breaking off at each of the given calls of the progress bar, then to the end."""

    class Broken(Exception):
        """Raised by the progress bar, as a signal would break training off."""

    for after in steps:
        calls = 0

        def step(done: int, total: int, after: int = after) -> None:
            nonlocal calls
            calls += 1
            if calls == after:
                raise Broken

        with pytest.raises(Broken):
            run_study(study, folder, "cpu", lambda i, n, p, step=step: Listener(step=step), save_every=0.0)
    run_study(study, folder, "cpu", save_every=0.0)


@pytest.mark.slow
@pytest.mark.timeout(1200)  # it starts a dozen processes, one after the other
def test_killed_three_times_ends_with_the_same_files(tmp_path: Path) -> None:
    """SIGKILL at random moments, told in saved states; dropout and finite data on, so that all streams matter."""
    table = small_table(model__dropout=0.1, data__examples=64, training__steps=800, training__validate_every=50)
    run_study(_study(table), tmp_path / "whole", "cpu")
    moments = random.Random(20261115)
    killed = 0
    for saves in (1, *(moments.randint(1, 8) for _ in range(2))):
        before = saved_states(tmp_path / "killed")
        process = start(table, tmp_path / "killed", workers=2)
        wait_for_progress(process, tmp_path / "killed", before, saves)
        process.kill()
        # A machine that stalls this process may let the other one end; the first has a hundred states to go.
        killed += process.wait() == -signal.SIGKILL
    assert killed
    process = start(table, tmp_path / "killed", save_every=30, workers=2)
    assert process.wait(timeout=240) == 0
    assert load_results(tmp_path / "killed").unfinished == []
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")
    assert not list((tmp_path / "killed").rglob("*.partial"))


def _study(table: dict):
    from lengthwise.study import study_from

    return study_from(table)


# Each of the two fleets calls after steps 8, 10, 18, 20, 28 and 30.
@pytest.mark.parametrize("steps", [slow([1]), slow([3, 1, 1]), slow([5]), slow([6, 6]), slow([2, 7, 3]), slow([12])])
def test_broken_off_at_chosen_steps_ends_with_the_same_files(tmp_path: Path, steps: list[int]) -> None:
    study = small_study(model__dropout=0.1)
    run_study(study, tmp_path / "whole", "cpu")
    interrupted(study, tmp_path / "broken", steps)
    assert contents(tmp_path / "broken") == contents(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.parametrize("updates", [[1], [5], [10, 3, 14], [30, 13]])
def test_broken_off_between_saved_states_ends_with_the_same_files(
    tmp_path: Path, updates: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before an update in the middle of several that are done in one go."""
    study = small_study(model__dropout=0.1)
    run_study(study, tmp_path / "whole", "cpu")
    real = Updater.update
    for chosen in updates:
        left = [chosen]

        def update(self: Updater, steps: Steps, index: int, left: list[int] = left) -> torch.Tensor:
            left[0] -= 1
            if not left[0]:
                raise KeyboardInterrupt
            return real(self, steps, index)

        monkeypatch.setattr(Updater, "update", update)
        with pytest.raises(KeyboardInterrupt):
            run_study(study, tmp_path / "broken", "cpu", save_every=0.0)
    monkeypatch.setattr(Updater, "update", real)
    run_study(study, tmp_path / "broken", "cpu")
    assert contents(tmp_path / "broken") == contents(tmp_path / "whole")


@pytest.mark.slow
def test_broken_off_while_results_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import lengthwise.training.trainer as training

    study = small_study()
    run_study(study, tmp_path / "whole", "cpu")
    real, calls = training.write_rows, []

    def write_rows(path: Path, rows: list) -> None:
        calls.append(path)
        if len(calls) == 2:
            raise KeyboardInterrupt
        real(path, rows)

    monkeypatch.setattr(training, "write_rows", write_rows)
    with pytest.raises(KeyboardInterrupt):
        run_study(study, tmp_path / "broken", "cpu")
    monkeypatch.setattr(training, "write_rows", real)
    assert len(load_results(tmp_path / "broken").unfinished) >= 1
    run_study(study, tmp_path / "broken", "cpu")
    assert contents(tmp_path / "broken") == contents(tmp_path / "whole")


def test_a_second_call_does_nothing(finished: tuple[Path, Results]) -> None:
    folder, _ = finished
    before = contents(folder)
    assert run_study(small_study(), folder, "cpu") == 0
    assert contents(folder) == before


@pytest.mark.slow
def test_more_seeds_train_only_the_new_ones(tmp_path: Path) -> None:
    run_study(small_study(seeds=[1]), tmp_path / "s", "cpu")
    first = contents(tmp_path / "s")
    assert run_study(small_study(seeds=[1, 2]), tmp_path / "s", "cpu") == 2
    after = contents(tmp_path / "s")
    assert all(after[name] == content for name, content in first.items())
    assert len(load_results(tmp_path / "s").runs) == 4


@pytest.mark.slow
def test_a_damaged_state_is_never_loaded(tmp_path: Path) -> None:
    study = small_study(encodings=["none"])
    run_study(study, tmp_path / "whole", "cpu")
    for damage in (lambda b: b[: len(b) // 2], lambda b: b[:-9] + bytes([b[-9] ^ 1]) + b[-8:], lambda b: b""):
        folder = tmp_path / f"damaged-{damage(b'0123456789012345').hex()}"
        notes: list[str] = []
        interrupt_at(study, folder, 20)
        (state,) = folder.glob("fleets/*/state.safetensors")
        state.write_bytes(damage(state.read_bytes()))
        run_study(study, folder, "cpu", lambda i, n, p, notes=notes: Listener(note=notes.append))
        assert "damaged" in notes[0] and "resuming from step" in notes[0]
        assert contents(folder) == contents(tmp_path / "whole")


def interrupt_at(study, folder: Path, step: int) -> None:
    def stop(done: int, total: int) -> None:
        if done == step:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_study(study, folder, "cpu", lambda i, n, p: Listener(step=stop), save_every=0.0)


def test_two_damaged_states_are_a_clear_error_and_nothing_is_lost(tmp_path: Path) -> None:
    study = small_study(encodings=["none"])
    interrupt_at(study, tmp_path / "s", 20)
    (state,) = (tmp_path / "s").glob("fleets/*/state.safetensors")
    for file in (state, previous(state)):
        file.write_bytes(b"rubbish")
    before = contents(tmp_path / "s")
    with pytest.raises(RunError, match=r"damaged.*delete .* to train again from the start"):
        run_study(study, tmp_path / "s", "cpu")
    assert contents(tmp_path / "s") == before


@pytest.mark.slow
def test_a_folder_that_stays_locked_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(directories, "PATIENCE", 0.2)
    study = small_study()
    with StudyDirectory(tmp_path / "s").lock(), pytest.raises(UserError, match=f"in use by process {os.getpid()} on"):
        run_study(study, tmp_path / "s", "cpu")
    assert run_study(study, tmp_path / "s", "cpu") == 2  # free again


@pytest.mark.slow
def test_a_fleet_belongs_to_one_process_until_that_ends(tmp_path: Path) -> None:
    process = start(small_table(training__steps=100_000), tmp_path / "s")
    wait_for_progress(process, tmp_path / "s")
    assert process.poll() is None
    folder = StudyDirectory(tmp_path / "s")
    (fleet,) = [place.name for place in folder.fleets.iterdir()]
    assert folder.claim(fleet) is None
    process.kill()
    process.wait()
    claim = folder.claim(fleet)
    assert claim is not None and folder.claim(fleet) is None
    claim.give_up()
    assert folder.claim(fleet) is not None


@pytest.mark.slow
def test_processes_that_share_a_folder_share_the_work(tmp_path: Path, finished: tuple[Path, Results]) -> None:
    """Each run is trained once, by one of them, and has the bits that it always has."""
    alone, _ = finished
    processes = [start(small_table(), tmp_path / name, folder=tmp_path / "s") for name in ("a", "b", "c")]
    assert [process.wait(timeout=240) for process in processes] == [0, 0, 0]
    assert contents(tmp_path / "s") == contents(alone)
    assert not list((tmp_path / "s" / "fleets").glob("*"))


def test_other_settings_in_the_same_folder_are_refused(finished: tuple[Path, Results]) -> None:
    folder, _ = finished
    before = contents(folder)
    with pytest.raises(UserError, match=r"training\.steps was 30, is 40"):
        run_study(small_study(training__steps=40), folder, "cpu")
    assert contents(folder) == before


@pytest.mark.slow
def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """A real full file system: a small tmpfs where that is allowed, else /dev/full's error from the writer."""
    mount = tmp_path / "disk"
    mount.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(mount)], capture_output=True).returncode:
        pytest.skip("mounting a small file system needs root")
    try:
        study = small_study(encodings=["none"], model__width=32)
        with pytest.raises(RunError, match=r"disk is full.*run the same command again"):
            run_study(study, mount / "s", "cpu", save_every=0.0)
        assert not list(mount.rglob("*.partial"))
        subprocess.run(["mount", "-o", "remount,size=64m", str(mount)], check=True)
        run_study(study, mount / "s", "cpu", save_every=0.0)
        run_study(study, tmp_path / "whole", "cpu")
        assert contents(mount / "s") == contents(tmp_path / "whole")
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_best_is_the_earliest_of_the_best_and_last_is_last(finished: tuple[Path, Results]) -> None:
    folder, results = finished
    for directory in StudyDirectory(folder).runs():
        log = [json.loads(line) for line in directory.training.read_text().splitlines()]
        scores = {row["step"]: row["validation_exact_match"] for row in log if "validation_exact_match" in row}
        assert list(scores) == [10, 20, 30]
        end = json.loads(directory.finished.read_text())
        assert end["best_validation"] == max(scores.values())
        assert end["best_step"] == min(step for step, score in scores.items() if score == max(scores.values()))
        unseen = [row["unseen_exact_match"] for row in log if "unseen_exact_match" in row]
        assert [(v["step"], v["validation"]) for v in end["validations"]] == list(scores.items())
        assert [v["unseen"] for v in end["validations"]] == unseen and len(unseen) == 3
        last, best = load_tensors(directory.last), load_tensors(directory.best)
        assert last[1]["step"] == 30 and best[1]["step"] == end["best_step"]
        same = all(torch.equal(last[0][name], best[0][name]) for name in last[0])
        assert same == (end["best_step"] == 30)
    assert {row["checkpoint"] for row in results.rows} == {"last", "best"}


@pytest.mark.parametrize(("rule", "chosen"), [("earliest", 20), ("latest", 30), ("last", 40)])
def test_which_of_equally_good_checkpoints_is_best_is_a_setting(rule: str, chosen: int) -> None:
    best, step = -1.0, 0
    for at, score in {10: 0.5, 20: 0.9, 30: 0.9, 40: 0.8}.items():
        if is_best(rule, score, best):
            best, step = score, at
    assert step == chosen


@pytest.mark.slow
def test_unseen_lengths_are_watched_on_examples_that_are_not_the_tests(tmp_path: Path) -> None:
    """The same results, whether or not anybody looks; `watched = 0` looks at nothing."""
    watching, blind = small_study(seeds=[1], data__watched=7), small_study(seeds=[1], data__watched=0)
    for name, study in {"watching": watching, "blind": blind}.items():
        run_study(study, tmp_path / name, "cpu")
    rows = {name: load_results(tmp_path / name) for name in ("watching", "blind")}
    kept = [[{k: v for k, v in row.items() if k != "run"} for row in rows[name].rows] for name in rows]
    assert kept[0] == kept[1]
    assert all("unseen" in v for run in rows["watching"].runs for v in run.finished["validations"])
    assert not any("unseen" in v for run in rows["blind"].runs for v in run.finished["validations"])
    run = watching.runs()[0]
    watched, test = watched_of(run), examples_of_the_test(run)
    assert watched is not None and len(watched) == 7
    assert min(watched.buckets) > 4 and set(watched.buckets) <= set(test.buckets)


def test_run_json_is_written_before_the_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def update(self: Updater, steps: Steps, index: int) -> torch.Tensor:
        raise KeyboardInterrupt

    monkeypatch.setattr(Updater, "update", update)
    with pytest.raises(KeyboardInterrupt):
        run_study(small_study(), tmp_path / "s", "cpu")
    files = list((tmp_path / "s").glob("*/*/*/run.json"))
    assert len(files) == 2
    described = json.loads(files[0].read_text())
    assert described["settings"]["training"]["steps"] == 30
    assert described["versions"]["torch"].startswith(torch.__version__.split("+")[0])
    for key in ("commit", "hardware", "seed", "fingerprint", "parameters", "encoding_resolved", "attention_scale"):
        assert key in described


def test_rows_carry_their_coordinates(finished: tuple[Path, Results]) -> None:
    _, results = finished
    assert len(results.rows) == 2 * 2 * 2 * 5  # encodings, seeds, checkpoints, lengths 2-6
    for row in results.rows:
        # Of 20 symbols two are held out for testing at the lengths of training.
        assert row["n"] == (2 if row["seen"] else 10) and row["task"] == "copy.repeat"
        assert row["seen"] == (row["length"] <= 4)
        assert row["correct"] + row["wrong_symbol"] + row["stopped_early"] + row["ran_on"] == row["n"]


def test_a_checkpoint_is_a_model(finished: tuple[Path, Results]) -> None:
    """Loaded by itself, it predicts what the rows say that it predicted."""
    import lengthwise as lw
    from lengthwise.evaluation.exact import judge
    from lengthwise.evaluation.test_set import test_set

    folder, results = finished
    study = small_study()
    for run in study.runs():
        directory = StudyDirectory(folder).run("copy.repeat", run.encoding.label, run.seed, run.fingerprint)
        model = lw.load(directory.last)
        sequences = test_set(run.make_task(), run.data)
        with torch.no_grad():
            best = model(torch.from_numpy(sequences.tokens).long()).argmax(-1).numpy()
        rows = zip(best, sequences.prompt, sequences.size, strict=True)
        predicted = np.concatenate([row[prompt - 1 : size - 1] for row, prompt, size in rows])
        counts = judge(predicted, sequences, 1).by_bucket()
        (found,) = [r for r in results.runs if r.description["fingerprint"] == run.fingerprint]
        expected = [row for row in found.rows if row["checkpoint"] == "last"]
        assert [c["right_tokens"] for c in counts] == [e["right_tokens"] for e in expected]


def test_fleets_hold_runs_of_equal_shape(tmp_path: Path) -> None:
    study = small_study(
        tasks=[{"name": "copy.repeat", "symbols": 20}, {"name": "copy.words", "symbols": 90}, "copy.replace"],
        encodings=["none", "t5"],
        seeds=[1, 2, 3],
    )
    fleets = plan(study.runs(), StudyDirectory(tmp_path), 4, "cpu")
    assert sorted(len(fleet.runs) for fleet in fleets) == [2, 2, 3, 3, 4, 4]  # 64 rows: 3; 128 rows: 6 as 4 + 2
    for fleet in fleets:
        assert len({run.encoding.label for run in fleet.runs}) == 1
        assert len({run.make_task().vocabulary.rows for run in fleet.runs}) == 1
    assert {run.fingerprint for fleet in fleets for run in fleet.runs} == {run.fingerprint for run in study.runs()}


def test_row_width_is_the_best_for_the_training_examples() -> None:
    (run, *_) = small_study().runs()
    sizes = TrainingData(run.make_task(), run.data, seed=0).slice(0, MEASURED).size
    assert set(sizes) == {7, 9, 11}
    batches = sizes.reshape(-1, run.training.batch)
    for device, candidates in (("cuda", (16, 32, 64, 128, 192, 256, 320)), ("cpu", (16, 24, 32, 48, 64))):
        width = row_width_of(run, device)
        assert width == best_row_width(sizes, run.training.batch, device) == FleetPlan((run,)).row_width(device)
        fills = {each: sizes.sum() / (pack(batches, each).rows_M.sum() * each) for each in candidates}
        full = [each for each, fill in fills.items() if fill >= (0.9 if each >= 64 else 0.85)]
        assert width == (min(full) if full else max(candidates, key=lambda each: fills[each])), device


def test_rows_are_those_of_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two runs that on a GPU would have rows of 16 and of 32 tokens share a fleet with rows of 24."""
    import lengthwise.training.trainer as training

    own = {"data__test_lengths": [8, 9], "training__batch": 8, "encodings": ["none"], "seeds": [1]}
    short = small_study(tasks=["copy.words"], data__train_lengths=[1, 5], **own).runs()
    runs = [*short, *small_study(tasks=["reverse.words"], data__train_lengths=[1, 7], **own).runs()]
    assert [[row_width_of(run, device) for run in runs] for device in ("cpu", "cuda")] == [[24, 24], [16, 32]]
    directory = StudyDirectory(tmp_path / "s")
    (fleet,) = Claims(runs, directory, 10, "cpu")._plan()
    assert len(Claims(runs, directory, 10, "cuda")._plan()) == 2
    assert (fleet.row_width("cpu"), fleet.row_width("cuda")) == (24, 32)
    widths, collate = set(), training.collate
    monkeypatch.setattr(training, "collate", lambda *given: widths.add(given[2]) or collate(*given))
    Trainer(fleet, directory, torch.device("cpu")).run()
    assert widths == {24}


@pytest.mark.slow
def test_a_study_is_planned_for_its_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    real = planning.row_width_of
    monkeypatch.setattr(planning, "row_width_of", lambda run, device: asked.append(device) or real(run, device))
    run_study(small_study(), tmp_path / "s", "cpu")
    assert set(asked) == {"cpu"}


def test_runs_share_a_fleet_with_other_learning_rates_but_not_with_other_rows(tmp_path: Path) -> None:
    (first,) = small_study(encodings=["none"], seeds=[1]).runs()
    own = {"training__learning_rate": 1e-3, "training__final_learning_rate": 1e-4, "training__warmup": 0.5}
    for number, (name, value) in enumerate(own.items()):
        (other,) = small_study(encodings=["none"], seeds=[2], **{name: value}).runs()
        (fleet,) = plan([first, other], StudyDirectory(tmp_path / str(number)), 10, "cpu")
        assert fleet.runs == (first, other), name
    shared = {"training__clip": 2.0, "training__batch": 16, "training__steps": 31, "training__weight_decay": 0.0}
    longer = {"data__train_lengths": [2, 30], "data__test_lengths": [31, 32]}
    for settings in (*({name: value} for name, value in shared.items()), longer):
        (other,) = small_study(encodings=["none"], seeds=[2], **settings).runs()
        assert len(plan([first, other], StudyDirectory(tmp_path / "other"), 10, "cpu")) == 2, settings
    assert row_width_of(other, "cpu") != row_width_of(first, "cpu")


@pytest.mark.slow
def test_runs_with_their_own_learning_rates_equal_each_alone(tmp_path: Path) -> None:
    recipes = [
        {"training__learning_rate": 3e-3},
        {"training__learning_rate": 5e-4, "training__final_learning_rate": 1e-4, "training__warmup": 0.4},
    ]
    runs = [
        # With Adam's usual epsilon a gradient that is zero but for rounding becomes a full step of a random sign.
        small_study(encodings=["t5"], seeds=[1 + i], training__epsilon=1e-4, model__dropout=0.1, **recipe).runs()[0]
        for i, recipe in enumerate(recipes)
    ]
    together = StudyDirectory(tmp_path / "together")
    (fleet,) = plan(runs, together, 10, "cpu")
    Trainer(fleet, together, torch.device("cpu")).run()
    for run in runs:
        alone = StudyDirectory(tmp_path / f"alone-{run.seed}")
        Trainer(FleetPlan((run,)), alone, torch.device("cpu")).run()
        ours, theirs = (run_directory(directory, run) for directory in (together, alone))
        weights, expected = load_tensors(ours.last)[0], load_tensors(theirs.last)[0]
        assert list(weights) == list(expected)
        for name, value in weights.items():
            torch.testing.assert_close(value, expected[name], rtol=0, atol=1e-5, msg=lambda m, n=name: f"{n}: {m}")
        logs = [[json.loads(line) for line in each.training.read_text().splitlines()] for each in (ours, theirs)]
        rates = [{row["step"]: row["learning_rate"] for row in log if "learning_rate" in row} for log in logs]
        assert rates[0] == rates[1] == {step: run.training.learning_rate_at(step - 1) for step in range(1, 31)}
        losses = [[row["loss"] for row in log if "loss" in row] for log in logs]
        assert losses[0] == pytest.approx(losses[1], abs=1e-5)


def test_a_saver_saves_what_was_when_it_was_told(tmp_path: Path) -> None:
    state, saver = TrainingState.begin(torch.zeros(2, 3)), Saver()
    state.step = 5
    saver.save(state, tmp_path / "state.safetensors")
    state.step = 6
    state.weights_NW.fill_(1.0)
    saver.wait()
    other = TrainingState.begin(torch.ones(2, 3))
    assert other.restore(tmp_path / "state.safetensors") is None
    assert other.step == 5 and not other.weights_NW.any()


def test_a_saver_tells_of_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When it is waited for, and with the next state; once."""
    import lengthwise.training.state as states

    def full(path: Path, tensors: dict, metadata: dict) -> None:
        raise RunError("the disk is full")

    state, saver = TrainingState.begin(torch.zeros(2, 3)), Saver()
    for ask in (saver.wait, lambda: saver.save(state, tmp_path / "state.safetensors")):
        with monkeypatch.context() as patched:
            patched.setattr(states, "save_tensors", full)
            saver.save(state, tmp_path / "state.safetensors")
            with pytest.raises(RunError, match="full"):
                ask()
    saver.wait()
    assert not list(tmp_path.iterdir())


def test_state_survives_a_round_trip(tmp_path: Path) -> None:
    state = TrainingState.begin(torch.randn(3, 5))
    state.step, state.seconds = 17, 2.5
    state.best_score_N[1] = 0.1
    state.save(tmp_path / "state.safetensors")
    other = TrainingState.begin(torch.zeros(3, 5))
    assert other.restore(tmp_path / "state.safetensors") is None
    assert other.step == 17 and other.seconds == 2.5
    assert all(torch.equal(a, b) for a, b in zip(state.tensors().values(), other.tensors().values(), strict=True))


def test_checksum_sees_a_single_bit(tmp_path: Path) -> None:
    file = tmp_path / "x.safetensors"
    save_tensors(file, {"a": torch.arange(100.0)}, {})
    content = bytearray(file.read_bytes())
    content[-50] ^= 4
    file.write_bytes(content)
    with pytest.raises(RunError, match="checksum"):
        load_tensors(file)


def test_trainer_reports_a_diverged_run_by_name(tmp_path: Path) -> None:
    study = small_study(encodings=["none"])
    (fleet,) = plan(study.runs(), StudyDirectory(tmp_path), 10, "cpu")
    notes: list[str] = []
    trainer = Trainer(fleet, StudyDirectory(tmp_path), torch.device("cpu"), Listener(note=notes.append))
    initialize = trainer.fleet.initialize

    def poisoned(seeds: list[int]) -> None:
        initialize(seeds)
        trainer.fleet.matrix_NW[1, 0] = float("inf")

    trainer.fleet.initialize = poisoned  # type: ignore[method-assign]
    trainer.run()
    assert len(notes) == 1 and "copy.repeat/none/seed-2 diverged" in notes[0]
    ends = [json.loads(d.finished.read_text()) for d in StudyDirectory(tmp_path).runs()]
    assert [end["diverged_at"] is None for end in ends] == [True, False]


@pytest.mark.slow
def test_workers_give_the_same_bits(tmp_path: Path) -> None:
    study = small_study()
    run_study(study, tmp_path / "one", "cpu", workers=1)
    seen: list[tuple[int, int]] = []
    watch = lambda number, fleets, plan: Listener(step=lambda step, steps: seen.append((number, step)))  # noqa: E731
    assert run_study(study, tmp_path / "two", "cpu", watch, workers=2) == 2
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert {(0, 30), (1, 30)} <= set(seen)


@pytest.mark.slow
def test_an_error_in_a_worker_is_the_error_of_the_command(tmp_path: Path) -> None:
    study = small_study()
    for fleet in plan(study.runs(), StudyDirectory(tmp_path / "s"), 10, "cpu"):
        (tmp_path / "s" / "fleets" / fleet.id).mkdir(parents=True)
        for name in ("state.safetensors", "previous-state.safetensors"):
            (tmp_path / "s" / "fleets" / fleet.id / name).write_bytes(b"rubbish")
    with pytest.raises(RunError, match="damaged"):
        run_study(study, tmp_path / "s", "cpu", workers=2)


@pytest.mark.slow
def test_a_killed_parent_leaves_no_worker_behind(tmp_path: Path) -> None:
    table = small_table(training__steps=100_000)
    process = start(table, tmp_path / "s", workers=2)
    wait_for_progress(process, tmp_path / "s")
    assert process.poll() is None
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    assert len(children) == 2
    process.kill()
    process.wait()
    deadline = time.monotonic() + 120
    while any(Path(f"/proc/{child}").exists() and not is_zombie(child) for child in children):
        assert time.monotonic() < deadline, "a worker outlived its parent"
        time.sleep(0.05)


def is_zombie(process: str) -> bool:
    try:
        return Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except FileNotFoundError:
        return True


@pytest.mark.slow
def test_examples_longer_than_any_that_was_measured_still_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In PCFG the number of functions does not settle the number of tokens: a rare example is longer than its rows."""
    monkeypatch.setattr(planning, "row_width_of", lambda run, device: 12)
    study = small_study(
        tasks=[{"name": "pcfg", "test_set": "sampled", "train_lengths": [1, 3], "test_lengths": [4, 4]}]
    )
    run_study(study, tmp_path / "s", "cpu")
    assert load_results(tmp_path / "s").unfinished == []


@pytest.mark.slow
def test_a_table_of_positions_is_long_enough_for_what_a_model_writes(tmp_path: Path) -> None:
    study = small_study(
        tasks=[{"name": "summation", "train_lengths": [2, 3], "test_lengths": [4, 5]}],
        encodings=["learned"],
        data__scratchpad="full",
    )
    run_study(study, tmp_path / "s", "cpu")
    assert all(sum(row["answers"].values()) == row["n"] for row in load_results(tmp_path / "s").rows)


def test_a_run_is_never_in_two_fleets(tmp_path: Path) -> None:
    both, one = small_study(encodings=["none"]), small_study(encodings=["none"], seeds=[1])
    interrupt_at(both, tmp_path / "s", 18)
    interrupt_at(one, tmp_path / "s", 10)  # seed 1 is in a begun fleet of two, which this study cannot go on with
    fleets = plan(both.runs(), StudyDirectory(tmp_path / "s"), 10, "cpu")
    members = [run.fingerprint for fleet in fleets for run in fleet.runs]
    assert len(members) == len(set(members))
    run_study(both, tmp_path / "s", "cpu")
    for directory in StudyDirectory(tmp_path / "s").runs():
        steps = [json.loads(line)["step"] for line in directory.training.read_text().splitlines()]
        assert steps == sorted(steps) and steps[-1] == 30


def test_a_finished_run_is_left_alone_by_a_fleet_it_was_in(tmp_path: Path) -> None:
    both, one = small_study(encodings=["none"]), small_study(encodings=["none"], seeds=[1])
    interrupt_at(both, tmp_path / "s", 18)
    run_study(one, tmp_path / "s", "cpu")
    before = contents(tmp_path / "s" / "copy.repeat" / "none")
    run_study(both, tmp_path / "s", "cpu")
    after = contents(tmp_path / "s" / "copy.repeat" / "none")
    assert {n: c for n, c in after.items() if n.startswith("seed-1")} == {
        n: c for n, c in before.items() if n.startswith("seed-1")
    }
    assert load_results(tmp_path / "s").unfinished == []


def test_the_same_run_with_other_task_settings_is_refused_before_training(finished: tuple[Path, Results]) -> None:
    folder, _ = finished
    with pytest.raises(UserError, match="with other settings"):
        run_study(small_study(tasks=[{"name": "copy.repeat", "symbols": 21}]), folder, "cpu")


@pytest.mark.slow
def test_a_fleet_that_does_not_fit_is_trained_in_halves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also after it had reached something: the halves go on from there, and end with the same weights."""
    study = small_study()
    run_study(study, tmp_path / "whole", "cpu")
    run, stretches, begun = Updater.run, Counter[Fleet](), []

    def too_large(self: Updater, steps: Steps) -> Measured:
        stretches[self.fleet] += 1
        if self.fleet.count > 1 and stretches[self.fleet] > 2:
            raise torch.cuda.OutOfMemoryError("a double")
        if self.fleet.count == 1 and stretches[self.fleet] == 1:
            begun.append(self.state.step)
        return run(self, steps)

    monkeypatch.setattr(Updater, "run", too_large)
    notes: list[str] = []
    run_study(study, tmp_path / "halves", "cpu", lambda *_: Listener(note=notes.append), save_every=0.0)
    assert begun and min(begun) > 8, "nothing was trained twice"
    assert any("do not fit" in note for note in notes)
    assert not list((tmp_path / "halves" / "fleets").glob("*"))
    files = sorted((tmp_path / "whole").rglob("last.safetensors"))
    assert len(files) == len(study.runs())
    for file in files:
        mine, _ = load_tensors(file)
        theirs, _ = load_tensors(tmp_path / "halves" / file.relative_to(tmp_path / "whole"))
        for name, value in mine.items():
            torch.testing.assert_close(value, theirs[name], rtol=0, atol=1e-5)


def test_a_single_model_that_does_not_fit_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_large(self: Updater, steps: Steps) -> Measured:
        raise torch.cuda.OutOfMemoryError("a double")

    monkeypatch.setattr(Updater, "run", too_large)
    with pytest.raises(RunError, match="does not fit into the memory of cpu; use a smaller"):
        run_study(small_study(), tmp_path, "cpu")
