"""The benchmark of language models: the plain loop computes what ours does, and the lines come in a good order.

Shape letters as in `bench.language_peer`.
"""

import json
import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import slow
from rich.console import Console
from torch import Tensor
from torch.nn import functional as F

from lengthwise.bench import language, language_lines, language_peer
from lengthwise.bench.arithmetic import Peak
from lengthwise.bench.language import Ours, Peer
from lengthwise.bench.language_attention import Dense, Flex, Varlen
from lengthwise.bench.language_lines import LanguageBench, compared
from lengthwise.bench.language_peer import ChunkedCrossEntropy, PeerLoop, PeerVariant
from lengthwise.bench.language_workload import ROWS, SCALES, Case, cases
from lengthwise.bench.measurements import Bench
from lengthwise.cli import main
from lengthwise.errors import UserError
from lengthwise.language.model import build_language_model
from lengthwise.training.batches import NO_TARGET

CPU = torch.device("cpu")
PEAK = Peak("fp32", 1e11, 5e10)
SCALE = replace(SCALES["cpu"], corpus_tokens=2**13, batch_tokens=512)


def case_of(encoding: str, rows: str) -> Case:
    return Case("tiny", encoding, 64, rows, SCALE)


def attention_of(rows: str) -> str:
    return language_lines.ATTENTIONS["cpu", rows][0]


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("encoding", [slow("none"), "rotary"])
@pytest.mark.parametrize("loss", [slow("whole"), "chunks"])
def test_the_plain_loop_trains_the_same_model(
    monkeypatch: pytest.MonkeyPatch, encoding: str, rows: str, loss: Any
) -> None:
    """Loss, every gradient, and every weight after three updates."""
    monkeypatch.setattr(language_peer, "CHUNK", 200)  # which does not divide the tokens of a step
    ours = Ours(case_of(encoding, rows), CPU)
    weights, expected, gradients = ours.reference()
    sequences = ours.most_sequences(8)
    peer = PeerLoop(ours.case.settings, 512, CPU, PeerVariant(attention_of(rows), loss, "eager"), sequences, weights)
    steps = Peer.prepared(as_peer(ours), 0, 3)
    found, found_gradients = peer.gradients(steps)
    assert found == pytest.approx(expected, rel=1e-6)
    assert found_gradients.keys() == gradients.keys() == weights.keys()
    for name, gradient in gradients.items():
        assert float((found_gradients[name] - gradient).norm() / gradient.norm()) < 1e-5, name
        assert torch.equal(peer.model.as_ours(lambda parameter: parameter.data)[name], weights[name])

    trained = Ours(case_of(encoding, rows), CPU)
    state = trained.learner.state
    for moments in (state.first_NW, state.second_NW):
        moments.zero_()
    trained.reference()  # sets the initial weights
    losses_K1, norms_K1 = trained.learner.run(trained.source.steps(0, 3)).read()
    peer_losses_K1, peer_norms_K1 = peer.run(steps).read()
    assert norms_K1.max() > trained.case.settings.training.clip / 2
    np.testing.assert_allclose(peer_losses_K1, losses_K1, rtol=1e-5)
    np.testing.assert_allclose(peer_norms_K1, norms_K1, rtol=1e-4)
    moved = trained.learner.weights()
    for name, view in peer.model.as_ours(lambda parameter: parameter.data).items():
        # Relative to how far the weight has come: Adam divides by a gradient that may be hardly more than rounding.
        assert float((view - moved[name]).norm()) < 1e-2 * float((moved[name] - weights[name]).norm()), name


def as_peer(ours: Ours) -> Any:
    """What `Peer.prepared` reads of a peer."""
    peer = Peer.__new__(Peer)
    peer.ours, peer.device = ours, CPU
    return peer


def test_the_plain_loop_rounds_as_ours_does_in_bf16() -> None:
    """Weights stay fp32; all arithmetic is rounded."""
    ours = Ours(case_of("rotary", "documents"), CPU)
    weights, expected, gradients = ours.reference()
    peer = PeerLoop(
        ours.case.settings, 512, CPU, PeerVariant("dense", "chunks", "eager"), ours.most_sequences(8), weights
    )
    peer.model.dtype = torch.bfloat16
    loss, found = peer.gradients(Peer.prepared(as_peer(ours), 0, 1))
    assert all(parameter.dtype == torch.float32 for parameter in peer.parameters)
    assert 0 < abs(loss - expected) / expected < 1e-3
    assert 1e-4 < language._distance(found, gradients) < 0.03


def test_chunks_give_what_all_logits_at_once_give(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(language_peer, "CHUNK", 10)
    draws = torch.Generator().manual_seed(0)
    states_MD = torch.randn(37, 8, generator=draws, dtype=torch.float64, requires_grad=True)
    weight_VD = torch.randn(23, 8, generator=draws, dtype=torch.float64, requires_grad=True)
    targets_M = torch.randint(0, 23, (37,), generator=draws)
    targets_M[[0, 5, 36]] = NO_TARGET
    answers = []
    for loss in (
        ChunkedCrossEntropy.apply(states_MD, weight_VD, targets_M),
        F.cross_entropy(states_MD @ weight_VD.t(), targets_M, ignore_index=NO_TARGET),
    ):
        answers.append((loss.detach(), *torch.autograd.grad(3 * loss, (states_MD, weight_VD))))
    for found, expected in zip(*answers, strict=True):
        # Logits are taken in fp32.
        assert torch.allclose(found.double(), expected, rtol=1e-5, atol=1e-7)


SEGMENTS = torch.tensor([[1, 1, 1, 2, 2, 0], [1, 1, 1, 1, 1, 1], [1, 2, 3, 3, 3, 0]], dtype=torch.int32)


def drawn(shape: tuple[int, ...]) -> tuple[Tensor, Tensor, Tensor]:
    draws = torch.Generator().manual_seed(1)
    q, k, v = (torch.randn(shape, generator=draws) for _ in range(3))
    return q, k, v


def test_varlen_is_told_where_each_sequence_begins() -> None:
    """The kernel is a stand-in: with what it is given it finds, one by one, what a mask of all pairs gives."""

    def attend(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, others: Tensor, most: int, most_keys: int, **how: Any):
        assert starts is others and starts.dtype == torch.int32 and most == most_keys == 6
        assert how == {"window_size": (-1, 0)}
        mixed = torch.full_like(q, math.nan)
        for first, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
            if end > first:
                parts = (x[first:end].transpose(0, 1) for x in (q, k, v))
                mixed[first:end] = F.scaled_dot_product_attention(*parts, is_causal=True).transpose(0, 1)
        return mixed

    program = Varlen(12, compiled=False)
    program.attend = attend
    starts = program.seen(SEGMENTS)
    assert starts.tolist() == [0, 3, 5, 6, 12, 13, 14, 17, 18, 18, 18, 18, 18]
    assert torch.equal(Varlen(8, compiled=False).seen(SEGMENTS), starts[:9])  # exactly as many as there are
    dense = Dense(0, compiled=False)
    q, k, v = drawn((3, 6, 2, 4))
    assert torch.allclose(program.mix(q, k, v, starts), dense.mix(q, k, v, dense.seen(SEGMENTS)), atol=1e-6)


@pytest.mark.filterwarnings("ignore")
def test_flex_hides_what_the_mask_of_all_pairs_hides() -> None:
    """The forward pass alone: on a CPU there is no other."""
    segments_BT = SEGMENTS.repeat_interleave(32, dim=1)
    flex, dense = Flex(0, compiled=False), Dense(0, compiled=False)
    q, k, v = drawn((3, 192, 2, 16))
    with torch.no_grad():
        found = flex.mix(q, k, v, flex.seen(segments_BT))
        assert torch.allclose(found, dense.mix(q, k, v, dense.seen(segments_BT)), atol=1e-5)


def test_rows_are_whole_windows_or_hold_several_documents() -> None:
    for kind in ROWS:
        windows = case_of("none", kind).windows()
        rows = windows.rows(np.arange(64))
        real = rows.segments_RT > 0
        assert rows.tokens_RT[real].min() >= 1 and rows.tokens_RT.max() < SCALE.vocabulary_rows
        counts = np.bincount(rows.tokens_RT[real])
        assert counts[1] > 2 * counts[10] > 0, "a few tokens are frequent, as words are"
        several = rows.segments_RT.max(axis=1) > 1
        assert several.mean() > 0.4 if kind == "documents" else not several.any() and real.all()
        assert np.array_equal(rows.tokens_RT, case_of("rotary", kind).windows().rows(np.arange(64)).tokens_RT)


def test_shapes_have_the_parameters_that_their_names_say() -> None:
    for size, millions in (("lm-small", 17), ("lm-60m", 60)):
        (case,) = cases("cuda", [size], ["none"], [512], ["windows"])
        model = build_language_model(case.settings, case.scale.vocabulary_rows)
        assert round(sum(parameter.numel() for parameter in model.parameters()) / 1e6) == millions


@dataclass(frozen=True)
class Timed:
    """What is read of a line."""

    mode: str
    peer_tokens_per_second: float


def bench_of(monkeypatch: pytest.MonkeyPatch, speeds: dict[str, float], minutes: float = 8.0) -> LanguageBench:
    """One that times nothing: how fast a plain loop is follows from what it has."""

    class Nothing:
        def __init__(self, case: Case, device: torch.device) -> None:
            self.case, self.begun_seconds = case, 0.0

    def line(ours: Any, variant: PeerVariant, peak: Peak, steps: int) -> Timed:
        speed = math.prod(speeds.get(word, 1.0) for word in (variant.attention, variant.loss, variant.mode))
        if not speed:
            raise RuntimeError("no such kernel\nand so on")
        return Timed(variant.mode, speed)

    monkeypatch.setattr(language_lines, "Ours", Nothing)
    monkeypatch.setattr(language_lines, "time_line", line)
    monkeypatch.setattr(language_lines, "free_memory", lambda device: None)
    chosen = cases("cuda", encodings=["none", "rotary"], contexts=[512])
    return LanguageBench(chosen, torch.device("cuda"), lambda: PEAK, 1, True, minutes, lambda text: None)


def test_later_lines_begin_with_what_was_fastest(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of(monkeypatch, {"cudnn": 0.0, "varlen": 1.2, "chunks": 1.3, "max-autotune-no-cudagraphs": 1.1})
    rows = list(bench.lines())
    tried = [(case.encoding, case.rows, *vars(variant).values()) for case, variant, _ in bench.timed]
    assert tried[:7] == [
        ("none", "windows", "flash", "whole", "default"),
        ("none", "windows", "cudnn", "whole", "default"),
        ("none", "windows", "flash", "chunks", "default"),
        ("none", "documents", "flex", "chunks", "default"),
        ("rotary", "windows", "flash", "chunks", "default"),
        ("rotary", "documents", "flex", "chunks", "default"),
        ("none", "documents", "varlen", "chunks", "default"),
    ]
    assert len(set(tried)) == len(tried) and not bench.left_out
    assert "RuntimeError: no such kernel" in rows[1]["note"] and "and so on" not in rows[1]["note"]
    best = {(case.encoding, case.rows): bench._start(case) for case in bench.cases}
    assert best["none", "windows"] == PeerVariant("flash", "chunks", "max-autotune-no-cudagraphs")
    assert best["rotary", "documents"] == PeerVariant("varlen", "chunks", "max-autotune-no-cudagraphs")


def test_no_line_is_begun_that_would_take_longer_than_there_is_time(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of(monkeypatch, {}, minutes=2.0)  # a line is over at once; before it is known what one takes, 75 s
    rows = list(bench.lines())
    assert {row["mode"] for row in rows} == {"default", "reduce-overhead"}
    assert bench.left_out and all("max-autotune" in name for name in bench.left_out)
    assert not list(bench_of(monkeypatch, {}, minutes=1.0).lines())


def test_the_fastest_plain_loop_is_the_comparison() -> None:
    case = {"size": "tiny", "encoding": "none", "context": 64, "rows": "windows"}
    variant = {"loss": "whole", "mode": "eager", "ours_tokens_per_second": 8.0}
    rows = [
        {**case, **variant, "attention": "a", "peer_tokens_per_second": 4.0, "ratio": 2.0},
        {**case, **variant, "attention": "b", "peer_tokens_per_second": 5.0, "ratio": 1.6},
        {**case, "attention": "c", "loss": "whole", "mode": "eager", "note": "failed"},
    ]
    assert [(row["attention"], row["ratio"]) for row in compared(rows)] == [("b", 1.6)]


def test_wrong_settings_are_errors_before_anything_is_timed() -> None:
    bench = Bench("cpu", Console(quiet=True), Console(quiet=True))
    for wrong, message in [
        ({"sizes": ["lm-smal"]}, "did you mean 'lm-small'"),
        ({"encodings": ["alibi"]}, "has no alibi: it is written for none and for rotary"),
        ({"contexts": [60]}, "does not divide the 1,024 tokens of a step"),
        ({"rows": ["window"]}, "did you mean 'windows'"),
    ]:
        with pytest.raises(UserError, match=message):
            bench.language(**wrong)
    assert not bench.report.sections and "peak" not in bench.report.head


@pytest.mark.slow
def test_the_command_prints_lines_as_they_come_and_writes_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    file = tmp_path / "language.json"
    words = ["bench", "language", "--device", "cpu", "--steps", "2", "--encoding", "none", "--out", str(file)]
    monkeypatch.setattr(sys, "argv", ["lengthwise", *words])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    written, printed = json.loads(file.read_text()), capsys.readouterr()
    assert written["command"].startswith("lengthwise bench language --device cpu") and written["peak"]
    rows = written["language"]
    assert [(row["rows"], row["attention"], row["loss"]) for row in rows] == [
        ("windows", "sdpa", "whole"),
        ("windows", "sdpa", "chunks"),
        ("documents", "dense", rows[2]["loss"]),
        ("documents", "dense", {"whole": "chunks", "chunks": "whole"}[rows[2]["loss"]]),
    ]
    for row in rows:
        assert row["loss_difference"] < 1e-5 and row["gradient_difference"] < 1e-5
        assert row["ours_tokens_per_second"] == pytest.approx(1024e3 / row["ours_step_ms"])
        assert row["peer_tokens_per_second"] == pytest.approx(1024e3 / row["peer_step_ms"])
        assert len(row["ours_rounds_ms"]) == len(row["peer_rounds_ms"]) == language.ROUNDS
        assert row["graph_breaks"] == 0 and (row["padding_share"] > 0) == (row["rows"] == "documents")
    assert [row["rows"] for row in written["fastest"]] == ["windows", "documents"]
    assert printed.err.count("times as fast") == 4 and "The fastest plain loop of each" in printed.out


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_the_plain_loop_is_one_compiled_program() -> None:
    """No part of it is left to Python, whatever the step: all that compiles here does so once."""
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    ours = Ours(case_of("rotary", "documents"), CPU)
    weights, expected, _ = ours.reference()
    variant = PeerVariant("dense", "chunks", "default")
    peer = PeerLoop(ours.case.settings, 512, CPU, variant, ours.most_sequences(8), weights)
    peer.program = torch.compile(peer.model, backend="aot_eager", dynamic=False, fullgraph=True)
    steps = Peer.prepared(as_peer(ours), 0, 3)
    loss, _ = peer.gradients(steps)
    peer.run(steps)
    assert loss == pytest.approx(expected, rel=1e-6)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    torch._dynamo.reset()
