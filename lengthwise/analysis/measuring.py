"""Runs models on inputs and gathers what an analysis asks of them; one layer of one batch at a time.

Shape letters: B examples, H heads, T queries, S keys, D width.
"""

import base64
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from torch import Tensor

from lengthwise.analysis.divergence import LayerDistances
from lengthwise.analysis.head_statistics import GroupedTokens, HeadStatistics
from lengthwise.analysis.inputs import InputBatch, Inputs
from lengthwise.analysis.model_adapter import ModelAdapter, Watch
from lengthwise.analysis.probes import TARGETS, ProbeStudy
from lengthwise.errors import UserError
from lengthwise.records.findings import Row


def distance_rows(
    model: ModelAdapter, reference: ModelAdapter, inputs: Inputs, as_published: bool = False
) -> list[Row]:
    """By layer and length."""
    if model.layers != reference.layers:
        raise UserError(
            f"{model.name} has {model.layers} layers and {reference.name} {reference.layers}: "
            "distances are between the same layers of both"
        )
    distances = LayerDistances(model.layers, inputs.lengths, model.device, as_published)
    for batch in inputs.batches():
        kept = _Keep()
        reference.forward(batch.tokens_BT, kept)
        model.forward(batch.tokens_BT, _Compare(distances, batch.length_B.to(model.device), kept.maps))
    return [{**row, "seen": inputs.seen(row["length"])} for row in distances.rows()]


class _Keep(Watch):
    """The maps of one batch, of all layers."""

    def __init__(self) -> None:
        self.maps: list[Tensor] = []

    def attention(self, layer: int, weights_BHTS: Tensor) -> None:
        self.maps.append(weights_BHTS)


class _Compare(Watch):
    def __init__(self, distances: LayerDistances, length_B: Tensor, maps: list[Tensor]) -> None:
        self.distances, self.length_B, self.maps = distances, length_B, maps

    def attention(self, layer: int, weights_BHTS: Tensor) -> None:
        self.distances.add(layer, self.length_B, weights_BHTS, self.maps[layer].to(weights_BHTS.device))


def head_rows(adapter: ModelAdapter, inputs: Inputs) -> list[Row]:
    """By head; examples of seen and of unseen lengths apart."""
    device = adapter.device
    unseen_L = torch.tensor([not inputs.seen(length) for length in inputs.lengths]).long()

    def asked(batch: InputBatch) -> GroupedTokens:
        return GroupedTokens(batch.tokens_BT.to(device), unseen_L[batch.length_B].to(device))

    statistics = HeadStatistics(adapter.layers, adapter.heads, ("seen", "unseen"), inputs.longest, device)
    return gathered(adapter, inputs, statistics, asked)


Asked = TypeVar("Asked", contravariant=True)


class AttentionStatistics(Protocol[Asked]):
    """What is gathered of the attention of all layers, batch by batch."""

    def begin(self, asked: Asked) -> None: ...

    def add(self, layer: int, asked: Asked, weights_BHTS: Tensor) -> None: ...

    def rows(self) -> list[Row]: ...


def gathered(
    adapter: ModelAdapter,
    inputs: Inputs,
    statistics: AttentionStatistics[Asked],
    asked: Callable[[InputBatch], Asked],
) -> list[Row]:
    """The rows of statistics that have been shown all batches; `asked`: what they need to know of each."""
    for batch in inputs.batches():
        of_batch = asked(batch)
        statistics.begin(of_batch)
        adapter.forward(batch.tokens_BT, _Gather(partial(statistics.add, asked=of_batch)))
    return statistics.rows()


class _Gather(Watch):
    def __init__(self, add: Callable[..., None]) -> None:
        self.add = add

    def attention(self, layer: int, weights_BHTS: Tensor) -> None:
        self.add(layer, weights_BHTS=weights_BHTS)


def probe_rows(adapter: ModelAdapter, inputs: Inputs) -> list[Row]:
    """By residual stream, target and kind of probe. Half of the examples of each length fit, the other half ask."""
    trained = inputs.trained_tokens
    if inputs.longest <= trained:
        raise UserError(
            f"no example is longer than the {trained} tokens of training, so no probe can be asked beyond them; "
            "choose greater --lengths"
        )
    place_E = np.zeros(len(inputs.length_E), dtype=int)  # of each example among those of its length
    for length in inputs.lengths:
        here = inputs.length_E == length
        place_E[here] = np.arange(here.sum())
    fitting, asking = (np.flatnonzero(place_E % 2 == half) for half in (0, 1))
    if not len(asking):
        raise UserError(
            "probes need at least two examples of a length: one to fit, one to ask; choose a greater --count"
        )
    shape = adapter.layers + 1, adapter.width, trained, inputs.longest, inputs.sequences.size[fitting]
    studies = [ProbeStudy(target, *shape, adapter.device) for target in TARGETS]
    for number, batch in enumerate(inputs.batches(fitting)):
        adapter.forward(batch.tokens_BT, _Probes(studies, number, fits=True))
    for study in studies:
        study.solve()
    for number, batch in enumerate(inputs.batches(asking)):
        adapter.forward(batch.tokens_BT, _Probes(studies, number, fits=False))
    return [row for study in studies for row in study.rows()]


class _Probes(Watch):
    def __init__(self, studies: Sequence[ProbeStudy], batch: int, fits: bool) -> None:
        self.studies, self.batch, self.fits = studies, batch, fits

    def residual(self, layer: int, x_BTD: Tensor) -> None:
        for study in self.studies:
            (study.fit if self.fits else study.examine)(self.batch, layer, x_BTD)


def example_maps(adapter: ModelAdapter, inputs: Inputs) -> list[dict[str, Any]]:
    """All heads' attention on one example of the longest seen length and one of the shortest unseen length.

    `weights`: base64 of bytes, 255 for a weight of one: layers, heads, then the rows of the lower triangle.
    """
    seen = [length for length in inputs.lengths if inputs.seen(length)]
    unseen = [length for length in inputs.lengths if not inputs.seen(length)]
    found = []
    for length in (*seen[-1:], *unseen[:1]):
        example = np.flatnonzero(inputs.length_E == length)[:1]
        (batch,) = inputs.batches(example)
        kept = _Keep()
        adapter.forward(batch.tokens_BT, kept)
        size = batch.tokens_BT.shape[1]
        rows, columns = torch.tril_indices(size, size)
        weights = torch.stack([maps[0, :, rows, columns] for maps in kept.maps])
        ids = batch.tokens_BT[0].tolist()
        found.append(
            {
                "length": length,
                "seen": inputs.seen(length),
                "prompt_tokens": int(inputs.sequences.prompt[example[0]]),
                "tokens": inputs.tokens.pieces(ids) if inputs.tokens else ids,
                "layers": len(weights),
                "heads": weights.shape[1],
                "weights": base64.b64encode((weights * 255).round().byte().cpu().numpy().tobytes()).decode(),
            }
        )
    return found
