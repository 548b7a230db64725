"""STRING (An et al. 2025): large distances, which were met least in training, are replaced by smaller ones."""

from dataclasses import dataclass

from lengthwise.encodings.encoding import Geometry
from lengthwise.encodings.layout import AttentionLayout
from lengthwise.extensions.remapping import Elsewhere, Remapping


class String(Remapping):
    """Keeps distances below an offset; those beyond it are moved down by it, so that they begin again at a window.

    Made for sequences within the trained length, of which the largest distances are rare. The published code also
    multiplies logits by (1 + 0.1 ln 2)^2 = 1.14: put `uniform-scale` before it.
    """

    name = "string"
    below_trained = "offset"

    @dataclass(frozen=True)
    class Config:
        offset: int
        """Distances below it stay as they are. Published: a quarter to a half of the trained length."""
        window: int
        """Distances d from the offset on become d - offset + window. Published: 32 to 512."""

        def __post_init__(self) -> None:
            if not 0 <= self.window < self.offset:
                raise ValueError(f"window must be 0 or more and below offset {self.offset}, not {self.window}")

    config: Config

    def reach(self, trained_context: int) -> int:
        return trained_context + self.config.offset - self.config.window

    def elsewhere(self, layout: AttentionLayout, geometry: Geometry) -> list[Elsewhere]:
        offset, window = self.config.offset, self.config.window
        query_BT = layout.query_positions_BT - offset + window
        return [Elsewhere(query_BT, layout.key_positions_BS, layout.distances_BTS >= offset)]
