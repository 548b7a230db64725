"""What the rescalings of rotary positions have in common: pairs are rotated at other frequencies.

Shape letters: B batch, H heads, T tokens, K head width, P rotated pairs.
"""

import math
from dataclasses import replace
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from lengthwise.encodings.contribution import ByPosition, Contribution, Rotation
from lengthwise.encodings.encoding import Geometry
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.errors import UserError
from lengthwise.extensions.extension import Extension

NEEDS_ROTATION = "queries and keys that are rotated by angles, as those of rotary"


class Rescaling(Extension):
    """Works on every encoding whose angles grow linearly with the position, from their values at position 1."""

    rotates = True
    needs = NEEDS_ROTATION
    geometric: ClassVar[bool] = False
    """Whether it takes for granted that the frequencies are a geometric series, of two pairs or more."""

    def frequencies(self, trained_P: Tensor, positions_BT: Tensor, geometry: Geometry) -> Tensor:
        """Radians per token in fp32, broadcasting to (B, T, P), from those that the model was trained with."""
        raise NotImplementedError

    def magnitude(self, geometry: Geometry) -> float:
        """What rotated queries and keys are multiplied by, each: logits are multiplied by its square."""
        return 1.0

    @property
    def magnitude_on(self) -> Literal["logits", "rotated"]:
        """Whether the square is put on whole logits, or the magnitude on rotated entries alone."""
        return "logits"

    def applies(self, contribution: Contribution) -> bool:
        return contribution.rotation is not None

    def extend(self, contribution: Contribution, layout: AttentionLayout, geometry: Geometry) -> Contribution:
        rotation, magnitude = contribution.rotation, self.magnitude(geometry)
        if rotation is None:
            return contribution
        key_angles = None if rotation.key_angles is None else self._rescaled(rotation.key_angles, geometry)
        rescaled = replace(rotation, angles=self._rescaled(rotation.angles, geometry), key_angles=key_angles)
        if magnitude == 1:
            return replace(contribution, rotation=rescaled)
        if self.magnitude_on == "logits":
            scale = magnitude**2 if contribution.scale is None else contribution.scale * magnitude**2
            return replace(contribution, rotation=rescaled, scale=scale)
        larger = replace(
            rescaled,
            query_magnitude=_times(rotation.query_magnitude, rescaled.angles, magnitude),
            key_magnitude=_times(rotation.key_magnitude, rescaled.angles, magnitude),
        )
        return replace(contribution, rotation=larger)

    def _rescaled(self, angles: ByPosition, geometry: Geometry) -> ByPosition:
        def rescaled(positions_BT: Tensor) -> Tensor:
            one = torch.ones(1, 1, dtype=torch.int64, device=positions_BT.device)
            frequencies = self.frequencies(angles(one)[0, 0], positions_BT, geometry)
            return positions_BT[..., None].float() * frequencies

        return rescaled

    def check(self, contribution: Contribution, geometry: Geometry) -> None:
        rotation = contribution.rotation
        assert rotation is not None
        trained_P = trained_frequencies(rotation, self.name)
        self.check_frequencies(trained_P)

    def check_frequencies(self, trained_P: Tensor) -> None:
        """Refuses frequencies that the formula is not made for."""
        if not self.geometric:
            return
        steps = trained_P.double().log().diff()
        if len(steps) == 0:
            raise UserError(f"{self.name} needs two rotated pairs or more, not {len(trained_P)}")
        if not torch.allclose(steps, steps[:1], rtol=1e-4):
            raise UserError(f"{self.name} is defined for frequencies in a geometric series, which these are not")

    def resolved(self, contribution: Contribution, geometry: Geometry) -> dict[str, Any]:
        assert contribution.rotation is not None
        rescaled = self._rescaled(contribution.rotation.angles, geometry)
        slowest = float(rescaled(torch.ones(1, 1, dtype=torch.int64))[0, 0, -1])
        return {"slowest_wavelength": 2 * math.pi / slowest, "magnitude": self.magnitude(geometry)}


def _times(factors: ByPosition | None, angles: ByPosition, magnitude: float) -> ByPosition:
    """Factors of pairs, `magnitude` times as large; where there are none, as many as there are angles."""
    if factors is not None:
        return lambda positions_BT: factors(positions_BT) * magnitude
    return lambda positions_BT: torch.full_like(angles(positions_BT), magnitude)


def trained_frequencies(rotation: Rotation, name: str) -> Tensor:
    """Radians per token of each pair; refuses angles that are not linear in position. `name`: of who asks."""
    positions_BT = torch.tensor([[0, 1, 2, 7]])
    angles_BTP = rotation.angles(positions_BT)
    frequencies_P = angles_BTP[0, 1]
    if not torch.allclose(angles_BTP, positions_BT[..., None] * frequencies_P):
        raise UserError(f"{name} needs angles that grow linearly with position; these do not")
    return frequencies_P


def sequence_lengths(positions_BT: Tensor) -> Tensor:
    """The length of the sequence that each token is in, which is its last position + 1: (B, T).

    Sequences in one row (packed, or padding and text) are distinguished by their positions: one ends where they no
    longer rise. So the longest row of a batch, or a neighbour in the row, changes nothing.
    """
    starts_BT = torch.zeros_like(positions_BT)
    starts_BT[:, 1:] = (positions_BT[:, 1:] <= positions_BT[:, :-1]).to(starts_BT.dtype)
    sequence_BT = starts_BT.cumsum(dim=1)
    last_BT = torch.zeros_like(positions_BT).scatter_reduce(1, sequence_BT, positions_BT, reduce="amax")
    return last_BT.gather(1, sequence_BT) + 1
