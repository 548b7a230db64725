"""Asking an encoding once, on a few positions, before anything is trained: a wrong shape is one line, not a traceback.

Shape letters: B batch, H heads, T queries, S keys, K head width, D model width.
"""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from lengthwise.encodings.encoding import Encoding, distances
from lengthwise.errors import UserError
from lengthwise.registry import asking, written_in


@dataclass(frozen=True)
class Question:
    """One call of a hook, and what may come back."""

    hook: str
    ask: Callable[[], Any]
    answer: str
    """What must come back, in words."""
    fits: Callable[[Any], bool]


def check(encoding: Encoding) -> None:
    """Calls every hook that the encoding overrides; what is wrong is one line that names the file and the hook.

    Weights need no values: nothing but shapes is looked at.
    """
    what, cls = f"encoding {encoding.name}", type(encoding)
    with asking(what, cls, "last_position"):
        questions = list(_questions(encoding))
    for question in questions:
        if getattr(cls, question.hook) is getattr(Encoding, question.hook):
            continue
        with asking(what, cls, question.hook), torch.no_grad():
            found = question.ask()
        if not question.fits(found):
            told = tuple(found.shape) if isinstance(found, Tensor) else repr(found)
            raise UserError(f"{written_in(what, cls)}: {question.hook} must return {question.answer}, not {told}")


def _questions(encoding: Encoding) -> Iterator[Question]:
    geometry, last = encoding.geometry, encoding.last_position
    positions = geometry.context if last is None else min(geometry.context, last + 1)
    B, S = 2, min(5, positions)
    H, T, K, D = geometry.heads, min(3, S), geometry.head_width, geometry.width
    key_BS = torch.arange(S).expand(B, S)
    query_BT = key_BS[:, S - T :]
    x_BTD, q_BHTK, k_BHSK = torch.zeros(B, T, D), torch.zeros(B, H, T, K), torch.zeros(B, H, S, K)
    later_TS = torch.arange(S) > torch.arange(S - T, S)[:, None]
    logits_BHTS = torch.zeros(B, H, T, S).masked_fill(later_TS, -math.inf)

    yield _exact("embed", partial(encoding.embed, x_BTD, query_BT), "(B, T, width)", B, T, D)
    yield Question(
        "angles",
        partial(encoding.angles, query_BT),
        f"(B, T, pairs) = ({B}, {T}, {K // 2} or fewer) or None",
        lambda x: x is None or (_is_tensor(x, 3) and x.shape[:2] == (B, T) and 2 * x.shape[2] <= K),
    )
    yield _exact("rotate", partial(encoding.rotate, q_BHTK, query_BT), "(B, heads, T, head width)", B, H, T, K)
    yield Question(
        "scale",
        partial(encoding.scale, query_BT),
        f"a number or what broadcasts to (B, heads, T, 1) = ({B}, {H}, {T}, 1)",
        lambda x: isinstance(x, Real) or _broadcasts(x, B, H, T, 1),
    )
    for distance in (key_BS[0], distances(query_BT, key_BS)):  # as the kernel asks, and as written-out attention does
        asked = partial(encoding.by_distance, distance)
        yield _exact("by_distance", asked, "(heads, *shape)", H, *distance.shape, or_none=True)
    yield Question(
        "bias",
        partial(encoding.bias, q_BHTK, k_BHSK, query_BT, key_BS),
        f"(B, heads, T, S) = ({B}, {H}, {T}, {S}) or None",
        lambda x: x is None or _broadcasts(x, B, H, T, S),
    )
    yield _exact("normalize", partial(encoding.normalize, logits_BHTS), "(B, heads, T, S)", B, H, T, S)
    for name, _ in encoding.named_parameters():
        yield Question("initial", partial(encoding.initial, name), f"a number for {name!r}", _is_number)
    yield Question("resolved", lambda: json.loads(json.dumps(encoding.resolved())), "a table", _is_table)


def _exact(hook: str, ask: Callable[[], Any], letters: str, *sizes: int, or_none: bool = False) -> Question:
    def fits(found: Any) -> bool:
        return (or_none and found is None) or (_is_tensor(found, len(sizes)) and found.shape == sizes)

    return Question(hook, ask, f"{letters} = {sizes}{' or None' if or_none else ''}", fits)


def _broadcasts(found: Any, *sizes: int) -> bool:
    if not isinstance(found, Tensor) or found.ndim > len(sizes):
        return False
    last = sizes[len(sizes) - found.ndim :]
    return all(size in (1, wanted) for size, wanted in zip(found.shape, last, strict=True))


def _is_tensor(found: Any, dimensions: int) -> bool:
    return isinstance(found, Tensor) and found.ndim == dimensions


def _is_number(found: Any) -> bool:
    return isinstance(found, Real)


def _is_table(found: Any) -> bool:
    return isinstance(found, dict)
