"""What each `lengthwise bench` command measures and shows."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from lengthwise import registry
from lengthwise.bench.arithmetic import Peak, measure_peak
from lengthwise.bench.evaluation import time_evaluation
from lengthwise.bench.growth import growth_row, points
from lengthwise.bench.hugging_face import require_transformers
from lengthwise.bench.language_lines import LanguageBench, compared, fastest, told
from lengthwise.bench.language_workload import SCALES, cases
from lengthwise.bench.profile import profile_step
from lengthwise.bench.report import Report
from lengthwise.bench.start import time_start
from lengthwise.bench.trainer import trainer_row
from lengthwise.bench.training import training_row
from lengthwise.bench.workload import default_size, workload, workloads_of
from lengthwise.errors import UserError, nearest
from lengthwise.model.config import SIZES
from lengthwise.runtime import choose_device, device_name

TRAINING = {
    "size": "size", "encoding": "encoding", "fleet": "fleet", "step_ms": "ms a step",
    "step_ms_per_model": "per model", "end_to_end_ms": "end to end", "preparation_ms_per_model": "host ms",
    "model_steps_per_second": "model steps/s", "tokens_per_second": "tokens/s",
    "peak_share": "% of peak", "peak_memory_gib": "GiB", "padding_share": "% padding", "start_up_seconds": "start s",
    "run_seconds": "whole run s", "note": "note",
}  # fmt: skip
TRAINER = {
    "size": "size", "vocabulary_rows": "rows", "compiled": "compiled", "threads": "threads",
    "step_ms": "ms a step", "model_steps_per_second": "steps/s", "tokens_per_second": "tokens/s",
    "peak_share": "% of peak", "peak_memory_gib": "GiB", "padding_share": "% padding", "start_up_seconds": "start s",
    "run_seconds": "whole run s",
}  # fmt: skip
EVALUATION = {
    "method": "method", "size": "size", "encoding": "encoding", "precision": "precision", "batch": "batch",
    "examples": "examples", "measured": "measured", "first_seconds": "first s", "seconds": "seconds",
    "times_the_one_pass": "times the one pass", "same_texts": "% as eager", "note": "note",
}  # fmt: skip
GROWTH = {
    "grows": "grows", "value": "to", "batch": "examples", "tokens_per_step": "tokens", "step_ms": "ms a step",
    "step_ms_per_model": "per model", "microseconds_per_token": "µs a token", "flops": "TFLOP/s",
    "peak_share": "% of peak", "peak_memory_gib": "GiB", "note": "note",
}  # fmt: skip
PROFILE = {
    "kernel": "kernel", "calls": "calls a step", "microseconds": "µs a step", "share": "% of all",
}  # fmt: skip
START = {
    "size": "size", "encoding": "encoding", "cache": "cache", "start_up_seconds": "to first step s",
    "process_seconds": "whole process s", "note": "note",
}  # fmt: skip
LANGUAGE = {
    "size": "size", "encoding": "encoding", "context": "context", "rows": "rows", "attention": "attention",
    "loss": "loss", "mode": "mode", "ours_tokens_per_second": "our tokens/s",
    "peer_tokens_per_second": "plain loop's", "ratio": "times as fast", "ours_peak_share": "our % of peak",
    "peer_peak_share": "plain loop's %", "ours_memory_gib": "our GiB", "peer_memory_gib": "plain loop's GiB",
    "ours_start_up_seconds": "our start s", "peer_start_up_seconds": "plain loop's s",
    "gradient_difference": "gradients apart", "note": "note",
}  # fmt: skip


class Bench:
    """A device, its measured peak, and the report that the commands fill."""

    def __init__(self, device: str, console: Console, messages: Console, out: Path | None = None) -> None:
        self.device = choose_device(device)
        self.report = Report(console, messages, out, device_name(self.device))

    @property
    def kind(self) -> str:
        return self.device.type

    def peak(self) -> Peak:
        """Measured once, and told."""
        known = self.report.head.get("peak")
        if known:
            return Peak(**known)
        peak = measure_peak(self.device)
        self.report.note(peak=asdict(peak), threads=torch.get_num_threads())
        self.report.messages.print(
            f"{device_name(self.device)}: {peak.flops / 1e12:.3g} TFLOP/s in large {peak.precision} products, "
            f"{peak.flops_of_layer / 1e12:.3g} in those of a base layer",
            highlight=False,
        )
        return peak

    def sizes(self, named: Sequence[str]) -> list[str]:
        for size in named:
            if size not in SIZES:
                raise UserError(f"unknown size {size!r}; {nearest(size, SIZES)}")
        return list(named) or [default_size(self.kind)]

    def train(
        self,
        sizes: Sequence[str] = (),
        encodings: Sequence[str] = (),
        fleets: Sequence[int] = (),
        task: str = "copy.repeat",
        dropout: float | None = None,
        steps: int = 256,
        tokens: str = "symbols",
        study: str = "",
    ) -> None:
        """Our training; `encodings` may say `all`. `study`: whose methods are timed, in its own model and recipe."""
        chosen = [
            workload(size, encoding, fleet, task, dropout, tokens)
            for size in self.sizes(sizes)
            for encoding in (registry.encodings.names() if "all" in encodings else encodings or ["none"])
            for fleet in fleets or [1]
        ]
        if study:
            chosen = workloads_of(study, fleets or [1], task, encodings)
        for each in chosen:
            each.runs()  # a wrong name is an error now, not after minutes
        peak = self.peak()
        for each in chosen:
            row = training_row(each, self.device, peak, steps)
            self.report.add("training", row, _told(row))
        self.report.show("training", TRAINING, "Training")

    def trainer(
        self,
        sizes: Sequence[str] = (),
        compiled: bool | None = None,
        task: str = "copy.repeat",
        dropout: float | None = None,
        steps: int = 256,
        vocabulary_rows: int = 0,
    ) -> None:
        """Hugging Face's Trainer; not said whether compiled: both on a GPU, on a CPU not.

        On a CPU with PyTorch's usual threads and with a single one: for small models the single one can be faster.
        """
        require_transformers()
        chosen = [workload(size, task=task, dropout=dropout) for size in self.sizes(sizes)]
        ways = [compiled] if compiled is not None else [False, True] if self.kind == "cuda" else [False]
        threads = [False] if self.kind == "cuda" or torch.get_num_threads() == 1 else [False, True]
        peak = self.peak()
        for each in chosen:
            for way in ways:
                for single in threads:
                    row = trainer_row(each, self.device, peak, steps, way, vocabulary_rows, single)
                    self.report.add("trainer", row, f"GPT-2 {row['size']}: {row['step_ms']:.3g} ms a step")
        self.report.show("trainer", TRAINER, "Hugging Face Trainer, GPT-2")

    def evaluate(
        self,
        sizes: Sequence[str] = (),
        encoding: str = "none",
        task: str = "copy.repeat",
        examples: int = 10_000,
        sample: int = 320,
        batch: int = 32,
    ) -> None:
        """The one pass against generating."""
        try:
            require_transformers()
            compares = True
        except UserError as error:
            compares = False
            self.report.messages.print(f"left out: {error}", highlight=False, markup=False)
        for size in self.sizes(sizes):
            chosen = workload(size, encoding, task=task)
            for times in time_evaluation(chosen, self.device, examples, sample, batch, compares):
                row = asdict(times)
                self.report.add("evaluation", row, f"{times.method} {size}: {times.seconds:.3g} s")
        self.report.show("evaluation", EVALUATION, "Exact match; where fewer were measured, seconds are scaled up")

    def growth(self, what: Sequence[str] = (), encoding: str = "none", steps: int = 64) -> None:
        """The cost of a step as rows, widths or fleets grow."""
        peak = self.peak()
        for series in what or ("length", "width", "fleet"):
            for point in points(series, self.kind, encoding):
                times = training_row(point.workload, self.device, peak, steps, validates=False)
                row = growth_row(point, times)
                self.report.add("growth", row, f"{series} {point.value}: {_told(row)}")
        self.report.show("growth", GROWTH, "Cost as the work grows")

    def language(
        self,
        sizes: Sequence[str] = (),
        encodings: Sequence[str] = (),
        contexts: Sequence[int] = (),
        rows: Sequence[str] = (),
        steps: int | None = None,
        compiled: bool | None = None,
        minutes: float = 8.0,
    ) -> None:
        """Language models beside a plain loop of PyTorch; not said whether compiled: on a GPU."""
        chosen = cases(self.kind, sizes, encodings, contexts, rows)
        steps = steps or SCALES[self.kind].steps
        compiles = self.kind == "cuda" if compiled is None else compiled
        tell = partial(self.report.messages.print, highlight=False, markup=False, soft_wrap=True)
        bench = LanguageBench(chosen, self.device, self.peak, steps, compiles, minutes, tell)
        lines = self.report.sections.setdefault("language", [])
        for row in bench.lines():
            self.report.add("language", row)
            self.report.note(fastest=compared(lines))
            tell(told(row))
        if bench.left_out:
            self.report.note(left_out=bench.left_out)
            tell(f"left out, for lack of time: {'; '.join(bench.left_out)}")
        self.report.show("language", LANGUAGE, "Language models, and a plain loop of PyTorch on the same rows")
        self.report.show_rows(fastest(lines), LANGUAGE, "The fastest plain loop of each")

    def profile(
        self, size: str = "", encoding: str = "none", fleet: int = 1, task: str = "copy.repeat", longest: int = 30
    ) -> None:
        """The kernels of a step; all of them go to the file, the longest are shown."""
        size = self.sizes([size] if size else [])[0]
        chosen = workload(size, encoding, fleet, task)
        rows = [
            {"size": size, "encoding": encoding, "fleet": fleet, **asdict(times)}
            for times in profile_step(chosen, self.device)
        ]
        for row in rows:
            self.report.add("profile", row)
        total = sum(row["microseconds"] for row in rows)
        self.report.show_rows(
            rows[:longest], PROFILE, f"A step of {fleet} x {size}, {encoding}: {total:,.0f} µs in all"
        )

    def start(self, sizes: Sequence[str] = (), encodings: Sequence[str] = ()) -> None:
        """Fresh processes, with an empty cache and with a filled one."""
        for size in self.sizes(sizes):
            for encoding in encodings or ["none"]:
                chosen = workload(size, encoding)
                chosen.runs()
                for times in time_start(chosen, str(self.device)):
                    row = {"size": size, "encoding": encoding, **asdict(times)}
                    self.report.add("start", row, f"{times.cache}: {times.start_up_seconds:.3g} s")
        self.report.show("start", START, "Start-up")

    def everything(self) -> None:
        """The whole comparison: minutes on a CPU, the better part of an hour on a GPU."""
        on_gpu = self.kind == "cuda"
        sizes = ["small", "base"] if on_gpu else []
        encodings, fleets = (["all"], [1, 5, 15, 60]) if on_gpu else (["none"], [1, 5])
        self.train(sizes, encodings, fleets, steps=256 if on_gpu else 64)
        self.trainer(sizes, steps=256 if on_gpu else 64)
        self.evaluate(sizes, examples=10_000 if on_gpu else 2000, sample=320 if on_gpu else 64)
        self.growth(steps=64 if on_gpu else 8)
        self.start(sizes)
        self.language(contexts=[512] if on_gpu else [], minutes=5)


def _told(row: dict[str, Any]) -> str:
    name = f"{row['size']} {row['encoding']} x {row['fleet']}"
    return f"{name}: " + (f"{row['step_ms']:.3g} ms a step" if "step_ms" in row else row["note"])
