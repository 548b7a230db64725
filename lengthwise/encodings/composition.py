"""Several methods in one layer: biases add, scales multiply, at most one of them rotates and one normalises.

Shape letters: B batch, T queries, S keys, D model width, C numbers of a token.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor, nn

from lengthwise.encodings.contribution import Contribution, Normalizer, ScoreChange, combine
from lengthwise.encodings.encoding import AttentionLayout, Encoding
from lengthwise.encodings.gates import Gates


class Composition(Encoding):
    """Contributes what all of its methods contribute, in their order."""

    def __init__(self, methods: Sequence[Encoding]) -> None:
        super().__init__(None, methods[0].geometry)
        self.methods = nn.ModuleList(methods)
        self.name = "+".join(method.name for method in methods)  # pyrefly: ignore
        self.shift_invariant = all(method.shift_invariant for method in methods)  # pyrefly: ignore
        self.reads_layer = any(method.reads_layer for method in methods)  # pyrefly: ignore
        kinds = methods[0].takes
        self.takes = tuple(kind for kind in kinds if all(kind in each.takes for each in methods))  # pyrefly: ignore
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
        found = [self._own(layout, index).contribution(method) for index, method in enumerate(self._parts())]
        together = combine(found)
        if (layout.window, layout.chunk) == (None, None) and (together.window, together.chunk) != (None, None):
            # Who counts the keys that a query sees must know what a window or a chunk hides.
            return self.contribute(layout.within(together.window, together.chunk))
        return combine([self._seeing_its_own(each, index) for index, each in enumerate(found)])

    def _own(self, layout: AttentionLayout, index: int) -> AttentionLayout:
        """The layout as one method sees it: with the numbers of tokens that it made itself."""
        if layout.token_numbers_BSC is None:
            return layout
        numbers = layout.token_numbers_BSC.split(self.numbers, dim=-1)[index]
        return replace(layout, token_numbers_BSC=numbers if self.numbers[index] else None)

    def _seeing_its_own(self, contribution: Contribution, index: int) -> Contribution:
        """What is called later is shown the layout of its method, too."""
        score, found, output = contribution.score, contribution.normalizer, contribution.output
        change = score and (lambda scores: score(replace(scores, layout=self._own(scores.layout, index))))
        if isinstance(score, ScoreChange) and change is not None:
            change = replace(score, change=change)
        normalizer = found and (lambda logits, layout: found(logits, self._own(layout, index)))
        if isinstance(found, Normalizer) and normalizer is not None:
            normalizer = replace(found, weights=normalizer)
        return replace(
            contribution,
            score=change,
            normalizer=normalizer,
            output=output and (lambda mixed, layout: output(mixed, self._own(layout, index))),
        )

    def token_numbers(self, layer_input_BTD: Tensor) -> Tensor | None:
        found = [method.token_numbers(layer_input_BTD) for method in self._parts()]
        made = [each for each in found if each is not None]
        return torch.cat(made, dim=-1) if made else None

    def gates(self) -> Gates | None:
        """Those of a method that alone makes numbers; with those of others they are joined as numbers."""
        makers = [method for method, count in zip(self._parts(), self.numbers, strict=True) if count]
        return makers[0].gates() if len(makers) == 1 else None

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
