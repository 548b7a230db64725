"""StreamingLLM (Xiao et al. 2024): the first tokens and the recent ones are seen, as if nothing lay between them."""

from dataclasses import dataclass

import torch
from torch import Tensor

from lengthwise.encodings.contribution import Contribution
from lengthwise.encodings.encoding import Geometry
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.errors import UserError
from lengthwise.extensions.remapping import Elsewhere, Remapping


class Streaming(Remapping):
    """Hides all but the first tokens (the attention sinks) and the recent ones, and closes the gap between them.

    Positions are places among the tokens that are seen. The numbers are those of a cache from which the others have
    been removed; here they are kept, so that this is about quality and saves neither time nor memory.
    """

    name = "streaming"
    hides = True

    @dataclass(frozen=True)
    class Config:
        first: int = 4
        """Published: four tokens suffice."""
        recent: int | None = None
        """The last tokens that are seen, the query's own among them. None: as many as make up the trained length."""

        def __post_init__(self) -> None:
            if self.first < 0:
                raise ValueError(f"first must be 0 or more, not {self.first}")
            if self.recent is not None and self.recent < 1:
                raise ValueError(f"recent must be 1 or more, not {self.recent}")

    config: Config

    def recent(self, geometry: Geometry) -> int:
        return geometry.trained_context - self.config.first if self.config.recent is None else self.config.recent

    def applies(self, contribution: Contribution) -> bool:
        return True

    def check(self, contribution: Contribution, geometry: Geometry) -> None:
        super().check(contribution, geometry)
        first, recent, trained = self.config.first, self.recent(geometry), geometry.trained_context
        if recent < 1 or first + recent > trained:
            raise UserError(
                f"the first {first} and the recent tokens of streaming must be at most {trained} together, "
                "the trained length"
            )

    def elsewhere(self, layout: AttentionLayout, geometry: Geometry) -> list[Elsewhere]:
        first, last = self.config.first, self.config.first + self.recent(geometry) - 1
        query_BT = torch.full_like(layout.query_positions_BT, last)
        beyond_BT1 = (layout.of_queries(layout.places_BS) > last)[..., None]
        return [Elsewhere(query_BT, layout.places_BS, beyond_BT1 & (layout.places_BS < first)[:, None])]

    def hidden_BTS(self, layout: AttentionLayout, geometry: Geometry) -> Tensor:
        return (layout.places_BS >= self.config.first)[:, None] & (layout.distances_BTS >= self.recent(geometry))
