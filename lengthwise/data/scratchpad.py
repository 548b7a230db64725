"""Scratchpads: the steps a model writes before its answer. Which of their five parts are kept is a format; 32 choices.

    Thinking step by step: in INPUT comp COMPUTATION out OUTPUT [ VARIABLES ] re REMAINING # in INPUT ... . Thus, ANSWER

This is the text of the released runs. A part begins with its marker, which stays where the part is empty. Only the
variables have an end of their own, so a text is read back by the markers of its format and their order.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from lengthwise.data.examples import ABSENT, STEP_PARTS, Column, Part
from lengthwise.data.vocabulary import Vocabulary
from lengthwise.errors import UserError, nearest

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
BETWEEN_STEPS = "#"
BRACKETS = ("[", "]")
MARKERS = {
    Part.INPUT: ("in",),
    Part.COMPUTATION: ("comp",),
    Part.OUTPUT: ("out",),
    Part.VARIABLES: BRACKETS,
    Part.REMAINING: ("re",),
}
"""The word that a part begins with, and the one that it ends with where there is one."""
_MARKER_WORDS = frozenset(word for words in MARKERS.values() for word in words)


def with_steps(own: Iterable[str], parts: Sequence[Part]) -> list[str]:
    """A task's own symbols, then those that steps of these parts are written with; each once, in their first place."""
    markers = [word for part in parts for word in MARKERS[part]]
    return [*dict.fromkeys((*own, *OPENING.split(), *markers, BETWEEN_STEPS, *CLOSING.split()))]


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
    columns: list[Column] = [(Part.FRAME, vocabulary.encode(OPENING))]
    for number, step in enumerate(steps):
        if number:
            columns.append((Part.FRAME, _only(step.present, vocabulary.ids([BETWEEN_STEPS]))))
        for part in STEP_PARTS:
            if part in step.parts:
                ids = np.asarray(step.parts[part], dtype=np.int32)
                first, *last = vocabulary.ids(MARKERS[part])
                pieces = (np.array([first]), ids, *(np.array([each]) for each in last))
                columns += [(part, _only(step.present, piece)) for piece in pieces]
    return [*columns, (Part.FRAME, vocabulary.encode(CLOSING))]


def _only(present: np.ndarray | None, ids: np.ndarray) -> np.ndarray:
    return ids if present is None else np.where(present[:, None], ids, ABSENT)


@dataclass(frozen=True)
class Parsed:
    """A text read back: its steps, each the texts of the parts that it has, and the text of its answer."""

    steps: tuple[dict[Part, str], ...]
    answer: str


def answer_of(text: str) -> str:
    """What follows the steps, whatever these look like; the whole text where nothing says that they are over.

    As published, also where a text says so twice: the answer ends where it is said again.
    """
    _, over, answer = text.partition(CLOSING)
    return answer.partition(CLOSING)[0].strip() if over else text


def parse(text: str, scratchpad: Scratchpad, task_parts: Sequence[Part] = STEP_PARTS) -> Parsed | None:
    """Reads a target back; None where it does not have the form. `task_parts`: the parts that the task has at all.

    The words `in`, `comp`, `out` and `re` are markers wherever they stand in a step. So are brackets, but not in what
    remains (a list, in some tasks): the variables come before it, so theirs are known from those.
    """
    if not scratchpad.steps:
        return Parsed((), text)
    written, over, answer = text.partition(f" {CLOSING} ")
    if not written.startswith(OPENING) or not over or CLOSING in answer:
        return None
    expected = [part for part in scratchpad.steps if part in task_parts]
    read = [_parse_step(step.split(), expected) for step in written.removeprefix(OPENING).split(BETWEEN_STEPS)]
    steps = tuple(step for step in read if step is not None)
    return Parsed(steps, answer) if len(steps) == len(read) else None


def _parse_step(words: list[str], expected: Sequence[Part]) -> dict[Part, str] | None:
    """The texts of the expected parts in the words of a step; None where it has others, or in another order."""
    step: dict[Part, str] = {}
    place = 0
    for part in expected:
        first, *last = MARKERS[part]
        if words[place : place + 1] != [first]:
            return None
        begin = place + 1
        stops = _MARKER_WORDS.difference(BRACKETS) if part is Part.REMAINING else _MARKER_WORDS
        place = next((i for i in range(begin, len(words)) if words[i] in stops), len(words))
        step[part] = " ".join(words[begin:place])
        if words[place : place + len(last)] != last:
            return None
        place += len(last)
    return step if place == len(words) else None
