"""Gated DeltaNet (Yang et al. 2024, 2412.06464): what a key held is erased in part before a new value is written to it.

    S_t = alpha_t (S_(t-1) - beta_t k_t (k_t . S_(t-1))) + beta_t k_t v_t,   o_t = q_t . S_t

As published: queries, keys and values through short convolutions, queries and keys of length 1, a norm for each head, a
gate. With `negative`, beta may reach 2, and a token may turn a state around (Grazzi et al. 2024, 2411.12537): parity.
Shape letters: B batch, T tokens, D model width, H heads, K key width, V value width.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lengthwise.encodings.card import Card
from lengthwise.encodings.encoding import Geometry
from lengthwise.mixers.convolution import CausalConvolution
from lengthwise.mixers.mamba2 import usual_steps
from lengthwise.mixers.matrix_states import scan_states
from lengthwise.mixers.memory import keep, recall
from lengthwise.mixers.mixer import Mixer
from lengthwise.mixers.state_norm import StateNorm
from lengthwise.model.layer import LayerPass


class GatedDeltaNet(Mixer):
    """Gated DeltaNet: a state that each token fades and corrects at its key. No positions."""

    name = "gated-delta-net"
    card = Card(
        kind="mixer",
        equation="S_t = α_t (I - β_t k_t k_t^⊤) S_(t-1) + β_t k_t v_t^⊤, o_t = q_t · S_t",
        source="Yang et al. 2024",
        arxiv="2412.06464",
    )

    @dataclass(frozen=True)
    class Config:
        heads: int = 0
        """0 for as many as attention has."""
        keys: float = 0.75
        """Width of the keys of all heads, in widths of the model."""
        expand: float = 2.0
        """Width of values, in widths of keys."""
        negative: bool = False
        """Whether beta lies in (0, 2) and not in (0, 1), so that a step may have a negative eigenvalue."""
        convolution: int = 4
        """Tokens that the convolutions see."""

        def __post_init__(self) -> None:
            if self.heads < 0:
                raise ValueError(f"heads must be 0 or more, not {self.heads}")
            if not (self.keys > 0 and self.expand > 0):
                raise ValueError("keys and expand must be above 0")
            if self.convolution < 2:
                raise ValueError(f"convolution must be 2 or more, not {self.convolution}")

    config: Config

    def __init__(self, config: Config, geometry: Geometry) -> None:
        super().__init__(config, geometry)
        self.heads = config.heads or geometry.heads
        self.key = max(1, round(config.keys * geometry.width / self.heads))
        self.value = max(1, round(config.expand * self.key))
        self.sizes = [self.heads * self.key, self.heads * self.key, self.heads * self.value]
        self.input = nn.Linear(geometry.width, sum(self.sizes), bias=False)
        self.convolution = CausalConvolution(sum(self.sizes), config.convolution)
        self.fade = nn.Linear(geometry.width, self.heads, bias=False)
        self.strength = nn.Linear(geometry.width, self.heads, bias=False)
        self.gate = nn.Linear(geometry.width, self.sizes[2], bias=False)
        self.step_bias = nn.Parameter(torch.zeros(self.heads))
        self.log_rate = nn.Parameter(torch.zeros(self.heads))
        self.norm = StateNorm(self.value, eps=1e-5)
        self.output = nn.Linear(self.sizes[2], geometry.width, bias=False)

    def forward(self, x_BTD: Tensor, here: LayerPass) -> Tensor:
        continues_BT = here.layout.continues_BT
        state_shape = (self.heads, self.key, self.value)
        before, state_BHKV = recall(here, x_BTD, [self.convolution.remembered, state_shape])
        mixed, before = self.convolution(self.input(x_BTD), continues_BT, before)
        # In fp32 from here, as in every recurrence: bf16 would not tell a share of 0.999 from 1.
        parts = F.silu(mixed).float().split(self.sizes, dim=-1)
        q_BTHK, k_BTHK, v_BTHV = (part.unflatten(-1, (self.heads, -1)) for part in parts)
        q_BTHK, k_BTHK = unit(q_BTHK), unit(k_BTHK)
        step_BTH = F.softplus(self.fade(x_BTD).float() + self.step_bias.float())
        log_fade_BTH1 = -(step_BTH * self.log_rate.float().exp())[..., None]
        largest = 2.0 if self.config.negative else 1.0
        beta_BTH1 = largest * torch.sigmoid(self.strength(x_BTD).float())[..., None]
        read_BTHV, state_BHKV = scan_states(
            q_BTHK,
            beta_BTH1 * k_BTHK,
            v_BTHV,
            log_fade_BTH1,
            continues_BT,
            state_BHKV,
            erase_BTHK=log_fade_BTH1.exp() * k_BTHK,  # of the state as it has faded
            write_BTHK=-beta_BTH1 * k_BTHK,
        )
        keep(here, [before, state_BHKV])
        normed = self.norm(read_BTHV).flatten(-2).to(x_BTD.dtype)
        return self.output(normed * F.silu(self.gate(x_BTD)))

    def initial(self, name: str, generator: torch.Generator) -> Tensor | float | None:
        if name == "log_rate":  # rates of 0 to 16, as published
            return torch.log(16 * torch.rand(self.heads, generator=generator).clamp(min=1e-3))
        if name == "step_bias":
            return usual_steps(self.heads, generator)
        if name.startswith(("norm", "convolution")):
            return None
        return (self.sizes[2] if name.startswith("output") else self.geometry.width) ** -0.5

    def resolved(self) -> dict[str, Any]:
        return {"heads": self.heads, "key_width": self.key, "value_width": self.value}


def unit(x: Tensor) -> Tensor:
    """Of length 1. The small number: at 0 the gradient stays finite."""
    return x * (x.square().sum(dim=-1, keepdim=True) + 1e-6).rsqrt()
