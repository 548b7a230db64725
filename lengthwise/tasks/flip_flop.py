"""Flip-flop language modeling (Liu et al., 2306.00946): write, ignore and read one bit; two variants."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from lengthwise.data.examples import ABSENT, Column, Part
from lengthwise.errors import UserError
from lengthwise.tasks.copy import SEPARATOR
from lengthwise.tasks.sequences import MOST_LISTED, all_sequences
from lengthwise.tasks.task import Span, Task

WRITE, IGNORE, READ = range(3)
INSTRUCTIONS = ("w", "i", "r")
MIDDLE = np.array([(WRITE, 0), (WRITE, 1), (IGNORE, 0), (IGNORE, 1), (READ, 0)])
"""What may stand between the first and the last instruction; the bit of a read follows from the others."""


class FlipFlop(Task):
    """n instructions (`w` write, `i` ignore, `r` read), each with a bit; the target is the bit of the last, a read.

    Examples:
        Flip-flop: w 1 i 0 r 1 i 0 r -> 1
        Flip-flop: w 1 w 0 i 1 r -> 0
    Length: number of instructions, the first write and the last read included.

    A read has the bit that was written last. The first instruction writes, the last reads; of those between them the
    share `ignore` is to be ignored, and half of the rest writes, half reads. From `test_from` instructions on the share
    is `test_ignore`: 0.98 for the sparse test of the paper, 0.1 for the dense one, with `ignore = 0.8` in training.
    `test_from` is the first of a study's `test_lengths`. The paper has 256 instructions (512 tokens) in both.
    """

    name = "flip_flop"
    family = "state tracking"
    train_lengths = Span(8, 32)
    test_lengths = Span(33, 64)
    length_means = "number of instructions"
    titled = ("ignore", "test_ignore")

    @dataclass(frozen=True)
    class Config:
        ignore: float = 0.8
        test_ignore: float = 0.8
        test_from: int = 33

        def __post_init__(self) -> None:
            for name in ("ignore", "test_ignore"):
                if not 0 <= getattr(self, name) <= 1:
                    raise ValueError(f"{name} is a share of instructions, 0 to 1, not {getattr(self, name)}")
            if self.test_from < 2:
                raise ValueError(f"test_from must be 2 or more, not {self.test_from}")

    config: Config

    def symbols(self) -> Iterable[str]:
        return ["Flip-flop:", *INSTRUCTIONS, "0", "1"]

    def buckets(self, span: Span) -> list[int]:
        """There is a write and a read."""
        return [length for length in span if length >= 2]

    def refuse_spans(self, train: Span, test: Span) -> None:
        """Training must have the one share and the test the other."""
        if self.config.ignore != self.config.test_ignore and not train.last < self.config.test_from <= test.first:
            raise UserError(
                f"task {self.name}: test_ignore holds from test_from = {self.config.test_from} on, but training has "
                f"the lengths {train} and the test {test}; set test_from = {test.first}"
            )

    def ignored(self, length: int) -> float:
        """The share of instructions that are to be ignored."""
        return self.config.ignore if length < self.config.test_from else self.config.test_ignore

    def draw(self, length: int, count: int, generator: np.random.Generator) -> list[Column]:
        share = self.ignored(length)
        drawn = generator.random((count, length))
        kinds = np.where(drawn < share, IGNORE, np.where(drawn < (1 + share) / 2, WRITE, READ))
        kinds[:, 0], kinds[:, -1] = WRITE, READ
        return self.instructed(kinds, generator.integers(2, size=(count, length)))

    def every(self, length: int) -> list[Column] | None:
        middle = all_sequences(len(MIDDLE), length - 2)
        if middle is None or 2 * len(middle) > MOST_LISTED:
            return None
        first = np.tile([[WRITE, 0], [WRITE, 1]], (len(middle), 1))[:, None]
        last = np.tile([[READ, 0]], (len(first), 1))[:, None]
        both = np.concatenate([first, np.repeat(MIDDLE[middle.astype(int)], 2, axis=0), last], axis=1)
        return self.instructed(both[..., 0], both[..., 1])

    def instructed(self, kinds: np.ndarray, bits: np.ndarray) -> list[Column]:
        """`kinds`, `bits`: of each instruction (examples, instructions); reads get the bit that was written last."""
        written = np.maximum.accumulate(np.where(kinds == WRITE, np.arange(kinds.shape[1]), 0), axis=1)
        bits = np.where(kinds == READ, np.take_along_axis(bits, written, axis=1), bits)
        return self.columns(self.vocabulary.id("w") + kinds, self.vocabulary.id("0") + bits, kinds == READ)

    def columns(self, kinds: np.ndarray, bits: np.ndarray, reads: np.ndarray) -> list[Column]:
        """From ids of instructions and bits; the bit of the last read is left to be found."""
        prompt = np.stack([kinds, bits], axis=2).reshape(len(kinds), -1)[:, :-1]
        return [(Part.ANCHOR, self.fixed("Flip-flop:")), (Part.PROMPT, prompt), (Part.ANSWER, bits[:, -1:])]

    def chance(self, length: int) -> float:
        return 0.5


class AllReads(FlipFlop):
    """n instructions (`w` write, `i` ignore, `r` read); the target has the bits of all reads, in order.

    Examples:
        Flip-flop: w 1 i 0 r w 0 i 1 r [SEP] -> 1 0
    Length: number of instructions, the first write and the last read included.

    As `flip_flop`, but no read in the prompt shows its bit.
    """

    name = "flip_flop.all_reads"
    family = "state tracking"

    def symbols(self) -> Iterable[str]:
        return [*super().symbols(), SEPARATOR]

    def columns(self, kinds: np.ndarray, bits: np.ndarray, reads: np.ndarray) -> list[Column]:
        shown, found = np.where(reads, ABSENT, bits), np.where(reads, bits, ABSENT)
        return [
            (Part.ANCHOR, self.fixed("Flip-flop:")),
            (Part.PROMPT, np.stack([kinds, shown], axis=2).reshape(len(kinds), -1)),
            (Part.PROMPT, self.fixed(SEPARATOR)),
            (Part.ANSWER, found),
        ]

    def chance(self, length: int) -> float:
        """A coin for each read; so many of the instructions between the first and the last are reads."""
        reads = (1 - self.ignored(length)) / 2
        return 0.5 * (1 - reads / 2) ** (length - 2)
