"""SelfExtend (Jin et al. 2024): distances beyond a window are counted in groups of tokens.

Shape letters: B batch, H heads, T queries, S keys, K head width.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from lengthwise.encodings.contribution import Contribution, Scores
from lengthwise.encodings.encoding import Geometry
from lengthwise.encodings.layout import AttentionLayout, distances
from lengthwise.errors import UserError
from lengthwise.extensions.extension import Extension
from lengthwise.extensions.rescaling import NEEDS_ROTATION


class SelfExtend(Extension):
    """Keeps distances within a window, and counts those beyond it in groups, so that they stay within the trained ones.

    Two sets of angles for one pair of query and key: neither is put on them beforehand. They are multiplied, and
    cached, as they are before any rotation, and the change of scores makes the logits anew. Attention is therefore
    eager, and two more products of queries and keys are made.
    """

    name = "self-extend"
    rotates = True
    last = True
    needs = NEEDS_ROTATION

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

    @property
    def shift_invariant(self) -> bool:
        return False  # where groups begin depends on absolute positions

    def applies(self, contribution: Contribution) -> bool:
        return contribution.rotation is not None

    def reach(self, trained_context: int) -> int:
        return (trained_context - self.config.window) * self.config.group + self.config.window

    def check(self, contribution: Contribution, geometry: Geometry) -> None:
        if contribution.score is not None or contribution.queries is not None or contribution.keys is not None:
            raise UserError(
                "self-extend would show queries and keys that are not rotated yet to another change of them"
            )
        if self.config.window >= geometry.trained_context:
            raise UserError(
                f"the window of self-extend must be below the trained length {geometry.trained_context}, "
                f"not {self.config.window}"
            )

    def extend(self, contribution: Contribution, layout: AttentionLayout, geometry: Geometry) -> Contribution:
        rotation, group, window = contribution.rotation, self.config.group, self.config.window
        if rotation is None:
            return contribution

        def score(scores: Scores) -> Tensor:
            query_BT, key_BS = scores.layout.query_positions_BT, scores.layout.key_positions_BS

            def logits(at_query_BT: Tensor, at_key_BS: Tensor) -> Tensor:
                q_BHTK = rotation.of_queries(scores.q_BHTK, at_query_BT)
                k_BHSK = rotation.of_keys(scores.k_BHSK, at_key_BS)
                return torch.einsum("bhtk,bhsk->bhts", q_BHTK, k_BHSK).float()

            near_BHTS = logits(query_BT, key_BS)
            # The shift makes grouped distances go on where the window ends.
            far_BHTS = logits(query_BT // group + window - window // group, key_BS // group)
            is_near = distances(query_BT, key_BS)[:, None] < window
            found = torch.where(is_near, near_BHTS, far_BHTS) * scores.scale
            return found if scores.bias_BHTS is None else found + scores.bias_BHTS

        return replace(contribution, rotation=None, score=score)
