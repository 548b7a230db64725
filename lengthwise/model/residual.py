"""The residual stream of a decoder: what every layer reads, and adds to.

Shape letters: B batch, T tokens, D width.
"""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from lengthwise.model import norm_kernel
from lengthwise.model.dropout import Dropout


class Residual(NamedTuple):
    """The stream, and perhaps a branch that is yet to be added: our kernel adds it and normalises the sum at once."""

    x_BTD: Tensor
    branch_BTD: Tensor | None = None
    key: Tensor | None = None
    """Decides what dropout keeps of the branch; None for all."""

    def plus(self, branch_BTD: Tensor, dropout: Dropout) -> Residual:
        """With what dropout keeps of a branch."""
        if not dropout.kernel:
            return Residual(self.x_BTD + dropout.drop(branch_BTD))
        assert self.branch_BTD is None, "a branch is added before the next one comes"
        return Residual(self.x_BTD, branch_BTD, dropout.next_key())

    def whole(self, dropout: Dropout) -> Tensor:
        """The stream with everything added."""
        if self.branch_BTD is None:
            return self.x_BTD
        x_NMD, branch_NMD = (each.flatten(0, -2)[None] for each in (self.x_BTD, self.branch_BTD))
        key_N = None if self.key is None else self.key[None]
        return norm_kernel.add_drop(x_NMD, branch_NMD, key_N, dropout.rate).view(self.x_BTD.shape)

    def normed(self, weight_D: Tensor, home_D: Tensor | None, dropout: Dropout) -> tuple[Residual, Tensor]:
        """The stream with everything added, and the same normalised, by our kernel."""
        branch_NMD = None if self.branch_BTD is None else self.branch_BTD.flatten(0, -2)[None]
        stream_NMD, normed_NMD = norm_kernel.join_norm(
            self.x_BTD.flatten(0, -2)[None],
            branch_NMD,
            None if self.key is None else self.key[None],
            dropout.rate,
            weight_D[None],
            None if home_D is None else home_D[None],
        )
        return Residual(stream_NMD.view(self.x_BTD.shape)), normed_NMD.view(self.x_BTD.shape)
