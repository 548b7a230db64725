"""Parity of a sequence of bits."""

import re
from collections.abc import Iterable

import numpy as np

from lengthwise.data.examples import STEP_PARTS, Column, Part
from lengthwise.data.scratchpad import Step, step_columns, with_steps
from lengthwise.tasks.addition import ANSWER, COMMA, STOP, Numbers
from lengthwise.tasks.bits import Bits
from lengthwise.tasks.task import Span

QUESTION = "Is the number of 1's even in the sequence"


class Parity(Bits, Numbers):
    """Whether n bits, drawn independently, have an even number of ones.

    Examples:
        Is the number of 1's even in the sequence [ 1, 0, 1 ] ? -> The answer is Yes.
        Is the number of 1's even in the sequence [ 1, 0 ] ? -> The answer is No.
    Length: number of bits.

    The training lengths have 496 strings, so published training and validation examples overlap.

    Steps go from the first bit to the last; as published, `**` stands for xor with the parity so far:

        in 1 comp 1 ** par = 1 ** 0 out 1 [ par: 1 ] re [ 0, 1 ]
    """

    name = "parity"
    family = "formal languages"
    published_split = "parity"
    train_lengths = Span(4, 8)
    test_lengths = Span(9, 16)
    length_means = "number of bits"
    shares_examples = True
    step_parts = STEP_PARTS

    def symbols(self) -> Iterable[str]:
        answer = (*ANSWER.split(), "Yes", "No", STOP)
        own = [*QUESTION.split(), "[", "]", COMMA, "?", "0", "1", *answer, "**", "par", "=", "par:"]
        return with_steps(own, self.step_parts)

    def chance(self, length: int) -> float:
        return 0.5

    def read_answer(self, text: str) -> str | None:
        found = re.fullmatch(rf"{ANSWER} (yes|no)\.", text, flags=re.IGNORECASE)
        return found.group(1).lower() if found else None

    def columns(self, bits: np.ndarray) -> list[Column]:
        count, length = bits.shape
        parity = np.cumsum(bits, axis=1) % 2
        ids, ids_parity = self.digits(bits), self.digits(parity)
        ids_before = self.digits(np.pad(parity, ((0, 0), (1, 0)))[:, :-1])
        items = np.full((count, 2 * length - 1), self.vocabulary.id(COMMA), dtype=np.int32)
        items[:, ::2] = ids
        steps = []
        for i in range(length):
            this = slice(i, i + 1)
            parts = {
                Part.INPUT: ids[:, this],
                Part.COMPUTATION: self.beside(ids[:, this], "** par =", ids[:, this], "**", ids_before[:, this]),
                Part.OUTPUT: ids_parity[:, this],
                Part.VARIABLES: self.beside("par:", ids_parity[:, this]),
                Part.REMAINING: self.beside("[", items[:, 2 * i + 2 :], "]"),  # at the end `[ ]`
            }
            steps.append(Step(parts))
        return [
            (Part.ANCHOR, self.fixed(QUESTION)),
            (Part.PROMPT, self.beside("[", items, "] ?")),
            *step_columns(steps, self.vocabulary),
            *self.answer(self.table(["Yes", "No"])[parity[:, -1]]),
        ]
