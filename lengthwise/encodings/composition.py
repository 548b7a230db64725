"""Several methods in one layer: biases add, scales multiply, at most one of them rotates and one normalises.

Shape letters: B batch, T queries, S keys, D model width, C numbers of a token.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from lengthwise.encodings.contribution import Contribution, combine
from lengthwise.encodings.encoding import AttentionLayout, Encoding


class Composition(Encoding):
    """Contributes what all of its methods contribute, in their order."""

    def __init__(self, methods: Sequence[Encoding]) -> None:
        super().__init__(None, methods[0].geometry)
        self.methods = nn.ModuleList(methods)
        self.name = "+".join(method.name for method in methods)  # pyrefly: ignore
        self.shift_invariant = all(method.shift_invariant for method in methods)  # pyrefly: ignore
        self.reads_layer = any(method.reads_layer for method in methods)  # pyrefly: ignore
        self.per_layer = any(method.per_layer for method in methods)
        with torch.no_grad():
            nothing_BTD = torch.zeros(1, 1, self.geometry.width)
            found = [method.token_numbers(nothing_BTD) for method in methods]
        self.numbers = [0 if each is None else each.shape[-1] for each in found]
        """How many numbers of a token each method makes."""

    def _parts(self) -> list[Encoding]:
        return cast(list[Encoding], list(self.methods))

    def embed(self, x_BTD: Tensor, positions_BT: Tensor) -> Tensor:
        for method in self._parts():
            x_BTD = method.embed(x_BTD, positions_BT)
        return x_BTD

    def contribute(self, layout: AttentionLayout) -> Contribution:
        numbers: Sequence[Tensor | None] = [None for _ in self.numbers]
        if layout.token_numbers_BSC is not None:
            numbers = layout.token_numbers_BSC.split(self.numbers, dim=-1)
        seen = (
            replace(layout, token_numbers_BSC=own if size else None)
            for own, size in zip(numbers, self.numbers, strict=True)
        )
        return combine([each.contribution(method) for each, method in zip(seen, self._parts(), strict=True)])

    def token_numbers(self, layer_input_BTD: Tensor) -> Tensor | None:
        found = [method.token_numbers(layer_input_BTD) for method in self._parts()]
        made = [each for each in found if each is not None]
        return torch.cat(made, dim=-1) if made else None

    @property
    def last_position(self) -> int | None:
        ends = [method.last_position for method in self._parts()]
        return min((end for end in ends if end is not None), default=None)

    def initial(self, name: str, generator: torch.Generator) -> Tensor | float | None:
        method, own = self._owner(name)
        return method.initial(own, generator)

    def decays(self, name: str) -> bool:
        method, own = self._owner(name)
        return method.decays(own)

    def _owner(self, name: str) -> tuple[Encoding, str]:
        """Whose parameter it is, and what that method calls it."""
        _, index, own = name.split(".", 2)
        return self._parts()[int(index)], own

    def resolved(self) -> dict[str, Any]:
        return {method.name: method.resolved() for method in self._parts()}
