"""Learning to read longer sequences: the scales of the heads alone, or all weights under a rescaling.

Published: 200 steps of 8 sequences at the target length, AdamW (0.9, 0.95) without decay, gradients clipped at 1, a
warm-up over a tenth of the steps, then half a cosine down to a tenth. Head scales: learning rate 0.1 or 0.05, from the
best uniform scale on, never below 1. All weights: 1e-4.
Shape letters: K steps, N models (here one), R rows, T tokens.
"""

import copy
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from lengthwise.context_extension.fitting_rows import TrainingWindows
from lengthwise.context_extension.forward import arithmetic, device_of, hidden_states, rows_together, token_losses
from lengthwise.context_extension.loaded_model import LoadedModel
from lengthwise.errors import RunError, UserError
from lengthwise.extensions.extended import Extended, extended, make_extension
from lengthwise.extensions.head_scale import HeadScale
from lengthwise.language.settings import LanguageTraining
from lengthwise.model.decoder import Decoder
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
        if self.head_scale and self.extensions:
            raise ValueError("head scales are fitted alone, without other extensions")
        if not self.head_scale and not self.extensions:
            raise ValueError("fine-tuning needs an extension, e.g. yarn:factor=4")


@dataclass(frozen=True)
class Fitted:
    settings: FitSettings
    model: Extended
    """The extended model, trained; it shares with the subject's whatever was frozen."""
    learned: dict[str, Tensor]
    """What was trained, on the CPU: `scales_LH`, or all weights under the names of the bare decoder."""
    losses: list[float]
    """Of every step, before its update."""
    seconds: float


def fit(
    subject: LoadedModel,
    windows: TrainingWindows,
    settings: FitSettings,
    listener: Listener | None = None,
    told: Callable[[int, HeadScale | None], None] = lambda step, scales: None,
) -> Fitted:
    """Fits at `settings.length`, which `windows` must have; the subject's own weights stay as they are.

    `told` after every step, of its number and the scales that are being learned.
    """
    if windows.length != settings.length:
        raise ValueError(f"windows of {windows.length} tokens for a fit at {settings.length}")
    began = time.monotonic()
    scales: HeadScale | None = None
    if settings.head_scale:
        scales = head_scale_of(settings)
        base, model = subject.model, extended(subject.model, [scales], settings.length)
    else:
        base = copy.deepcopy(subject.model)
        model = extended(base, [make_extension(table) for table in settings.extensions], settings.length)
        model.requires_grad_(True)
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    training = _Fit(model, parameters, windows, settings, scales, told)
    loop = Loop(settings.steps, settings.steps, READ_EVERY, listener=listener or Listener())
    loop.train(training)
    if loop.asked_to_stop():
        raise KeyboardInterrupt
    learned = dict(base.state_dict()) if scales is None else {"scales_LH": scales.scales_LH}
    kept = {name: value.detach().cpu().clone() for name, value in learned.items()}
    return Fitted(settings, model.requires_grad_(False), kept, training.losses, time.monotonic() - began)


class _Fit:
    """The training of some parameters, as the loop sees it; too short to be saved or validated on the way."""

    def __init__(
        self,
        model: Extended,
        parameters: Sequence[nn.Parameter],
        windows: TrainingWindows,
        settings: FitSettings,
        scales: HeadScale | None,
        told: Callable[[int, HeadScale | None], None],
    ) -> None:
        self.model, self.parameters, self.windows, self.settings = model, parameters, windows, settings
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

    def prepare(self, first: int, end: int) -> list[tuple[int, Any]]:
        batch = self.settings.batch
        return [(step, self.windows.rows(step * batch, batch)) for step in range(first, end)]

    def update(self, steps: list[tuple[int, Any]]) -> Measured:
        # Read back together: waiting for each would leave a GPU idle while the next step is launched.
        return Measured(torch.stack([self._step(step, rows_RT) for step, rows_RT in steps]).cpu())

    def _step(self, step: int, rows_RT: Any) -> Tensor:
        """Its loss and the norm of its gradient, (2, 1)."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.schedule.learning_rate_at(step)
        self.optimizer.zero_grad(set_to_none=True)
        loss = _gradients(self.model, rows_RT)
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


def _gradients(model: Decoder, rows_RT: Any) -> Tensor:
    """Adds the gradients of the mean loss over all targets of a step, a few rows at a time; returns the loss."""
    device = device_of(model)
    tokens_RT = torch.from_numpy(rows_RT).to(device)
    rows, length = tokens_RT.shape[0], tokens_RT.shape[1] - 1
    together = min(rows, rows_together(model, length))
    forget = _remembered(model, together * length) > REMEMBERED[device.type]
    total = torch.zeros((), dtype=torch.float64, device=device)
    for tokens_BT in tokens_RT.split(together):
        with arithmetic(device):
            hidden_BTD = hidden_states(model, tokens_BT[:, :-1], forget)
            loss = token_losses(model, hidden_BTD, tokens_BT[:, 1:]).sum() / (rows * length)
        loss.backward()
        total += loss.detach()
    return total


def _remembered(model: Decoder, tokens: int) -> int:
    """About how many bytes a pass keeps for its backward pass: a dozen tensors of the width, four of the inner one."""
    config = model.config
    return tokens * config.layers * (12 * config.width + 4 * config.inner_width) * 4


def apply(subject: LoadedModel, settings: FitSettings, learned: dict[str, Tensor], context: int) -> Extended:
    """The extended model that a fit has made of the subject, to read so many tokens."""
    if settings.head_scale:
        scales = head_scale_of(settings)
        model = extended(subject.model, [scales], context)
        if learned["scales_LH"].shape != scales.scales_LH.shape:
            shapes = [tuple(each.shape) for each in (learned["scales_LH"], scales.scales_LH)]
            raise UserError(f"{shapes[0]} scales do not fit a model with {shapes[1]} layers and heads")
        with torch.no_grad():
            scales.scales_LH.copy_(learned["scales_LH"])
        return model.requires_grad_(False)
    base = copy.deepcopy(subject.model)
    base.load_state_dict(learned)
    return extended(base, [make_extension(table) for table in settings.extensions], context)


def head_scale_of(settings: FitSettings) -> HeadScale:
    made = make_extension({"name": "head-scale", "initial": settings.initial, "floor": settings.floor})
    assert isinstance(made, HeadScale)
    return made
