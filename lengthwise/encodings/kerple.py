"""KERPLE (Chi et al. 2022): a learned penalty of each head that grows with the logarithm, or a power, of distance."""

from dataclasses import dataclass
from typing import Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from lengthwise.encodings.card import Card
from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding, Geometry


class Kerple(Encoding):
    """A penalty p ln(1 + a d) at distance d, or a d^p, with learned p and a of each head, shared by all layers."""

    name = "kerple"
    card = Card(
        kind="bias",
        equation='b_h(d) = -p_h ln(1 + a_h d) "or" -a_h d^(p_h)',
        source="Chi et al. 2022",
        arxiv="2205.09921",
    )

    @dataclass(frozen=True)
    class Config:
        kernel: Literal["log", "power"] = "log"

    config: Config

    def __init__(self, config: Config, geometry: Geometry) -> None:
        super().__init__(config, geometry)
        # The authors keep p and a above 0.01 by overwriting them in each pass; a softplus keeps them above 0, and a
        # sigmoid the power below 2.
        self.raw_p = nn.Parameter(torch.zeros(geometry.heads))
        self.raw_a = nn.Parameter(torch.zeros(geometry.heads))

    def initial(self, name: str, generator: torch.Generator) -> Tensor:
        """Published: p uniform in 0 to 2, a in 0 to 1."""
        share = torch.rand(self.geometry.heads, generator=generator).clamp(0.005, 0.995)
        if name == "raw_p" and self.config.kernel == "power":
            return share.logit()
        return (2 * share if name == "raw_p" else share).expm1().log()

    def contribute(self, layout: AttentionLayout) -> Contribution:
        return Contribution(distance_bias=self.penalty)

    def penalty(self, distance: Tensor) -> Tensor:
        shape = (-1, *[1] * distance.ndim)
        a, d = F.softplus(self.raw_a.float()).view(shape), distance.float()
        if self.config.kernel == "log":
            return -F.softplus(self.raw_p.float()).view(shape) * (a * d).log1p()
        p = 2 * self.raw_p.float().sigmoid().view(shape)
        # The power of 0 is 0, and its gradient with respect to p too.
        return -a * torch.where(d > 0, d.clamp(min=1) ** p, 0.0)
