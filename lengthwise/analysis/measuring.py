"""Lets models read material and gathers what an analysis asks of them; one layer of one batch at a time.

Shape letters: B examples, H heads, T queries, S keys, D width.
"""

import base64
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lengthwise.analysis.divergence import LayerDistances
from lengthwise.analysis.head_statistics import Asked, HeadLooks
from lengthwise.analysis.inputs import Material
from lengthwise.analysis.model_adapter import ModelAdapter, Watch
from lengthwise.analysis.probes import TARGETS, ProbeStudy
from lengthwise.errors import UserError
from lengthwise.records.findings import Row


def distance_rows(
    model: ModelAdapter, reference: ModelAdapter, material: Material, as_published: bool = False
) -> list[Row]:
    """By layer and length."""
    if model.layers != reference.layers:
        raise UserError(
            f"{model.name} has {model.layers} layers and {reference.name} {reference.layers}: "
            "distances are between the same layers of both"
        )
    distances = LayerDistances(model.layers, material.lengths, model.device, as_published)
    for batch in material.batches():
        kept = _Keep()
        reference.read(batch.tokens_BT, kept)
        model.read(batch.tokens_BT, _Compare(distances, batch.length_B.to(model.device), kept.maps))
    return [{**row, "seen": material.seen(row["length"])} for row in distances.rows()]


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


def head_rows(source: ModelAdapter, material: Material) -> list[Row]:
    """By head; examples of seen and of unseen lengths apart."""
    looks = HeadLooks(source.layers, source.heads, ("seen", "unseen"), material.longest, source.device)
    unseen_L = torch.tensor([not material.seen(length) for length in material.lengths]).long()
    for batch in material.batches():
        asked = Asked(batch.tokens_BT.to(source.device), unseen_L[batch.length_B].to(source.device))
        looks.begin(asked)
        source.read(batch.tokens_BT, _Heads(looks, asked))
    return looks.rows()


class _Heads(Watch):
    def __init__(self, looks: HeadLooks, asked: Asked) -> None:
        self.looks, self.asked = looks, asked

    def attention(self, layer: int, weights_BHTS: Tensor) -> None:
        self.looks.add(layer, self.asked, weights_BHTS)


def probe_rows(source: ModelAdapter, material: Material) -> list[Row]:
    """By residual stream, target and kind of probe. Half of the examples of each length fit, the other half ask."""
    trained = material.trained_tokens
    if material.longest <= trained:
        raise UserError(
            f"no example is longer than the {trained} tokens of training, so no probe can be asked beyond them; "
            "choose greater --lengths"
        )
    place_E = np.zeros(len(material.length_E), dtype=int)  # of each example among those of its length
    for length in material.lengths:
        here = material.length_E == length
        place_E[here] = np.arange(here.sum())
    fitting, asking = (np.flatnonzero(place_E % 2 == half) for half in (0, 1))
    if not len(asking):
        raise UserError(
            "probes need at least two examples of a length: one to fit, one to ask; choose a greater --count"
        )
    shape = source.layers + 1, source.width, trained, material.longest, material.sequences.size[fitting]
    studies = [ProbeStudy(target, *shape, source.device) for target in TARGETS]
    for number, batch in enumerate(material.batches(fitting)):
        source.read(batch.tokens_BT, _Probes(studies, number, fits=True))
    for study in studies:
        study.solve()
    for number, batch in enumerate(material.batches(asking)):
        source.read(batch.tokens_BT, _Probes(studies, number, fits=False))
    return [row for study in studies for row in study.rows()]


class _Probes(Watch):
    def __init__(self, studies: Sequence[ProbeStudy], batch: int, fits: bool) -> None:
        self.studies, self.batch, self.fits = studies, batch, fits

    def residual(self, layer: int, x_BTD: Tensor) -> None:
        for study in self.studies:
            (study.fit if self.fits else study.examine)(self.batch, layer, x_BTD)


def example_maps(source: ModelAdapter, material: Material) -> list[dict[str, Any]]:
    """All heads' attention on one example of the longest seen length and one of the shortest unseen length.

    `weights`: base64 of bytes, 255 for a weight of one: layers, heads, then the rows of the lower triangle.
    """
    seen = [length for length in material.lengths if material.seen(length)]
    unseen = [length for length in material.lengths if not material.seen(length)]
    found = []
    for length in (*seen[-1:], *unseen[:1]):
        example = np.flatnonzero(material.length_E == length)[:1]
        (batch,) = material.batches(example)
        kept = _Keep()
        source.read(batch.tokens_BT, kept)
        size = batch.tokens_BT.shape[1]
        rows, columns = torch.tril_indices(size, size)
        weights = torch.stack([maps[0, :, rows, columns] for maps in kept.maps])
        ids = batch.tokens_BT[0].tolist()
        found.append(
            {
                "length": length,
                "seen": material.seen(length),
                "prompt_tokens": int(material.sequences.prompt[example[0]]),
                "tokens": material.tokens.pieces(ids) if material.tokens else ids,
                "layers": len(weights),
                "heads": weights.shape[1],
                "weights": base64.b64encode((weights * 255).round().byte().cpu().numpy().tobytes()).decode(),
            }
        )
    return found
