"""Our training of a lone language model and a plain loop of PyTorch, timed in turn in one process on the same rows."""

import math
import statistics
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lengthwise.bench.arithmetic import Peak, TokenCounts, synchronize, training_flops
from lengthwise.bench.language_peer import PeerLoop, PeerSteps, PeerVariant
from lengthwise.bench.language_workload import DOCUMENTS, Case
from lengthwise.bench.training import free_memory, peak_memory
from lengthwise.language.model import build_language_model
from lengthwise.language.processes import ProcessGroup
from lengthwise.language.steps import WindowSteps
from lengthwise.language.training import TOKENS_AT_ONCE
from lengthwise.language.whole import WholeLearner
from lengthwise.training.fleet import Batch
from lengthwise.training.loop import STEPS_AT_ONCE
from lengthwise.training.update import Measured

ROUNDS = 5
"""In each of which both are timed, one after the other."""


@dataclass(frozen=True)
class LanguageTimes:
    """One line: one model, and one way to write the plain loop (`peer`). Medians over rounds."""

    size: str
    layers: int
    width: int
    parameters: int
    encoding: str
    context: int
    rows: str
    attention: str
    """That the plain loop has, and so have the next two."""
    loss: str
    mode: str
    precision: str
    batch_tokens: int
    padding_share: float
    steps_of_a_round: int
    ours_tokens_per_second: float
    """All tokens of a row, padding too; rows are prepared beside the steps."""
    peer_tokens_per_second: float
    """The same; rows are ready on the host, as from a loader that takes no time."""
    ratio: float
    """Ours to the plain loop's in the same round."""
    ours_step_ms: float
    peer_step_ms: float
    ours_rounds_ms: list[float]
    """A step of each round."""
    peer_rounds_ms: list[float]
    ours_peak_share: float
    """Of the speed of large matrix products; see `training_flops`: padding and masked pairs do not count."""
    peer_peak_share: float
    ours_memory_gib: float | None
    """Peak of tensors on a GPU."""
    peer_memory_gib: float | None
    ours_start_up_seconds: float
    """To build, compile and capture: until the first stretch is done, less what its steps take later."""
    peer_start_up_seconds: float
    graph_breaks: int
    """In the compiled program; they would make it slow."""
    loss_difference: float
    """Of the first step, with equal weights and rows: relative to our loss."""
    gradient_difference: float
    """Norm of the difference of both gradients, relative to that of ours."""
    ours_loss: float
    """After the last step: a program that computes nonsense is not fast."""
    peer_loss: float
    note: str = ""


class Ours:
    """The training of `lengthwise language train`: rows prepared in a thread, steps captured on a GPU."""

    def __init__(self, case: Case, device: torch.device) -> None:
        free_memory(device)
        self.case, self.device = case, device
        self.notes: list[str] = []
        self.windows = case.windows()
        start = time.perf_counter()
        settings = case.settings
        model = build_language_model(settings, case.scale.vocabulary_rows)
        self.parameters = sum(parameter.numel() for parameter in model.parameters())
        self.learner = WholeLearner(model, settings, ProcessGroup(), device, self.notes.append)
        self.source = WindowSteps(settings, self.windows, ProcessGroup())
        tokens = case.scale.batch_tokens
        self.at_once = max(1, min(STEPS_AT_ONCE[device.type], TOKENS_AT_ONCE // tokens))
        self.next_step, self.loss = 0, math.nan
        self.stretch(self.at_once)
        self.begun_seconds = time.perf_counter() - start
        self.memory = peak_memory(device)[0] if device.type == "cuda" else None

    def stretch(self, steps: int) -> float:
        """Seconds for so many steps, those that follow prepared beside, as in training."""
        first, end = self.next_step, self.next_step + steps
        parts = [(start, min(start + self.at_once, end)) for start in range(first, end, self.at_once)]
        following = [*parts[1:], (end, end + parts[0][1] - parts[0][0])]
        unread: Measured | None = None
        with ThreadPoolExecutor(1) as beside:
            ready = self.source.steps(*parts[0])
            synchronize(self.device)
            start = time.perf_counter()
            # As many are prepared as are done: those after the last are not used.
            for part in following:
                upcoming = beside.submit(self.source.steps, *part)
                measured = self.learner.run(ready)
                if unread is not None:
                    unread.read()
                unread, ready = measured, upcoming.result()
            assert unread is not None
            losses_KN, _ = unread.read()
            synchronize(self.device)
            seconds = time.perf_counter() - start
        self.next_step, self.loss = end, float(losses_KN[-1, 0])
        return seconds

    def reference(self) -> tuple[dict[str, Tensor], float, dict[str, Tensor]]:
        """Initial weights, loss and gradients with them in the first step, by the decoder's names.

        The moments of the optimizer stay as they are: what follows is only timed.
        """
        fleet = self.learner.fleet
        self.learner.settle()
        fleet.initialize([self.case.settings.seed])
        batch = Batch.of(self.source.steps(0, 1).batches, 0, self.device)
        losses_N, gradients = fleet.gradients(batch)
        found = {name: gradient[0].float().clone() for name, gradient in gradients.items()}
        return fleet.row(fleet.matrix_NW, 0), float(losses_N[0]), found

    def most_sequences(self, steps: int) -> int:
        """In any of the first steps; padding at the end of a row is one too."""
        rows, most = self.case.settings.rows, 0
        for first in range(0, steps, self.at_once):
            numbers = np.arange(first * rows, (first + self.at_once) * rows)
            segments_RT = self.windows.rows(numbers).segments_RT
            begun_R = 1 + (segments_RT[:, 1:] != segments_RT[:, :-1]).sum(axis=1)
            most = max(most, int(begun_R.reshape(-1, rows).sum(axis=1).max()))
        return most

    def work(self, steps: int) -> tuple[TokenCounts, float]:
        """What some steps ask, and the share of padding in their rows."""
        batches = self.source.steps(0, steps).batches
        return TokenCounts.of(batches), 1 - batches.tokens / batches.tokens_KNRT.size


class Peer:
    """The plain loop on the same rows."""

    def __init__(self, ours: Ours, variant: PeerVariant, steps: int) -> None:
        """`steps`: as many will be done after the first stretch."""
        self.ours, self.device = ours, ours.device
        case = ours.case
        on_gpu = self.device.type == "cuda"
        weights, expected, gradients = ours.reference()
        free_memory(self.device)
        taken = torch.cuda.memory_allocated(self.device) if on_gpu else 0
        torch._dynamo.utils.counters.clear()
        self.next_step, self.loss = 0, math.nan
        first_step = self.prepared(0, 1)
        sequences = ours.most_sequences(ours.at_once + steps) if case.rows == DOCUMENTS else case.settings.rows
        start = time.perf_counter()
        shape = (case.settings, case.scale.vocabulary_rows)
        self.loop = PeerLoop(*shape, self.device, variant, sequences, weights)
        loss, found = self.loop.gradients(first_step)
        self.loss_difference = abs(loss - expected) / abs(expected)
        self.gradient_difference = _distance(found, gradients)
        del found, gradients
        self.stretch(ours.at_once)
        self.begun_seconds = time.perf_counter() - start
        self.memory = (torch.cuda.max_memory_allocated(self.device) - taken) / 2**30 if on_gpu else None
        self.graph_breaks = sum(torch._dynamo.utils.counters["graph_break"].values())

    def prepared(self, first: int, end: int) -> PeerSteps:
        settings = self.ours.case.settings
        rows = self.ours.windows.rows(np.arange(first * settings.rows, end * settings.rows))
        rates = [settings.training.learning_rate_at(step) for step in range(first, end)]
        return PeerSteps.of(rows, rates, pinned=self.device.type == "cuda")

    def stretch(self, steps: int) -> float:
        """Seconds for so many steps, whose rows are ready on the host."""
        steps_ready = self.prepared(self.next_step, self.next_step + steps)
        synchronize(self.device)
        start = time.perf_counter()
        losses_KN, _ = self.loop.run(steps_ready).read()
        synchronize(self.device)
        self.next_step, self.loss = self.next_step + steps, float(losses_KN[-1, 0])
        return time.perf_counter() - start


def _distance(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """Of all gradients together, relative to the expected ones."""
    squares = [
        ((found[name] - gradient).double().square().sum(), gradient.double().square().sum())
        for name, gradient in expected.items()
    ]
    apart, size = (float(torch.stack(each).sum()) for each in zip(*squares, strict=True))
    return math.sqrt(apart / size)


def time_line(ours: Ours, variant: PeerVariant, peak: Peak, steps: int) -> LanguageTimes:
    """Both in turn: what slows the machine down for a while slows both down."""
    peer = Peer(ours, variant, ROUNDS * steps)
    ours_seconds, peer_seconds = [], []
    for _ in range(ROUNDS):
        ours_seconds.append(ours.stretch(steps) / steps)
        peer_seconds.append(peer.stretch(steps) / steps)
    case, settings = ours.case, ours.case.settings
    step, peer_step = statistics.median(ours_seconds), statistics.median(peer_seconds)
    work, padding = ours.work(steps)
    flops = training_flops(settings.model, case.scale.vocabulary_rows, work) / steps
    return LanguageTimes(
        size=case.size,
        layers=settings.model.layers,
        width=settings.model.width,
        parameters=ours.parameters,
        encoding=settings.choice.label,
        context=case.context,
        rows=case.rows,
        attention=variant.attention,
        loss=variant.loss,
        mode=variant.mode,
        precision=settings.training.recipe.precision_on(ours.device.type),
        batch_tokens=case.scale.batch_tokens,
        padding_share=padding,
        steps_of_a_round=steps,
        ours_tokens_per_second=case.scale.batch_tokens / step,
        peer_tokens_per_second=case.scale.batch_tokens / peer_step,
        ratio=statistics.median(b / a for a, b in zip(ours_seconds, peer_seconds, strict=True)),
        ours_step_ms=1e3 * step,
        peer_step_ms=1e3 * peer_step,
        ours_rounds_ms=[1e3 * seconds for seconds in ours_seconds],
        peer_rounds_ms=[1e3 * seconds for seconds in peer_seconds],
        ours_peak_share=flops / step / peak.flops,
        peer_peak_share=flops / peer_step / peak.flops,
        ours_memory_gib=ours.memory,
        peer_memory_gib=peer.memory,
        ours_start_up_seconds=max(0.0, ours.begun_seconds - ours.at_once * step),
        peer_start_up_seconds=max(0.0, peer.begun_seconds - ours.at_once * peer_step),
        graph_breaks=peer.graph_breaks,
        loss_difference=peer.loss_difference,
        gradient_difference=peer.gradient_difference,
        ours_loss=ours.loss,
        peer_loss=peer.loss,
        note="; ".join(ours.notes),
    )
