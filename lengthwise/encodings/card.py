"""What a method says about itself on one card: what it changes, its equation, where it comes from. Imports no torch.

An equation is written in one line, as one would type it: `b_h(d) = -m_h d`. A script is one letter, number or word, or
what stands in brackets (`2^(-8h/H)`); words of a sentence stand in quotes. Pages draw it (`equation`).
Letters: i the query's position, j the key's, d = i - j, n the keys that the query sees, z a logit, q and k a query and
a key, x what the layer reads, y what a head found, h the head of H, K the head width, D the model width, σ the sigmoid.
"""

import re
from dataclasses import dataclass
from typing import Literal, get_args

from lengthwise import configuration
from lengthwise.equation import problem
from lengthwise.errors import UserError
from lengthwise.registry import Entry

CardKind = Literal["bias", "rotation", "mask", "embedding", "scale", "normalizer", "output", "mixer", "none"]
"""What is changed: logits by something that is added, queries and keys, which keys are seen, token embeddings, logits
by a factor, the softmax, what heads found; `mixer` takes the place of attention, `none` changes nothing."""


@dataclass(frozen=True)
class Card:
    """Read from the source as it is written (`registry`), so every field is a text in quotes."""

    kind: CardKind
    equation: str
    source: str = ""
    """Authors and year, or the model that it comes from."""
    arxiv: str = ""
    """Its number there, such as 2108.12409."""

    def __post_init__(self) -> None:
        if self.kind not in get_args(CardKind):
            raise ValueError(f"a card's kind must be one of {', '.join(get_args(CardKind))}, not {self.kind!r}")
        if what := problem(self.equation):
            raise ValueError(f"equation cannot be drawn, {what}: {self.equation}")
        if self.arxiv and not re.fullmatch(r"\d{4}\.\d{4,5}|[a-z.-]+/\d{7}", self.arxiv):
            raise ValueError(f"a card's arxiv is a number such as 2108.12409, not {self.arxiv!r}")


def card_of(entry: Entry) -> Card | None:
    """Of a method that is not imported for it."""
    try:
        return configuration.read(Card, entry.card, "card") if entry.card else None
    except UserError as error:
        raise UserError(f"{entry.file}: {error}") from None
