"""What a page says of a method beside its numbers: a card, made elsewhere from what the method declares."""

from dataclasses import dataclass

from lengthwise.report.figures.drawing import Figure


@dataclass(frozen=True)
class CardPart:
    """One of the methods that a method is made of; most are made of one."""

    name: str
    summary: str
    settings: str
    """Those that are not the defaults, in words."""
    equation: str
    source: str
    arxiv: str


@dataclass(frozen=True)
class CardPicture:
    figure: Figure
    caption: str


@dataclass(frozen=True)
class MethodCard:
    method: str
    kinds: tuple[str, ...]
    parts: tuple[CardPart, ...]
    facts: tuple[tuple[str, str], ...]
    """What is said of it, and what that is: where it acts, what it learns, how it is computed."""
    pictures: tuple[CardPicture, ...] = ()
    notes: tuple[str, ...] = ()
    """Why something is not drawn or not known, a sentence each."""
    source: str = ""
    arxiv: str = ""
    """Of the whole, where that was published as such."""
