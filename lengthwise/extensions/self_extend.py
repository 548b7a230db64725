"""SelfExtend (Jin et al. 2024): distances beyond a window are counted in groups of tokens.

Shape letters: B batch, H heads, T queries, S keys, K head width.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from lengthwise.encodings.encoding import Encoding, distances
from lengthwise.errors import UserError
from lengthwise.extensions.extension import Extension
from lengthwise.extensions.rescaling import NEEDS_ANGLES, has_angles


class SelfExtend(Extension):
    """Keeps distances within a window, and counts those beyond it in groups, so that they stay within the trained ones.

    Two sets of angles for one pair of query and key: neither is put on them beforehand. They arrive unturned (in the
    cache too), and what is added to the logits is the whole of them; the usual product is multiplied by zero. Attention
    is therefore written out, and two products of queries and keys are made.
    """

    name = "self-extend"
    turns = True
    last = True
    needs = NEEDS_ANGLES

    @dataclass(frozen=True)
    class Config:
        group: int
        """Tokens that share a position, beyond the window."""
        window: int
        """Keys at a smaller distance are seen as in training."""

        def __post_init__(self) -> None:
            if self.group < 1 or self.window < 1:
                raise ValueError(f"group and window must be 1 or more, not {self.group} and {self.window}")

    config: Config

    def applies(self, encoding: Encoding) -> bool:
        return has_angles(encoding)

    def reach(self, trained_context: int) -> int:
        return (trained_context - self.config.window) * self.config.group + self.config.window

    def subclass(self, encoding: Encoding, layer: int) -> type[Encoding]:
        group, window = self.config.group, self.config.window
        if type(encoding).bias is not Encoding.bias:
            raise UserError(f"self-extend would show unturned queries and keys to the bias of {encoding.name!r}")
        if window >= encoding.geometry.trained_context:
            trained = encoding.geometry.trained_context
            raise UserError(f"the window of self-extend must be below the trained length {trained}, not {window}")

        class Grouped(type(encoding)):
            shift_invariant = False  # where groups begin depends on absolute positions

            def rotate(self, x_BHTK: Tensor, positions_BT: Tensor) -> Tensor:
                return x_BHTK

            def scale(self, positions_BT: Tensor) -> float:
                return 0.0

            def bias(self, q_BHTK: Tensor, k_BHSK: Tensor, query_BT: Tensor, key_BS: Tensor) -> Tensor:
                turn = super().rotate

                def logits(at_query_BT: Tensor, at_key_BS: Tensor) -> Tensor:
                    turned = turn(q_BHTK, at_query_BT), turn(k_BHSK, at_key_BS)
                    return torch.einsum("bhtk,bhsk->bhts", *turned).float()

                near_BHTS = logits(query_BT, key_BS)
                # The shift makes grouped distances go on where the window ends.
                far_BHTS = logits(query_BT // group + window - window // group, key_BS // group)
                is_near = distances(query_BT, key_BS)[:, None] < window
                found = torch.where(is_near, near_BHTS, far_BHTS) * super().scale(query_BT)
                added = super().bias(q_BHTK, k_BHSK, query_BT, key_BS)
                return found if added is None else found + added

        return Grouped
