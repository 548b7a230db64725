"""Learning to read longer sequences: the scales of the heads alone, or all weights under a rescaling.

Published: 200 steps of 8 sequences at the target length, AdamW (0.9, 0.95) without decay, gradients clipped at 1, a
warm-up over a tenth of the steps, then half a cosine down to a tenth. Head scales: learning rate 0.1 or 0.05, from the
best uniform scale on, never below 1. All weights: 1e-4.
Shape letters: K steps, N models (here one), R rows, T tokens.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from lengthwise.context_extension.fitting_rows import TrainingWindows
from lengthwise.context_extension.forward import rows_together, token_losses
from lengthwise.context_extension.key_rows import FitSequences, KeyPart, KeyRows
from lengthwise.context_extension.loaded_model import LoadedModel
from lengthwise.context_extension.passkey import KeyDocuments
from lengthwise.context_extension.reader import Reader
from lengthwise.errors import RunError, UserError
from lengthwise.extensions.extended import make_extension
from lengthwise.extensions.head_scale import HeadScale
from lengthwise.language.settings import LanguageTraining
from lengthwise.runtime import Listener
from lengthwise.training.loop import Loop
from lengthwise.training.update import Measured

REMEMBERED = {"cpu": 2**30, "cuda": 2**35}
"""Bytes that the passes of a step may keep for the backward pass; where they would be more, blocks forget."""
READ_EVERY = 20
"""Steps that are launched before their losses are read."""


@dataclass(frozen=True)
class FitSettings:
    """All that decides what is learned, but the model and the corpus."""

    length: int
    """Tokens of the sequences."""
    head_scale: bool = True
    """Scales of heads; otherwise all weights."""
    method: Literal["gradient", "entropy"] = "gradient"
    """How scales are found: by training, or without it from the entropy of each head; see `fitting_entropy`."""
    target: Literal["growth", "same"] = "growth"
    """By entropy: a head is to have what its entropy would grow to, or the same as at the trained length."""
    extensions: tuple[Any, ...] = ()
    """Tables of a name and settings, around the encoding while all weights are trained."""
    initial: float = 1.0
    """Of the scales: the best uniform scale at the target length, or 1 in the ablation."""
    floor: float = 1.0
    """The focus constraint: no scale is ever below it; 0 in the ablation."""
    learning_rate: float = 0.1
    steps: int = 200
    """Updates; by entropy, how often the interval of a scale is halved."""
    batch: int = 8
    """Sequences of a step; by entropy, all there are."""
    seed: int = 0
    """Of the order of the sequences."""
    scales: Literal["head", "layer"] = "head"
    """A scale for each head, or one for all heads of a layer."""
    split: Literal["train", "validation"] = "train"
    """Documents that are read: those of training, or fresh ones, on which uniform scales are searched, too."""
    passkey_share: float = 0.0
    """Of the sequences: how many are passkey documents, as in training. The rest is text."""
    scored: int = 0
    """Only so many tokens at the end of a text count, as where perplexity is measured; 0 for all."""

    def __post_init__(self) -> None:
        for name in ("length", "steps", "batch"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be 1 or more, not {getattr(self, name)}")
        if self.learning_rate <= 0:
            raise ValueError(f"learning_rate must be above 0, not {self.learning_rate}")
        if self.method == "entropy" and not self.head_scale:
            raise ValueError("only head scales are found by entropy; all parameters are trained by gradient")
        if self.method == "gradient" and self.target != "growth":
            raise ValueError("target is what scales by entropy aim at; those that are trained have none")
        if not 0 <= self.passkey_share <= 1:
            raise ValueError(f"passkey_share must be between 0 and 1, not {self.passkey_share}")
        if not 0 <= self.scored <= self.length:
            raise ValueError(f"scored must be between 0 and length {self.length:,}, not {self.scored:,}")
        if self.method == "entropy" and (self.scales == "layer" or self.passkey_share or self.scored):
            raise ValueError("by entropy every head has a scale, and texts are read whole: leave the others out")
        if self.scales == "layer" and not self.head_scale:
            raise ValueError("scales are of heads or of layers where only they are trained")
        if self.head_scale and self.extensions:
            raise ValueError("head scales are fitted alone, without other extensions")
        if not self.head_scale and not self.extensions:
            raise ValueError("fine-tuning needs an extension, e.g. yarn:factor=4")


@dataclass(frozen=True)
class Fitted:
    settings: FitSettings
    model: Reader
    """The extended model, trained; it shares with the loaded model whatever was frozen."""
    learned: dict[str, Tensor]
    """What was trained, on the CPU: `scales_LH`, or all weights under the names of the bare decoder."""
    losses: list[float]
    """Of every step, before its update."""
    seconds: float


def fit(
    loaded: LoadedModel,
    windows: TrainingWindows,
    settings: FitSettings,
    listener: Listener | None = None,
    told: Callable[[int, HeadScale | None], None] = lambda step, scales: None,
) -> Fitted:
    """Fits at `settings.length`, which `windows` must have; the loaded model's own weights stay as they are.

    `told` after every step, of its number and the scales that are being learned.
    """
    if windows.length != settings.length:
        raise ValueError(f"windows of {windows.length} tokens for a fit at {settings.length}")
    began = time.monotonic()
    scales: HeadScale | None = None
    if settings.head_scale:
        scales = head_scale_of(settings)
        base, model = loaded.model, loaded.model.extended([scales], settings.length)
    else:
        base = loaded.model.copied()
        model = base.extended([make_extension(table) for table in settings.extensions], settings.length)
        model.require_gradients(True)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    training = _Fit(model, parameters, sequences_of(loaded, windows, settings), settings, scales, told)
    loop = Loop(settings.steps, settings.steps, READ_EVERY, listener=listener or Listener())
    loop.train(training)
    if loop.interrupted():
        raise KeyboardInterrupt
    learned = base.weights() if scales is None else {"scales_LH": scales.scales_LH}
    kept = {name: value.detach().cpu().clone() for name, value in learned.items()}
    return Fitted(settings, model.require_gradients(False), kept, training.losses, time.monotonic() - began)


class _Fit:
    """The training of some parameters, as the loop sees it; too short to be saved or validated on the way."""

    def __init__(
        self,
        model: Reader,
        parameters: Sequence[nn.Parameter],
        sequences: FitSequences,
        settings: FitSettings,
        scales: HeadScale | None,
        told: Callable[[int, HeadScale | None], None],
    ) -> None:
        self.model, self.parameters, self.sequences, self.settings = model, parameters, sequences, settings
        self.scales, self.told = scales, told
        self.step, self.seconds = 0, 0.0
        self.losses: list[float] = []
        self.device = parameters[0].device
        self.optimizer = torch.optim.AdamW(
            parameters, lr=settings.learning_rate, betas=(0.9, 0.95), weight_decay=0.0, fused=self.device.type == "cuda"
        )
        tokens = settings.batch * settings.length
        self.schedule = LanguageTraining(
            tokens=settings.steps * tokens,
            batch_tokens=tokens,
            learning_rate=settings.learning_rate,
            warmup=0.1,
            final_share=0.1,
        )

    @property
    def reached(self) -> "_Fit":
        return self

    def prepare(self, first: int, end: int) -> list[tuple[int, list[KeyPart]]]:
        batch = self.settings.batch
        return [(step, self.sequences.parts(step * batch, batch)) for step in range(first, end)]

    def update(self, steps: list[tuple[int, list[KeyPart]]]) -> Measured:
        # Read back together: waiting for each would leave a GPU idle while the next step is launched.
        return Measured(torch.stack([self._step(step, parts) for step, parts in steps]).cpu())

    def _step(self, step: int, parts: list[KeyPart]) -> Tensor:
        """Its loss and the norm of its gradient, (2, 1)."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.schedule.learning_rate_at(step)
        self.optimizer.zero_grad(set_to_none=True)
        loss = _gradients(self.model, parts, self.settings.scored)
        norm = nn.utils.clip_grad_norm_(self.parameters, 1.0)
        self.optimizer.step()
        if self.scales is not None:
            self.scales.constrain()
        self.told(step, self.scales)
        return torch.stack([loss, norm.double()])[:, None]

    def note(self, first: int, measured: Measured) -> None:
        losses_KN, norms_KN = measured.read()
        broken = np.flatnonzero(~np.isfinite(norms_KN[:, 0]))
        if len(broken):
            step = first + int(broken[0]) + 1
            raise RunError(f"the gradient of step {step} is not finite; choose a lower learning rate")
        self.losses += losses_KN[:, 0].tolist()

    def settle(self) -> None:
        pass

    def validate(self) -> None:
        pass

    def save(self) -> None:
        pass


def _gradients(model: Reader, parts: Sequence[KeyPart], scored: int) -> Tensor:
    """Adds the gradients of the mean loss over all targets of a step, a few rows at a time; returns the loss.

    `scored`: of a text, tokens at its end that count; 0 for all.
    """
    device = model.device
    counted = [part.targets_RT.shape[1] if part.segments_RT is not None else scored or part.targets_RT.shape[1]
               for part in parts]  # fmt: skip
    targets = sum(len(part.targets_RT) * last for part, last in zip(parts, counted, strict=True))
    total = torch.zeros((), dtype=torch.float64, device=device)
    for part, last in zip(parts, counted, strict=True):
        rows, length = part.tokens_RT.shape
        together = min(rows, rows_together(model, length))
        forget = _remembered(model, together * length) > REMEMBERED[device.type]
        for first in range(0, rows, together):
            some = slice(first, first + together)
            tokens_BT, targets_BT = (
                torch.from_numpy(each[some]).to(device) for each in (part.tokens_RT, part.targets_RT)
            )
            segments_BT = None if part.segments_RT is None else torch.from_numpy(part.segments_RT[some]).to(device)
            with model.arithmetic():
                hidden_BTD = model.hidden(tokens_BT, forget, segments_BT=segments_BT)
                loss = token_losses(model, hidden_BTD[:, -last:], targets_BT[:, -last:]).sum() / targets
            loss.backward()
            total += loss.detach()
    return total


def sequences_of(loaded: LoadedModel, windows: TrainingWindows, settings: FitSettings) -> FitSequences:
    """What a fit of these settings reads."""
    keys = None
    if settings.passkey_share:
        documents = KeyDocuments(loaded.tokenizer, loaded.begins)
        keys = KeyRows(documents, loaded.ends, settings.length, settings.seed)
    return FitSequences(windows, keys, settings.passkey_share)


def _remembered(model: Reader, tokens: int) -> int:
    """About how many bytes a pass keeps for its backward pass: a dozen tensors of the width, four of the inner one."""
    return tokens * model.layers * (12 * model.width + 4 * model.inner_width) * 4


def apply(loaded: LoadedModel, settings: FitSettings, learned: dict[str, Tensor], context: int) -> Reader:
    """The extended model that a fit has made of the loaded model, to read so many tokens."""
    if settings.head_scale:
        scales = head_scale_of(settings)
        model = loaded.model.extended([scales], context)
        if learned["scales_LH"].shape != scales.scales_LH.shape:
            shapes = [tuple(each.shape) for each in (learned["scales_LH"], scales.scales_LH)]
            raise UserError(f"{shapes[0]} scales do not fit a model with {shapes[1]} layers and heads")
        with torch.no_grad():
            scales.scales_LH.copy_(learned["scales_LH"])
        return model.require_gradients(False)
    base = loaded.model.copied()
    base.put(learned)
    return base.extended([make_extension(table) for table in settings.extensions], context)


def head_scale_of(settings: FitSettings) -> HeadScale:
    table = {"initial": settings.initial, "floor": settings.floor, "by": settings.scales}
    made = make_extension({"name": "head-scale", **table})
    assert isinstance(made, HeadScale)
    return made
