"""HeadScale (Wang et al. 2024): one trained number for each layer and query head, everything else frozen.

Shape letters: B batch, H query heads (1 for one number a layer), T queries, L layers.
"""

from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import nn

from lengthwise.encodings.contribution import Contribution
from lengthwise.encodings.encoding import Geometry
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.errors import UserError
from lengthwise.extensions.extension import Extension


class HeadScale(Extension):
    """Multiplies the attention logits of each head of each layer by a number of its own, which can be trained.

    Before any bias is added. The numbers come into being with the first model that is extended; `scales_LH` has them.
    """

    name = "head-scale"
    per_layer = True

    @dataclass(frozen=True)
    class Config:
        initial: float = 1.6
        """Published: the best uniform scale, 1.6 for 4 times the trained length, 1.7 for 9 times; 1 in the ablation."""
        floor: float = 1.0
        """The focus constraint, which `constrain` puts into effect: no scale below it. 0 in the ablation."""
        by: Literal["head", "layer"] = "head"
        """A number for each head, as published, or one for all heads of a layer."""

        def __post_init__(self) -> None:
            if self.floor < 0:
                raise ValueError(f"floor must be 0 or more, not {self.floor}")
            if self.initial < self.floor or self.initial <= 0:
                raise ValueError(f"initial must be above 0 and not below floor {self.floor}, not {self.initial}")

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self._scales_LH: nn.Parameter | None = None

    @property
    def scales_LH(self) -> nn.Parameter:
        if self._scales_LH is None:
            raise UserError("head-scale has no scales before a model is extended with it")
        return self._scales_LH

    def parameters(self) -> list[nn.Parameter]:
        return [self.scales_LH]

    @torch.no_grad()
    def constrain(self) -> None:
        """To be called after each step of the optimizer."""
        self.scales_LH.clamp_(min=self.config.floor)

    def attach(self, geometry: Geometry) -> None:
        shape = (geometry.layers, geometry.heads if self.config.by == "head" else 1)
        if self._scales_LH is None:
            self._scales_LH = nn.Parameter(torch.full(shape, self.config.initial, dtype=torch.float32))
        if self._scales_LH.shape != shape:
            have, want = tuple(self._scales_LH.shape), shape
            raise UserError(f"this head-scale has scales for {have} layers and heads, and the model has {want}")

    def extend(self, contribution: Contribution, layout: AttentionLayout, geometry: Geometry) -> Contribution:
        if self.scales_LH.dtype != torch.float32:
            raise UserError(
                f"the scales of head-scale must stay in fp32 (bf16 steps near 1.6 are 0.0078), not "
                f"{self.scales_LH.dtype}: cast the trained model before it is extended"
            )
        factor = self.scales_LH[layout.layer, :, None, None]
        return replace(contribution, scale=factor if contribution.scale is None else contribution.scale * factor)
