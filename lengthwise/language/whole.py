"""A whole model in every process, as a fleet of one: each process reads its part of a step, gradients are averaged."""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from torch import Tensor
from torch.func import functional_call

from lengthwise.language.learner import Learner
from lengthwise.language.processes import ProcessGroup
from lengthwise.language.settings import LanguageSettings
from lengthwise.model.decoder import Decoder
from lengthwise.training.capture import CapturedUpdater
from lengthwise.training.fleet import Batch, Fleet, Tensors, Told
from lengthwise.training.state import STATE, Saver, TrainingState, previous
from lengthwise.training.update import Measured, Steps, Updater


class AveragedFleet(Fleet):
    """A fleet whose losses and gradients are means over the targets of all processes."""

    def __init__(self, model: Decoder, device: torch.device, precision: str, processes: ProcessGroup) -> None:
        super().__init__(model, 1, device, precision)
        self.processes = processes

    def gradients(
        self,
        batch: Batch,
        keys_NL: Tensor | None = None,
        reads: Told = lambda section: None,
        wrote: Told | None = None,
    ) -> tuple[Tensor, Tensors]:
        if self.processes.count == 1:
            return super().gradients(batch, keys_NL, reads, wrote)
        assert wrote is None, "gradients are not what they will be before all processes have added theirs"
        losses_N, gradients = super().gradients(batch, keys_NL, reads)
        count_N = (batch.targets_NP >= 0).sum(dim=1).float()
        totals_2N = self.processes.add_up(torch.stack([count_N, losses_N * count_N]))
        share_N1 = (count_N / totals_2N[0])[:, None]
        losses_N = totals_2N[1] / totals_2N[0]
        # All at once, and in fp32, whatever the gradients are kept in.
        if self.kernels:
            matrix_NW = self.gradient_matrix()
            matrix_NW.copy_(self.processes.add_up(matrix_NW.float() * share_N1))
            return losses_N, gradients  # which lie there
        sums_NW = torch.cat([gradient.flatten(1) for gradient in gradients.values()], dim=1).float() * share_N1
        sizes = [gradient[0].numel() for gradient in gradients.values()]
        sums = zip(gradients, self.processes.add_up(sums_NW).split(sizes, dim=1), strict=True)
        return losses_N, {name: sum_1S.view(1, *self.shapes[name]) for name, sum_1S in sums}


class WholeLearner(Learner):
    def __init__(
        self,
        model: Decoder,
        settings: LanguageSettings,
        processes: ProcessGroup,
        device: torch.device,
        note: Callable[[str], None],
        first: Mapping[str, Tensor] = {},
    ) -> None:
        """`first`: weights to begin with, by the decoder's names; the others have their initial values."""
        super().__init__(model, device)
        recipe = settings.training.recipe
        self.processes = processes
        self.fleet = AveragedFleet(model, device, recipe.precision_on(device.type), processes)
        self.fleet.initialize([settings.seed])
        if first:
            self.fleet.put(0, {**dict(self.fleet.model.named_parameters()), **first})
        self.state = TrainingState.begin(self.fleet.matrix_NW)
        self.state.best_NW = self.state.best_NW[:, :0].clone()  # only the last weights are kept
        self.saver = Saver()
        # Steps of several processes are not captured: they wait for each other.
        if device.type == "cuda" and processes.count == 1:
            self.updater: Updater = CapturedUpdater(self.fleet, recipe, self.state, note)
        else:
            self.updater = Updater(self.fleet, recipe, self.state)

    def restore(self, folder: Path) -> str | None:
        warning = self.state.restore(folder / STATE)
        self.step, self.seconds = self.state.step, self.state.seconds
        self.fleet.refresh()
        return warning

    def save(self, folder: Path) -> None:
        self.state.step, self.state.seconds = self.step, self.seconds
        if self.processes.is_first:  # all have the same
            self.saver.save(self.state, folder / STATE)

    def forget(self, folder: Path) -> None:
        self.saver.wait()
        if self.processes.is_first:
            for file in (folder / STATE, previous(folder / STATE)):
                file.unlink(missing_ok=True)

    def run(self, steps: Steps) -> Measured:
        return self.updater.run(steps)

    def settle(self) -> None:
        self.updater.settle()

    def close(self) -> None:
        self.saver.close()

    def weights(self) -> dict[str, Tensor]:
        return self.fleet.row(self.fleet.matrix_NW, 0)

    def logits(self, tokens_RT: Tensor, segments_RT: Tensor) -> Tensor:
        weights = {name: value[0] for name, value in self.fleet.named(self.fleet.read_NW).items()}
        return functional_call(self.model, weights, (tokens_RT,), {"segments_BT": segments_RT})
