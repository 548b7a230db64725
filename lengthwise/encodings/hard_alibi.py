"""Hard-ALiBi (Jelassi et al. 2024): some heads see only the last few keys, the others everything without positions."""

from dataclasses import dataclass
from typing import Any

from lengthwise.encodings.card import Card
from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding, Geometry

EVERYTHING = 2**30


class HardAlibi(Encoding):
    """Windows of 1, 2, 3, ... keys for half of the heads; the other half sees all keys."""

    name = "hard-alibi"
    card = Card(
        kind="mask",
        equation='"seen where" d < h "for half of the heads, everywhere for the others"',
        source="Jelassi et al. 2024",
        arxiv="2402.01032",
    )

    @dataclass(frozen=True)
    class Config:
        windowed: int = 0
        """Heads with a window; 0 for half of them, as published (8 of 16)."""

        def __post_init__(self) -> None:
            if self.windowed < 0:
                raise ValueError(f"windowed must be 0 or more, not {self.windowed}")

    config: Config

    def __init__(self, config: Config, geometry: Geometry) -> None:
        super().__init__(config, geometry)
        windowed = config.windowed or geometry.heads // 2
        if windowed > geometry.heads:
            raise ValueError(f"windowed must be at most the {geometry.heads} heads, not {config.windowed}")
        self.windows = (*range(1, windowed + 1), *[EVERYTHING] * (geometry.heads - windowed))

    def contribute(self, layout: AttentionLayout) -> Contribution:
        return Contribution(window=self.windows)

    def resolved(self) -> dict[str, Any]:
        return {"windows": [None if window == EVERYTHING else window for window in self.windows]}
