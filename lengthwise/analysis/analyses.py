"""What each `lengthwise analyze` command does: what is not there yet is computed, then everything is shown."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from rich.console import Console
from rich.progress import track

from lengthwise.analysis import separator_tables, tables
from lengthwise.analysis.analyzed_runs import AnalyzedRun, RunPair, analyzed_runs, pairs
from lengthwise.analysis.failures import anatomy, outcomes_of
from lengthwise.analysis.inputs import Inputs, repeated_inputs, task_inputs, text_inputs
from lengthwise.analysis.measuring import distance_rows, example_maps, head_rows, probe_rows
from lengthwise.analysis.model_adapter import (
    DecoderAdapter,
    HuggingFaceAdapter,
    ModelAdapter,
    is_hugging_face,
    open_hugging_face,
)
from lengthwise.analysis.separator import SeparatorAnalysis, with_separator
from lengthwise.data.lengths import read_lengths
from lengthwise.errors import UserError
from lengthwise.executors.local import WIDE, one_thread
from lengthwise.leftovers import clear_leftovers
from lengthwise.machine import require_memory
from lengthwise.records.findings import (
    ATTENTION,
    EXCHANGES,
    KNOCKOUTS,
    PROBES,
    SEPARATOR_KINDS,
    AnalysisFolder,
    Row,
)
from lengthwise.report.model.table import Table
from lengthwise.runtime import choose_device

COUNTS = {"distance": 10, "heads": 10, "probes": 32, "failures": 100, **dict.fromkeys(SEPARATOR_KINDS, 32)}
"""Examples of each length, where nothing is said; 10 is the published number for distances."""
TEXT_LENGTHS = (64, 128)
"""Tokens, for models that know no task."""
SHOWN = {
    "heads": tables.head_tables,
    "probes": tables.probe_tables,
    "failures": tables.failure_tables,
    ATTENTION: separator_tables.attention_tables,
    PROBES: separator_tables.probe_tables,
    KNOCKOUTS: separator_tables.knockout_tables,
    EXCHANGES: separator_tables.exchange_tables,
}

Unit = TypeVar("Unit")


@dataclass(frozen=True)
class AnalysisRequest:
    """What was asked for."""

    runs: Path
    """A study's folder, or that of a Hugging Face model."""
    only: str = ""
    lengths: str = ""
    count: int = 0
    """Examples of each length; 0 for each analysis's own."""
    device: str = "auto"
    checkpoint: str = "last"
    out: Path | None = None
    reference: str = "none"
    as_published: bool = False
    across_seeds: bool = False
    other: Path | None = None
    """A second Hugging Face model, to compare with."""
    text: Path | None = None
    """What Hugging Face models read; None for a repeated sequence of random tokens."""
    trained: int = 0
    """Tokens that a Hugging Face model was trained on; 0 for half of the greatest length."""


class Analysis:
    """One call: what it wants, what it found."""

    def __init__(self, wanted: AnalysisRequest, messages: Console) -> None:
        self.wanted, self.messages = wanted, messages
        self.device = choose_device(wanted.device)
        self.lengths = parse_lengths(wanted.lengths)
        self.of_hugging_face = is_hugging_face(wanted.runs)
        default = Path("analysis") / wanted.runs.name if self.of_hugging_face else wanted.runs / "analysis"
        self.folder = AnalysisFolder(wanted.out or default)
        self.rows: dict[str, list[Row]] = {}
        """Kind of analysis -> its rows."""
        self._inputs: dict[tuple[str, int], Inputs] = {}
        self._separator = SeparatorAnalysis(self.lengths)
        self._reference: tuple[str, DecoderAdapter] | None = None
        strangers = {"--with": wanted.other, "--text": wanted.text, "--trained": wanted.trained}
        for option, value in strangers.items():
            if value and not self.of_hugging_face:
                raise UserError(f"{option} is for Hugging Face models; {wanted.runs} is not the folder of one")

    def distance(self) -> list[Table]:
        kind = "distance-published" if self.wanted.as_published else "distance"
        if self.of_hugging_face:
            rows = self._hugging_face_distance(kind)
        else:
            chosen = self._chosen_runs()
            found = pairs(chosen, self.wanted.reference, self.wanted.across_seeds)
            with self._threads(chosen):
                rows = self._each(found, kind, lambda pair: self._pair(kind, pair))
            self._reference = None
        self.rows[kind] = rows
        return tables.distance_tables(rows)

    def each_run(self, kinds: Sequence[str]) -> list[Table]:
        """Any of `heads`, `probes`, `failures` and SEPARATOR_KINDS; a run's weights are read once for all of them."""
        self.rows |= {kind: [] for kind in kinds}
        if self.of_hugging_face:
            self._hugging_face(kinds)
        else:
            chosen = self._chosen_runs()
            if any(kind in SEPARATOR_KINDS for kind in kinds):
                chosen = self._with_separator(chosen)
            first_seeds = {(s.run.title, s.run.encoding.label): s.unit for s in reversed(chosen)}
            with self._threads(chosen):
                self._each(chosen, ", ".join(kinds), lambda s: self._run(kinds, s, s.unit in first_seeds.values()))
        return [table for kind in kinds for table in SHOWN[kind](self.rows[kind])]

    def _each(self, units: Sequence[Unit], what: str, work: Callable[[Unit], Iterable[Row]]) -> list[Row]:
        watched = self.messages.is_terminal
        if not watched:
            self.messages.print(f"{what}: {len(units)} to do", highlight=False, markup=False)
        shown = track(units, what, console=self.messages, transient=True, disable=not watched)
        return [row for unit in shown for row in work(unit)]

    # Of a study.

    @staticmethod
    def _threads(chosen: Sequence[AnalyzedRun]) -> AbstractContextManager[None]:
        return one_thread() if max(s.run.model.width for s in chosen) < WIDE else nullcontext()

    def _chosen_runs(self) -> list[AnalyzedRun]:
        return analyzed_runs(self.wanted.runs, self.wanted.only, self.wanted.checkpoint)

    def _with_separator(self, chosen: Sequence[AnalyzedRun]) -> list[AnalyzedRun]:
        found, others = with_separator(chosen)
        if others:
            self.messages.print(f"left out, no separator: {', '.join(others)}", highlight=False, markup=False)
        return found

    def _inputs_of(self, analyzed: AnalyzedRun, kind: str) -> Inputs:
        key = analyzed.run.title, self._count(kind)
        if key not in self._inputs:
            self._inputs[key] = task_inputs(analyzed.run, key[1], self.lengths)
        return self._inputs[key]

    def _pair(self, kind: str, pair: RunPair) -> list[Row]:
        unit, asked = f"{pair.model.fingerprint}-{pair.reference.unit}", self._asked("distance")
        rows = self._found(kind, unit, asked)
        if rows is not None:
            return rows
        inputs = self._inputs_of(pair.model, "distance")
        if self._reference is None or self._reference[0] != pair.reference.unit:
            self._reference = pair.reference.unit, pair.reference.open(self.device)
        model, reference = pair.model.open(self.device), self._reference[1]
        for adapter in (model, reference):
            inputs.require_positions(adapter.name, adapter.last_position)
        about = {
            **pair.model.identity,
            "reference": pair.reference.run.encoding.label,
            "reference_run": pair.reference.fingerprint,
            "reference_seed": pair.reference.run.seed,
        }
        return self._distance(kind, unit, asked, about, model, reference, inputs)

    def _distance(
        self,
        kind: str,
        unit: str,
        asked: Row,
        about: Row,
        model: ModelAdapter,
        reference: ModelAdapter,
        inputs: Inputs,
    ) -> list[Row]:
        about = {**about, "variant": kind, "layers": model.layers}
        found = distance_rows(model, reference, inputs, self.wanted.as_published)
        rows = [{**about, **row} for row in found]
        clear_leftovers(self.folder.path / kind)
        self.folder.write(kind, unit, asked, rows)
        return rows

    def _run(self, kinds: Sequence[str], analyzed: AnalyzedRun, keeps_maps: bool) -> list[Row]:
        adapter: DecoderAdapter | None = None
        for kind in kinds:
            rows = self._found(kind, analyzed.unit, self._asked(kind), maps=kind == "heads" and keeps_maps)
            if rows is None:
                adapter = adapter or analyzed.open(self.device)
                rows = [{**analyzed.identity, **row} for row in self._rows(kind, analyzed, adapter)]
                if kind == "heads" and keeps_maps:
                    maps = {**analyzed.identity, "examples": example_maps(adapter, self._inputs_of(analyzed, kind))}
                    self.folder.write_maps(analyzed.unit, maps)
                self.folder.write(kind, analyzed.unit, self._asked(kind), rows)
            self.rows[kind] += rows
        return []

    def _found(self, kind: str, unit: str, asked: Row, maps: bool = False) -> list[Row] | None:
        """The rows of an earlier call; None where there are none, or none of the `maps` that belong to them.

        Maps do not say what was asked, so they are written before their rows, and rows of another question are
        removed before that: who finds rows finds the maps of the same call, wherever that was killed.
        """
        for folder in (kind, "maps"):
            clear_leftovers(self.folder.path / folder)
        rows = self.folder.found(kind, unit, asked)
        if maps and (rows is None or not (self.folder.path / "maps" / f"{unit}.json").exists()):
            self.folder.file(kind, unit).unlink(missing_ok=True)
            return None
        return rows

    def _rows(self, kind: str, analyzed: AnalyzedRun, adapter: DecoderAdapter) -> list[Row]:
        if kind in SEPARATOR_KINDS:
            return self._separator.rows(kind, analyzed, adapter, self._count(kind))
        inputs = self._inputs_of(analyzed, kind)
        inputs.require_positions(adapter.name, adapter.last_position)
        if kind == "heads":
            return head_rows(adapter, inputs)
        if kind == "probes":
            until = _accuracy_holds_until(analyzed, inputs)
            return [{**row, "accuracy_holds_until": until} for row in probe_rows(adapter, inputs)]
        longest = task_inputs(analyzed.run, 100, [inputs.longest_trained]).sequences
        outcomes = outcomes_of(adapter, inputs, analyzed.run.make_tokens().end)
        found = anatomy(outcomes, inputs.length_E, int((longest.size - longest.prompt).max()))
        return [{**row, "seen": inputs.seen(row["length"])} for row in found]

    # Of Hugging Face models.

    def _hugging_face(self, kinds: Sequence[str]) -> None:
        if "failures" in kinds:
            raise UserError("failures are counted on the task of a study; a Hugging Face model has none")
        if any(kind in SEPARATOR_KINDS for kind in kinds):
            raise UserError("a separator is part of the tasks of a study; a Hugging Face model has none")
        adapter = open_hugging_face(self.wanted.runs, self.device)
        for kind in kinds:
            asked = {**self._asked(kind), "model": str(self.wanted.runs.resolve())}
            rows = self._found(kind, adapter.name, asked, maps=kind == "heads")
            if rows is None:
                inputs = self._text(adapter, kind)
                found = head_rows(adapter, inputs) if kind == "heads" else probe_rows(adapter, inputs)
                rows = [{**self._identity(adapter), **row} for row in found]
                if kind == "heads":
                    maps = {**self._identity(adapter), "examples": example_maps(adapter, inputs)}
                    self.folder.write_maps(adapter.name, maps)
                self.folder.write(kind, adapter.name, asked, rows)
            self.rows[kind] += rows

    def _hugging_face_distance(self, kind: str) -> list[Row]:
        if self.wanted.other is None:
            raise UserError("a distance needs two models: name the second with --with")
        model, reference = (open_hugging_face(path, self.device) for path in (self.wanted.runs, self.wanted.other))
        if model.vocabulary != reference.vocabulary:
            raise UserError(
                f"{model.name} and {reference.name} do not have the same tokens, so cannot read the same text"
            )
        inputs = self._text(model, "distance")
        inputs.require_positions(reference.name, reference.last_position)
        about = {**self._identity(model), "reference": reference.name, "reference_run": str(self.wanted.other)}
        unit, asked = f"{model.name}-{reference.name}", {**self._asked("distance"), "other": str(self.wanted.other)}
        return self._distance(kind, unit, asked, about, model, reference, inputs)

    def _identity(self, adapter: HuggingFaceAdapter) -> Row:
        what = str(self.wanted.text) if self.wanted.text else "random tokens said twice"  # recorded so
        return {"run": str(self.wanted.runs), "task": what, "encoding": adapter.name, "seed": 0, "checkpoint": "last"}

    def _text(self, adapter: HuggingFaceAdapter, kind: str) -> Inputs:
        lengths = self.lengths or list(TEXT_LENGTHS)
        trained = self.wanted.trained or max(1, max(lengths) // 2)
        count = self._count(kind)
        if self.wanted.text is None:
            inputs = repeated_inputs(adapter.vocabulary, count, lengths, trained)
        else:
            from lengthwise.hub.loading import open_tokenizer

            tokenizer = open_tokenizer(self.wanted.runs)
            inputs = text_inputs(self.wanted.text, tokenizer, count, lengths, trained)
        inputs.require_positions(adapter.name, adapter.last_position)
        return inputs

    def _count(self, kind: str) -> int:
        return self.wanted.count or COUNTS[kind]

    def _asked(self, kind: str) -> Row:
        """What decides the numbers, beside the run itself."""
        asked: Row = {"count": self._count(kind), "lengths": self.lengths}
        if self.of_hugging_face:
            asked |= {"text": str(self.wanted.text or ""), "trained": self.wanted.trained}
        return asked


def _accuracy_holds_until(analyzed: AnalyzedRun, inputs: Inputs) -> Row | None:
    """A length, and the tokens of its longest example among those at hand."""
    length = analyzed.accuracy_holds_until()
    shorter = inputs.length_E <= (length or 0)
    return {"length": length, "tokens": int(inputs.sequences.size[shorter].max())} if shorter.any() else None


def parse_lengths(text: str) -> list[int]:
    """Those of `--lengths`, if their attention fits into memory; nothing for all."""
    found = read_lengths(text)
    if found:  # the weights of one head are length x length
        require_memory(4 * max(found) ** 2, f"attention at length {max(found):,}", "choose shorter --lengths")
    return found
