"""What a model writes after a prompt, and who can write: a model in memory, or a server."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lengthwise.foreign_models.questions import END_OF_LINE, Questions

MARGIN = 8
"""Tokens that a model may write beyond the target before it counts as not stopping."""


@dataclass(frozen=True)
class Written:
    """What a model wrote after a prompt."""

    text: str
    ended: bool
    """Whether it ended by itself, rather than at the most tokens that it was allowed."""
    tokens: int | None = None
    """Of prompt, target and end, where they are known."""

    @property
    def line(self) -> str:
        """Its first line, with single spaces between words: an answer ends with the line."""
        return " ".join(self.text.strip().partition(END_OF_LINE)[0].split())

    @property
    def line_ended(self) -> bool:
        return self.ended or END_OF_LINE in self.text.lstrip()


class Writer(Protocol):
    """A model that continues prompts by greedy decoding."""

    label: str
    """What tables call it."""
    identity: dict[str, Any]
    """What makes it another model if it changes."""
    about: dict[str, Any]
    """Architecture, layers, width and so on, as far as they are known."""
    parameters: int
    """0 where they are not known."""
    device: str

    def refuse(self, questions: Questions) -> None:
        """Raises a UserError where it cannot be asked these: they are too long, or are no conversation."""
        ...

    def write(self, questions: Questions, indices: Sequence[int], note: Callable[[str], None]) -> list[Written]:
        """What it writes after each of a few questions; `note` is told what a person should know."""
        ...
