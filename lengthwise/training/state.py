"""Everything that training needs to resume: saved at once or not at all, checked when it is read."""

import json
import math
import os
import stat
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lengthwise.door import parse_json, visible
from lengthwise.errors import RunError
from lengthwise.records.files import replace


class NotAllowed(RunError):
    """A file is there, and may be good; who asks may not read it."""


STATE = "state.safetensors"
"""The file in the folder of a fleet."""


@dataclass
class TrainingState:
    """Of a fleet of N models with W weights each."""

    step: int
    """Updates done."""
    weights_NW: Tensor
    first_NW: Tensor
    second_NW: Tensor
    best_NW: Tensor
    """The weights with the best validation so far, the latest on ties."""
    best_score_N: Tensor
    best_step_N: Tensor
    diverged_N: Tensor
    """The step at which a gradient was first not finite; -1 for never."""
    seconds: float = 0.0
    """Spent on training so far, over all resumed parts."""

    @classmethod
    def begin(cls, weights_NW: Tensor) -> "TrainingState":
        count = len(weights_NW)
        return cls(
            step=0,
            weights_NW=weights_NW,
            first_NW=torch.zeros_like(weights_NW),
            second_NW=torch.zeros_like(weights_NW),
            best_NW=weights_NW.clone(),
            best_score_N=torch.full((count,), -1.0, dtype=torch.float64),
            best_step_N=torch.zeros(count, dtype=torch.int64),
            diverged_N=torch.full((count,), -1, dtype=torch.int64),
        )

    def tensors(self) -> dict[str, Tensor]:
        return {name: value for name, value in vars(self).items() if isinstance(value, Tensor)}

    def save(self, path: Path) -> None:
        """Keeps the previous state beside it, in case this one is damaged later."""
        self.copied()(path)

    def copied(self) -> Callable[[Path], None]:
        """A function that saves the state as it is now, whatever becomes of it meanwhile."""
        tensors = {name: value.detach().to("cpu", copy=True).contiguous() for name, value in self.tensors().items()}
        metadata = {"step": self.step, "seconds": self.seconds}

        def save(path: Path) -> None:
            if path.exists():
                path.replace(previous(path))
            save_tensors(path, tensors, {**metadata, "not_finite": not_finite(tensors)})

        return save

    def restore(self, path: Path, steps: int | None = None) -> str | None:
        """Reads the newest good state into this one; returns a warning where that is not the newest.

        Nothing is taken over before everything is checked. `steps`: how many there are in all.
        """

        def fits(tensors: dict[str, Tensor], metadata: dict[str, Any]) -> str:
            return self._misfit(tensors, metadata, steps)

        found = newest(path, fits)
        if found is None:
            return None
        tensors, metadata, warning = found
        for name, value in self.tensors().items():
            value.copy_(tensors[name].to(value.device))
        self.step, self.seconds = metadata["step"], metadata["seconds"]
        return warning and f"{warning}; resuming from step {self.step} of the state before it"

    def _misfit(self, tensors: dict[str, Tensor], metadata: dict[str, Any], steps: int | None) -> str:
        """Why a saved state cannot be one of this fleet at any of its steps; empty where it can."""
        expected = self.tensors()
        if tensors.keys() != expected.keys():
            return f"it has {', '.join(sorted(tensors)) or 'nothing'} instead of {', '.join(sorted(expected))}"
        for name, value in expected.items():
            here = tensors[name]
            if here.shape != value.shape or here.dtype != value.dtype:
                is_, must = (f"{tuple(each.shape)} of {each.dtype}" for each in (here, value))
                return f"{name} is {is_} and must be {must}"
        step, seconds = metadata.get("step"), metadata.get("seconds")
        if type(step) is not int or not 0 <= step <= (step if steps is None else steps):
            return f"it is of step {step}" + (f" of {steps}" if steps is not None else "")
        if not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
            return f"it took {seconds} seconds"
        if not tensors["best_score_N"].isfinite().all():
            return "a score is no number"
        for name, least in (("best_step_N", 0), ("diverged_N", -1)):
            if not bool(((tensors[name] >= least) & (tensors[name] <= step)).all()):
                return f"{name} is no step up to {step}"
        # A model that diverges keeps numbers; one that was saved without them says so.
        told = {row for row, at in enumerate(tensors["diverged_N"].tolist()) if at >= 0}
        said = metadata.get("not_finite", [])
        if not isinstance(said, list) or not told.union(said).issuperset(not_finite(tensors)):
            return "weights are no numbers"
        return ""


def not_finite(tensors: Mapping[str, Tensor]) -> list[int]:
    """The models with weights or moments that are no numbers."""
    matrices = [tensors[name] for name in ("weights_NW", "first_NW", "second_NW", "best_NW")]
    # The sum of a row is finite only if all of it is, nearly always the other way round: so few are looked at twice.
    odd = {row for each in matrices for row in torch.nonzero(~each.sum(dim=1).isfinite()).flatten().tolist()}
    return sorted(row for row in odd if not all(bool(each[row].isfinite().all()) for each in matrices))


def newest(
    path: Path, misfit: Callable[[dict[str, Tensor], dict[str, Any]], str]
) -> tuple[dict[str, Tensor], dict[str, Any], str | None] | None:
    """Tensors and metadata of the newest good state, with a warning where one after it is not; None without any.

    `misfit` says what is wrong with what was read, or nothing.
    """
    warning = None
    for candidate in (path, previous(path)):
        if not is_there(candidate):
            continue
        try:
            tensors, metadata = load_tensors(candidate)
            if wrong := misfit(tensors, metadata):
                raise RunError(f"{candidate} is damaged ({wrong})")
        except NotAllowed:
            raise
        except RunError as error:
            warning = warning or str(error)
            continue
        return tensors, metadata, warning
    if warning is None:
        return None
    raise RunError(f"{warning}, and no good state is before it; delete {path.parent} to train again from the start")


def is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError as error:
        raise NotAllowed(f"cannot look at {path}: {error.strerror}") from None


class Saver:
    """Writes states while training goes on; an error of one is raised with the next, or by `close`."""

    def __init__(self) -> None:
        self._beside = ThreadPoolExecutor(1)
        self._pending: Future[None] | None = None

    def save(self, state: TrainingState, path: Path) -> None:
        self.wait()
        self._pending = self._beside.submit(state.copied(), path)

    def wait(self) -> None:
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def close(self) -> None:
        """Waits for what is being written."""
        self._beside.shutdown()
        self.wait()


def previous(path: Path) -> Path:
    return path.with_name(f"previous-{path.name}")


def save_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict) -> None:
    """A safetensors file with a checksum; never half of one."""
    described = {"lengthwise": json.dumps({**metadata, "checksum": checksum(tensors)})}

    def write(partial: Path) -> None:
        with partial.open("wb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)  # what everyone's files have here
        save_file(tensors, partial, metadata=described)
        partial.chmod(mode)  # safetensors lets nobody else read it

    replace(path, write)


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Tensors and metadata; refuses a file that is cut off or changed."""
    try:
        if not path.is_file():
            raise FileNotFoundError
        path.open("rb").close()  # safetensors does not tell what is not allowed from what is not there
        with safe_open(path, framework="pt") as file:
            metadata = parse_json((file.metadata() or {})["lengthwise"], "its description")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise RunError(f"no checkpoint at {path}") from None
    except PermissionError as error:
        raise NotAllowed(f"cannot read {path}: {error.strerror}; its owner can allow it with chmod") from None
    except (SafetensorError, KeyError, TypeError, ValueError, OSError, RunError) as error:
        raise RunError(f"{path} is damaged ({visible(str(error))})") from error
    if not isinstance(metadata, dict) or metadata.get("checksum") != checksum(tensors):
        raise RunError(f"{path} is damaged (its checksum does not match)")
    return tensors, metadata


def checksum(tensors: dict[str, Tensor]) -> int:
    value = 0
    for name in sorted(tensors):
        value = zlib.crc32(name.encode(), value)
        content: Any = tensors[name].contiguous().view(-1).view(torch.uint8).numpy()
        value = zlib.crc32(content, value)
    return value
