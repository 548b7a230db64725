"""A sliding window (Beltagy et al. 2020): every query sees only the nearest keys. Goes with any encoding."""

from dataclasses import dataclass
from typing import Any

from lengthwise.encodings.card import Card
from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding


class Window(Encoding):
    """Hides keys at a distance of `size` and beyond."""

    name = "window"
    card = Card(
        kind="mask",
        equation='"seen where" d < w',
        source="Beltagy et al. 2020",
        arxiv="2004.05150",
    )

    @dataclass(frozen=True)
    class Config:
        size: int = 16
        """Keys that a query sees, itself among them, where positions are consecutive."""

        def __post_init__(self) -> None:
            if self.size < 1:
                raise ValueError(f"size must be 1 or more, not {self.size}")

    config: Config

    def contribute(self, layout: AttentionLayout) -> Contribution:
        return Contribution(window=self.config.size)

    def resolved(self) -> dict[str, Any]:
        return {"size": self.config.size}
