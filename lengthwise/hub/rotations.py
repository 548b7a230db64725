"""The rotary tables of a model of Transformers: what they hold, and which layer rotates by which of them.

Nothing is taken from names or configs that can be seen instead: tables are read by asking them for two positions, and
how a layer rotates by comparing its queries with and without them.
Shape letters: B batch, T queries, H heads, K head width, P rotated pairs.
"""

import inspect
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from lengthwise.encodings.contribution import Pairs, Rotation

Key = tuple[int, tuple[Hashable, ...]]
"""A table: the number of its module, and what else it was asked with (in some models the type of a layer)."""


@dataclass(frozen=True)
class RotaryTable:
    """What a rotary module answers."""

    frequencies_P: Tensor
    """Radians per token, in fp32."""
    magnitude: float
    """Of cosines and sines: what rotated entries of queries and keys are multiplied by, each."""
    kind: str
    """Of the scaling that the model's config asks for: `default` for none."""

    def rotation(self, pairs: Pairs) -> Rotation:
        frequencies_P, magnitude = self.frequencies_P, self.magnitude

        def angles(positions_BT: Tensor) -> Tensor:
            return positions_BT[..., None].float() * frequencies_P.to(positions_BT.device)

        if magnitude == 1:
            return Rotation(angles, pairs=pairs)

        def magnitudes(positions_BT: Tensor) -> Tensor:
            return torch.full_like(angles(positions_BT), magnitude)

        return Rotation(angles, pairs=pairs, query_magnitude=magnitudes, key_magnitude=magnitudes)


def rotary_modules(model: PreTrainedModel) -> list[nn.Module]:
    """Those that make cosines and sines of positions."""
    found = []
    for module in model.modules():
        if "Rotary" in type(module).__name__ and "position_ids" in inspect.signature(type(module).forward).parameters:
            found.append(module)
    return found


def asked(arguments: tuple[Any, ...], named: dict[str, Any]) -> tuple[Tensor, Tensor, tuple[Hashable, ...]]:
    """Of a call of a rotary module: a tensor of its dtype and device, the positions, and what else was asked."""
    values = [*arguments, *named.values()]
    tensors = [each for each in values if isinstance(each, Tensor)]
    positions_BT = next(each for each in tensors if not each.is_floating_point())
    like = next((each for each in tensors if each.is_floating_point()), positions_BT)
    return like, positions_BT, tuple(each for each in values if isinstance(each, str))


Answer = Callable[[nn.Module, Key, Tensor, Tensor], Any]
"""Module, table, a tensor of the dtype, positions: to what the module shall return."""


@contextmanager
def answering(model: PreTrainedModel, answer: Answer) -> Iterator[None]:
    """All rotary modules answer so within; afterwards they are as they were."""
    modules = rotary_modules(model)
    for number, module in enumerate(modules):

        def forward(*arguments: Any, module: nn.Module = module, number: int = number, **named: Any) -> Any:
            like, positions_BT, others = asked(arguments, named)
            return answer(module, (number, others), like, positions_BT)

        module.forward = forward  # of this module alone: its class keeps its own
    try:
        yield
    finally:
        for module in modules:
            del module.forward


def true_answer(module: nn.Module, key: Key, like: Tensor, positions_BT: Tensor) -> Any:
    """What the module's class answers."""
    return type(module).forward(module, like, positions_BT, *key[1])


def identity(true: Any, positions_BT: Tensor) -> Any:
    """Of the form of a true answer, for any positions: rotates nothing."""
    shape = positions_BT.shape
    if isinstance(true, Tensor):  # complex numbers
        return torch.ones((*shape, *true.shape[len(shape) :]), dtype=true.dtype, device=positions_BT.device)
    cosine, sine = true
    size = (*shape, *cosine.shape[len(shape) :])
    return (
        torch.ones(size, dtype=cosine.dtype, device=positions_BT.device),
        torch.zeros(size, dtype=sine.dtype, device=positions_BT.device),
    )


@torch.no_grad()
def read_table(module: nn.Module, key: Key) -> RotaryTable | None:
    """From its answer for positions 0 and 1, in fp32; None where that is no table of rotations by position."""
    device = next((buffer.device for buffer in module.buffers()), torch.device("cpu"))
    found = true_answer(module, key, torch.zeros(1, device=device), torch.tensor([[0, 1]], device=device))
    if isinstance(found, Tensor):
        cosine, sine = found.real, found.imag
    else:
        cosine, sine = found
    if cosine.ndim != 3 or cosine.shape != sine.shape:
        return None
    cosine_R, sine_R = cosine[0, 1].float(), sine[0, 1].float()
    magnitude = float(cosine[0, 0].float().mean())
    if not torch.allclose(cosine_R**2 + sine_R**2, cosine_R.new_tensor(magnitude**2), rtol=1e-4):
        return None
    angle_R = torch.atan2(sine_R, cosine_R)
    return RotaryTable(_exact(module, angle_R), magnitude, _kind(module, key))


def _exact(module: nn.Module, angle_R: Tensor) -> Tensor:
    """The frequencies as a buffer has them, which an arc tangent only comes near; in the order of the angles."""
    for name, buffer in module.named_buffers():
        frequencies = buffer.detach().float()
        if "inv_freq" not in name or frequencies.ndim != 1:
            continue
        for whole_R in (frequencies, frequencies.repeat(2), frequencies.repeat_interleave(2)):
            if whole_R.shape == angle_R.shape and torch.allclose(whole_R, angle_R, rtol=1e-5, atol=1e-9):
                return whole_R.clone()
    return angle_R


def _kind(module: nn.Module, key: Key) -> str:
    kind = getattr(module, "rope_type", "default")
    if isinstance(kind, dict):
        kind = next((kind[other] for other in key[1] if other in kind), "default")
    return str(kind)


def arrangements(table: RotaryTable) -> Iterator[tuple[RotaryTable, Pairs]]:
    """The ways in which a table may rotate pairs: its numbers may stand there once for a pair, or twice."""
    numbers_R = table.frequencies_P
    half = len(numbers_R) // 2
    ways: list[tuple[Tensor, Pairs]] = [(numbers_R, "halves"), (numbers_R, "interleaved")]
    if len(numbers_R) % 2 == 0 and torch.equal(numbers_R[:half], numbers_R[half:]):
        ways.append((numbers_R[:half], "halves"))
        ways.append((numbers_R[:half], "interleaved"))
    if len(numbers_R) % 2 == 0 and torch.equal(numbers_R[0::2], numbers_R[1::2]):
        ways.append((numbers_R[0::2], "interleaved"))
        ways.append((numbers_R[0::2], "halves"))
    for frequencies_P, pairs in ways:
        yield RotaryTable(frequencies_P, table.magnitude, table.kind), pairs
