"""Whether modules write the gradients that they are to write themselves: found out before the first update."""

from collections.abc import Mapping

import torch
from torch import Tensor

from lengthwise.errors import UserError


class GradientCheck:
    """Makes every place of a gradient a NaN, and after the backward pass looks for places that were left so."""

    def __init__(self, device: torch.device) -> None:
        self.device, self.proven = device, False

    def begin(self, places: Mapping[str, Tensor]) -> None:
        """`places`: where gradients are to be, by the names of parameters; none where PyTorch finds them all."""
        if self.proven or not places:
            return
        for place in places.values():
            place.fill_(float("nan"))
        self._synchronize()

    def end(self, places: Mapping[str, Tensor], losses_N: Tensor) -> None:
        """Refuses a model that leaves one as it was. A loss that is no number says nothing of gradients."""
        if self.proven or not places:
            return
        self._synchronize()
        missing = [name for name, place in places.items() if place.isnan().all()]
        if missing and losses_N.isfinite().all():
            raise UserError(
                f"the module of {missing[0]} is to write the gradient of its weight, and did not: "
                "call the module rather than read its weight, or use a module of PyTorch"
            )
        self.proven = True

    def _synchronize(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)  # gradients are written on two streams
