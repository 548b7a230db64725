"""Leaky ReRoPE (Su 2023): distances beyond a window grow more slowly."""

from dataclasses import dataclass

from lengthwise.encodings.encoding import Geometry
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.extensions.remapping import Elsewhere, Remapping


class LeakyRerope(Remapping):
    """Keeps distances within a window; beyond it they grow by one for every `factor` tokens, in fractions.

    `rerope` is what it becomes as the factor grows; the factor of the logits is put on as there.
    """

    name = "leaky-rerope"
    fractional = True
    below_trained = "window"

    @dataclass(frozen=True)
    class Config:
        window: int
        """Keys at a smaller distance are seen as in training."""
        factor: float
        """A distance d beyond the window w becomes w + (d - w) / factor."""

        def __post_init__(self) -> None:
            if self.window < 1 or self.factor < 1:
                raise ValueError(f"window and factor must be 1 or more, not {self.window} and {self.factor}")

    config: Config

    def reach(self, trained_context: int) -> int:
        return int((trained_context - self.config.window) * self.config.factor + self.config.window)

    def elsewhere(self, layout: AttentionLayout, geometry: Geometry) -> list[Elsewhere]:
        window, factor = self.config.window, self.config.factor
        query_BT = layout.query_positions_BT.float() / factor + (window - window / factor)
        return [Elsewhere(query_BT, layout.key_positions_BS.float() / factor, layout.distances_BTS >= window)]
