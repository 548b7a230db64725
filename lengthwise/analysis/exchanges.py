"""Exchanges: an example's separator is given the residual stream of another example's, and answers end where?

Hiding the separator changes how much there is to look at; an exchange changes only what it says. If the target takes
the count from the separator, answers now end where the other example's do; if it counts the source itself, they end
where they did. An exchange between examples whose answers are equally long says what harm is done by exchanging alone.

Shape letters: E examples, B examples of a batch or rows (an example with an exchange), T tokens, J tokens of a
separator, D width, Y layers, P predicted tokens.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lengthwise.analysis.inputs import InputBatch
from lengthwise.analysis.knockouts import EVERY_LAYER
from lengthwise.analysis.regions import Region, RegionInputs
from lengthwise.analysis.target_places import TargetPlaces
from lengthwise.model.decoder import Decoder
from lengthwise.seeding import stream

OWN, EQUAL, SHORTER, LONGER = DONORS = ("own", "equal", "shorter", "longer")
"""Whose separator an example gets: its own, or that of an example with a target as long, shorter, longer."""
NO_DONOR = -1


@dataclass(frozen=True)
class Exchange:
    """Who gets whose separator in one layer, counted from 0, or in EVERY_LAYER."""

    donor: str
    donor_E: np.ndarray
    """NO_DONOR for examples that take no part."""
    layer: int = EVERY_LAYER

    def row(self, divided: RegionInputs, found_E: np.ndarray) -> dict[str, Any]:
        """`found_E`: the place in the target where answers end. Layer 0 stands for all of them."""
        seen_E = _seen(divided)
        return {
            "donor": self.donor,
            "layer": self.layer + 1,
            "seen": self._counts(divided, found_E, seen_E),
            "unseen": self._counts(divided, found_E, ~seen_E),
        }

    def _counts(self, divided: RegionInputs, found_E: np.ndarray, group_E: np.ndarray) -> dict[str, int] | None:
        chosen = np.flatnonzero(group_E & (self.donor_E != NO_DONOR))
        if not len(chosen):
            return None
        due_E = target_sizes(divided)
        found, own, donors = found_E[chosen], due_E[chosen], due_E[self.donor_E[chosen]]
        return {
            "n": len(chosen),
            "as_own": int((found == own).sum()),
            "as_donor": int(((found == donors) & (donors < own)).sum()),
            "earlier": int(((found < own) & (found != donors)).sum()),
            "not_yet": int((found > own).sum()),
        }


def target_sizes(divided: RegionInputs) -> np.ndarray:
    """Target tokens of each example before its end: (E,)."""
    return divided.inputs.sequences.size - divided.inputs.sequences.prompt - 1


def exchanges(divided: RegionInputs, layers: int) -> list[Exchange]:
    """Nothing exchanged; then every kind of donor in all layers, and in each alone where there are several."""
    found = [Exchange(OWN, np.arange(len(divided.region_ET)))]
    for kind in DONORS[1:]:
        donor_E = donors_of(divided, kind)
        if (donor_E != NO_DONOR).any():
            alone = range(layers) if layers > 1 else ()
            found += [Exchange(kind, donor_E, layer) for layer in (EVERY_LAYER, *alone)]
    return found


def donors_of(divided: RegionInputs, kind: str) -> np.ndarray:
    """For each example a random one with an equal, shorter or longer target, seen lengths and unseen ones apart;
    NO_DONOR where there is none. Both separators have the same number of tokens."""
    due_E, tokens_E, seen_E = target_sizes(divided), divided.separator_E, _seen(divided)
    generator = stream(0, "analysis", "exchanges", kind)
    donor_E = np.full(len(due_E), NO_DONOR)
    for example, due in enumerate(due_E.tolist()):
        suits_E = {EQUAL: due_E == due, SHORTER: due_E < due, LONGER: due_E > due}[kind]
        suits_E = suits_E & (seen_E == seen_E[example]) & (tokens_E == tokens_E[example])
        suits_E[example] = False
        if suits_E.any():
            donor_E[example] = generator.choice(np.flatnonzero(suits_E))
    return donor_E


@torch.no_grad()
def exchange_rows(model: Decoder, divided: RegionInputs, end: int) -> list[dict[str, Any]]:
    """By kind of donor and layer: how many answers end where their own is due, where the donor's is, earlier than
    both, or not within their own target."""
    wanted = exchanges(divided, model.config.layers)
    kept_YEJD = separator_states(model, divided)
    places = TargetPlaces(divided.inputs.sequences)
    predicted = np.zeros((len(wanted), places.starts_E[-1]), dtype=np.int64)
    device, vocabulary_rows = kept_YEJD.device, len(model.embedding.weight)
    for batch in divided.inputs.batches():
        asked_BT, numbers = places.predicting(batch), places.numbers(batch)
        step = places.at_once(batch, vocabulary_rows)
        for first in range(0, len(wanted), step):
            some = wanted[first : first + step]
            donor_B = np.concatenate([_donors(each, batch) for each in some])
            layer_B = torch.tensor([each.layer for each in some]).repeat_interleave(len(batch.tokens_BT))
            logits_PV = read_exchanged(
                model,
                batch.tokens_BT.repeat(len(some), 1).to(device),
                _separator_places(divided, batch).repeat(len(some), 1).to(device),
                kept_YEJD[:, torch.from_numpy(donor_B).to(device)],
                layer_B.to(device),
                asked_BT.repeat(len(some), 1).flatten().nonzero()[:, 0].to(device),
            )
            predicted[first : first + len(some), numbers] = logits_PV.argmax(-1).view(len(some), -1).cpu().numpy()
    return [each.row(divided, places.ends(row, end)) for each, row in zip(wanted, predicted, strict=True)]


@torch.no_grad()
def read_exchanged(
    model: Decoder, tokens_BT: Tensor, where_BJ: Tensor, given_YBJD: Tensor, layer_B: Tensor, chosen_P: Tensor
) -> Tensor:
    """Next-token logits (P, V) of chosen tokens, by their number in the batch.

    Layer y reads `given_YBJD[y]` at the tokens `where_BJ` instead of what stands there, if it is the row's layer.
    """
    row_B1 = torch.arange(len(tokens_BT), device=tokens_BT.device)[:, None]

    def give(layer: int, x_BTD: Tensor) -> Tensor:
        if layer == len(given_YBJD):  # the final norm reads what the layers made of it
            return x_BTD
        holds_B = (layer_B == layer) | (layer_B == EVERY_LAYER)
        x_BTD = x_BTD.clone()
        x_BTD[row_B1, where_BJ] = torch.where(holds_B[:, None, None], given_YBJD[layer], x_BTD[row_B1, where_BJ])
        return x_BTD

    return model.unembed(model.hidden(tokens_BT, model.layout(tokens_BT), before=give, chosen_P=chosen_P)).float()


@torch.no_grad()
def separator_states(model: Decoder, divided: RegionInputs) -> Tensor:
    """What each layer reads at the separator of every example: (Y, E, J, D)."""
    device = model.embedding.weight.device
    shape = model.config.layers, len(divided.region_ET), int(divided.separator_E.max()), model.config.width
    kept_YEJD = torch.zeros(shape, device=device)
    for batch in divided.inputs.batches():
        example_B, where_BJ = torch.from_numpy(batch.example_B).to(device), _separator_places(divided, batch).to(device)

        def keep(layer: int, x_BTD: Tensor, example_B: Tensor = example_B, where_BJ: Tensor = where_BJ) -> Tensor:
            if layer < len(kept_YEJD):
                kept_YEJD[layer, example_B] = x_BTD[torch.arange(len(x_BTD), device=device)[:, None], where_BJ].float()
            return x_BTD

        tokens_BT = batch.tokens_BT.to(device)
        model.hidden(tokens_BT, model.layout(tokens_BT), before=keep)
    return kept_YEJD


def _separator_places(divided: RegionInputs, batch: InputBatch) -> Tensor:
    """Index of the separator's tokens (B, J); one with fewer tokens than others names its last one again."""
    region_BT = divided.of(batch)
    first_B, count_B = (region_BT < Region.SEPARATOR).sum(1), (region_BT == Region.SEPARATOR).sum(1)
    number_J = torch.arange(int(divided.separator_E.max()))
    return first_B[:, None] + torch.minimum(number_J, count_B[:, None] - 1)


def _donors(exchange: Exchange, batch: InputBatch) -> np.ndarray:
    """Of the examples of a batch; those that take no part are their own."""
    donor_B = exchange.donor_E[batch.example_B]
    return np.where(donor_B == NO_DONOR, batch.example_B, donor_B)


def _seen(divided: RegionInputs) -> np.ndarray:
    """Whether the length of each example is one of training: (E,)."""
    return np.array([divided.inputs.seen(int(length)) for length in divided.inputs.length_E])
