"""Dyck words: close the open brackets of several kinds, the innermost first."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from lengthwise.data.examples import ABSENT, Column, Part
from lengthwise.tasks.copy import SEPARATOR
from lengthwise.tasks.sequences import MOST_LISTED
from lengthwise.tasks.task import Span, Task

PAIRS = ("()", "[]", "{}", "<>")


class Dyck(Task):
    """The beginning of a well-formed sequence of brackets of three kinds; the target is its shortest completion.

    Examples:
        Close: ( [ ] { [SEP] -> } )
        Close: ( ) { [ [SEP] -> ] }
    Length: number of brackets in the prompt.

    Where no bracket is open the next one opens; elsewhere it opens or closes, equally likely; the last one never
    leaves nothing to close. Kinds are drawn independently. Up to length 4 there are so few prompts (at most 162) that
    data sets take each of them equally often instead.
    """

    name = "dyck"
    family = "formal languages"
    train_lengths = Span(2, 20)
    test_lengths = Span(21, 40)
    length_means = "number of brackets in the prompt"

    @dataclass(frozen=True)
    class Config:
        kinds: int = 3

        def __post_init__(self) -> None:
            if not 1 <= self.kinds <= len(PAIRS):
                raise ValueError(f"kinds must be 1 to {len(PAIRS)}, not {self.kinds}")

    config: Config

    def symbols(self) -> Iterable[str]:
        pairs = PAIRS[: self.config.kinds]
        return ["Close:", SEPARATOR, *(left for left, _ in pairs), *(right for _, right in pairs)]

    def draw(self, length: int, count: int, generator: np.random.Generator) -> list[Column]:
        opens = generator.integers(2, size=(count, length), dtype=np.int8).astype(bool)
        depth = np.zeros(count, dtype=np.int64)
        for i in range(length):
            opens[:, i] |= depth <= (i == length - 1)
            depth += 2 * opens[:, i] - 1
        return self.columns(opens, generator.integers(self.config.kinds, size=(count, length), dtype=np.int8))

    def every(self, length: int) -> list[Column] | None:
        if self.number(length) > MOST_LISTED:
            return None
        shapes = np.indices((2,) * length).reshape(length, -1).T.astype(bool)
        depths = np.cumsum(2 * shapes - 1, axis=1)
        shapes = shapes[(depths >= 0).all(axis=1) & (depths[:, -1] > 0)]
        kinds = np.indices((self.config.kinds,) * length).reshape(length, -1).T
        shape, kind = np.indices((len(shapes), len(kinds))).reshape(2, -1)
        once = (shapes[shape] | (kinds[kind] == 0)).all(axis=1)  # the kind of a closing bracket is not free
        return self.columns(shapes[shape[once]], kinds[kind[once]])

    def number(self, length: int) -> int:
        """How many prompts there are."""
        at_depth = [1]
        for _ in range(length):
            opened = [0, *(self.config.kinds * number for number in at_depth)]
            at_depth = [one + other for one, other in zip(opened, [*at_depth[1:], 0, 0], strict=True)]
        return sum(at_depth[1:])

    def columns(self, opens: np.ndarray, kinds: np.ndarray) -> list[Column]:
        """`opens`: whether each bracket opens; `kinds`: of those that do; both (examples, brackets)."""
        count, length = opens.shape
        first_left, first_right = self.vocabulary.id(PAIRS[0][0]), self.vocabulary.id(PAIRS[0][1])
        everyone, depth = np.arange(count), np.zeros(count, dtype=np.int64)
        stack = np.zeros((count, length), dtype=np.int32)
        brackets = np.empty((count, length), dtype=np.int32)
        for i in range(length):
            opening, top = opens[:, i], depth - ~opens[:, i]
            kind = np.where(opening, kinds[:, i], stack[everyone, top])
            stack[everyone, top] = kind
            brackets[:, i] = np.where(opening, first_left, first_right) + kind
            depth = top + opening
        still_open = np.arange(length) < depth[:, None]
        closing = np.where(still_open, first_right + stack, ABSENT)[:, ::-1]
        return [
            (Part.ANCHOR, self.fixed("Close:")),
            (Part.PROMPT, brackets),
            (Part.PROMPT, self.fixed(SEPARATOR)),
            (Part.ANSWER, closing),
        ]

    def chance(self, length: int) -> float:
        """Exact match of a guesser who closes a prompt of their own, drawn as `draw` does."""
        depths = np.zeros(length + 2)  # probability of each depth
        depths[0] = 1
        for i in range(length):
            forced = np.arange(length + 2) <= (i == length - 1)
            up, down = np.where(forced, depths, depths / 2), np.where(forced, 0, depths / 2)
            depths = np.concatenate([[0], up[:-1]]) + np.concatenate([down[1:], [0]])
        return float(np.sum(depths**2 * float(self.config.kinds) ** -np.arange(length + 2)))
