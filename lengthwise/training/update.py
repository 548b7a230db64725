"""Updates of a fleet on its device: one step after the other, each a function of nothing but its inputs.

Shape letters: K steps, N models, W weights of one model, S elements of a weight, L places that drop.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from lengthwise.training.batches import Batches
from lengthwise.training.fleet import Batch, Fleet
from lengthwise.training.optimizer import AdamW, norms
from lengthwise.training.optimizer_fused import Weight, adamw
from lengthwise.training.recipe import TrainingConfig
from lengthwise.training.state import TrainingState


@dataclass(frozen=True)
class Steps:
    """All that is needed for several updates."""

    batches: Batches
    seeds_KN: np.ndarray
    """Of dropout."""
    rates_KN: np.ndarray
    corrections_K2: np.ndarray
    """See `optimizer.corrections`."""

    def __len__(self) -> int:
        return len(self.rates_KN)


@dataclass(frozen=True)
class Measured:
    """Losses and gradient norms of several updates, perhaps still on their way from the device."""

    values_K2N: Tensor
    wait: Callable[[], None] = lambda: None

    def read(self) -> tuple[np.ndarray, np.ndarray]:
        """Losses and norms, (K, N) each."""
        self.wait()
        values = self.values_K2N.numpy()
        return values[:, 0], values[:, 1]


class Updater:
    """Updates a fleet, launching one operation after the other: works wherever PyTorch does."""

    def __init__(self, fleet: Fleet, recipe: TrainingConfig, state: TrainingState) -> None:
        self.fleet, self.recipe, self.state = fleet, recipe, state
        self.decays_W = fleet.decays(recipe.decay_norms)
        self.drops = fleet.model.config.dropout > 0

    def run(self, steps: Steps) -> Measured:
        return Measured(torch.stack([self.update(steps, index) for index in range(len(steps))]).cpu())

    def update(self, steps: Steps, index: int) -> Tensor:
        """One step of several; returns losses and norms (2, N)."""
        arrays = (steps.seeds_KN[index], steps.rates_KN[index], steps.corrections_K2[index])
        seeds_N, rates_N, corrections_2 = (torch.from_numpy(array).to(self.fleet.device) for array in arrays)
        batch = Batch.of(steps.batches, index, self.fleet.device)
        return self.step(batch, self.fleet.keys(seeds_N), rates_N, corrections_2)

    def launch_only(self) -> None:
        """From now on every kernel is launched by itself, for whoever wants to see them."""

    def settle(self) -> None:
        """Afterwards the weights are those after the last step."""

    def step(self, batch: Batch, keys_NL: Tensor | None, rates_N: Tensor, corrections_2: Tensor) -> Tensor:
        losses_N, gradients = self.fleet.gradients(batch, keys_NL)
        gradients_NS = [gradient.reshape(len(gradient), -1) for gradient in gradients.values()]
        norms_N = norms(gradients_NS)
        if self.fleet.device.type == "cpu" and self.fleet.dtype == torch.float32:
            adamw(list(self._weights.values()), gradients_NS, norms_N, rates_N, corrections_2, self.recipe)
        else:
            self._update_eagerly(gradients_NS, norms_N, rates_N, corrections_2)
        return torch.stack([losses_N, norms_N])

    @cached_property
    def _weights(self) -> dict[str, Weight]:
        """By name, in the order of the gradients."""
        matrices = (self.fleet.matrix_NW, self.state.first_NW, self.state.second_NW)
        values, first, second = (self.fleet.flat(matrix_NW) for matrix_NW in matrices)
        return {
            name: Weight(values_NS, first[name], second[name], self.fleet.decays_weight(name, self.recipe.decay_norms))
            for name, values_NS in values.items()
        }

    def _update_eagerly(
        self, gradients_NS: list[Tensor], norms_N: Tensor, rates_N: Tensor, corrections_2: Tensor
    ) -> None:
        """The update, one operation after the other: for any device and any precision."""
        fleet = self.fleet
        decays, copies = fleet.flat(self.decays_W[None]), fleet.flat(fleet.read_NW)
        for (name, weight), gradient_NS in zip(self._weights.items(), gradients_NS, strict=True):
            AdamW(self.recipe).update(
                *(weight.values_NS, weight.first_NS, weight.second_NS, decays[name][0], gradient_NS),
                *(norms_N, rates_N, corrections_2),
                None if fleet.read_NW is fleet.matrix_NW else copies[name],
            )
