"""The seam of extensions: one maps what a trained model's encoding contributes to what it shall contribute instead."""

import copy
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor, nn

from lengthwise.encodings.contribution import Contribution
from lengthwise.encodings.encoding import Encoding, Geometry
from lengthwise.encodings.gates import Gates
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.errors import UserError
from lengthwise.model.backend import probe

M = TypeVar("M", bound=nn.Module)


class Extension:
    """A method of context extension: it replaces what a trained model's encoding contributes to attention.

    It has settings and no state: its answers do not depend on what was asked before.
    """

    name: ClassVar[str]
    per_layer: bool = False
    """Whether layers that share an encoding need an extended one each."""
    rotates: ClassVar[bool] = False
    """Whether it changes how positions rotate pairs: an encoding takes one such extension, not two."""
    relative: ClassVar[bool] = False
    """Whether it acts on distances alone, so that an encoding which adds positions to embeddings is refused."""
    last: ClassVar[bool] = False
    """Whether no other extension may come after it."""
    needs: ClassVar[str] = "another encoding"
    """What an encoding must have for it to apply, as an error message says it."""

    @dataclass(frozen=True)
    class Config:
        """Settings of the extension."""

    config: Any

    def __init__(self, config: Any) -> None:
        self.config = config

    @property
    def by_length(self) -> bool:
        """Whether queries and keys depend on the length of the sequence that they are in.

        A cache would then hold keys that were made for a shorter sequence.
        """
        return False

    def outdates(self, cached: int, length: int, trained_context: int) -> bool:
        """Whether `length` tokens need the first `cached` of them to be read otherwise than these would be alone."""
        return False

    @property
    def shift_invariant(self) -> bool:
        """Whether what it does stays the same when a constant is added to all positions."""
        return not self.by_length

    def applies(self, contribution: Contribution) -> bool:
        """Whether there is anything to extend; layers to which it does not apply stay as they are."""
        return True

    def reach(self, trained_context: int) -> int:
        """The longest sequence that it is made for; 0 where it says nothing about that."""
        return 0

    def check(self, contribution: Contribution, geometry: Geometry) -> None:
        """Refuses, with a UserError, what it is not made for."""

    def extend(self, contribution: Contribution, layout: AttentionLayout, geometry: Geometry) -> Contribution:
        """What takes the place of `contribution` in the layer of `layout`."""
        raise NotImplementedError

    def resolved(self, contribution: Contribution, geometry: Geometry) -> dict[str, Any]:
        """The facts that follow from its settings and from what is extended."""
        return {}

    def parameters(self) -> list[nn.Parameter]:
        """What may be trained; everything else is frozen."""
        return []

    def attach(self, geometry: Geometry) -> None:
        """Makes parameters that depend on the shape of the model; called once for each extended encoding."""


class ExtendedEncoding(Encoding):
    """An encoding and the extensions that act on what it contributes, the first one next to it."""

    def __init__(self, encoding: Encoding, extensions: tuple[Extension, ...], embeds: bool = True) -> None:
        """`embeds`: whether it changes embeddings as the encoding does; only one of several for one encoding may."""
        super().__init__(encoding.config, encoding.geometry)
        self.encoding, self.extensions, self.embeds = encoding, extensions, embeds
        for extension in extensions:
            extension.attach(encoding.geometry)
        trained = [parameter for extension in extensions for parameter in extension.parameters()]
        self.trained = nn.ParameterList(trained)

    @property
    def name(self) -> str:  # pyrefly: ignore
        return self.encoding.name

    @property
    def shift_invariant(self) -> bool:  # pyrefly: ignore
        return self.encoding.shift_invariant and all(each.shift_invariant for each in self.extensions)

    @property
    def reads_layer(self) -> bool:  # pyrefly: ignore
        return self.encoding.reads_layer or any(each.per_layer for each in self.extensions)

    @property
    def last_position(self) -> int | None:
        return self.encoding.last_position

    def embed(self, x_BTD: Tensor, positions_BT: Tensor) -> Tensor:
        return self.encoding.embed(x_BTD, positions_BT) if self.embeds else x_BTD

    def token_numbers(self, layer_input_BTD: Tensor) -> Tensor | None:
        return self.encoding.token_numbers(layer_input_BTD)

    def gates(self) -> Gates | None:
        return self.encoding.gates()

    def contribute(self, layout: AttentionLayout) -> Contribution:
        contribution = layout.contribution(self.encoding)  # which is told of its layer only if it asks
        for extension in self.extensions:
            contribution = extension.extend(contribution, layout, self.geometry)
        return contribution

    def resolved(self) -> dict[str, Any]:
        facts, contribution = self.encoding.resolved(), contribution_of(self.encoding)
        for extension in self.extensions:
            facts |= extension.resolved(contribution, self.geometry)
        return facts


def contribution_of(encoding: Encoding) -> Contribution:
    """What an encoding contributes to a short sequence: which parts there are, and functions of position."""
    with torch.no_grad():
        return probe(encoding, encoding.geometry.width).contribution(encoding)


def wrapped(encoding: Encoding, extensions: tuple[Extension, ...], embeds: bool = True) -> Encoding:
    """The encoding with those extensions that apply to it; refuses what does not go together."""
    contribution, chosen = contribution_of(encoding), []
    for extension in extensions:
        if not extension.applies(contribution):
            continue
        for other in (*extensions_of(encoding), *chosen):
            if other.rotates and extension.rotates:
                raise UserError(
                    f"{extension.name} does not stack with {other.name}: "
                    "both change how positions rotate queries and keys"
                )
            if other.last:
                raise UserError(f"{extension.name} cannot come after {other.name}, which must be the last extension")
            if extension.per_layer and type(other) is type(extension):
                raise UserError(f"{extension.name} does not stack with itself: one for each head is all there is")
        if extension.relative and _adds_positions(encoding):
            raise UserError(
                f"{extension.name} changes distances, and {encoding.name} adds positions to the embeddings, "
                "which would stay as they are"
            )
        extension.check(contribution, encoding.geometry)
        chosen.append(extension)
    return ExtendedEncoding(encoding, tuple(chosen), embeds) if chosen or not embeds else encoding


def _adds_positions(encoding: Encoding) -> bool:
    """Whether embeddings of nothing become something."""
    device = next((each.device for each in chain(encoding.parameters(), encoding.buffers())), None)
    x_BTD = torch.zeros(1, 2, encoding.geometry.width, device=device)
    with torch.no_grad():
        return bool(encoding.embed(x_BTD, torch.arange(2, device=device)[None]).any())


def extensions_of(encoding: Encoding) -> tuple[Extension, ...]:
    """What an encoding is extended by, first one first; an extended encoding may have been extended again."""
    if not isinstance(encoding, ExtendedEncoding):
        return ()
    return (*extensions_of(encoding.encoding), *encoding.extensions)


def sharing_weights(module: M, frozen: bool = False) -> M:
    """A copy of the module around the same weights; frozen: around frozen views of them, which are no copies either."""
    memo: dict[int, Any] = {id(tensor): tensor for tensor in chain(module.parameters(), module.buffers())}
    if frozen:
        memo |= {id(weight): nn.Parameter(weight.detach(), requires_grad=False) for weight in module.parameters()}
    return copy.deepcopy(module, memo)
