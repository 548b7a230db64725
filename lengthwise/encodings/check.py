"""Asking an encoding once, on a few positions, before anything is trained: a wrong shape is one line, not a traceback.

Shape letters: B batch, H heads, T queries, S keys, K head width, D model width, C numbers of a token.
"""

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from lengthwise.door import visible
from lengthwise.encodings.contribution import Contribution, RowColumnBias, Scores
from lengthwise.encodings.encoding import Encoding
from lengthwise.encodings.gates import Gates
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.errors import UserError
from lengthwise.registry import asking, written_in


@dataclass(frozen=True)
class Question:
    """One call of what an encoding wrote, and what may come back."""

    hook: str
    ask: Callable[[], Any]
    answer: str
    """What must come back, in words."""
    fits: Callable[[Any], bool]
    parameter: Tensor | None = None
    """Whose initial values it asks for."""


def check(encoding: Encoding) -> None:
    """Calls everything that the encoding contributes; what is wrong is one line that names the file and the hook.

    Everything is asked twice: the answers must be the same, finite, and change nothing that was given. Then once more
    at the last positions that the model will meet.
    """
    what, cls = f"encoding {encoding.name}", type(encoding)
    first, second = _answers(encoding), _answers(encoding)
    for (hook, answer), (_, again) in zip(first, second, strict=True):
        if not _equal(answer, again):
            raise UserError(f"{written_in(what, cls)}: {hook} must answer the same when it is asked twice")
    _answers(encoding, at_end=True)


def _answers(encoding: Encoding, at_end: bool = False) -> list[tuple[str, Any]]:
    what, cls = f"encoding {encoding.name}", type(encoding)
    answers: list[tuple[str, Any]] = []

    def put(question: Question, verb: str) -> Any:
        given = [each for each in getattr(question.ask, "args", ()) if isinstance(each, Tensor)]
        given += [sample.layout.query_positions_BT, sample.layout.key_positions_BS]
        before = [each.clone() for each in given]
        with asking(what, cls, question.hook), torch.no_grad():
            found = question.ask()
        where = f"{written_in(what, cls)}: {question.hook}"
        if not question.fits(found):
            told = tuple(found.shape) if isinstance(found, Tensor) else visible(repr(found))
            raise UserError(f"{where} must {verb} {question.answer}, not {told}")
        if not all(map(torch.equal, given, before)):
            raise UserError(f"{where} must not change what it is given")
        for tensor in _tensors(found):
            if not tensor.is_floating_point():
                raise UserError(f"{where} must {verb} of floating point, not of {tensor.dtype}")
            odd = tensor.isnan() | (tensor == math.inf) | ((tensor == -math.inf) & (question.hook not in HIDING))
            if not tensor.is_meta and bool(odd.any()):
                place = _place(question, tensor, odd) or (f" at positions up to {sample.last}" if at_end else "")
                raise UserError(f"{where} must {verb} finite, not {tensor[odd][0].item()}{place}")
        answers.append((question.hook, found))
        return found

    with asking(what, cls, "last_position"):
        sample = _Sample.of(encoding, at_end)
    for question in _questions(encoding, sample):
        found = put(question, "return")
        if question.parameter is not None:
            _fill(question.parameter, found)
    gates = put(_gates_question(encoding), "return")
    numbers = put(_numbers_question(encoding, sample, gates), "return")
    # Asked as a layer asks: one that does not say `reads_layer` is not told of a layer here either.
    layout = sample.layout.at_layer(0, _normal(sample.B, sample.T, encoding.geometry.width), numbers)
    asked = Question(
        "contribute", lambda: layout.contribution(encoding), "a Contribution", lambda x: isinstance(x, Contribution)
    )
    contribution = put(asked, "return")
    for question in _questions_of(contribution, encoding, replace(sample, layout=layout)):
        put(question, "be")
    return answers


def _place(question: Question, found: Tensor, odd_where: Tensor) -> str:
    """Which distance, of all that were asked for, has a bias that is none."""
    if question.hook != "distance_bias" or found.ndim != 2:
        return ""
    return f" at distance {int(odd_where.any(0).nonzero()[0])}"


HIDING = ("distance_bias", "position_bias", "row_column_bias", "score")
"""Where minus infinity hides a key."""


@torch.no_grad()
def _fill(parameter: Tensor, initial: Any) -> None:
    """As training begins it; what has no values yet gets zeros, so that answers are numbers."""
    if isinstance(initial, Tensor):
        parameter.copy_(initial)
    elif initial is not None:
        parameter.copy_(_normal(*parameter.shape) * float(initial))
    elif not bool(parameter.isfinite().all()):
        parameter.zero_()


def _normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def _tensors(found: Any) -> list[Tensor]:
    parts = list(vars(found).values()) if isinstance(found, RowColumnBias | Gates) else [found]
    return [part for part in parts if isinstance(part, Tensor)]


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, Contribution):
        return True  # its parts are asked for one by one
    if tensors := _tensors(one):
        return len(tensors) == len(_tensors(other)) and all(map(torch.equal, tensors, _tensors(other)))
    return one == other


@dataclass(frozen=True)
class _Sample:
    """A small pass: T queries, the last of S keys, at the first positions or the last ones."""

    B: int
    T: int
    S: int
    layout: AttentionLayout
    last: int
    """The last position."""

    @classmethod
    def of(cls, encoding: Encoding, at_end: bool) -> "_Sample":
        geometry, last = encoding.geometry, encoding.last_position
        positions = geometry.context if last is None else min(geometry.context, last + 1)
        B, S = 2, min(5, positions)
        T = min(3, S)
        first = positions - S if at_end else 0
        key_BS = torch.arange(first, first + S).expand(B, S)
        later_TS = torch.arange(S) > torch.arange(S - T, S)[:, None]
        layout = AttentionLayout(key_BS[:, S - T :], key_BS, hide=lambda: later_TS.expand(B, T, S), causal=False)
        return cls(B, T, S, layout, first + S - 1)


def _questions(encoding: Encoding, sample: _Sample) -> Iterator[Question]:
    B, T, D = sample.B, sample.T, encoding.geometry.width
    for name, parameter in encoding.named_parameters():
        yield Question(
            "initial",
            partial(encoding.initial, name, torch.Generator()),
            f"a number, a tensor of {tuple(parameter.shape)} or None for {name!r}",
            partial(_is_initial, parameter.shape),
            parameter,
        )
    x_BTD = _normal(B, T, D)
    yield _exact("embed", partial(encoding.embed, x_BTD, sample.layout.query_positions_BT), "(B, T, width)", B, T, D)
    yield Question("resolved", lambda: json.loads(json.dumps(encoding.resolved())), "a table", _is_table)


def _gates_question(encoding: Encoding) -> Question:
    D = encoding.geometry.width

    def fits(found: Any) -> bool:
        if not isinstance(found, Gates):
            return found is None
        weight_CD, bias_C = found.weight_CD, found.bias_C
        return _is_tensor(weight_CD, 2) and _is_tensor(bias_C, 1) and weight_CD.shape == (len(bias_C), D)

    return Question("gates", encoding.gates, f"Gates of (gates, width) = (any, {D}) and (gates,), or None", fits)


def _numbers_question(encoding: Encoding, sample: _Sample, gates: Gates | None) -> Question:
    B, S = sample.B, sample.S
    x_BSD = _normal(B, S, encoding.geometry.width)
    ask = partial(encoding.token_numbers, x_BSD)
    if gates is not None:  # which a backend may compute in their place
        wanted = gates.of(x_BSD)
        return Question("token_numbers", ask, "what its gates are", lambda x: _is_tensor(x, 3) and x.equal(wanted))
    return Question(
        "token_numbers",
        ask,
        f"(B, T, numbers) = ({B}, {S}, any) or None",
        lambda x: x is None or (_is_tensor(x, 3) and x.shape[:2] == (B, S)),
    )


def _questions_of(contribution: Contribution, encoding: Encoding, sample: _Sample) -> Iterator[Question]:
    """What is asked of each part of a contribution; the hook is named as the part is."""
    B, T, S, layout, geometry = sample.B, sample.T, sample.S, sample.layout, encoding.geometry
    H, G, K = geometry.heads, geometry.key_value_heads, geometry.head_width
    q_BHTK, k_BHSK, k_BGSK = _normal(B, H, T, K), _normal(B, H, S, K), _normal(B, G, S, K)
    query_BT, key_BS = layout.query_positions_BT, layout.key_positions_BS
    if (rotation := contribution.rotation) is not None:
        asked = {"angles": rotation.angles, "key_angles": rotation.key_angles}
        asked |= {"query_magnitude": rotation.query_magnitude, "key_magnitude": rotation.key_magnitude}
        for name, function in asked.items():
            if function is not None:
                yield Question(
                    f"rotation.{name}",
                    partial(function, query_BT),
                    f"(B, T, pairs) = ({B}, {T}, {K // 2} or fewer)",
                    lambda x: _is_tensor(x, 3) and x.shape[:2] == (B, T) and 2 * x.shape[2] <= K,
                )
    if (own := contribution.token_rotation) is not None:
        yield Question(
            "token_rotation",
            lambda: own.angles_BGTP,
            f"angles of (B, heads of keys, T, pairs) = ({B}, {G} or 1, {T}, {K // 2} or fewer)",
            lambda x: _is_tensor(x, 4) and _broadcasts(x[..., 0], B, G, T) and 2 * x.shape[3] <= K,
        )
    if contribution.queries is not None:
        yield _all_but_width("queries", partial(contribution.queries, q_BHTK, query_BT), B, H, T)
    if contribution.keys is not None:
        yield _all_but_width("keys", partial(contribution.keys, k_BGSK, key_BS), B, G, S)
    if contribution.queries is not None or contribution.keys is not None:
        changed_q = q_BHTK if contribution.queries is None else contribution.queries(q_BHTK, query_BT)
        changed_k = k_BGSK if contribution.keys is None else contribution.keys(k_BGSK, key_BS)
        widths = [changed_q.shape[-1], changed_k.shape[-1]]
        yield Question("queries and keys", lambda: widths, "equally wide", lambda x: x[0] == x[1])
    if contribution.scale is not None:
        yield Question(
            "scale",
            lambda: contribution.scale,
            f"a number or what broadcasts to (B, heads, T, 1) = ({B}, {H}, {T}, 1)",
            lambda x: isinstance(x, Real) or _broadcasts(x, B, H, T, 1),
        )
    if (bias := contribution.distance_bias) is not None:
        # As our kernel asks, for all that there are, and as eager attention does.
        for distance in (torch.arange(sample.last + 1), layout.distances_BTS):
            yield _exact("distance_bias", partial(bias, distance), "(heads, *shape)", H, *distance.shape)
    if contribution.position_bias is not None:
        yield Question(
            "position_bias",
            partial(contribution.position_bias, query_BT, key_BS),
            f"(B, heads, T, S) = ({B}, {H}, {T}, {S})",
            lambda x: _broadcasts(x, B, H, T, S),
        )
    if contribution.row_column_bias is not None:
        yield Question(
            "row_column_bias",
            lambda: contribution.row_column_bias,
            f"RowColumnBias of (B, heads, T) = ({B}, {H}, {T}) and (B, heads, S) = ({B}, {H}, {S})",
            lambda x: (
                isinstance(x, RowColumnBias) and _broadcasts(x.row_BHT, B, H, T) and _broadcasts(x.of_keys_BHS, B, H, S)
            ),
        )
    if contribution.window is not None:
        yield Question(
            "window",
            lambda: contribution.window,
            f"a whole number from 1 up, or {H} of them",
            lambda x: _is_window(x) or (isinstance(x, tuple) and len(x) == H and all(map(_is_window, x))),
        )
    if contribution.chunk is not None:
        yield Question("chunk", lambda: contribution.chunk, "a whole number from 1 up", _is_window)
    logits_BHTS = _normal(B, H, T, S)
    if contribution.score is not None:
        scores = Scores(logits_BHTS, q_BHTK, k_BHSK, layout, geometry.logit_scale, contribution.bias(layout))
        yield Question(
            "score",
            partial(contribution.score, scores),
            f"(B, heads, T, S) = ({B}, {H}, {T}, {S})",
            lambda x: _broadcasts(x, B, H, T, S),
        )
    if contribution.normalizer is not None:
        masked = logits_BHTS.masked_fill(~layout.mask_BTS()[:, None], -math.inf)
        yield _exact("normalizer", partial(contribution.normalizer, masked, layout), "(B, heads, T, S)", B, H, T, S)
    if contribution.output is not None:
        yield _exact(
            "output",
            partial(contribution.output, q_BHTK, replace(layout, own_values=lambda: q_BHTK + 1)),
            "(B, heads, T, head width)",
            B,
            H,
            T,
            K,
        )


def _exact(hook: str, ask: Callable[[], Any], letters: str, *sizes: int) -> Question:
    return Question(
        hook, ask, f"{letters} = {sizes}", lambda found: _is_tensor(found, len(sizes)) and found.shape == sizes
    )


def _all_but_width(hook: str, ask: Callable[[], Any], *sizes: int) -> Question:
    fits = lambda found: _is_tensor(found, 4) and found.shape[:3] == sizes  # noqa: E731
    return Question(hook, ask, f"(B, heads, T, any width) = {(*sizes, 'any')}", fits)


def _broadcasts(found: Any, *sizes: int) -> bool:
    if not isinstance(found, Tensor) or found.ndim > len(sizes):
        return False
    last = sizes[len(sizes) - found.ndim :]
    return all(size in (1, wanted) for size, wanted in zip(found.shape, last, strict=True))


def _is_tensor(found: Any, dimensions: int) -> bool:
    return isinstance(found, Tensor) and found.ndim == dimensions


def _is_initial(shape: torch.Size, found: Any) -> bool:
    return found is None or isinstance(found, Real) or (isinstance(found, Tensor) and found.shape == shape)


def _is_window(found: Any) -> bool:
    return type(found) is int and found >= 1


def _is_table(found: Any) -> bool:
    return isinstance(found, dict)
