"""What the remappings of distances have in common: some pairs of query and key stand elsewhere, or are not seen.

Shape letters: B batch (1 where all rows are alike), H heads, T queries, S keys, K head width.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from lengthwise.encodings.contribution import Contribution, Rotation, Scores
from lengthwise.encodings.encoding import Geometry
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.errors import UserError
from lengthwise.extensions.extension import Extension
from lengthwise.extensions.rescaling import NEEDS_ROTATION, trained_frequencies


@dataclass(frozen=True)
class Elsewhere:
    """Other positions, and the pairs of query and key that take them."""

    query_BT: Tensor
    key_BS: Tensor
    pairs_BTS: Tensor
    """True for those pairs."""

    @property
    def distances_BTS(self) -> Tensor:
        """0 for later keys, which are not seen."""
        return (self.query_BT[:, :, None] - self.key_BS[:, None, :]).clamp(min=0)


class Remapping(Extension):
    """Gives some pairs of query and key other positions than the rest, which stay where they are.

    Rotations and biases by distance follow alike. A pair may have other angles than its query and its key have for
    others, so none are put on them beforehand: they are multiplied, and cached, as they are before any rotation, and
    the change of scores makes the logits anew. Attention is therefore eager, with one more product of queries and keys
    for the model's own positions and one for each of the others.
    """

    rotates = True
    last = True
    relative = True
    needs = NEEDS_ROTATION
    hides: ClassVar[bool] = False
    """Whether some keys are not seen."""
    fractional: ClassVar[bool] = False
    """Whether positions may lie between whole ones."""
    below_trained: ClassVar[str] = ""
    """The setting that must be below the trained length, if there is one."""

    def elsewhere(self, layout: AttentionLayout, geometry: Geometry) -> Sequence[Elsewhere]:
        """Where pairs stand that do not stay; what is said last holds."""
        raise NotImplementedError

    def hidden_BTS(self, layout: AttentionLayout, geometry: Geometry) -> Tensor | None:
        """True where a key is not seen, beside what the model hides."""
        return None

    def applies(self, contribution: Contribution) -> bool:
        return contribution.rotation is not None

    def check(self, contribution: Contribution, geometry: Geometry) -> None:
        others = (contribution.score, contribution.token_rotation, contribution.queries, contribution.keys)
        if any(each is not None for each in others):
            raise UserError(
                f"{self.name} would show queries and keys that are not rotated yet to another change of them"
            )
        if contribution.position_bias is not None:
            raise UserError(f"{self.name} changes distances, and this model has a bias by position")
        if contribution.rotation is not None:
            trained_frequencies(contribution.rotation, self.name)
        if geometry.counting.kind != "whole":
            raise UserError(f"{self.name} counts whole tokens, and the positions of this model count something else")
        if self.fractional and contribution.distance_bias is not None:
            raise UserError(f"{self.name} makes distances between whole ones, for which this model has no bias")
        scale = contribution.scale
        if self.hides and isinstance(scale, Tensor) and scale.ndim > 1 and scale.shape[-2] > 1:
            raise UserError(
                f"{self.name} hides keys, and this model scales its logits by how many a query sees, or by its position"
            )
        value = getattr(self.config, self.below_trained) if self.below_trained else 0
        if value >= geometry.trained_context:
            raise UserError(
                f"the {self.below_trained} of {self.name} must be below the trained length "
                f"{geometry.trained_context}, not {value}"
            )

    def extend(self, contribution: Contribution, layout: AttentionLayout, geometry: Geometry) -> Contribution:
        rotation, bias = contribution.rotation, contribution.distance_bias

        def score(scores: Scores) -> Tensor:
            layout, found = scores.layout, scores.logits_BHTS
            elsewhere = [] if rotation is None and bias is None else self.elsewhere(layout, geometry)
            if rotation is not None:
                found = _products(rotation, scores, layout.query_positions_BT, layout.key_positions_BS)
                for other in elsewhere:
                    there_BHTS = _products(rotation, scores, other.query_BT, other.key_BS)
                    found = torch.where(other.pairs_BTS[:, None], there_BHTS, found)
                found = found * scores.scale
                if scores.bias_BHTS is not None:
                    found = found + scores.bias_BHTS
            if bias is not None:
                distance_BTS = layout.distances_BTS
                for other in elsewhere:
                    distance_BTS = torch.where(other.pairs_BTS, other.distances_BTS, distance_BTS)
                found = found + bias(distance_BTS).movedim(0, 1)
            hidden_BTS = self.hidden_BTS(layout, geometry)
            return found if hidden_BTS is None else found.masked_fill(hidden_BTS[:, None], float("-inf"))

        return replace(contribution, rotation=None, distance_bias=None, score=score)


def _products(rotation: Rotation, scores: Scores, query_BT: Tensor, key_BS: Tensor) -> Tensor:
    """Of queries and keys, rotated for these positions."""
    q_BHTK = rotation.of_queries(scores.q_BHTK, query_BT)
    k_BHSK = rotation.of_keys(scores.k_BHSK, key_BS)
    return torch.einsum("bhtk,bhsk->bhts", q_BHTK, k_BHSK).float()
