"""The seam of extensions: one wraps the encoding of a trained model and overrides the same hooks."""

import copy
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, TypeVar

from torch import nn

from lengthwise.encodings.encoding import Encoding
from lengthwise.errors import UserError

M = TypeVar("M", bound=nn.Module)


class Extension:
    """Settings, and how an encoding acts under them. Stateless: what it answers depends on nothing asked before."""

    name: ClassVar[str]
    per_layer: ClassVar[bool] = False
    """Whether layers that share an encoding need a wrapped one each."""
    turns: ClassVar[bool] = False
    """Whether it changes how positions turn pairs: an encoding takes one such extension, not two."""
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

    def applies(self, encoding: Encoding) -> bool:
        """Whether there is anything to extend; layers to which it does not apply stay as they are."""
        return True

    def reach(self, trained_context: int) -> int:
        """The longest sequence that it is made for; 0 where it says nothing about that."""
        return 0

    def subclass(self, encoding: Encoding, layer: int) -> type[Encoding]:
        """A subclass of the encoding's own class, which overrides the hooks that change in `layer`.

        What it does not override stays the encoding's own, also for the kernels, which ask the class for it.
        """
        raise NotImplementedError

    def wrap(self, encoding: Encoding, layer: int) -> Encoding:
        """The encoding, with the same weights, as it acts in `layer` of the extended model."""
        if not self.applies(encoding):
            raise UserError(f"{self.name} does not apply to the encoding {encoding.name!r}; it needs {self.needs}")
        before = extensions_of(encoding)
        for other in before:
            if other.turns and self.turns:
                raise UserError(
                    f"{self.name} does not stack with {other.name}: both change how positions turn queries and keys"
                )
            if other.last:
                raise UserError(f"{self.name} cannot come after {other.name}, which must be the last extension")
        cls = self.subclass(encoding, layer)
        cls.extensions = (*before, self)  # pyrefly: ignore
        return recast(encoding, cls)

    def parameters(self) -> list[nn.Parameter]:
        """What may be trained; everything else is frozen."""
        return []


def recast(encoding: Encoding, cls: type[Encoding]) -> Encoding:
    """A copy of `encoding`, with the same weights, that is of the class `cls`."""
    made = sharing_weights(encoding)
    made.__class__ = cls
    return made


def extensions_of(encoding: Encoding) -> tuple[Extension, ...]:
    """What an encoding has been wrapped in, first one first."""
    return getattr(type(encoding), "extensions", ())


def sharing_weights(module: M, frozen: bool = False) -> M:
    """A copy of the module around the same weights; frozen: around frozen views of them, which are no copies either."""
    memo: dict[int, Any] = {id(tensor): tensor for tensor in chain(module.parameters(), module.buffers())}
    if frozen:
        memo |= {id(weight): nn.Parameter(weight.detach(), requires_grad=False) for weight in module.parameters()}
    return copy.deepcopy(module, memo)
