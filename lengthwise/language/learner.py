"""What trains a language model, whole in every process or divided among them, as the training loop sees it."""

from abc import ABC, abstractmethod
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from lengthwise.language.windows import Rows
from lengthwise.model.decoder import Decoder
from lengthwise.training.batches import NO_TARGET
from lengthwise.training.update import Measured, Steps


class Learner(ABC):
    """A model and its optimizer on a device."""

    def __init__(self, model: Decoder, device: torch.device) -> None:
        self.model, self.device = model, device
        self.step = 0
        """Updates done."""
        self.seconds = 0.0
        """Spent on training so far, over all resumed parts."""

    @abstractmethod
    def restore(self, folder: Path) -> str | None:
        """Goes on from what `save` left in a folder, if anything; returns a warning where something was damaged."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Keeps what there was before until this is complete."""

    @abstractmethod
    def forget(self, folder: Path) -> None:
        """Deletes what `save` left."""

    @abstractmethod
    def run(self, steps: Steps) -> Measured:
        """Several updates."""

    @abstractmethod
    def weights(self) -> dict[str, Tensor]:
        """All of them, on the CPU, under the decoder's names."""

    @abstractmethod
    def logits(self, tokens_RT: Tensor, segments_RT: Tensor) -> Tensor:
        """(R, T, V) in fp32."""

    def settle(self) -> None:  # noqa: B027
        """Afterwards the weights are those after the last step."""

    def close(self) -> None:  # noqa: B027
        """Waits for what is being written."""

    @torch.no_grad()
    def losses(self, rows: Rows) -> Tensor:
        """Sum of the losses of all targets, and their number: (2,) in fp64."""
        tokens, segments, targets = (
            torch.from_numpy(each).to(self.device) for each in (rows.tokens_RT, rows.segments_RT, rows.targets_RT)
        )
        loss = summed_loss(self.logits(tokens, segments), targets)
        return torch.stack([loss.double(), (targets >= 0).sum().double()])


def summed_loss(logits_RTV: Tensor, targets_RT: Tensor) -> Tensor:
    return F.cross_entropy(
        logits_RTV.flatten(0, 1), targets_RT.flatten().long(), ignore_index=NO_TARGET, reduction="sum"
    )
