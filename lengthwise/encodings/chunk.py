"""Chunked attention (as in Llama 4): positions are cut into chunks, and a query sees only keys of its own."""

from dataclasses import dataclass

from lengthwise.encodings.card import Card
from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding


class Chunk(Encoding):
    """Hides keys of earlier chunks. Goes with any encoding."""

    name = "chunk"
    card = Card(
        kind="mask",
        equation='"seen where" ⌊i/c⌋ = ⌊j/c⌋',
        source="Llama 4",
    )
    shift_invariant = False

    @dataclass(frozen=True)
    class Config:
        size: int = 16
        """Positions of a chunk; published: 8192."""

        def __post_init__(self) -> None:
            if self.size < 1:
                raise ValueError(f"size must be 1 or more, not {self.size}")

    config: Config

    def contribute(self, layout: AttentionLayout) -> Contribution:
        return Contribution(chunk=self.config.size)
