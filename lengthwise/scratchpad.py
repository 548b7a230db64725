"""Scratchpads: the steps a model writes before its answer. Which of their five parts are kept is a format; 32 choices.

    Thinking step by step: INPUT ; COMPUTATION ; OUTPUT ; VARIABLES ; REMAINING ; # INPUT ; ... . Thus, ANSWER

Every part ends in `;`, so that a text can be read back in the format it was written in, whatever parts that has.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lengthwise.errors import UserError, nearest
from lengthwise.examples import ABSENT, STEP_PARTS, Column, Part
from lengthwise.vocabulary import TIE, Vocabulary

_STEP_NAMES = {part.name.lower(): part for part in STEP_PARTS}

PUBLISHED = {
    "full": STEP_PARTS,
    **{f"full-{part.name.lower()}": tuple(p for p in STEP_PARTS if p is not part) for part in STEP_PARTS},
    "minimal": (Part.COMPUTATION, Part.OUTPUT),
    "none": (),
}
"""The formats that the paper names."""

OPENING = "Thinking step by step:"
CLOSING = ". Thus,"
PART_END = ";"
STEP_END = "#"
SYMBOLS = (*dict.fromkeys((*OPENING.split(), PART_END, STEP_END)), TIE + ".", "Thus,")
"""What a task with steps adds to its symbols, the full stop without a space before it included."""


@dataclass(frozen=True)
class Scratchpad:
    """A format, by its published name or as its parts joined by `+` (`input+output`)."""

    name: str = "none"

    @property
    def steps(self) -> tuple[Part, ...]:
        if self.name in PUBLISHED:
            return PUBLISHED[self.name]
        chosen = self.name.split("+")
        for word in chosen:
            if word not in _STEP_NAMES:
                hint = nearest(word, [*PUBLISHED, *_STEP_NAMES])
                raise UserError(f"unknown scratchpad {self.name!r}; {hint}")
        return tuple(part for part in STEP_PARTS if part.name.lower() in chosen)

    @property
    def parts(self) -> tuple[Part, ...]:
        """Every part of an example that this format keeps."""
        frame = (Part.FRAME,) if self.steps else ()
        return (Part.ANCHOR, Part.PROMPT, *frame, *self.steps, Part.ANSWER)


@dataclass(frozen=True)
class Step:
    """The same step of many examples: for each part (examples, tokens) or (tokens,), ABSENT where there is no token."""

    parts: dict[Part, np.ndarray]
    present: np.ndarray | None = None
    """Which examples have this step; None for all."""


def step_columns(steps: Sequence[Step], vocabulary: Vocabulary) -> list[Column]:
    """The whole scratchpad as columns: all five parts, for a format to choose from."""
    end = vocabulary.id(PART_END)
    columns: list[Column] = [(Part.FRAME, vocabulary.encode(OPENING))]
    for number, step in enumerate(steps):
        if number:
            columns.append((Part.FRAME, _only(step.present, np.array([vocabulary.id(STEP_END)]))))
        for part in STEP_PARTS:
            if part in step.parts:
                ids = np.asarray(step.parts[part], dtype=np.int32)
                columns.append((part, _only(step.present, ids)))
                columns.append((part, _only(step.present, np.array([end]))))
    return [*columns, (Part.FRAME, vocabulary.ids([TIE + ".", "Thus,"]))]


def _only(present: np.ndarray | None, ids: np.ndarray) -> np.ndarray:
    return ids if present is None else np.where(present[:, None], ids, ABSENT)


@dataclass(frozen=True)
class Parsed:
    """A text read back: its steps, each the texts of the parts that it has, and the text of its answer."""

    steps: tuple[dict[Part, str], ...]
    answer: str


def parse(text: str, scratchpad: Scratchpad, task_parts: Sequence[Part] = STEP_PARTS) -> Parsed | None:
    """Reads a target back; None where it does not have the form. `task_parts`: the parts that the task has at all."""
    expected = [part for part in scratchpad.steps if part in task_parts]
    if not scratchpad.steps:
        return Parsed((), text)
    if not text.startswith(OPENING) or text.count(CLOSING) != 1:
        return None
    body, answer = text.removeprefix(OPENING).split(CLOSING)
    steps = []
    for written in body.split(STEP_END):
        fields = written.split(PART_END)
        if len(fields) != len(expected) + 1 or fields[-1].strip():
            return None
        steps.append({part: field.strip() for part, field in zip(expected, fields, strict=False)})
    return Parsed(tuple(steps), answer.strip())
