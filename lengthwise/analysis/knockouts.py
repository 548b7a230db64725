"""Knock-outs: some tokens are kept from seeing others, and exact match is asked again.

What a model does with a region while it may look there says little; what it can still do when it may not is a test.
The model is as it was trained, so a fall may also come from attention that must now go elsewhere: hiding the prefix, as
constant as the separator is, says how much that can be.

Shape letters: B rows (an example with a knock-out), T queries, S keys, P predicted tokens, D width, E examples.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lengthwise.analysis.regions import Region, RegionInputs
from lengthwise.analysis.target_places import TargetPlaces
from lengthwise.evaluation.exact import Outcomes, judge
from lengthwise.model.decoder import Decoder

EVERY_LAYER = -1


@dataclass(frozen=True)
class Knockout:
    """Tokens of a region do not see those of another, or earlier ones of their own; themselves they always see."""

    name: str
    queries: Region
    keys: Region

    def hidden(self, region_BT: Tensor) -> Tensor:
        """True where a key may not be seen, later keys included: (B, T, S)."""
        chosen_BTS = (region_BT == self.queries)[:, :, None] & (region_BT == self.keys)[:, None, :]
        itself_TS = torch.eye(region_BT.shape[1], dtype=torch.bool, device=region_BT.device)
        return later(region_BT)[None] | (chosen_BTS & ~itself_TS)


NOTHING = "nothing"
SOURCE_FROM_SEPARATOR = "source from separator"
KNOCKOUTS = (
    Knockout("prefix", Region.TARGET, Region.PREFIX),
    Knockout("source", Region.TARGET, Region.SOURCE),
    Knockout("separator", Region.TARGET, Region.SEPARATOR),
    Knockout("earlier target", Region.TARGET, Region.TARGET),
    Knockout(SOURCE_FROM_SEPARATOR, Region.SEPARATOR, Region.SOURCE),
)
"""What is hidden; from the target, if not said otherwise."""


@dataclass(frozen=True)
class Trial:
    """A knock-out in one layer, counted from 0, or in EVERY_LAYER; None hides nothing."""

    knockout: Knockout | None
    layer: int = EVERY_LAYER

    def hidden(self, region_BT: Tensor) -> Tensor:
        if self.knockout is None:
            return later(region_BT)[None].expand(len(region_BT), -1, -1)
        return self.knockout.hidden(region_BT)


def trials(layers: int) -> list[Trial]:
    """Nothing hidden; then every knock-out in all layers, and in each alone where there are several."""
    alone = range(layers) if layers > 1 else ()
    return [Trial(None), *(Trial(each, layer) for each in KNOCKOUTS for layer in (EVERY_LAYER, *alone))]


def later(region_BT: Tensor) -> Tensor:
    """True where a key is later than the query: (T, S)."""
    return torch.ones(region_BT.shape[1], region_BT.shape[1], dtype=torch.bool, device=region_BT.device).triu(1)


@torch.no_grad()
def read_hiding(model: Decoder, tokens_BT: Tensor, hidden_BTS: Tensor, layer_B: Tensor, chosen_P: Tensor) -> Tensor:
    """Next-token logits (P, V) of chosen tokens, by their number in the batch, with keys hidden from queries.

    `hidden_BTS` holds in layer `layer_B` of its row, or in every layer; in others only later keys are hidden. The model
    asks for what is hidden in each layer anew, so it need not know of any of this.
    """
    causal_TS = later(tokens_BT)
    current_layer = 0

    def before(layer: int, x_BTD: Tensor) -> Tensor:
        nonlocal current_layer
        current_layer = layer
        return x_BTD

    def hide() -> Tensor:
        holds_B = (layer_B == current_layer) | (layer_B == EVERY_LAYER)
        return torch.where(holds_B[:, None, None], hidden_BTS, causal_TS)

    layout = replace(model.layout(tokens_BT), hide=hide)
    return model.unembed(model.hidden(tokens_BT, layout, before=before, chosen_P=chosen_P)).float()


def outcomes_of(model: Decoder, divided: RegionInputs, tried: Sequence[Trial], end: int) -> list["Tried"]:
    """What becomes of every example in each trial, in one pass each: what greedy decoding would write."""
    sequences = divided.inputs.sequences
    places = TargetPlaces(sequences)
    predicted = np.zeros((len(tried), places.starts_E[-1]), dtype=np.int64)
    device, vocabulary_rows = model.embedding.weight.device, len(model.embedding.weight)
    for batch in divided.inputs.batches():
        tokens_BT, region_BT = batch.tokens_BT.to(device), divided.of(batch).to(device)
        asked_BT, numbers = places.predicting(batch), places.numbers(batch)
        step = places.at_once(batch, vocabulary_rows)
        for first in range(0, len(tried), step):
            some = tried[first : first + step]
            hidden_BTS = torch.cat([trial.hidden(region_BT) for trial in some])
            layer_B = torch.tensor([trial.layer for trial in some], device=device).repeat_interleave(len(tokens_BT))
            chosen_P = asked_BT.repeat(len(some), 1).flatten().nonzero()[:, 0].to(device)
            logits_PV = read_hiding(model, tokens_BT.repeat(len(some), 1), hidden_BTS, layer_B, chosen_P)
            predicted[first : first + len(some), numbers] = logits_PV.argmax(-1).view(len(some), -1).cpu().numpy()
    due_E = np.diff(places.starts_E) - 1
    return [
        Tried(trial, judge(row, sequences, end), places.ends(row, end) == due_E)
        for trial, row in zip(tried, predicted, strict=True)
    ]


@dataclass(frozen=True)
class Tried:
    """What became of all examples in a trial."""

    trial: Trial
    outcomes: Outcomes
    counted_E: np.ndarray
    """Whether the answer would end where it should, were all its symbols right."""

    def row(self, divided: RegionInputs) -> dict[str, Any]:
        """Layer 0 stands for all of them; counts by length, and over all seen and unseen lengths."""
        inputs = divided.inputs
        length_E = inputs.length_E
        seen_E = np.array([inputs.seen(int(length)) for length in length_E])
        by_length = [self._counts(length_E == length) for length in inputs.lengths]
        knockout = self.trial.knockout
        return {
            "hidden": NOTHING if knockout is None else knockout.name,
            "layer": self.trial.layer + 1,
            "seen": self._counts(seen_E) if seen_E.any() else None,
            "unseen": self._counts(~seen_E) if not seen_E.all() else None,
            "by_length": {
                "length": inputs.lengths,
                **{key: [each[key] for each in by_length] for key in ("n", "correct", "counted")},
            },
        }

    def _counts(self, chosen_E: np.ndarray) -> dict[str, int]:
        outcomes = self.outcomes
        return {
            "n": int(chosen_E.sum()),
            "correct": int(outcomes.correct_E[chosen_E].sum()),
            "counted": int(self.counted_E[chosen_E].sum()),
            "wrong_symbol": int(outcomes.wrong_symbol_E[chosen_E].sum()),
            "stopped_early": int(outcomes.stopped_early_E[chosen_E].sum()),
            "ran_on": int(outcomes.ran_on_E[chosen_E].sum()),
        }
