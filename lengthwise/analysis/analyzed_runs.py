"""Which trained runs of a study are looked into, and which of them are compared."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

from lengthwise.analysis.model_adapter import DecoderAdapter, open_checkpoint
from lengthwise.encodings.choice import EncodingChoice
from lengthwise.errors import UserError, nearest
from lengthwise.records.choosing import named
from lengthwise.records.directory import RunDirectory
from lengthwise.records.files import read_json, read_rows
from lengthwise.records.finished import finished_directories
from lengthwise.records.schema import DESCRIPTION, ROW, STUDY
from lengthwise.selection import select
from lengthwise.study import Run
from lengthwise.training.checkpoint import run_from

HOLDS = 0.5
"""Exact match below which accuracy no longer holds."""


@dataclass(frozen=True)
class AnalyzedRun:
    """A finished run at one of its checkpoints."""

    run: Run
    directory: RunDirectory
    fingerprint: str
    checkpoint: str

    @property
    def unit(self) -> str:
        return f"{self.fingerprint}-{self.checkpoint}"

    @property
    def identity(self) -> dict[str, Any]:
        """What every row about it carries."""
        return {
            "run": self.fingerprint,
            "task": self.run.title,
            "encoding": self.run.encoding.label,
            "seed": self.run.seed,
            "checkpoint": self.checkpoint,
        }

    def open(self, device: torch.device) -> DecoderAdapter:
        file = self.directory.last if self.checkpoint == "last" else self.directory.best
        return open_checkpoint(file, self.run.name, device)

    @cached_property
    def accuracy_by_length(self) -> dict[int, float]:
        right: dict[int, list[int]] = {}
        for row in read_rows(self.directory.rows, schema=ROW):
            if row["checkpoint"] == self.checkpoint:
                correct, n = right.get(row["length"], [0, 0])
                right[row["length"]] = [correct + row["correct"], n + row["n"]]
        return {length: correct / n for length, (correct, n) in sorted(right.items())}

    def accuracy_holds_until(self) -> int | None:
        """The greatest length up to which exact match stays at a half or above; None where it never is."""
        held = None
        for length, accuracy in self.accuracy_by_length.items():
            if accuracy < HOLDS:
                break
            held = length
        return held


def analyzed_runs(path: Path, only: str = "", checkpoint: str = "last") -> list[AnalyzedRun]:
    """The finished runs in a study's folder, in the order of the study."""
    opened = (_analyzed_run(directory, checkpoint) for directory in finished_directories(path))
    found = {analyzed.run.name: analyzed for analyzed in opened}
    chosen = [found[run.name] for run in select([analyzed.run for analyzed in found.values()], only)]
    if not chosen:
        raise UserError(f"--only {only!r} leaves no finished run of {path}")
    declared = read_json(path / "study.json", STUDY).get("encoding_order", []) if (path / "study.json").exists() else []
    place = {label: number for number, label in enumerate(declared)}
    return sorted(
        chosen,
        key=lambda s: (s.run.title, place.get(s.run.encoding.label, len(place)), s.run.encoding.label, s.run.seed),
    )


def _analyzed_run(directory: RunDirectory, checkpoint: str) -> AnalyzedRun:
    description = read_json(directory.description, DESCRIPTION)
    run = run_from(description["settings"])
    label = EncodingChoice(description["encoding"], run.encoding.layers)
    named = replace(run, encoding=label, called=description["task"])
    return AnalyzedRun(named, directory, description["fingerprint"], checkpoint)


@dataclass(frozen=True)
class RunPair:
    """A model, and the one that it is compared with."""

    model: AnalyzedRun
    reference: AnalyzedRun


def pairs(chosen: Sequence[AnalyzedRun], reference: str = "none", across_seeds: bool = False) -> list[RunPair]:
    """Every encoding with the reference of the same task and seed, and the reference's seeds with each other.

    Models of the same seed began with the same weights, and heads of the same number may still be alike for that
    reason alone. `across_seeds`: every encoding with the reference of the next seed, as far from it as the reference's
    own seeds are from each other. In the order of the references, so that each is opened once.
    """
    reference = named(reference, "encoding", [analyzed.run.encoding.label for analyzed in chosen])
    found = list(_pairs(chosen, reference, across_seeds))
    if found:
        return found
    if len(chosen) == 1:
        raise UserError(f"there is only one run, {chosen[0].run.name}: a distance needs two")
    labels = {analyzed.run.encoding.label for analyzed in chosen}
    if reference not in labels:
        raise UserError(
            f"no run has the encoding {reference!r} to compare with; {nearest(reference, labels)} (--reference)"
        )
    if across_seeds:
        raise UserError(f"--across-seeds needs two seeds of {reference!r} on the same task")
    raise UserError(f"no two of these {len(chosen)} runs have the same task, and {reference!r} or a seed in common")


def _pairs(chosen: Sequence[AnalyzedRun], reference: str, across_seeds: bool) -> Iterator[RunPair]:
    for task in dict.fromkeys(analyzed.run.title for analyzed in chosen):
        here = [analyzed for analyzed in chosen if analyzed.run.title == task]
        references = [analyzed for analyzed in here if analyzed.run.encoding.label == reference]
        others = [analyzed for analyzed in here if analyzed.run.encoding.label != reference]
        if across_seeds and len(references) < 2:
            continue
        seeds = list(combinations(references, 2))
        for number, each in enumerate(references):
            compared = references[number - 1] if across_seeds else each
            yield from (RunPair(other, each) for first, other in seeds if first is each)
            yield from (RunPair(other, each) for other in others if other.run.seed == compared.run.seed)
