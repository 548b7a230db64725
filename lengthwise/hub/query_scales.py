"""Scales of the attention logits of heads, put into the weights that make their queries; found by asking.

Nothing is taken from names. The gradient of the queries that a layer hands to its attention says which numbers of which
weights they depend on, and a try says whether these numbers carry the scale: a projection does, alone or fused with
those of keys and values, but not one whose output is normalised; then the weight of that norm may.
Shape letters: B batch, T tokens, H query heads, G key-value heads, K head width.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from lengthwise.errors import UserError
from lengthwise.hub.attention import attention_modules
from lengthwise.hub.foreign import PROBED, attending_by, some_tokens
from lengthwise.hub.rotations import Key, answering, identity, true_answer

PROBE = "lengthwise-queries"
CLOSE = {torch.float32: 1e-5, torch.float64: 1e-12}
"""How near queries must come to what they shall be, relative to the largest; of other dtypes `LOW`."""
LOW = 0.02
OFFSETS = (0.0, 1.0)
"""What a layer may add to a weight before it multiplies by it: some norms keep 1 less than their factor."""


@dataclass(frozen=True)
class AttentionInputs:
    """What a layer hands to its attention for a few tokens, before any rotation."""

    query_BHTK: Tensor
    key_BGTK: Tensor
    value_BGTK: Tensor
    output: Tensor
    """Of the layer, whose attention answers with ones: what else depends on its weights, such as a gate."""


@contextmanager
def scaled_queries(model: PreTrainedModel, scales_H: Sequence[Tensor], name: str, cause: str) -> Iterator[list[str]]:
    """The model within makes queries so many times as large by its weights; afterwards it is as it was, to the bit.

    `scales_H`: of each layer; `cause`: what they come from, for an error. Yields the names of the modules whose weights
    were changed. Raises a UserError where a layer has no weights that carry its scales.
    """
    before: list[tuple[nn.Parameter, Tensor]] = []
    changed: list[str] = []
    names = {module: path for path, module in model.named_modules()}
    wanted = {parameter: parameter.requires_grad for parameter in model.parameters()}
    try:
        with _asking(model) as forward:
            for number, (module, scale_H) in enumerate(zip(attention_modules(model), scales_H, strict=True)):
                if bool((scale_H == 1).all()):
                    continue
                refused: list[str] = []
                carrier = _scale(module, scale_H, lambda module=module: forward(module), before, refused)
                if carrier is None:
                    raise UserError(
                        f"{cause} cannot be merged: layer {number + 1} of {name} has no weights that carry "
                        f"{_words(scale_H)} ({'; '.join(refused) or 'its queries are made of no weights'})"
                    )
                changed.append(names[carrier])
        yield changed
    finally:
        with torch.no_grad():
            for parameter, old in reversed(before):
                parameter.copy_(old)
        for parameter, requires in wanted.items():
            parameter.requires_grad_(requires)


@contextmanager
def _asking(model: PreTrainedModel) -> Iterator[Callable[[nn.Module], AttentionInputs]]:
    """Yields what reads a layer's queries, keys and values for the tokens that it got in one pass of the model."""
    calls: dict[nn.Module, tuple[Any, Any]] = {}
    asked: list[tuple[Tensor, Tensor, Tensor]] = []

    def probe(module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *_: Any, **named: Any) -> Any:
        asked.append((query, key, value))
        return value.new_ones(query.shape[0], query.shape[2], query.shape[1], value.shape[-1]), None

    def answer(module: nn.Module, key: Key, like: Tensor, positions_BT: Tensor) -> Any:
        return identity(true_answer(module, key, like, positions_BT), positions_BT)

    def remember(module: nn.Module, arguments: tuple[Any, ...], named: dict[str, Any]) -> None:
        calls[module] = arguments, named

    def forward(module: nn.Module) -> AttentionInputs:
        asked.clear()
        arguments, named = calls[module]
        output = module.forward(*arguments, **named)
        return AttentionInputs(*asked[0], output[0] if isinstance(output, tuple) else output)

    training = model.training
    hooks = [module.register_forward_pre_hook(remember, with_kwargs=True) for module in attention_modules(model)]
    try:
        with attending_by(model.eval(), PROBE, probe), answering(model, answer):
            with torch.no_grad():
                model(some_tokens(model, PROBED), use_cache=False)
            yield forward
    finally:
        model.train(training)
        for hook in hooks:
            hook.remove()


def _scale(
    module: nn.Module,
    scale_H: Tensor,
    forward: Callable[[], AttentionInputs],
    before: list[tuple[nn.Parameter, Tensor]],
    refused: list[str],
) -> nn.Module | None:
    """Changes weights of an attention module, which are kept in `before`; returns the module that has them.

    None where none carry the scales; `refused` then says why.
    """
    groups = {float(scale): (scale_H == scale).nonzero()[:, 0] for scale in scale_H.unique()}
    used, others, true = _dependence(module, list(groups.values()), forward)
    wanted = true.query_BHTK * scale_H.to(true.query_BHTK)[:, None, None]
    for path, part in module.named_modules():
        own = [each for each in part.parameters(recurse=False) if any(found.get(each) is not None for found in used)]
        if not own:
            continue
        if any(parameter is old for parameter in own for old, _ in before):
            refused.append(f"{path}: another layer has the same weights")
            continue
        factors, reason = [], ""
        for parameter in own:
            factor, reason = _factor(parameter, [found[parameter] for found in used], others[parameter], list(groups))
            if factor is None:
                break
            factors.append(factor)
        else:
            if _carries(own, factors, forward, true, wanted, before):
                return part
            reason = "queries do not grow with it"
        refused.append(f"{path}: {reason}")
    return None


def _words(scale_H: Tensor) -> str:
    low, high = float(scale_H.min()), float(scale_H.max())
    return f"a scale of {low:.4g}" if low == high else f"scales of heads from {low:.4g} to {high:.4g}"


Lines = dict[nn.Parameter, list[Tensor] | None]
"""Of every axis of a parameter, at which indices something depends on it; None where nothing does."""


def _dependence(
    module: nn.Module, groups: Sequence[Tensor], forward: Callable[[], AttentionInputs]
) -> tuple[list[Lines], Lines, AttentionInputs]:
    """On which weights the queries of each group of heads depend, and on which keys and values do."""
    parameters = [each for each in module.parameters() if each.is_floating_point()]
    for parameter in parameters:
        parameter.requires_grad_(True)
    with torch.enable_grad():
        true = forward()
        generator = torch.Generator().manual_seed(0)

        def of(*several: Tensor) -> Lines:
            # Random factors: a plain sum may not depend on what it is the sum of, as after a norm.
            weighed = [(each * _normal(each, generator)).sum() for each in several]
            found = torch.autograd.grad(sum(weighed[1:], weighed[0]), parameters, retain_graph=True, allow_unused=True)
            return {
                parameter: None if gradient is None or not bool(gradient.any()) else _lines(gradient != 0)
                for parameter, gradient in zip(parameters, found, strict=True)
            }

        return [of(true.query_BHTK[:, heads]) for heads in groups], of(true.key_BGTK, true.value_BGTK), true


def _lines(depends: Tensor) -> list[Tensor]:
    several = [depends.movedim(axis, 0).reshape(depends.shape[axis], -1) for axis in range(depends.ndim)]
    return [each.any(dim=1) for each in several]


def _normal(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator).to(like)


def _factor(
    parameter: nn.Parameter, used: Sequence[list[Tensor] | None], others: list[Tensor] | None, scales: Sequence[float]
) -> tuple[Tensor | None, str]:
    """What a parameter is to be multiplied by, along one of its axes; or None, and why there is nothing."""
    reason = ""
    for axis, size in enumerate(parameter.shape):
        nothing = torch.zeros(size, dtype=torch.bool, device=parameter.device)
        lines = [nothing if each is None else each[axis] for each in used]
        taken = nothing if others is None else others[axis]
        if any(bool((one & taken).any()) for one in lines):
            reason = reason or "keys or values depend on it too"
        elif any(bool((one & other).any()) for one, other in itertools.combinations(lines, 2)):
            reason = "heads with other scales share it"
        else:
            factor = torch.ones(size, dtype=parameter.dtype, device=parameter.device)
            for line, scale in zip(lines, scales, strict=True):
                factor[line] = scale
            return factor.view([-1 if each == axis else 1 for each in range(parameter.ndim)]), ""
    return None, reason


@torch.no_grad()
def _carries(
    own: Sequence[nn.Parameter],
    factors: Sequence[Tensor],
    forward: Callable[[], AttentionInputs],
    true: AttentionInputs,
    wanted_BHTK: Tensor,
    before: list[tuple[nn.Parameter, Tensor]],
) -> bool:
    """Whether the weights, multiplied, make the queries wanted and nothing else otherwise; if not, they are undone."""
    old = [parameter.detach().clone() for parameter in own]
    for offsets in itertools.product(OFFSETS, repeat=len(own)):
        for parameter, value, factor, offset in zip(own, old, factors, offsets, strict=True):
            parameter.copy_((value + offset) * factor - offset)
        found = forward()
        pairs = (
            (found.query_BHTK, wanted_BHTK),
            (found.key_BGTK, true.key_BGTK),
            (found.value_BGTK, true.value_BGTK),
            (found.output, true.output),
        )
        if all(_near(ours, theirs) for ours, theirs in pairs):
            before.extend(zip(own, old, strict=True))
            return True
    for parameter, value in zip(own, old, strict=True):
        parameter.copy_(value)
    return False


def _near(ours: Tensor, theirs: Tensor) -> bool:
    close = CLOSE.get(theirs.dtype, LOW)
    return float((ours - theirs).abs().max()) <= close * float(theirs.abs().max().clamp(min=1e-30))
