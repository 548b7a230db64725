"""SelfExtend (Jin et al. 2024): distances beyond a window are counted in groups of tokens."""

from dataclasses import dataclass

from lengthwise.encodings.encoding import Geometry
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.extensions.remapping import Elsewhere, Remapping


class SelfExtend(Remapping):
    """Keeps distances within a window and counts those beyond it in groups: they stay within the trained ones."""

    name = "self-extend"
    below_trained = "window"

    @dataclass(frozen=True)
    class Config:
        group: int
        """Tokens that share a position, beyond the window."""
        window: int
        """Keys at a smaller distance are seen as in training."""

        def __post_init__(self) -> None:
            if self.group < 1 or self.window < 1:
                raise ValueError(f"group and window must be 1 or more, not {self.group} and {self.window}")

    config: Config

    @property
    def shift_invariant(self) -> bool:
        return False  # where groups begin depends on absolute positions

    def reach(self, trained_context: int) -> int:
        return (trained_context - self.config.window) * self.config.group + self.config.window

    def elsewhere(self, layout: AttentionLayout, geometry: Geometry) -> list[Elsewhere]:
        group, window = self.config.group, self.config.window
        # The shift makes grouped distances go on where the window ends.
        query_BT = layout.query_positions_BT // group + window - window // group
        return [Elsewhere(query_BT, layout.key_positions_BS // group, layout.distances_BTS >= window)]
