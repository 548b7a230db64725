"""LM-Infinite (Han et al. 2024): the first and the last tokens are seen, at no larger distance than in training."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lengthwise.encodings.contribution import Contribution
from lengthwise.encodings.encoding import Geometry
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.errors import UserError
from lengthwise.extensions.remapping import Elsewhere, Remapping


class LmInfinite(Remapping):
    """Hides all but the first tokens of a sequence and those in a window; distances beyond the window are the window.

    The mask is the same for any encoding; distances are capped where there are any: in rotations and in biases.
    """

    name = "lm-infinite"
    hides = True

    @dataclass(frozen=True)
    class Config:
        global_tokens: int = 10
        """The first tokens, which are always seen. Published: 10 to 100."""
        window: int | None = None
        """The last tokens that are seen, the query's own among them. None, as published: the trained length."""

        def __post_init__(self) -> None:
            if self.global_tokens < 0:
                raise ValueError(f"global_tokens must be 0 or more, not {self.global_tokens}")
            if self.window is not None and self.window < 1:
                raise ValueError(f"window must be 1 or more, not {self.window}")

    config: Config

    def window(self, geometry: Geometry) -> int:
        return geometry.trained_context if self.config.window is None else self.config.window

    def applies(self, contribution: Contribution) -> bool:
        return True

    def check(self, contribution: Contribution, geometry: Geometry) -> None:
        super().check(contribution, geometry)
        if self.window(geometry) > geometry.trained_context:
            raise UserError(
                f"the window of lm-infinite must be at most the trained length {geometry.trained_context}, "
                f"not {self.config.window}"
            )

    def elsewhere(self, layout: AttentionLayout, geometry: Geometry) -> list[Elsewhere]:
        window = self.window(geometry)
        query_BT = torch.full_like(layout.query_positions_BT, window)
        return [Elsewhere(query_BT, torch.zeros_like(layout.key_positions_BS), layout.distances_BTS >= window)]

    def hidden_BTS(self, layout: AttentionLayout, geometry: Geometry) -> Tensor:
        later_B1S = (layout.places_BS >= self.config.global_tokens)[:, None]
        return later_B1S & (layout.distances_BTS >= self.window(geometry))
