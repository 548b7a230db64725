"""A gated linear recurrence (as in HGRN, Qin et al. 2023): a state that every token fades and adds to.

    h_t = f_t * h_(t-1) + (1 - f_t) * i_t,   f_t = least + (1 - least) * sigmoid(...)

It has no positions and no attention: the baseline that counts by its state alone. Plain PyTorch.
Shape letters: B batch, T tokens, D model width, W state width.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lengthwise.encodings.card import Card
from lengthwise.encodings.encoding import Geometry
from lengthwise.mixers.mixer import Mixer
from lengthwise.mixers.state_norm import StateNorm
from lengthwise.model.layer import LayerPass


class GatedRecurrence(Mixer):
    """A gated linear recurrence: each token decays a state and adds to it. No positions, no attention."""

    name = "gated-recurrence"
    card = Card(
        kind="mixer",
        equation="h_t = f_t h_(t-1) + (1 - f_t) c_t",
        source="Qin et al. 2023",
        arxiv="2311.04823",
    )

    @dataclass(frozen=True)
    class Config:
        expand: float = 1.0
        """Width of the state, in widths of the model."""
        least: float = 0.0
        """The smallest share of the state that a token must keep, 0 to below 1."""

        def __post_init__(self) -> None:
            if not self.expand > 0:
                raise ValueError(f"expand must be above 0, not {self.expand}")
            if not 0 <= self.least < 1:
                raise ValueError(f"least must be at least 0 and below 1, not {self.least}")

    def __init__(self, config: Config, geometry: Geometry) -> None:
        super().__init__(config, geometry)
        width = self.state_width
        self.forget = nn.Linear(geometry.width, width)
        self.input = nn.Linear(geometry.width, width, bias=False)
        self.gate = nn.Linear(geometry.width, width, bias=False)
        self.norm = StateNorm(width, eps=1e-6)
        self.output = nn.Linear(width, geometry.width, bias=False)

    @property
    def state_width(self) -> int:
        return max(1, round(self.config.expand * self.geometry.width))

    def forward(self, x_BTD: Tensor, here: LayerPass) -> Tensor:
        # In fp32: a share of 0.999 is 1 in bf16, and a state that never fades is another model.
        kept_BTW = self.config.least + (1 - self.config.least) * torch.sigmoid(self.forget(x_BTD).float())
        added_BTW = (1 - kept_BTW) * F.silu(self.input(x_BTD).float())
        kept_BTW = kept_BTW * here.layout.continues_BT[..., None]
        state_BTW = scan(kept_BTW, added_BTW)
        if here.cache is not None:
            before_BW = here.cache.state(here.number, state_BTW[:, 0])
            state_BTW = state_BTW + kept_BTW.cumprod(dim=1) * before_BW[:, None]
            here.cache.keep_state(here.number, state_BTW[:, -1])
        normed_BTW = self.norm(state_BTW).to(x_BTD.dtype)
        return self.output(normed_BTW * F.silu(self.gate(x_BTD)))

    def initial(self, name: str, generator: torch.Generator) -> Tensor | float | None:
        if name == "forget.bias":  # states that fade within 2 to 1,000 tokens
            shares_W = 1 - torch.logspace(-3, -0.3, self.state_width)
            return torch.logit((shares_W - self.config.least).clamp(min=1e-3) / (1 - self.config.least))
        if name == "norm.weight":
            return None
        width = self.state_width if name.startswith("output") else self.geometry.width
        return width**-0.5

    def resolved(self) -> dict[str, Any]:
        return {"state_width": self.state_width}


def scan(kept_BTW: Tensor, added_BTW: Tensor) -> Tensor:
    """h_t = kept_t * h_(t-1) + added_t for all t, h before the first being 0: pairs of steps are joined to one, log2(T)
    times."""
    length, reach = kept_BTW.shape[1], 1
    while reach < length:
        # What lies `reach` tokens back is joined to each step; before the first token there is nothing.
        added_BTW = added_BTW + kept_BTW * F.pad(added_BTW, (0, 0, reach, 0))[:, :length]
        kept_BTW = kept_BTW * F.pad(kept_BTW, (0, 0, reach, 0))[:, :length]
        reach *= 2
    return added_BTW
