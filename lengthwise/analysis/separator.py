"""What the separator of a task is for: where target tokens look, whether the source's count can be read at the
separator, and what becomes of answers when it is hidden or says what another example's says.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

from lengthwise.analysis.analyzed_runs import AnalyzedRun
from lengthwise.analysis.count_probes import FITTED, count_rows
from lengthwise.analysis.exchanges import exchange_rows
from lengthwise.analysis.inputs import InputBatch
from lengthwise.analysis.knockouts import outcomes_of, trials
from lengthwise.analysis.measuring import gathered
from lengthwise.analysis.model_adapter import DecoderAdapter, ModelAdapter
from lengthwise.analysis.region_attention import RegionStatistics, RegionTokens
from lengthwise.analysis.regions import RegionInputs, has_separator, region_inputs
from lengthwise.data.splits import Split
from lengthwise.data.tokenization import SEPARATOR
from lengthwise.errors import UserError
from lengthwise.model.decoder import Decoder
from lengthwise.model.initial_values import initialize
from lengthwise.records.findings import ATTENTION, KNOCKOUTS, PROBES, Row
from lengthwise.study import Run


def with_separator(chosen: Sequence[AnalyzedRun]) -> tuple[list[AnalyzedRun], list[str]]:
    """Those whose task has a separator, and the names of the tasks that have none."""
    found = [analyzed for analyzed in chosen if has_separator(analyzed.run)]
    others = list(dict.fromkeys(analyzed.run.title for analyzed in chosen if not has_separator(analyzed.run)))
    if not found:
        raise UserError(f"no task here has a separator {SEPARATOR} in its prompts: {', '.join(others)}")
    return found, others


@dataclass
class SeparatorAnalysis:
    """Makes the rows of any kind of separator analysis; examples of a task are drawn once."""

    lengths: Sequence[int] = ()
    """By default all of the study."""
    _inputs: dict[tuple[str, int, Split], RegionInputs] = field(default_factory=dict)

    def rows(self, kind: str, analyzed: AnalyzedRun, adapter: DecoderAdapter, count: int) -> list[Row]:
        run = analyzed.run
        asking = self._inputs_of(run, count, Split.TEST)
        asking.inputs.require_positions(adapter.name, adapter.last_position)
        about = {"separator_tokens": int(asking.separator_E.max())}
        if kind == ATTENTION:
            found = attention_rows(adapter, asking)
        elif kind == PROBES:
            fitting = self._inputs_of(run, FITTED, Split.TRAIN)
            adapters = {"trained": adapter, "initial": at_initial_weights(adapter, run.seed)}
            found = [
                {"weights": weights, **row}
                for weights, each in adapters.items()
                for row in count_rows(each, fitting, asking)
            ]
        elif kind == KNOCKOUTS:
            found = knockout_rows(adapter.model, asking, run.make_tokens().end)
        else:
            found = exchange_rows(adapter.model, asking, run.make_tokens().end)
        return [{**about, **row} for row in found]

    def _inputs_of(self, run: Run, count: int, split: Split) -> RegionInputs:
        key = run.title, count, split
        if key not in self._inputs:
            lengths = self.lengths
            if split is Split.TRAIN:
                task = run.make_task()
                lengths = sorted({task.length_of(bucket) for bucket in task.buckets(run.data.spans(task)[0])})
            self._inputs[key] = region_inputs(run, count, lengths, split)
        return self._inputs[key]


def at_initial_weights(adapter: DecoderAdapter, seed: int) -> DecoderAdapter:
    """The same model before its training."""
    model = copy.deepcopy(adapter.model)
    initialize(model, seed)
    return DecoderAdapter(model, f"{adapter.name} before training")


def attention_rows(adapter: ModelAdapter, divided: RegionInputs) -> list[Row]:
    """By kind of queries, layer and head."""
    inputs = divided.inputs
    seen = [inputs.seen(length) for length in inputs.lengths]

    def asked(batch: InputBatch) -> RegionTokens:
        return RegionTokens(divided.of(batch).to(adapter.device), batch.length_B.to(adapter.device))

    statistics = RegionStatistics(adapter.layers, adapter.heads, inputs.lengths, seen, adapter.device)
    return gathered(adapter, inputs, statistics, asked)


def knockout_rows(model: Decoder, divided: RegionInputs, end: int) -> list[Row]:
    """By what is hidden and in which layer."""
    return [each.row(divided) for each in outcomes_of(model, divided, trials(model.config.layers), end)]
