"""Scales of heads without training: each head attends as sharply at a longer length as it would at a trained one.

Layer by layer, first layer first: what a layer reads at the longer length is what the layers before it make of it with
the scales that they have been given. Logits are multiplied by the scale as a whole, so that the entropy of a softmax
falls with it, and halving an interval finds the one scale that has the entropy that is wanted.
Shape letters: R rows, T tokens, L layers, H heads, P positions of queries.
"""

import time

import numpy as np
import torch
from torch import Tensor

from lengthwise.context_extension.entropy import entropies, layer_entropy, spread_positions
from lengthwise.context_extension.fitting import FitSettings, Fitted, fit, head_scale_of
from lengthwise.context_extension.fitting_rows import TrainingWindows
from lengthwise.context_extension.forward import losses_of_last
from lengthwise.context_extension.loaded_model import LoadedModel
from lengthwise.context_extension.reader import Reader
from lengthwise.context_extension.search import LARGEST
from lengthwise.errors import UserError
from lengthwise.extensions.head_scale import HeadScale
from lengthwise.model.attention import Attended
from lengthwise.runtime import Listener

POSITIONS = 64
"""Of queries, over the second half of the sequences."""
HALVINGS = 20
"""Of the interval that a scale lies in: then it is known to 4e-6."""
BEGIN = 8
"""The growth of the entropy is fitted from this part of the trained length on: the first eighth is left out."""


def fit_by_method(
    loaded: LoadedModel, windows: TrainingWindows, settings: FitSettings, listener: Listener | None = None
) -> Fitted:
    """What `settings.method` makes of the loaded model."""
    make = fit_entropy if settings.method == "entropy" else fit
    return make(loaded, windows, settings, listener)


@torch.no_grad()
def fit_entropy(
    loaded: LoadedModel, windows: TrainingWindows, settings: FitSettings, listener: Listener | None = None
) -> Fitted:
    """Scales for `settings.length`, from the first `settings.batch` windows; no gradient is taken.

    Losses are those of the windows, as trained and with the scales.
    """
    if settings.length <= loaded.trained:
        raise UserError(
            f"scales by entropy are for lengths above the trained {loaded.trained:,} tokens, not {settings.length:,}"
        )
    loaded.model.refuse_no_softmax(loaded.name)
    began, listener = time.monotonic(), listener or Listener()
    rows_RT = windows.rows(0, settings.batch)
    asked = second_half(settings.length)
    wanted_LH = wanted_entropy(loaded.model, rows_RT[:, : loaded.trained], asked, settings.target)
    scales = head_scale_of(settings)
    model = loaded.model.extended([scales], settings.length)
    asked_P = torch.from_numpy(asked).to(model.device)

    def look(attended: Attended) -> None:
        layer = attended.layer
        scales.scales_LH[layer] = _scales_of_layer(attended, asked_P, wanted_LH[layer], scales, settings)
        listener.step(layer + 1, model.layers)

    tokens_RT = torch.from_numpy(rows_RT[:, :-1]).to(model.device)
    with model.arithmetic():  # all rows together: a layer's scales are found before any of them goes on
        model.hidden(tokens_RT, look=look)
    losses = [float(losses_of_last(each, rows_RT, settings.length).mean()) for each in (loaded.model, model)]
    learned = {"scales_LH": scales.scales_LH.detach().cpu().clone()}
    return Fitted(settings, model.require_gradients(False), learned, losses, time.monotonic() - began)


def second_half(length: int) -> np.ndarray:
    return length // 2 + spread_positions(length - length // 2, POSITIONS)


def wanted_entropy(model: Reader, rows_RT: np.ndarray, asked: np.ndarray, target: str) -> Tensor:
    """What each head is to have at the longer length, (L, H) in bits.

    `growth`: as a line in the logarithm of the position, fitted to these rows of the trained length, its mean over
    `asked`. A head that attends to everything goes on doing so. `same`: what it has in the second half of these rows.
    """
    trained = rows_RT.shape[1]
    if target == "same":
        return entropies(model, rows_RT, second_half(trained)).mean(dim=-1)
    begin = trained // BEGIN
    positions = begin + spread_positions(trained - begin, POSITIONS)
    found_LHP = entropies(model, rows_RT, positions)
    logarithm_P, later_P = (torch.from_numpy(np.log2(each + 1.0)) for each in (positions, asked))
    centred_P = logarithm_P - logarithm_P.mean()
    slope_LH = (found_LHP * centred_P).sum(-1) / (centred_P * centred_P).sum()
    return found_LHP.mean(-1) + slope_LH * (later_P.mean() - logarithm_P.mean())


def _scales_of_layer(
    attended: Attended, asked_P: Tensor, wanted_H: Tensor, scales: HeadScale, settings: FitSettings
) -> Tensor:
    """By halves, all heads at once. Heads that are sharp enough at the floor stay there."""

    def entropy_of(scale_H: Tensor) -> Tensor:
        scales.scales_LH[attended.layer] = scale_H
        return layer_entropy(attended, asked_P).double().mean(dim=(0, 2)).cpu()

    low_H, high_H = torch.full_like(wanted_H, settings.floor), torch.full_like(wanted_H, LARGEST)
    sharp_H = entropy_of(low_H) <= wanted_H
    flat_H = entropy_of(high_H) >= wanted_H
    for _ in range(settings.steps):
        middle_H = (low_H + high_H) / 2
        above_H = entropy_of(middle_H) > wanted_H
        low_H, high_H = torch.where(above_H, middle_H, low_H), torch.where(above_H, high_H, middle_H)
    found_H = torch.where(flat_H, LARGEST, (low_H + high_H) / 2)
    return torch.where(sharp_H, settings.floor, found_H).to(scales.scales_LH)
