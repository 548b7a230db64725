"""The form that most of our own tasks have: a first word, a source, `[SEP]`, a target."""

from typing import ClassVar

import numpy as np

from lengthwise.data.examples import Column, Part
from lengthwise.tasks.copy import SEPARATOR
from lengthwise.tasks.task import Task


class Separated(Task):
    """What these tasks share: `FIRST_WORD source [SEP]`, then the target."""

    first_word: ClassVar[str]

    def columns(self, source: np.ndarray, *target: np.ndarray) -> list[Column]:
        """From ids (examples, tokens), or (tokens,) where they are the same in all examples."""
        return [
            (Part.ANCHOR, self.fixed(self.first_word)),
            (Part.PROMPT, source),
            (Part.PROMPT, self.fixed(SEPARATOR)),
            *((Part.ANSWER, piece) for piece in target),
        ]
