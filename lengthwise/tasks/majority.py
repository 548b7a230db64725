"""Majority of a sequence of bits; not in the papers."""

from collections.abc import Iterable

import numpy as np

from lengthwise.data.examples import Column, Part
from lengthwise.tasks.bits import Bits
from lengthwise.tasks.task import Span


class Majority(Bits):
    """Whether n bits, drawn independently, have more ones than zeros; a tie is `0`.

    Examples:
        Majority: 1 0 1 [SEP] -> 1
        Majority: 1 0 [SEP] -> 0
    Length: number of bits.
    """

    name = "majority"
    family = "formal languages"
    train_lengths = Span(2, 20)
    test_lengths = Span(21, 40)
    length_means = "number of bits"

    def symbols(self) -> Iterable[str]:
        return ["Majority:", "[SEP]", "0", "1"]

    def chance(self, length: int) -> float:
        """A coin. Where n is even, always `0` is right more often, because of the ties: 0.59 of the time at 20."""
        return 0.5

    def read_answer(self, text: str) -> str | None:
        return text if text in ("0", "1") else None

    def columns(self, bits: np.ndarray) -> list[Column]:
        zero = self.vocabulary.id("0")
        majority = 2 * bits.sum(axis=1, keepdims=True) > bits.shape[1]
        return [
            (Part.ANCHOR, self.fixed("Majority:")),
            (Part.PROMPT, zero + bits),
            (Part.PROMPT, self.fixed("[SEP]")),
            (Part.ANSWER, zero + majority),
        ]
