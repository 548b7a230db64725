"""What the rescalings of rotary positions have in common: pairs are turned at other frequencies.

Shape letters: B batch, H heads, T tokens, K head width, P turned pairs.
"""

import math
from itertools import chain
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from lengthwise.encodings.encoding import Encoding, Geometry
from lengthwise.errors import UserError
from lengthwise.extensions.extension import Extension

NEEDS_ANGLES = "queries and keys that are turned by angles, as those of rotary"


class Rescaling(Extension):
    """Works on every encoding whose `angles` grow linearly with the position, from their values at position 1."""

    turns = True
    needs = NEEDS_ANGLES
    geometric: ClassVar[bool] = False
    """Whether it takes for granted that the frequencies are a geometric series, of two pairs or more."""

    def frequencies(self, trained_P: Tensor, positions_BT: Tensor, geometry: Geometry) -> Tensor:
        """Radians per token in fp32, broadcasting to (B, T, P), from those that the model was trained with."""
        raise NotImplementedError

    def magnitude(self, geometry: Geometry) -> float:
        """What turned queries and keys are multiplied by, each: logits are multiplied by its square."""
        return 1.0

    @property
    def magnitude_on(self) -> Literal["logits", "turned"]:
        """Whether the square is put on whole logits, or the magnitude on turned entries alone."""
        return "logits"

    def applies(self, encoding: Encoding) -> bool:
        return has_angles(encoding)

    def subclass(self, encoding: Encoding, layer: int) -> type[Encoding]:
        extension, magnitude = self, self.magnitude(encoding.geometry)
        trained_P = trained_frequencies(encoding, self.name)
        self.check(trained_P)
        turned = 2 * len(trained_P)

        class Rescaled(type(encoding)):
            shift_invariant = type(encoding).shift_invariant and not extension.by_length

            def angles(self, positions_BT: Tensor) -> Tensor:
                one = torch.ones(1, 1, dtype=torch.int64, device=positions_BT.device)
                angles_BTP = super().angles(one)
                assert angles_BTP is not None
                frequencies = extension.frequencies(angles_BTP[0, 0], positions_BT, self.geometry)
                return positions_BT[..., None].float() * frequencies

            def resolved(self) -> dict[str, Any]:
                slowest = float(self.angles(_positions([[1]], self))[0, 0, -1])
                facts = {"slowest_wavelength": 2 * math.pi / slowest, "magnitude": magnitude}
                return {**super().resolved(), **facts}

        class WithLargerLogits(Rescaled):
            def scale(self, positions_BT: Tensor) -> float | Tensor:
                return super().scale(positions_BT) * magnitude**2

        class WithLargerPairs(Rescaled):
            def rotate(self, x_BHTK: Tensor, positions_BT: Tensor) -> Tensor:
                x_BHTK = super().rotate(x_BHTK, positions_BT)
                larger = (x_BHTK[..., :turned].float() * magnitude).to(x_BHTK.dtype)
                return torch.cat([larger, x_BHTK[..., turned:]], dim=-1)

        larger = WithLargerLogits if self.magnitude_on == "logits" else WithLargerPairs
        return Rescaled if magnitude == 1 else larger

    def check(self, trained_P: Tensor) -> None:
        """Refuses frequencies that the formula is not made for."""
        if not self.geometric:
            return
        steps = trained_P.double().log().diff()
        if len(steps) == 0:
            raise UserError(f"{self.name} needs two turned pairs or more, not {len(trained_P)}")
        if not torch.allclose(steps, steps[:1], rtol=1e-4):
            raise UserError(f"{self.name} is defined for frequencies in a geometric series, which these are not")


def has_angles(encoding: Encoding) -> bool:
    return type(encoding).angles is not Encoding.angles


def trained_frequencies(encoding: Encoding, name: str) -> Tensor:
    """Radians per token of each pair; refuses angles that are not linear in position. `name`: of who asks."""
    positions_BT = _positions([[0, 1, 2, 7]], encoding)
    angles_BTP = encoding.angles(positions_BT)
    assert angles_BTP is not None
    frequencies_P = angles_BTP[0, 1]
    if not torch.allclose(angles_BTP, positions_BT[..., None] * frequencies_P):
        raise UserError(f"{name} needs angles that grow linearly with position; those of {encoding.name!r} do not")
    return frequencies_P


def sequence_lengths(positions_BT: Tensor) -> Tensor:
    """The length of the sequence that each token is in, which is its last position + 1: (B, T).

    Sequences in one row (packed, or padding and text) are told apart by their positions: one ends where they no longer
    rise. So the longest row of a batch, or a neighbour in the row, changes nothing.
    """
    starts_BT = torch.zeros_like(positions_BT)
    starts_BT[:, 1:] = (positions_BT[:, 1:] <= positions_BT[:, :-1]).to(starts_BT.dtype)
    sequence_BT = starts_BT.cumsum(dim=1)
    last_BT = torch.zeros_like(positions_BT).scatter_reduce(1, sequence_BT, positions_BT, reduce="amax")
    return last_BT.gather(1, sequence_BT) + 1


def _positions(values: list[list[int]], encoding: Encoding) -> Tensor:
    """On the device of the encoding, where it has one."""
    found = next(chain(encoding.parameters(), encoding.buffers()), None)
    return torch.tensor(values, device=None if found is None else found.device)
