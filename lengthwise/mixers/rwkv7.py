"""RWKV-7 (Peng et al. 2025, 2503.14456): a delta rule in which every entry has a fade and a rate of correction.

    S_t = w_t * S_(t-1) - (a_t * u_t) (u_t . S_(t-1)) + k_t v_t,   o_t = r_t . S_t,   u_t a key of length 1

w_t = exp(-0.61 sigmoid(...)) for each entry, a_t = sigmoid(...) the learning rate in context. What each token sends is
mixed with the token before it (token shift).
Departures: values are not mixed with those of the first layer, since a mixer knows no other layer; initial values are
those of a first layer, but the output and the low-rank maps do not begin at 0, where others would have no gradient; the
feed-forward is the model's own.
Shape letters: B batch, T tokens, D model width, H heads, K head width, M = 6 mixtures.
"""

import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lengthwise.encodings.card import Card
from lengthwise.encodings.encoding import Geometry
from lengthwise.mixers.mamba2 import usual_head
from lengthwise.mixers.matrix_states import scan_states
from lengthwise.mixers.memory import keep, recall
from lengthwise.mixers.mixer import Mixer
from lengthwise.model.layer import LayerPass

FASTEST = math.exp(-0.5)
"""The largest fade of one token, as a logarithm with its sign changed."""
MIXTURES = {"receptance": 0.2, "fade": 0.9, "key": 0.7, "value": 0.7, "rate": 0.9, "gate": 0.2}
"""What is made of a token and the one before it, and how steeply the initial share of the latter falls over entries."""


class Rwkv7(Mixer):
    """RWKV-7: a delta rule with a fade and a learning rate for every entry, and token shift. No positions."""

    name = "rwkv7"
    card = Card(
        kind="mixer",
        equation="S_t = w_t S_(t-1) - a_t u_t (u_t · S_(t-1)) + k_t v_t, o_t = r_t · S_t",
        source="Peng et al. 2025",
        arxiv="2503.14456",
    )

    @dataclass(frozen=True)
    class Config:
        head: int = 0
        """Width of a head; 0 for 64, as published, or less where that would be fewer than 4 heads."""
        rank: int = 0
        """Of the maps that make fades and learning rates; that of the gate is twice as high. 0 for 2.5 times the root
        of the width, in steps of 32, as published, and at most half the width."""

        def __post_init__(self) -> None:
            if self.head < 0 or self.rank < 0:
                raise ValueError("head and rank must be 0 or more")

    config: Config

    def __init__(self, config: Config, geometry: Geometry) -> None:
        super().__init__(config, geometry)
        width = geometry.width
        self.head = config.head or usual_head(width)
        if width % self.head:
            raise ValueError(f"head must divide the width {width}, which {self.head} does not")
        self.heads = width // self.head
        published = max(32, 32 * round(2.5 * width**0.5 / 32))
        self.rank = config.rank or max(1, min(published, width // 2))
        self.shift = nn.Parameter(torch.zeros(len(MIXTURES), width))
        self.receptance = nn.Linear(width, width, bias=False)
        self.key = nn.Linear(width, width, bias=False)
        self.value = nn.Linear(width, width, bias=False)
        self.fade_in, self.fade_out = nn.Linear(width, self.rank, bias=False), nn.Linear(self.rank, width)
        self.rate_in, self.rate_out = nn.Linear(width, self.rank, bias=False), nn.Linear(self.rank, width)
        self.gate_in = nn.Linear(width, 2 * self.rank, bias=False)
        self.gate_out = nn.Linear(2 * self.rank, width, bias=False)
        self.erased_key = nn.Parameter(torch.zeros(width))
        self.key_rate = nn.Parameter(torch.zeros(width))
        self.bonus = nn.Parameter(torch.zeros(width))
        self.norm_weight = nn.Parameter(torch.ones(width))
        self.norm_bias = nn.Parameter(torch.zeros(width))
        self.output = nn.Linear(width, width, bias=False)

    def forward(self, x_BTD: Tensor, here: LayerPass) -> Tensor:
        continues_BT = here.layout.continues_BT
        shapes = [(1, self.geometry.width), (self.heads, self.head, self.head)]
        before_B1D, state_BHKK = recall(here, x_BTD, shapes)
        earlier_BTD = torch.cat([before_B1D.to(x_BTD.dtype), x_BTD[:, :-1]], dim=1) * continues_BT[..., None]
        change_BTD = earlier_BTD - x_BTD
        r, w, k, v, a, g = (x_BTD + change_BTD * share_D for share_D in self.shift.unbind(0))
        gate_BTD = self.gate_out(torch.sigmoid(self.gate_in(g)))
        # In fp32 from here: a share of 0.999 is 1 in bf16, and a state that never fades is another model.
        log_fade_BTD = -FASTEST * torch.sigmoid(self.fade_out(torch.tanh(self.fade_in(w))).float())
        rate_BTD = torch.sigmoid(self.rate_out(self.rate_in(a)).float())
        r, k, v = self.receptance(r).float(), self.key(k).float(), self.value(v).float()
        erased_BTHK = F.normalize(self._heads(k * self.erased_key), dim=-1)
        k = k * (1 + (rate_BTD - 1) * self.key_rate)
        r, k, v, rate_BTHK = (self._heads(each) for each in (r, k, v, rate_BTD))
        read_BTHK, state_BHKK = scan_states(
            r,
            k,
            v,
            self._heads(log_fade_BTD),
            continues_BT,
            state_BHKK,
            erase_BTHK=-erased_BTHK,
            write_BTHK=erased_BTHK * rate_BTHK,
        )
        keep(here, [x_BTD[:, -1:], state_BHKK])
        normed_BTD = F.layer_norm(read_BTHK, (self.head,), eps=self.head * 1e-5).flatten(-2)
        normed_BTD = normed_BTD * self.norm_weight + self.norm_bias
        # A token's own value once more, past the norm.
        own_BTHK = (r * k * self._heads(self.bonus)).sum(dim=-1, keepdim=True) * v
        return self.output((normed_BTD + own_BTHK.flatten(-2)).to(x_BTD.dtype) * gate_BTD)

    def _heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.heads, self.head))

    def initial(self, name: str, generator: torch.Generator) -> Tensor | float | None:
        width = self.geometry.width
        entry_D = torch.arange(width) / max(1, width - 1)
        within = torch.linspace(-1, 1, self.head) if self.head > 1 else torch.zeros(1)
        zigzag_D = (within * within.abs()).repeat(self.heads)
        match name:
            case "shift":
                return torch.stack([1 - (torch.arange(width) / width) ** power for power in MIXTURES.values()])
            case "fade_out.bias":
                return -5.5 + 6 * entry_D + 2.5 * zigzag_D
            case "rate_out.bias":
                return -0.19 + 0.3 * zigzag_D + 0.4 * (entry_D - 0.5)
            case "erased_key":
                return 0.71 - 0.1 * (entry_D - 0.5)
            case "key_rate":
                return torch.full((width,), 1.02)
            case "bonus":
                return torch.full((width,), -0.04)
            case "norm_weight":
                return torch.ones(width)
            case "norm_bias":
                return torch.zeros(width)
            case "fade_out.weight" | "rate_out.weight":
                return 0.1 * self.rank**-0.5
            case "gate_out.weight":
                return (2 * self.rank) ** -0.5
            case "key.weight":
                return 0.1 * width**-0.5
        return width**-0.5

    def resolved(self) -> dict[str, Any]:
        return {"heads": self.heads, "head_width": self.head, "rank": self.rank}
