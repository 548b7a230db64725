"""The fused attention kernels against attention written out, in Triton's interpreter on the CPU.

`test_interpreted` runs them, in a process of their own. Shape letters as in `lengthwise.kernels.attention`.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from compiling import compiles, in_another_process, made
from conftest import INTERPRETED
from torch import Tensor
from torch.func import functional_call, stack_module_state, vmap

from lengthwise.encodings.contribution import rotate
from lengthwise.kernels import attention as kernel
from lengthwise.kernels import attention_long, attention_whole, drop, grid_sums, picking
from lengthwise.kernels.attention import Parts, available, fused_attention, supports
from lengthwise.kernels.drop import drop_relu
from lengthwise.kernels.dropout import kept


def compile_kernels() -> None:
    fp32 = ("table", "dtable", "lse", "delta", "turns", "row", "column", "drow", "dcolumn", "sink", "dsink", "factor")
    fp32 += (
        "dfactor",
        "grid",
        "given",
        "dlogits",
        "dangles",
        "drows",
        "vectors",
        "dvectors",
        "strength",
        "dstrength",
        "offset",
        "doffset",
    )
    kinds = dict.fromkeys((*fp32, "part"), "*fp32") | dict.fromkeys(("scale", "inverse"), "fp32")
    kinds |= dict.fromkeys(("segments", "key", "numbers", "window", "place", "places"), "*i32")
    read = ("q", "k", "v", "joined", "grad", "out", "dq", "dk", "dv", "x", "dx", "picked", "rows")
    kinds |= dict.fromkeys(read, "*bf16")
    numbers = {"P": 8, "G": 1, "C": 2, "H": 2, "T": 64, "K": 32, "B": 64, "X": 3, "LAST": 15, "E": 16}
    numbers |= {"PROGRAM": 0, "HALVES": False, "PRECISION": "tf32", "D": 48, "F": 96, "W": 16, "BLOCK": 256}
    whole = [attention_whole._forward, attention_whole._backward]
    blocks = [attention_long._forward, attention_long._backward_queries, attention_long._backward_keys]
    bias, gates = {"table", "dtable"}, {"rows", "drows"}
    both, reflections = {"row", "column", "drow", "dcolumn"}, {"vectors", "strength", "dvectors", "dstrength"}
    map_of_logits, more = {"given", "grid", "place", "dlogits"}, {"turns", "dangles", "window", "sink", "dsink"}
    factors, phases = {"factor", "dfactor"}, {"offset", "doffset"}
    everything = bias | gates | both | reflections | map_of_logits | more | factors | phases
    for there, others in (
        *((set(), {}), (bias, {}), ({"turns"}, {}), ({"turns", "row", "dcolumn"}, {}), (both | {"window"}, {})),
        *(({"turns", "dangles", *factors}, {"G": 2, "HALVES": True}), ({"turns", "sink", "dsink", *bias}, {"C": 4})),
        *(({"grid", "place", "dlogits"}, {}), ({"given", "dlogits", "window"}, {"X": 1})),
    ):
        for function in (*whole, *blocks):
            made(function, kinds, numbers | others, everything - there, num_warps=4)
    for there, others in (
        *(
            (gates, {}),
            (phases | {"turns"}, {"P": 32}),
            (gates | {"turns"}, {"T": 128}),
            (reflections | {"turns", "row", "dcolumn"}, {}),
        ),
        *((set(), {"PROGRAM": program}) for program in kernel.PROGRAMS.values()),
    ):
        for function in whole:
            made(function, kinds, numbers | others, everything - there, num_warps=8)
    kinds |= dict.fromkeys(("dlogits", "part"), "*fp32")
    made(grid_sums._sum, kinds, {"Y": 4, "H": 2, "B": 64, "W": 128}, num_warps=4)
    for function in (attention_long._turn, drop._forward, drop._backward_kernel, picking._take, picking._put):
        made(function, kinds, numbers, num_warps=4)


@pytest.mark.slow
@compiles
def test_kernels_compile_for_a_gpu_that_is_not_there() -> None:
    """What the interpreter forgives, such as a name from inside a loop, the compiler does not."""
    in_another_process(compile_kernels)


def attention(
    q_NRTHK: Tensor,
    k_NRTHK: Tensor,
    v_NRTHK: Tensor,
    segments_NRT: Tensor,
    table_NHT: Tensor | None = None,
    key_N: Tensor | None = None,
    *others: Any,
    turns_NRTGPC: Tensor | None = None,
) -> Tensor:
    joined = torch.stack([q_NRTHK, k_NRTHK, v_NRTHK], dim=3)
    parts = Parts(table_NHT=table_NHT, key_N=key_N, turns_NRTGPC=turns_NRTGPC)
    return fused_attention(joined, segments_NRT, parts, *others)


def turns_of(angles_NRTP: Tensor) -> Tensor:
    """Of all heads alike."""
    return torch.stack([angles_NRTP.cos(), angles_NRTP.sin()], dim=-1)[:, :, :, None]


def test_what_is_supported() -> None:
    assert [length for length in range(1, 400) if supports(length, 64)] == [16, 32, 64, 128, 192, 256, 320, 384]
    assert [width for width in range(1, 300) if supports(64, width)] == [16, 32, 64, 128]
    assert available("cpu") == INTERPRETED
    assert not available("meta")


def test_what_is_refused() -> None:
    fine, segments = torch.zeros(1, 1, 16, 1, 16), torch.zeros(1, 1, 16, dtype=torch.int64)
    with pytest.raises(ValueError, match="rows of 24"):
        attention(*[torch.zeros(1, 1, 24, 1, 16)] * 3, torch.zeros(1, 1, 24))
    with pytest.raises(ValueError, match="joined"):
        fused_attention(torch.stack([fine, fine], dim=3), segments)
    with pytest.raises(ValueError, match="float16"):
        attention(fine.half(), fine.half(), fine.half(), segments)
    with pytest.raises(ValueError, match="rate"):
        attention(fine, fine, fine, segments, None, torch.zeros(1, dtype=torch.int32), 1.0)


def reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    segments: Tensor,
    table: Tensor | None = None,
    key: Tensor | None = None,
    rate: float = 0.0,
    scale: float = 1.0,
) -> Tensor:
    """Attention written out; the mask of dropout in int64, which does not wrap by itself."""
    _, R, T, H, _ = q.shape
    logits = torch.einsum("nrthk,nrshk->nrhts", q, k) * scale
    distance = torch.arange(T)[:, None] - torch.arange(T)
    if table is not None:
        logits = logits + table[:, None, :, distance.clamp(min=0)]
    seen = (distance >= 0) & (segments[..., :, None] == segments[..., None, :])
    weights = logits.masked_fill(~seen[:, :, None], float("-inf")).softmax(-1)
    if key is not None:
        key = key.long()[:, None] % 2**32
        rows, columns = odd_numbers(R * H * T, key), odd_numbers(T, key ^ 0xFFFFFFFF)
        product = times(rows[:, :, None], columns[:, None, :]).view(len(q), R, H, T, T)
        # As numbers with a sign the upper half comes first, so that half is what a small threshold drops from.
        kept = (product + 2**31) % 2**32 >= int(rate * 2**32)
        weights = weights * kept / (1 - rate)
    return torch.einsum("nrhts,nrshk->nrthk", weights, v)


def odd_numbers(count: int, key: Tensor) -> Tensor:
    x = times(torch.arange(count, dtype=torch.int64) ^ key, 0x9E3779B1)
    x = times(x ^ (x >> 16), 0x7FEB352D)
    x = times(x ^ (x >> 15), 0x846CA68B)
    return (x ^ (x >> 16)) | 1


def times(x: Tensor, factor: int | Tensor) -> Tensor:
    """Modulo 2**32, in two halves: int64 does not hold the whole product."""
    return (x * (factor & 0xFFFF) + ((x * (factor >> 16)) % 2**16) * 2**16) % 2**32


def inputs(N: int, R: int, T: int, H: int, K: int, dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Projections of which queries, keys and values are views; packed segments that end in padding; table; keys."""
    draw = torch.Generator().manual_seed(T + K)
    projected = torch.randn(N, R, T, 3 * H * K, generator=draw).to(dtype).requires_grad_()
    segments = torch.randint(1, 4, (N, R, T), generator=draw).sort(-1).values
    segments[..., -3:] = 0
    table = torch.randn(N, H, T, generator=draw).requires_grad_()
    key = torch.randint(-(2**31), 2**31, (N,), generator=draw).to(torch.int32)
    return [projected, segments, table, key]


def heads(projected: Tensor, K: int) -> list[Tensor]:
    return [each.unflatten(-1, (-1, K)) for each in projected.chunk(3, -1)]


def close(found: tuple[Tensor, ...], expected: tuple[Tensor, ...], tolerance: float) -> None:
    for each, wanted in zip(found, expected, strict=True):
        assert each.shape == wanted.shape
        assert (each.double() - wanted).abs().max() <= tolerance * wanted.abs().max()


class Layer(torch.nn.Module):
    """One model's attention with a projection before it; a scalar loss."""

    def __init__(self, T: int, H: int, K: int) -> None:
        super().__init__()
        self.project = torch.nn.Linear(8, 3 * H * K, bias=False)
        self.table = torch.nn.Parameter(torch.randn(H, T))
        self.K = K

    def forward(self, x_RTD: Tensor, segments_RT: Tensor, key: Tensor, rate: float) -> Tensor:
        q, k, v = heads(self.project(x_RTD)[None], self.K)
        out = attention(q, k, v, segments_RT[None], self.table[None], key.view(1), rate, self.K**-0.5)
        return out.square().sum()


class Fleet:
    """Three stacked layers and a batch for each."""

    def __init__(self, T: int, shared_batch: bool = False) -> None:
        torch.manual_seed(0)
        self.layers = [Layer(T, 1, 16) for _ in range(3)]
        self.weights = {name: x.detach().requires_grad_() for name, x in stack_module_state(self.layers)[0].items()}
        self.key = torch.tensor([5, -7, 2**31 - 1], dtype=torch.int32)
        self.T = T
        self.shared_batch = shared_batch
        self.stacked = vmap(self.one, in_dims=(0, None, None, 0) if shared_batch else (0, 0, 0, 0))

    def one(self, weights: dict[str, Tensor], x_RTD: Tensor, segments_RT: Tensor, key: Tensor) -> Tensor:
        return functional_call(self.layers[0], weights, (x_RTD, segments_RT, key, 0.2))

    def batch(self, rows: int) -> tuple[Tensor, Tensor]:
        x, segments = torch.randn(3, rows, self.T, 8), torch.randint(0, 3, (3, rows, self.T)).sort(-1).values
        return (x[0], segments[0]) if self.shared_batch else (x, segments)

    def gradients(self, stacked: Callable[..., Tensor], x: Tensor, segments: Tensor) -> tuple[Tensor, ...]:
        losses = stacked(self.weights, x, segments, self.key)
        return losses, *torch.autograd.grad(losses.sum(), list(self.weights.values()))

    def alone(self, x: Tensor, segments: Tensor) -> tuple[Tensor, ...]:
        def each(i: int) -> tuple[Tensor, ...]:
            mine = {name: weight[i].detach().requires_grad_() for name, weight in self.weights.items()}
            loss = self.one(mine, *((x, segments) if self.shared_batch else (x[i], segments[i])), self.key[i])
            return loss, *torch.autograd.grad(loss, list(mine.values()))

        return tuple(torch.stack(parts) for parts in zip(*map(each, range(3)), strict=True))


class TestInterpreted:
    __test__ = INTERPRETED

    @pytest.mark.parametrize("dropped", [False, True])
    @pytest.mark.parametrize("biased", [False, True])
    @pytest.mark.parametrize(
        ("shape", "dtype", "tolerance"),
        [
            ((1, 2, 32, 2, 16), torch.float32, 1e-5),
            ((3, 2, 64, 2, 32), torch.float32, 1e-5),
            ((2, 1, 192, 1, 16), torch.float32, 1e-5),
            ((3, 1, 64, 2, 32), torch.bfloat16, 2e-2),
            ((1, 1, 256, 2, 16), torch.bfloat16, 2e-2),
        ],
    )
    def test_equals_attention_written_out(
        self, shape: tuple[int, ...], dtype: torch.dtype, tolerance: float, biased: bool, dropped: bool
    ) -> None:
        projected, segments, table, key = inputs(*shape, dtype=dtype)
        N, R, T, H, K = shape
        rate, scale = 0.3 if dropped else 0.0, K**-0.5
        leaves = [projected, table] if biased else [projected]
        weigh = torch.randn(N, R, T, H, K, generator=torch.Generator().manual_seed(0)).to(dtype)

        def run(function: Callable[..., Tensor], convert: Callable[[Tensor], Tensor]) -> tuple[Tensor, ...]:
            bias = convert(table) if biased else None
            chosen = key if dropped else None
            out = function(*heads(convert(projected), K), segments, bias, chosen, rate, scale)
            return out, *torch.autograd.grad(out, leaves, convert(weigh))

        found = run(attention, lambda x: x)
        assert found[0].is_contiguous() and found[0].dtype == dtype
        close(found, run(reference, Tensor.double), tolerance)

    @pytest.mark.parametrize(("T", "pairs"), [(32, 2), (64, 8), (192, 5)])
    def test_rotating_in_the_kernel_equals_rotating_before_it(self, T: int, pairs: int) -> None:
        projected, segments, table, key = inputs(2, 2, T, 2, 16)
        angles = torch.randn(2, 2, T, pairs, generator=torch.Generator().manual_seed(0)) * 3
        leaves = (projected, table)

        def run(inside: bool) -> tuple[Tensor, ...]:
            q, k, v = heads(projected, 16)
            if not inside:
                flat = angles.flatten(0, 1)
                q, k = (rotate(x.flatten(0, 1).transpose(1, 2), flat, "interleaved") for x in (q, k))
                q, k = (x.transpose(1, 2).unflatten(0, (2, 2)) for x in (q, k))
            out = attention(q, k, v, segments, table, key, 0.2, 0.25, turns_NRTGPC=turns_of(angles) if inside else None)
            return out, *torch.autograd.grad(out.square().sum(), leaves)

        close(run(True), tuple(x.double() for x in run(False)), 1e-5)

    @pytest.mark.parametrize("T", [16, 128, 192])
    def test_takes_any_strides_and_integers(self, T: int) -> None:
        _, segments, table, _ = inputs(2, 2, T, 2, 16)
        draw = torch.Generator().manual_seed(1)
        q, k, v = (torch.randn(2, 16, 2, T, 2, generator=draw).permute(0, 2, 3, 4, 1) for _ in range(3))
        spread = torch.stack([segments, -segments], -1).to(torch.int16)[..., 0]
        turned = table.detach().transpose(1, 2).contiguous().transpose(1, 2)
        close((attention(q, k, v, spread, turned),), (reference(q, k, v, segments, table).double(),), 1e-5)

    @pytest.mark.parametrize(("pieces", "whole"), [((16, 32, 16), 64), ((128, 64), 192)])
    def test_a_packed_segment_equals_itself_alone(self, pieces: tuple[int, ...], whole: int) -> None:
        projected, _, table, _ = inputs(1, 1, whole, 2, 16)
        segments = torch.repeat_interleave(torch.arange(1, len(pieces) + 1), torch.tensor(pieces)).view(1, 1, whole)
        packed = attention(*heads(projected, 16), segments, table)
        for mine, place in zip(packed.split(pieces, 2), projected.split(pieces, 2), strict=True):
            length = mine.shape[2]
            alone = attention(*heads(place, 16), torch.ones(1, 1, length), table[:, :, :length])
            close((mine,), (alone.double(),), 1e-5)

    @pytest.mark.parametrize(("T", "shared_batch"), [(32, False), (32, True), (128, False)])
    def test_stacked_models_equal_each_alone(self, T: int, shared_batch: bool) -> None:
        fleet = Fleet(T, shared_batch)
        batch = fleet.batch(2 if T == 32 else 1)
        close(fleet.gradients(fleet.stacked, *batch), tuple(x.double() for x in fleet.alone(*batch)), 1e-5)

    def test_stacked_gradients_equal_each_alone(self) -> None:
        projected, segments, table, key = inputs(3, 1, 16, 1, 16)
        joined = torch.stack(heads(projected, 16), dim=3).detach()
        backward = torch.ops.lengthwise.attention_backward.default

        angles = torch.linspace(0, 3, 3 * 16 * 4).view(3, 1, 16, 4)
        row, column = (torch.linspace(*ends, 3 * 16).view(3, 1, 1, 16) for ends in ((-1, 1), (1, -2)))
        parts = Parts(
            table_NHT=table.detach(),
            turns_NRTGPC=turns_of(angles),
            key_N=key,
            row_NRHT=row,
            column_NRHT=column,
            window_NH=torch.tensor([[3], [16], [7]], dtype=torch.int32),
            sink_NH=torch.tensor([[0.5], [-1.0], [2.0]]),
        )
        there = [name for name, x in parts._asdict().items() if x is not None]

        def one(grad: Tensor, joined: Tensor, segments: Tensor, *some: Tensor) -> tuple[Tensor, ...]:
            own = Parts(**{name: x[None] for name, x in zip(there, some, strict=True)})
            given = (grad[None], None, None, joined[None], segments[None], *own)
            return backward(*given, 0.2, 0.25, kernel.PROGRAMS["softmax"], False)

        arguments = (joined[:, :, :, 2], joined, segments, *(getattr(parts, name) for name in there))
        alone = [one(*each) for each in zip(*arguments, strict=True)]
        expected = tuple(torch.stack(parts).double() for parts in zip(*alone, strict=True))
        found = vmap(one)(*arguments)
        assert all(mine.shape == wanted.shape for mine, wanted in zip(found, expected, strict=True))
        filled = [i for i, each in enumerate(found) if each.numel()]
        close(tuple(found[i] for i in filled), tuple(expected[i] for i in filled), 1e-6)
        assert len(filled) == 5  # of what was joined, of the table, of both biases and of the sinks

    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    @pytest.mark.parametrize("shape", [(2, 700), (33, 48), (3, 2, 1040)])  # one row, many, several blocks of columns
    def test_relu_and_dropout_equal_those_written_out(self, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
        draw = torch.Generator().manual_seed(0)
        x = torch.randn(3, *shape, generator=draw).to(dtype).requires_grad_()
        key = torch.tensor([5, -(2**31), 2**31 - 1], dtype=torch.int32)
        stays = torch.stack([kept(x.shape[1:], each, 0.3) for each in key])
        written = x.relu() * (stays / 0.7)
        for found in (drop_relu(x, key, 0.3), vmap(lambda a, b: drop_relu(a[None], b[None], 0.3)[0])(x, key)):
            torch.testing.assert_close(
                found.float(), written.float(), rtol=1e-2 if dtype == torch.bfloat16 else 1e-6, atol=0
            )
            gradient = torch.autograd.grad(found.float().square().sum(), x)[0]
            expected = torch.autograd.grad(written.float().square().sum(), x, retain_graph=True)[0]
            torch.testing.assert_close(gradient, expected, rtol=3e-2 if dtype == torch.bfloat16 else 1e-5, atol=0)

    def test_the_operators_keep_their_promises(self) -> None:
        projected, segments, table, key = inputs(2, 1, 16, 1, 16)
        operator, joined = torch.ops.lengthwise.attention.default, torch.stack(heads(projected, 16), dim=3)
        plain = Parts(table_NHT=table, key_N=key)
        row, column = (torch.linspace(-1, end, 32).view(2, 1, 1, 16).requires_grad_() for end in (1, 2))
        window = torch.tensor([[3], [16]], dtype=torch.int32)
        sink = torch.tensor([[0.5], [-1.0]]).requires_grad_()
        biased = plain._replace(row_NRHT=row, column_NRHT=column, window_NH=window, sink_NH=sink)
        for parts, program in ((plain, "softmax"), (biased, "softmax"), (plain, "entmax")):
            arguments = (joined, segments, *parts, 0.1, 0.25, kernel.PROGRAMS[program], False)
            torch.library.opcheck(operator, arguments)
