"""Everything that training needs to resume: saved at once or not at all, checked when it is read."""

import json
import zlib
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from lengthwise.errors import RunError
from lengthwise.records.files import replace

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
            save_tensors(path, tensors, metadata)

        return save

    def restore(self, path: Path) -> str | None:
        """Reads the newest undamaged state into this one; returns a warning where that is not the newest."""
        warning = None
        for candidate in (path, previous(path)):
            if not candidate.exists():
                continue
            try:
                tensors, metadata = load_tensors(candidate)
            except RunError as error:
                warning = str(error)
                continue
            for name, value in self.tensors().items():
                value.copy_(tensors[name].to(value.device))
            self.step, self.seconds = metadata["step"], metadata["seconds"]
            return warning and f"{warning}; resuming from step {self.step} of the state before it"
        if warning is None:
            return None
        raise RunError(f"{warning}, and so is the state before it; delete {path.parent} to train again from the start")


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
    replace(path, lambda partial: save_file(tensors, partial, metadata=described))


def load_tensors(path: Path) -> tuple[dict[str, Tensor], dict]:
    """Tensors and metadata; refuses a file that is cut off or changed."""
    try:
        with safe_open(path, framework="pt") as file:
            metadata = json.loads((file.metadata() or {})["lengthwise"])
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise RunError(f"no checkpoint at {path}") from None
    except (SafetensorError, KeyError, json.JSONDecodeError, OSError) as error:
        raise RunError(f"{path} is damaged ({error})") from error
    if metadata.get("checksum") != checksum(tensors):
        raise RunError(f"{path} is damaged (its checksum does not match)")
    return tensors, metadata


def checksum(tensors: dict[str, Tensor]) -> int:
    value = 0
    for name in sorted(tensors):
        value = zlib.crc32(name.encode(), value)
        content: Any = tensors[name].contiguous().view(-1).view(torch.uint8).numpy()
        value = zlib.crc32(content, value)
    return value
