"""The temperature of Llama 4: logits grow with the logarithm of the position, in steps."""

from dataclasses import dataclass

from lengthwise.encodings.card import Card
from lengthwise.encodings.encoding import AttentionLayout, Contribution, Encoding


class Llama4Temperature(Encoding):
    """Multiplies logits by 1 + strength ln(1 + floor((position + 1) / step))."""

    name = "llama4-temperature"
    kind = "scale"
    card = Card(
        kind="scale",
        equation="z (1 + 0.1 ln(1 + ⌊(i + 1)/8192⌋))",
        source="Llama 4",
    )
    shift_invariant = False

    @dataclass(frozen=True)
    class Config:
        step: int = 8192
        """Positions that have the same temperature; published for contexts of millions."""
        strength: float = 0.1

        def __post_init__(self) -> None:
            if self.step < 1:
                raise ValueError(f"step must be 1 or more, not {self.step}")

    config: Config

    def contribute(self, layout: AttentionLayout) -> Contribution:
        steps_B1T1 = ((layout.query_positions_BT + 1) // self.config.step)[:, None, :, None]
        return Contribution(scale=1 + self.config.strength * steps_B1T1.float().log1p())
