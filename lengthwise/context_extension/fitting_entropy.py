"""Scales of heads without training: each head attends as sharply at a longer length as it would at a trained one.

Layer by layer, first layer first: what a layer reads at the longer length is what the layers before it make of it with
the scales that they have been given. Logits are multiplied by the scale as a whole, so that the entropy of a softmax
falls with it, and halving an interval finds the one scale that has the entropy that is wanted.
Shape letters: B rows of a part, R rows, T tokens, L layers, H heads, P positions of queries.
"""

import time
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from lengthwise.context_extension.entropy import entropies, layer_entropy, spread_positions
from lengthwise.context_extension.fitting import FitSettings, Fitted, fit, head_scale_of
from lengthwise.context_extension.fitting_rows import TrainingWindows
from lengthwise.context_extension.forward import arithmetic, batches, device_of, losses_of_last
from lengthwise.context_extension.loaded_model import LoadedModel
from lengthwise.context_extension.search import LARGEST
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.errors import UserError
from lengthwise.extensions.extended import Extended, extended
from lengthwise.extensions.extension import contribution_of
from lengthwise.extensions.head_scale import HeadScale
from lengthwise.model.decoder import Decoder
from lengthwise.runtime import Listener

POSITIONS = 64
"""Of queries, over the second half of the sequences."""
HALVINGS = 20
"""Of the interval that a scale lies in: then it is known to 4e-6."""
BEGIN = 8
"""The growth of the entropy is fitted from this part of the trained length on: the first eighth is left out."""


def fit_by_method(
    subject: LoadedModel, windows: TrainingWindows, settings: FitSettings, listener: Listener | None = None
) -> Fitted:
    """What `settings.method` makes of the subject."""
    make = fit_entropy if settings.method == "entropy" else fit
    return make(subject, windows, settings, listener)


@torch.no_grad()
def fit_entropy(
    subject: LoadedModel, windows: TrainingWindows, settings: FitSettings, listener: Listener | None = None
) -> Fitted:
    """Scales for `settings.length`, from the first `settings.batch` windows; no gradient is taken.

    Losses are those of the windows, as trained and with the scales.
    """
    _refuse(subject, settings)
    began, listener = time.monotonic(), listener or Listener()
    rows_RT = windows.rows(0, settings.batch)
    asked = second_half(settings.length)
    wanted_LH = wanted_entropy(subject.model, rows_RT[:, : subject.trained], asked, settings.target)
    scales = head_scale_of(settings)
    model = extended(subject.model, [scales], settings.length)
    parts = _parts(model, rows_RT[:, :-1])
    for layer in range(model.config.layers):
        scales.scales_LH[layer] = _scales_of_layer(model, layer, parts, asked, wanted_LH[layer], scales, settings)
        with arithmetic(device_of(model)):
            for part in parts:
                part.x_BTD = model.pass_layer(layer, part.x_BTD, part.layout)
        listener.step(layer + 1, model.config.layers)
    losses = [float(losses_of_last(each, rows_RT, settings.length).mean()) for each in (subject.model, model)]
    learned = {"scales_LH": scales.scales_LH.detach().cpu().clone()}
    return Fitted(settings, model.requires_grad_(False), learned, losses, time.monotonic() - began)


def second_half(length: int) -> np.ndarray:
    return length // 2 + spread_positions(length - length // 2, POSITIONS)


def wanted_entropy(model: Decoder, rows_RT: np.ndarray, asked: np.ndarray, target: str) -> Tensor:
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


@dataclass
class _Part:
    """Some of the rows, on their way through the layers."""

    x_BTD: Tensor
    layout: AttentionLayout


def _parts(model: Extended, rows_RT: np.ndarray) -> list[_Part]:
    found = []
    for tokens_BT in batches(model, rows_RT):
        layout = model.layout(tokens_BT)
        found.append(_Part(model.begin(tokens_BT, layout.query_positions_BT, None), layout))
    return found


def _scales_of_layer(
    model: Extended,
    layer: int,
    parts: list[_Part],
    asked: np.ndarray,
    wanted_H: Tensor,
    scales: HeadScale,
    settings: FitSettings,
) -> Tensor:
    """By halves, all heads at once. Heads that are sharp enough at the floor stay there."""
    asked_P = torch.from_numpy(asked).to(device_of(model))
    rows = sum(len(part.x_BTD) for part in parts)

    def entropy_of(scale_H: Tensor) -> Tensor:
        scales.scales_LH[layer] = scale_H
        total_H = torch.zeros_like(wanted_H)
        with arithmetic(device_of(model)):
            for part in parts:
                found_BHP = layer_entropy(model, layer, part.x_BTD, part.layout, asked_P)
                total_H += found_BHP.double().sum(dim=(0, 2)).cpu()
        return total_H / (rows * len(asked))

    low_H, high_H = torch.full_like(wanted_H, settings.floor), torch.full_like(wanted_H, LARGEST)
    sharp_H = entropy_of(low_H) <= wanted_H
    flat_H = entropy_of(high_H) >= wanted_H
    for _ in range(settings.steps):
        middle_H = (low_H + high_H) / 2
        above_H = entropy_of(middle_H) > wanted_H
        low_H, high_H = torch.where(above_H, middle_H, low_H), torch.where(above_H, high_H, middle_H)
    found_H = torch.where(flat_H, LARGEST, (low_H + high_H) / 2)
    return torch.where(sharp_H, settings.floor, found_H).to(scales.scales_LH)


def _refuse(subject: LoadedModel, settings: FitSettings) -> None:
    if settings.length <= subject.trained:
        raise UserError(
            f"scales by entropy are for lengths above the trained {subject.trained:,} tokens, not {settings.length:,}"
        )
    if any(mixer is not None for mixer in subject.model.mixers()):
        raise UserError(f"{subject.name} has layers without attention, which have no entropy")
    parts = {"distance_bias", "row_column_bias", "score", "normalizer"}
    for encoding in subject.model.distinct_encodings():
        if found := parts.intersection(contribution_of(encoding).names):
            raise UserError(
                f"scales by entropy need the softmax of products alone; {encoding.name} has its own "
                f"{sorted(found)[0].replace('_', ' ')}, under which entropy may rise with the scale"
            )
