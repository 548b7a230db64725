"""The lines of a comparison of language models with a plain loop: which come first, and which there is time for."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch

from lengthwise.bench.arithmetic import Peak
from lengthwise.bench.language import Ours, time_line
from lengthwise.bench.language_peer import Mode, PeerVariant, rotary_of
from lengthwise.bench.language_workload import DOCUMENTS, WINDOWS, Case
from lengthwise.bench.training import free_memory

CASE = ("size", "encoding", "context", "rows")
"""Fields of a line that say what was trained."""
ATTENTIONS = {
    ("cuda", WINDOWS): ("flash", "cudnn"),
    ("cuda", DOCUMENTS): ("flex", "varlen"),
    ("cpu", WINDOWS): ("sdpa",),
    ("cpu", DOCUMENTS): ("dense",),
}
"""Programs of PyTorch that compute the attention of such rows; on a CPU flex attention has no backward pass."""
EXPECTED: dict[str, float] = {"eager": 30, "default": 75, "reduce-overhead": 75, "max-autotune-no-cudagraphs": 240}
"""Seconds that a line takes on a GPU, before one like it has been timed."""


class LanguageBench:
    """Lines in an order in which the first ones tell most, as long as there is time."""

    def __init__(
        self,
        cases: Sequence[Case],
        device: torch.device,
        peak: Callable[[], Peak],
        steps: int,
        compiles: bool,
        minutes: float,
        tell: Callable[[str], None],
    ) -> None:
        """`peak` is measured when all settings were found good. `tell` is told what is going on between two lines."""
        for case in cases:
            rotary_of(case.settings)  # refuses an encoding that the plain loop does not have
        self.cases, self.device, self.steps, self.tell = cases, device, steps, tell
        self.first_mode: Mode = "default" if compiles else "eager"
        self.end = time.monotonic() + 60 * minutes
        self.peak = peak()
        self.took: dict[str, float] = {}
        """By mode: seconds of the longest line so far."""
        self.timed: list[tuple[Case, PeerVariant, float]] = []
        """With the speed of the plain loop; 0 where it failed."""
        self.left_out: list[str] = []

    def lines(self) -> Iterator[dict[str, Any]]:
        """A row for each, as it comes."""
        ours: Ours | None = None
        for case, changes in self.plan():
            start = time.monotonic()
            variant = replace(self._start(case), **changes)
            if any((case, variant) == known[:2] for known in self.timed):
                continue
            name = f"{case.name}, {variant.attention}, {variant.loss}, {variant.mode}"
            if start + self._expected(variant.mode) > self.end:
                self.left_out.append(name)
                continue
            if ours is None or ours.case != case:
                ours = None  # gives its memory back first
                ours = Ours(case, self.device)
                self.tell(f"{case.name}: our first steps are done after {ours.begun_seconds:.3g} s")
            self.tell(f"{name} ...")
            row = self._line(ours, variant)
            self.took[variant.mode] = max(time.monotonic() - start, self.took.get(variant.mode, 0.0))
            yield row

    def plan(self) -> Iterator[tuple[Case, dict[str, Any]]]:
        """What is tried, each time one thing changed in what was fastest so far.

        The first case finds out which attention and which loss are fast; the others begin with these. Modes that take
        long to compile come last.
        """
        first, *others = self.cases
        modes: list[Mode] = ["reduce-overhead", "max-autotune-no-cudagraphs"]
        if self.first_mode == "eager" or self.device.type != "cuda":
            modes = []
        yield first, {}
        yield from self._attentions(first)
        yield first, {"loss": "chunks"}
        for case in others:
            yield case, {}
        for case in others:
            yield from self._attentions(case)
        for mode in modes:
            for case in self.cases:
                yield case, {"mode": mode}
        for loss in ("chunks", "whole"):
            for case in others:
                yield case, {"loss": loss}

    def _attentions(self, case: Case) -> Iterator[tuple[Case, dict[str, Any]]]:
        for attention in ATTENTIONS[self.device.type, case.rows]:
            yield case, {"attention": attention}

    def _start(self, case: Case) -> PeerVariant:
        """The fastest so far of this case; of a new one what was fastest in the case before it, with an attention that
        knows its rows."""
        own = [(speed, variant) for timed, variant, speed in self.timed if timed == case]
        if own:
            return max(own, key=lambda each: each[0])[1]
        attentions = ATTENTIONS[self.device.type, case.rows]
        if not self.timed:
            return PeerVariant(attentions[0], mode=self.first_mode)
        before = self._start(self.timed[-1][0])
        alike = [timed for timed, _, _ in self.timed if timed.rows == case.rows]
        return replace(before, attention=self._start(alike[-1]).attention if alike else attentions[0])

    def _expected(self, mode: str) -> float:
        """Seconds that a line will take."""
        if mode in self.took:
            return self.took[mode]
        return EXPECTED[mode] if self.device.type == "cuda" else 0.0

    def _line(self, ours: Ours, variant: PeerVariant) -> dict[str, Any]:
        """What goes wrong in a program of PyTorch costs its line, and no other."""
        case = ours.case
        row: dict[str, Any]
        try:
            row = asdict(time_line(ours, variant, self.peak, self.steps))
        except Exception as error:
            text = str(error).strip().splitlines()
            row = {"size": case.size, "encoding": case.encoding, "context": case.context, "rows": case.rows}
            row |= {**asdict(variant), "note": f"failed: {type(error).__name__}: {text[0] if text else ''}"[:300]}
        torch._dynamo.reset()
        free_memory(self.device)
        self.timed.append((case, variant, row.get("peer_tokens_per_second", 0.0)))
        return row


def fastest(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Of each model and kind of rows the line with the fastest plain loop: what ours is compared with."""
    best: dict[tuple[Any, ...], Mapping[str, Any]] = {}
    for row in rows:
        case = tuple(row[name] for name in CASE)
        speed = row.get("peer_tokens_per_second", 0.0)
        if speed and (case not in best or speed > best[case]["peer_tokens_per_second"]):
            best[case] = row
    return list(best.values())


def told(row: Mapping[str, Any]) -> str:
    """What a line says, for people."""
    if "ratio" not in row:
        return f"  {row['note']}"
    return (
        f"  {row['ratio']:.2f} times as fast: ours {row['ours_tokens_per_second']:,.0f} tokens/s, the plain loop "
        f"{row['peer_tokens_per_second']:,.0f}, after {row['peer_start_up_seconds']:.0f} s of start-up; loss "
        f"{row['loss_difference']:.1e} and gradient {row['gradient_difference']:.1e} apart"
    )


def compared(rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Of each case ours and the fastest plain loop."""
    names = (*CASE, "attention", "loss", "mode", "ours_tokens_per_second", "peer_tokens_per_second", "ratio")
    return [{name: row[name] for name in names} for row in fastest(rows)]
