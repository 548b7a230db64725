"""What the separator of a task is for: where target tokens look, whether the source's count can be read at the
separator, and what becomes of answers when it is hidden or says what another example's says.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor

from lengthwise.analysis.analyzed_runs import AnalyzedRun
from lengthwise.analysis.count_probes import FITTED, count_rows
from lengthwise.analysis.exchanges import exchange_rows
from lengthwise.analysis.knockouts import outcomes_of, trials
from lengthwise.analysis.model_adapter import DecoderAdapter, ModelAdapter, Watch
from lengthwise.analysis.region_attention import Asked, RegionLooks
from lengthwise.analysis.regions import RegionMaterial, has_separator, region_material
from lengthwise.data.splits import Split
from lengthwise.data.tokenization import SEPARATOR
from lengthwise.errors import UserError
from lengthwise.model.build import initialize
from lengthwise.model.decoder import Decoder
from lengthwise.records.findings import ATTENTION, KNOCKOUTS, PROBES, Row
from lengthwise.study import Run


def with_separator(chosen: Sequence[AnalyzedRun]) -> tuple[list[AnalyzedRun], list[str]]:
    """Those whose task has a separator, and the names of the tasks that have none."""
    found = [subject for subject in chosen if has_separator(subject.run)]
    others = list(dict.fromkeys(subject.run.title for subject in chosen if not has_separator(subject.run)))
    if not found:
        raise UserError(f"no task here has a separator {SEPARATOR} in its prompts: {', '.join(others)}")
    return found, others


@dataclass
class SeparatorAnalysis:
    """Makes the rows of any kind of separator analysis; examples of a task are drawn once."""

    lengths: Sequence[int] = ()
    """By default all of the study."""
    _materials: dict[tuple[str, int, Split], RegionMaterial] = field(default_factory=dict)

    def rows(self, kind: str, subject: AnalyzedRun, source: DecoderAdapter, count: int) -> list[Row]:
        run = subject.run
        asking = self._material(run, count, Split.TEST)
        asking.material.require_positions(source.name, source.last_position)
        about = {"separator_tokens": int(asking.separator_E.max())}
        if kind == ATTENTION:
            found = attention_rows(source, asking)
        elif kind == PROBES:
            fitting = self._material(run, FITTED, Split.TRAIN)
            sources = {"trained": source, "initial": at_initial_weights(source, run.seed)}
            found = [
                {"weights": weights, **row}
                for weights, each in sources.items()
                for row in count_rows(each, fitting, asking)
            ]
        elif kind == KNOCKOUTS:
            found = knockout_rows(source.model, asking, run.make_tokens().end)
        else:
            found = exchange_rows(source.model, asking, run.make_tokens().end)
        return [{**about, **row} for row in found]

    def _material(self, run: Run, count: int, split: Split) -> RegionMaterial:
        key = run.title, count, split
        if key not in self._materials:
            lengths = self.lengths
            if split is Split.TRAIN:
                task = run.make_task()
                lengths = sorted({task.length_of(bucket) for bucket in task.buckets(run.data.spans(task)[0])})
            self._materials[key] = region_material(run, count, lengths, split)
        return self._materials[key]


def at_initial_weights(source: DecoderAdapter, seed: int) -> DecoderAdapter:
    """The same model before its training."""
    model = copy.deepcopy(source.model)
    initialize(model, seed)
    return DecoderAdapter(model, f"{source.name} before training")


def attention_rows(source: ModelAdapter, divided: RegionMaterial) -> list[Row]:
    """By kind of queries, layer and head."""
    material = divided.material
    seen = [material.seen(length) for length in material.lengths]
    looks = RegionLooks(source.layers, source.heads, material.lengths, seen, source.device)
    for batch in material.batches():
        asked = Asked(divided.of(batch).to(source.device), batch.length_B.to(source.device))
        looks.begin(asked)
        source.read(batch.tokens_BT, _Looks(looks, asked))
    return looks.rows()


class _Looks(Watch):
    def __init__(self, looks: RegionLooks, asked: Asked) -> None:
        self.looks, self.asked = looks, asked

    def attention(self, layer: int, weights_BHTS: Tensor) -> None:
        self.looks.add(layer, self.asked, weights_BHTS)


def knockout_rows(model: Decoder, divided: RegionMaterial, end: int) -> list[Row]:
    """By what is hidden and in which layer."""
    return [each.row(divided) for each in outcomes_of(model, divided, trials(model.config.layers), end)]
