"""Mamba-2 (Dao and Gu 2024): a state space whose one fade a head, input and output depend on the token.

    h_t = exp(-d_t a) h_(t-1) + d_t b_t x_t,   y_t = c_t . h_t + skip * x_t,   d_t = softplus(...)

As published: a causal convolution of x, b and c, a gate, a norm before the output. b and c are shared by all heads.
Shape letters: B batch, T tokens, D model width, I inner width, H heads, K state, V head width.
"""

from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lengthwise.encodings.card import Card
from lengthwise.encodings.encoding import Geometry
from lengthwise.mixers.convolution import CausalConvolution
from lengthwise.mixers.matrix_states import scan_states
from lengthwise.mixers.memory import keep, recall
from lengthwise.mixers.mixer import Mixer
from lengthwise.mixers.state_norm import StateNorm
from lengthwise.model.layer import LayerPass


class Mamba2(Mixer):
    """Mamba-2: a state that each token fades, adds to and reads, a short convolution and a gate. No positions."""

    name = "mamba2"
    card = Card(
        kind="mixer",
        equation="h_t = e^(-δ_t a) h_(t-1) + δ_t b_t x_t, y_t = c_t · h_t + s x_t",
        source="Dao and Gu 2024",
        arxiv="2405.21060",
    )

    @dataclass(frozen=True)
    class Config:
        state: int = 0
        """Numbers of the state for each entry of a head; 0 for a quarter of the model's width, 16 to 128. Published:
        128."""
        head: int = 0
        """Width of a head; 0 for 64, as published, or less where that would be fewer than 4 heads."""
        expand: int = 2
        """Inner width, in widths of the model."""
        convolution: int = 4
        """Tokens that the convolution sees."""

        def __post_init__(self) -> None:
            if self.state < 0 or self.head < 0:
                raise ValueError("state and head must be 0 or more")
            if self.expand < 1:
                raise ValueError(f"expand must be 1 or more, not {self.expand}")
            if self.convolution < 2:
                raise ValueError(f"convolution must be 2 or more, not {self.convolution}")

    config: Config

    def __init__(self, config: Config, geometry: Geometry) -> None:
        super().__init__(config, geometry)
        self.inner = config.expand * geometry.width
        self.head = config.head or usual_head(self.inner)
        if self.inner % self.head:
            raise ValueError(f"head must divide the inner width {self.inner}, which {self.head} does not")
        self.heads = self.inner // self.head
        self.state = config.state or min(128, max(16, geometry.width // 4))
        self.sizes = [self.inner, self.inner + 2 * self.state, self.heads]
        self.input = nn.Linear(geometry.width, sum(self.sizes), bias=False)
        self.convolution = CausalConvolution(self.sizes[1], config.convolution, bias=True)
        self.step_bias = nn.Parameter(torch.zeros(self.heads))
        self.log_rate = nn.Parameter(torch.zeros(self.heads))
        self.skip = nn.Parameter(torch.ones(self.heads))
        self.norm = StateNorm(self.inner, eps=1e-5)
        self.output = nn.Linear(self.inner, geometry.width, bias=False)

    def forward(self, x_BTD: Tensor, here: LayerPass) -> Tensor:
        continues_BT = here.layout.continues_BT
        state_shape = (self.heads, self.state, self.head)
        before, state_BHKV = recall(here, x_BTD, [self.convolution.remembered, state_shape])
        gate_BTI, mixed, step_BTH = self.input(x_BTD).split(self.sizes, dim=-1)
        mixed, before = self.convolution(mixed, continues_BT, before)
        # In fp32 from here: a share of 0.999 is 1 in bf16, and a state that never fades is another model.
        x_BTI, b_BTK, c_BTK = F.silu(mixed).float().split([self.inner, self.state, self.state], dim=-1)
        x_BTHV = x_BTI.unflatten(-1, (self.heads, self.head))
        step_BTH1 = F.softplus(step_BTH.float() + self.step_bias.float())[..., None]
        log_fade_BTH1 = -step_BTH1 * self.log_rate.float().exp()[:, None]
        read_BTHV, state_BHKV = scan_states(
            c_BTK[:, :, None], b_BTK[:, :, None], step_BTH1 * x_BTHV, log_fade_BTH1, continues_BT, state_BHKV
        )
        keep(here, [before, state_BHKV])
        read_BTHV = read_BTHV + self.skip.float()[:, None] * x_BTHV
        gated_BTI = read_BTHV.flatten(-2) * F.silu(gate_BTI.float())
        return self.output(self.norm(gated_BTI).to(x_BTD.dtype))

    def initial(self, name: str, generator: torch.Generator) -> Tensor | float | None:
        if name == "log_rate":  # rates of 1 to 16, as published
            return torch.log(1 + 15 * torch.rand(self.heads, generator=generator))
        if name == "step_bias":
            return usual_steps(self.heads, generator)
        if name == "skip":
            return torch.ones(self.heads)
        if name.startswith(("norm", "convolution")):
            return None
        return (self.inner if name.startswith("output") else self.geometry.width) ** -0.5

    def resolved(self) -> dict[str, Any]:
        return {"heads": self.heads, "head_width": self.head, "state": self.state, "inner_width": self.inner}


def usual_head(width: int) -> int:
    """The widest head that divides a width, up to 64, of which there are 4 or more (or all are of width 1)."""
    return max(head for head in range(1, 65) if head == 1 or (width % head == 0 and width // head >= 4))


def usual_steps(count: int, generator: torch.Generator) -> Tensor:
    """Biases with which softplus gives steps spread evenly in their logarithm over 0.001 to 0.1, as published."""
    steps = 0.001 * (0.1 / 0.001) ** torch.rand(count, generator=generator)
    return steps.expm1().log()  # the inverse of softplus
