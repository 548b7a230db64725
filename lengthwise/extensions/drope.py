"""DroPE (Gelberg et al. 2025): a trained model is rotated no longer, and trained on for a while."""

from dataclasses import dataclass, replace
from typing import Any

from lengthwise.encodings.contribution import Contribution
from lengthwise.encodings.encoding import Geometry
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.errors import UserError
from lengthwise.extensions.extension import Extension
from lengthwise.extensions.rescaling import NEEDS_ROTATION


class Drope(Extension):
    """Rotates queries and keys no longer, in all layers or in some: what is left of rotary positions is none.

    Without further training at the trained length the model is broken. Beyond that length `uniform-scale` goes with it.
    """

    name = "drope"
    rotates = True
    needs = NEEDS_ROTATION

    @dataclass(frozen=True)
    class Config:
        layers: tuple[int, ...] = ()
        """Their numbers, from 0; none for all, as published."""

        def __post_init__(self) -> None:
            if min(self.layers, default=0) < 0 or len(set(self.layers)) < len(self.layers):
                raise ValueError(f"layers must be numbers of layers from 0 on, each once, not {list(self.layers)}")

    config: Config

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.per_layer = bool(config.layers)

    def applies(self, contribution: Contribution) -> bool:
        return contribution.rotation is not None

    def check(self, contribution: Contribution, geometry: Geometry) -> None:
        if max(self.config.layers, default=0) >= geometry.layers:
            raise UserError(
                f"drope is to act in layer {max(self.config.layers)}, counted from 0, and the model has "
                f"{geometry.layers} layers"
            )

    def extend(self, contribution: Contribution, layout: AttentionLayout, geometry: Geometry) -> Contribution:
        if self.config.layers and layout.layer not in self.config.layers:
            return contribution
        return replace(contribution, rotation=None)

    def resolved(self, contribution: Contribution, geometry: Geometry) -> dict[str, Any]:
        return {"not_rotated": list(self.config.layers) or list(range(geometry.layers))}
