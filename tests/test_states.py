"""Saved states that are bad in every way: the one before is taken, or a line says what to do; nothing is half taken."""

import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from conftest import small_study
from safetensors.torch import save_file
from torch import Tensor

from lengthwise.errors import RunError
from lengthwise.executors.local import run_study
from lengthwise.records.files import read_json, write_json
from lengthwise.training import state as states
from lengthwise.training.checkpoint import load_model
from lengthwise.training.state import NotAllowed, TrainingState, checksum, load_tensors, previous, save_tensors

Change = Callable[[dict[str, Tensor], dict], object]


def saved(path: Path, step: int) -> TrainingState:
    state = TrainingState.begin(torch.full((2, 4), float(step)))
    state.step, state.seconds = step, float(step)
    state.save(path)
    return state


def rewrite(path: Path, change: Change) -> None:
    """With a checksum that is right: somebody meant it."""
    tensors, metadata = load_tensors(path)
    metadata.pop("checksum")
    change(tensors, metadata)
    save_tensors(path, tensors, metadata)


def put(name: str, value: Callable[[Tensor], Tensor]) -> Change:
    def change(tensors: dict[str, Tensor], metadata: dict) -> None:
        tensors[name] = value(tensors[name]).clone()

    return change


def say(**values: object) -> Change:
    return lambda tensors, metadata: metadata.update(values)


MEANT: dict[str, Change] = {
    "a tensor is missing": lambda tensors, metadata: tensors.pop("first_NW"),
    "a tensor too many": lambda tensors, metadata: tensors.update(extra=torch.zeros(1)),
    "another shape": put("weights_NW", lambda x: x[:, :3]),
    "a shape that broadcasts": put("weights_NW", lambda x: x[:1]),
    "a lone number": put("best_NW", lambda x: x[0, 0]),
    "another type": put("weights_NW", lambda x: x.double()),
    "whole numbers": put("second_NW", lambda x: x.long()),
    "weights that are no numbers": put("weights_NW", lambda x: x / 0 * 0),
    "infinite weights": put("best_NW", lambda x: (x + 1) / 0),
    "one odd moment": put("first_NW", lambda x: torch.where(torch.arange(4) == 2, torch.nan, x)),
    "a score that is no number": put("best_score_N", lambda x: x / 0 * 0),
    "a best step in the future": put("best_step_N", lambda x: x + 1000),
    "diverged in the future": put("diverged_N", lambda x: x + 1000),
    "a far step": say(step=10**9),
    "a step below 0": say(step=-1),
    "a fraction of a step": say(step=1.5),
    "a step that is true": say(step=True),
    "no step": lambda tensors, metadata: metadata.pop("step"),
    "time that is a text": say(seconds="long"),
    "time below 0": say(seconds=-1.0),
    "no time": lambda tensors, metadata: metadata.pop("seconds"),
}  # fmt: skip


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)


def described(text: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        tensors, _ = load_tensors(path)
        save_file(tensors, path, metadata={"lengthwise": text.replace("SUM", str(checksum(tensors)))})

    return write


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGED: dict[str, Callable[[Path], None]] = {
    "cut off": cut,
    "a bit": flip,
    "empty": lambda path: path.write_bytes(b"") and None,
    "a huge header": lambda path: path.write_bytes(b"\xff" * 8 + b"{}") and None,
    "rubbish": lambda path: path.write_bytes(b"rubbish" * 99) and None,
    "no JSON": described("{"),
    "a list": described("[1]"),
    "a number": described("SUM"),
    "nested": described("[" * 5000),
    "NaN": described('{"step": NaN, "checksum": SUM}'),
    "no description": described('{"checksum": SUM}'),
    "a folder": folder,
    "a pipe": pipe,
}


def damaged(path: Path, kind: str) -> None:
    """A state of step 9 that must not be taken."""
    saved(path, 9)
    if kind in MEANT:
        rewrite(path, MEANT[kind])
    else:
        DAMAGED[kind](path)


@pytest.mark.parametrize("kind", [*MEANT, *DAMAGED])
def test_the_state_before_is_taken(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "state.safetensors"
    saved(path, 5)
    damaged(path, kind)
    state = TrainingState.begin(torch.zeros(2, 4))
    warning = state.restore(path, steps=100)
    assert warning and "resuming from step 5 of the state before it" in warning and "\n" not in warning
    assert state.step == 5 and state.seconds == 5 and bool((state.weights_NW == 5).all())


@pytest.mark.parametrize("kind", [*MEANT, *DAMAGED])
def test_without_a_good_state_nothing_is_taken(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "state.safetensors"
    damaged(path, kind)
    state = TrainingState.begin(torch.zeros(2, 4))
    with pytest.raises(RunError, match=r"no good state is before it; delete .* to train again"):
        state.restore(path, steps=100)
    assert state.step == 0 and not state.weights_NW.any() and not state.first_NW.any()


def test_a_diverged_model_may_have_what_it_has(tmp_path: Path) -> None:
    path = tmp_path / "state.safetensors"
    for diverged in (3, -1):  # noted, or not yet when it was saved
        state = TrainingState.begin(torch.ones(2, 4))
        state.step, state.weights_NW[1, 2] = 5, torch.nan
        state.diverged_N[1] = diverged
        state.save(path)
        other = TrainingState.begin(torch.zeros(2, 4))
        assert other.restore(path, 10) is None and other.step == 5 and bool(other.weights_NW[1, 2].isnan())


def test_files_are_for_everyone_whom_the_umask_allows(tmp_path: Path) -> None:
    for mask, mode in ((0o022, 0o644), (0o027, 0o640), (0o077, 0o600)):
        before = os.umask(mask)
        try:
            save_tensors(tmp_path / f"{mask}.safetensors", {"a": torch.zeros(3)}, {})
        finally:
            os.umask(before)
        assert stat.S_IMODE((tmp_path / f"{mask}.safetensors").stat().st_mode) == mode


def test_not_allowed_is_not_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is told to delete what somebody else can read, and no older state is taken in its place."""
    path = tmp_path / "state.safetensors"
    saved(path, 5)
    saved(path, 9)

    def refuse(self: Path, *_: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(states.Path, "open", refuse)  # root may read everything
    with pytest.raises(NotAllowed, match="Permission denied; its owner can allow it") as caught:
        TrainingState.begin(torch.zeros(2, 4)).restore(path)
    assert "delete" not in str(caught.value)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("trained")
    run_study(small_study(encodings=["none"], seeds=[1], training__steps=2), out, "cpu")
    (last,) = out.glob("*/*/*/last.safetensors")
    return last


BAD_MODELS: dict[str, Change] = {
    "a tensor is missing": lambda tensors, metadata: tensors.pop("embedding.weight"),
    "a tensor too many": lambda tensors, metadata: tensors.update(extra=torch.zeros(1)),
    "another shape": put("embedding.weight", lambda x: x[1:]),
    "another type": put("embedding.weight", lambda x: x.half()),
    "no run": lambda tensors, metadata: metadata.pop("run"),
    "a run that is a text": say(run="mine"),
    "an empty run": say(run={}),
    "lengths that are texts": say(lengths={"trained": "a", "met": "b"}),
    "a huge length": say(lengths={"trained": 10**15, "met": 10**15}),
    "no layers": lambda tensors, metadata: metadata["run"]["model"].update(layers=-1),
    "an unknown encoding": lambda tensors, metadata: metadata["run"].update(encoding=[{"name": "what"}]),
    "an encoding that is a text": lambda tensors, metadata: metadata["run"].update(encoding="none"),
}


@pytest.mark.parametrize("kind", BAD_MODELS)
def test_bad_checkpoints_are_one_line(trained: Path, tmp_path: Path, kind: str) -> None:
    from lengthwise.errors import UserError

    file = tmp_path / "last.safetensors"
    file.write_bytes(trained.read_bytes())
    rewrite(file, BAD_MODELS[kind])
    with pytest.raises(UserError) as caught:
        load_model(file)
    assert "\n" not in str(caught.value)
    load_model(trained)


BAD_FLEETS = [{}, {"runs": 3}, {"runs": [3]}, {"runs": None}, {"runs": {"a": 1}}, [1]]


@pytest.mark.parametrize("content", BAD_FLEETS, ids=json.dumps)
def test_bad_fleets_are_one_line(tmp_path: Path, content: object) -> None:
    (tmp_path / "fleets/a").mkdir(parents=True)
    (tmp_path / "fleets/a/fleet.json").write_text(json.dumps(content))
    with pytest.raises(RunError, match=r"fleet\.json"):
        run_study(small_study(seeds=[1]), tmp_path, "cpu")
    assert sorted(file.name for file in tmp_path.rglob("*") if file.is_file()) == ["fleet.json"]


def test_a_finished_fleet_leaves_nothing(tmp_path: Path) -> None:
    """Killed after its runs were finished and before its folder was gone; and while a file was written."""
    study = small_study(encodings=["none"], seeds=[1], training__steps=2)
    run_study(study, tmp_path, "cpu")
    (run,) = study.runs()
    left = tmp_path / "fleets" / "0123"
    left.mkdir(parents=True)
    write_json(left / "fleet.json", {"runs": [run.fingerprint]})
    saved(left / states.STATE, 2)
    saved(left / states.STATE, 2)
    (tmp_path / ".study.json.77.partial").write_text("{")
    assert previous(left / states.STATE).exists()
    assert run_study(study, tmp_path, "cpu") == 0
    assert not list(tmp_path.glob("fleets/*")) and not list(tmp_path.rglob("*.partial"))
    assert read_json(tmp_path / "study.json")
