"""Causal attention for packed rows and stacked models as one fused operation each way, in Triton.

Shape letters: N models, R rows, T tokens of a row (queries), S the same as keys, X = 3 for queries, keys and values (1
for values alone), H heads, K head width, G heads that have angles of their own (1 or H), P pairs of entries, C = 2 for
a cosine and a sine, or 4 where keys have others than queries, E vectors of a table. Inside a kernel the letters name
the block that a program holds. Nothing is added up in an order left to chance: the same inputs give the same bits.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from lengthwise.kernels import attention_long, attention_whole
from lengthwise.kernels.attention_parts import LEARNED, Gradients, How, Parts, readable, rows_of
from lengthwise.kernels.parts import rule, triton
from lengthwise.kernels.stacking import stacked

__all__ = ["Parts"]

PROGRAMS = {"softmax": 0, "entmax": 1, "stick-breaking": 2}
"""How logits become weights; all but the softmax need rows that one program holds whole. Entmax: of alpha 1.5."""
HEAD_WIDTHS = (16, 32, 64, 128)
LONGEST_WHOLE = 128
"""The longest rows that one program holds whole; longer ones go in blocks (see `attention_long`)."""
LONGEST_REFLECTED = 64
"""The longest with reflections, which need a dozen square matrices at once."""
MOST_COUNTED = 64
"""Vectors of positions that gates count."""


def available(device: torch.device | str) -> bool:
    """Whether the kernels run there: on a GPU, or on the CPU where Triton interprets them (TRITON_INTERPRET=1)."""
    if triton is None:
        return False
    return torch.device(device).type == ("cpu" if triton.knobs.runtime.interpret else "cuda")


def supports(length: int, head_width: int) -> bool:
    """Whether there is a kernel for rows of that length and heads of that width."""
    whole = length in (16, 32, 64, LONGEST_WHOLE)
    in_blocks = length > LONGEST_WHOLE and length % 64 == 0
    return (whole or in_blocks) and head_width in HEAD_WIDTHS


def normalizes(program: str, length: int, head_width: int, dtype: torch.dtype) -> bool:
    """Whether there is that program for rows of that length."""
    return program == "softmax" or (program in PROGRAMS and _held_whole(length, head_width, dtype))


def counts_gates(vectors: int, length: int, head_width: int, dtype: torch.dtype) -> bool:
    """Whether gates can count positions in rows of that length, up to so many vectors."""
    return vectors <= MOST_COUNTED and _held_whole(length, head_width, dtype)


def reflects(length: int, head_width: int, dtype: torch.dtype) -> bool:
    """Whether there can be reflections in rows of that length."""
    return length <= LONGEST_REFLECTED and _held_whole(length, head_width, dtype)


def parts_entries(length: int, head_width: int, dtype: torch.dtype) -> bool:
    """Whether entries can be magnitudes and phases in rows of that length."""
    return head_width <= 64 and _held_whole(length, head_width, dtype)


def _held_whole(length: int, head_width: int, dtype: torch.dtype) -> bool:
    """Whether one program holds a row: an fp32 product is three of the tensor cores', and registers end sooner."""
    small = length <= 64 and length * head_width <= 64 * 64
    return length <= LONGEST_WHOLE and (dtype == torch.bfloat16 or small)


def notices_nothing(program: str, has_sink: bool, counts: bool = False) -> bool:
    """Whether weights stay the same when a number is added to all logits of a query."""
    return program != "stick-breaking" and not has_sink and not counts


def fused_attention(
    joined_NRTXHK: Tensor,
    segments_NRT: Tensor,
    parts: Parts | None = None,
    rate: float = 0.0,
    scale: float = 1.0,
    program: str = "softmax",
    halves: bool = False,
) -> Tensor:
    """A token sees itself and the earlier tokens of its segment; returns the mixed values, (N, R, T, H, K).

    Queries, keys and values come in one array, as one product makes them. Weights are dropped at `rate` where there is
    a key for it. `program` makes weights of logits (see `PROGRAMS`). `halves`: a pair is entry i of the first half of
    the rotated entries and entry i of the second, not two neighbours. Under `torch.func.vmap` the stacked models join
    N; gradients are taken outside of it (PyTorch has no `vmap(grad(...))` of such operators).
    """
    parts = parts or Parts()
    _refuse(joined_NRTXHK, parts, rate, program)
    integers = {
        name: None if (x := getattr(parts, name)) is None else x.to(torch.int32)
        for name in ("key_N", "window_NH", "place_NRT")
    }
    if rate == 0:
        integers["key_N"] = None
    turns = parts.turns_NRTGPC
    parts = parts._replace(**integers, turns_NRTGPC=None if turns is None else turns.detach().float())
    return _attention(joined_NRTXHK, segments_NRT, *parts, rate, scale, PROGRAMS[program], halves)[0]


def _refuse(joined_NRTXHK: Tensor, parts: Parts, rate: float, program: str) -> None:
    _, _, length, joined, _, head_width = joined_NRTXHK.shape
    dtype, given = joined_NRTXHK.dtype, parts.given_NRHTS is not None
    if not supports(length, head_width):
        raise ValueError(f"no fused attention for rows of {length} and heads of {head_width}")
    if joined != (1 if given else 3):
        raise ValueError(
            "fused attention takes queries, keys and values joined in the fourth dimension; beside logits that are "
            "given, values alone"
        )
    if dtype not in (torch.float32, torch.bfloat16):
        raise ValueError(f"fused attention takes float32 and bfloat16, not {dtype}")
    for name in LEARNED:
        part, wanted = getattr(parts, name), dtype if name == "rows_NEK" else torch.float32
        if part is not None and part.dtype != wanted:
            raise ValueError(f"{name} must be {str(wanted).removeprefix('torch.')}, not {part.dtype}")
        if given and part is not None and name not in ("given_NRHTS", "sink_NH"):
            raise ValueError(f"logits that are given have everything in them but the mask: {name} cannot be added")
    if not 0 <= rate < 1:
        raise ValueError(f"a dropout rate lies in [0, 1), {rate} does not")
    if parts.row_NRHT is None and parts.column_NRHT is not None:
        raise ValueError("a bias of the column needs one of the row")
    if not normalizes(program, length, head_width, dtype):
        raise ValueError(f"no program for {program} in rows of {length} and heads of {head_width}")
    if program != "softmax" and parts.sink_NH is not None:
        raise ValueError(f"only a softmax has a sink, {program} does not")
    counts = parts.rows_NEK is not None
    own = parts.column_NRHT is None and parts.row_NRHT is not None
    if own and not notices_nothing(program, parts.sink_NH is not None, counts):
        raise ValueError(f"{program} notices what a whole row shares: a bias of the row needs one of the column")
    if parts.rows_NEK is not None and not counts_gates(parts.rows_NEK.shape[1], length, head_width, dtype):
        raise ValueError(f"gates cannot be counted in rows of {length} and heads of {head_width}")
    if parts.offset_NHK is not None:
        if not parts_entries(length, head_width, dtype):
            raise ValueError(f"no magnitudes and phases in rows of {length} and heads of {head_width}")
        turns, shape = parts.turns_NRTGPC, (1, head_width, 2)
        others = (parts.rows_NEK, parts.vectors_NRTHK, parts.angles_NRTHP)
        if turns is None or turns.shape[3:] != shape or any(each is not None for each in others):
            raise ValueError("phases need a cosine and a sine of every entry, the same for all heads, and nothing else")
    if parts.vectors_NRTHK is not None and not reflects(length, head_width, dtype):
        raise ValueError(f"no reflections in rows of {length} and heads of {head_width}")


_GIVEN = f"Tensor joined_NRTXHK, Tensor segments_NRT, {', '.join(f'Tensor? {name}' for name in Parts._fields)}"
_HOW = "float rate, float scale, int program, bool halves"


@torch.library.custom_op(
    "lengthwise::attention", mutates_args=(), schema=f"({_GIVEN}, {_HOW}) -> (Tensor out_NRTHK, Tensor lse_NRHT)"
)
def _attention(joined_NRTXHK: Tensor, segments_NRT: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    """Returns the output and, for long rows, the logarithm of each softmax's denominator (else it is empty)."""
    out_NRTHK, lse_NRHT = _like_forward(joined_NRTXHK)
    some, how = _told(others)
    joined, segments, parts = readable(joined_NRTXHK, segments_NRT, some)
    with torch.cuda.device_of(joined):
        if _whole(joined):
            attention_whole.run_forward(joined, segments, parts, out_NRTHK, how)
        else:
            attention_long.run_forward(joined, segments, parts, out_NRTHK, lse_NRHT, how)
    return out_NRTHK, lse_NRHT


@torch.library.custom_op(
    "lengthwise::attention_backward",
    mutates_args=(),
    schema=f"(Tensor grad_NRTHK, Tensor? out_NRTHK, Tensor? lse_NRHT, {_GIVEN}, {_HOW}) -> "
    f"({', '.join(f'Tensor {name}' for name in Gradients._fields)})",
)
def _attention_backward(
    grad_NRTHK: Tensor,
    out_NRTHK: Tensor | None,
    lse_NRHT: Tensor | None,
    joined_NRTXHK: Tensor,
    segments_NRT: Tensor,
    *others: Any,
) -> tuple[Tensor, ...]:
    """Returns `Gradients`."""
    some, how = _told(others)
    found = Gradients.like(joined_NRTXHK, some)
    joined, segments, parts = readable(joined_NRTXHK, segments_NRT, some)
    grad = rows_of(grad_NRTHK)
    with torch.cuda.device_of(joined):
        if _whole(joined):
            found = attention_whole.run_backward(joined, segments, parts, grad, found, how)
        else:
            assert out_NRTHK is not None and lse_NRHT is not None
            saved = (out_NRTHK.contiguous(), lse_NRHT.contiguous())
            found = attention_long.run_backward(joined, segments, parts, grad, *saved, found, how)
    return tuple(found)


def _told(others: tuple[Any, ...]) -> tuple[Parts, How]:
    """What both operators are given after queries, keys, values and segments."""
    *parts, rate, scale, program, halves = others
    return Parts(*parts), (scale, *rule(rate), program, halves)


def _whole(joined_NRTXHK: Tensor) -> bool:
    return _held_whole(joined_NRTXHK.shape[2], joined_NRTXHK.shape[5], joined_NRTXHK.dtype)


def _like_forward(joined_NRTXHK: Tensor) -> tuple[Tensor, Tensor]:
    N, R, T, _, H, K = joined_NRTXHK.shape
    lse_NRHT = joined_NRTXHK.new_empty((N, R, H, 0 if _whole(joined_NRTXHK) else T), dtype=torch.float32)
    return joined_NRTXHK.new_empty((N, R, T, H, K)), lse_NRHT


@_attention.register_fake
def _(joined_NRTXHK: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return _like_forward(joined_NRTXHK)


@_attention_backward.register_fake
def _(_grad: Tensor, _out: Any, _lse: Any, joined_NRTXHK: Tensor, _segments: Tensor, *others: Any) -> tuple[Any, ...]:
    return tuple(Gradients.like(joined_NRTXHK, Parts(*others[: len(Parts._fields)])))


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.rate, ctx.scale, ctx.program, ctx.halves = inputs
    ctx.set_materialize_grads(False)
    # A row held whole is computed afresh from its inputs; only blocks need what the forward pass found out.
    ctx.save_for_backward(*((None, None) if _whole(inputs[0]) else output), *tensors)


def _backward(ctx: Any, grad_NRTHK: Tensor, _grad_lse: Tensor) -> tuple[Tensor | None, ...]:
    tensors = ctx.saved_tensors
    found = _attention_backward(grad_NRTHK, *tensors, ctx.rate, ctx.scale, ctx.program, ctx.halves)
    given = Parts(*tensors[4:])._asdict()
    gradients = {name: each for name, each in zip(LEARNED, found[1:], strict=True) if given[name] is not None}
    return found[0], None, *(gradients.get(name) for name in Parts._fields), None, None, None, None


_attention.register_autograd(_backward, setup_context=_setup_context)


_attention.register_vmap(stacked(_attention))
_attention_backward.register_vmap(stacked(_attention_backward))
