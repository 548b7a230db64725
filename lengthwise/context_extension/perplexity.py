"""Perplexity by context: the same target tokens at every context, each counted once; and loss by position."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from lengthwise.context_extension.fitting_rows import Targets
from lengthwise.context_extension.forward import losses_of_last
from lengthwise.context_extension.reader import Reader

ModelAt = Callable[[int], Reader]
"""A model as it is to read a context of so many tokens."""


@dataclass(frozen=True)
class Perplexity:
    context: int
    """Tokens read before the last target is predicted."""
    tokens: int
    """Targets."""
    loss: float
    """Mean over the targets, in nats."""
    standard_error: float | None
    """Of the loss, from the spread of the windows' means; None where there is one window."""

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.loss, 700.0))  # beyond, a float ends

    def table(self) -> dict[str, Any]:
        return {**asdict(self), "perplexity": self.perplexity}


def perplexity_at(model: Reader, targets: Targets, context: int) -> Perplexity:
    losses_RS = losses_of_last(model, targets.rows(context), targets.scored)
    means_R = losses_RS.mean(dim=1)
    windows = len(means_R)
    error = float(means_R.std() / math.sqrt(windows)) if windows > 1 else None
    return Perplexity(context, losses_RS.numel(), float(means_R.mean()), error)


def perplexities(
    model_at: ModelAt,
    targets: Targets,
    contexts: Sequence[int],
    told: Callable[[Perplexity], None] = lambda found: None,
) -> list[Perplexity]:
    """One for each context; `told` of each as it is found."""
    rows = []
    for context in contexts:
        rows.append(perplexity_at(model_at(context), targets, context))
        told(rows[-1])
    return rows


def loss_by_position(model: Reader, targets: Targets, context: int, bins: int = 64) -> list[dict[str, Any]]:
    """Mean loss of what is predicted at each position of windows of `context` tokens, in bins of equal size.

    All windows count alike at all positions, but the targets of two positions are not the same tokens.
    """
    losses_RT = losses_of_last(model, targets.rows(context), context)
    return [
        {"first": int(places[0]), "last": int(places[-1]), "tokens": part_RT.numel(), "loss": float(part_RT.mean())}
        for places, part_RT in zip(
            torch.arange(context).tensor_split(min(bins, context)),
            losses_RT.tensor_split(min(bins, context), dim=1),
            strict=True,
        )
    ]
