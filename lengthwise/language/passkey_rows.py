"""Synthetic passkey documents: a key of five digits somewhere among sentences that do not matter, asked at the end.

The digits of a key are one token each (see `tokenizer`), and the answer is exactly those five tokens.
"""

from dataclasses import dataclass

import numpy as np

from lengthwise.errors import UserError
from lengthwise.language.tokenizer import Tokenizer
from lengthwise.seeding import derive, stream

DIGITS = 5
SHORT = 2
"""Tokens of a short document at most, relative to the shortest."""
FILLER = (
    " The grass is green.",
    " The sky is blue.",
    " The sun is yellow.",
    " Here we go.",
    " There and back again.",
)
STATEMENT = (" The pass key is ", ". Remember it.")
QUESTION = " What is the pass key? The pass key is "


@dataclass(frozen=True)
class Passkey:
    """A document, begin and end token included."""

    tokens: np.ndarray

    @property
    def prompt(self) -> np.ndarray:
        """All that comes before the answer."""
        return self.tokens[: -DIGITS - 1]

    @property
    def answer(self) -> np.ndarray:
        """The digits; the end token follows them."""
        return self.tokens[-DIGITS - 1 : -1]


class Passkeys:
    """Makes passkey documents of any number of tokens."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._filler = [tokenizer.encode(sentence) for sentence in FILLER]
        self._statement = [tokenizer.encode(part) for part in STATEMENT]
        self._question = tokenizer.encode(QUESTION)

    @property
    def shortest(self) -> int:
        """Tokens of a document without any filler."""
        return 2 + sum(map(len, self._statement)) + len(self._question) + 2 * DIGITS

    def document(self, size: int, depth: float, key: str, first_sentence: int = 0) -> Passkey:
        """With exactly `size` tokens. `depth`: share of the filler that comes before the key, in whole sentences.

        The sentences of the filler take turns, from `first_sentence` on; the last one is cut where the room ends.
        """
        room = size - self.shortest
        if room < 0:
            raise UserError(f"a passkey document has {self.shortest} tokens or more, not {size}")
        if len(key) != DIGITS or not key.isdecimal():
            raise ValueError(f"a key has {DIGITS} digits, {key!r} does not")
        sentences = self._filler[first_sentence:] + self._filler[:first_sentence]
        filler = np.resize(np.concatenate(sentences), room)
        ends = np.cumsum(np.resize([len(sentence) for sentence in sentences], room))
        between = np.concatenate([[0], ends[ends < room], [room]])
        before = between[np.abs(between - depth * room).argmin()]
        digits = self.tokenizer.digits[[int(digit) for digit in key]]
        parts = [
            [self.tokenizer.begin],
            filler[:before],
            *(self._statement[0], digits, self._statement[1]),
            filler[before:],
            self._question,
            digits,
            [self.tokenizer.end],
        ]
        return Passkey(np.concatenate(parts))

    def row(self, inputs: int, seed: int, number: int) -> list[Passkey]:
        """Training documents whose tokens, the end tokens not counted, are `inputs` together.

        In rows of even number they are short: more questions, and near keys, which are found before far ones are.
        """
        generator = stream(seed, "passkeys", number)
        shortest = self.shortest - 1
        if inputs < shortest:
            raise UserError(f"a context of {inputs} tokens is too short for passkey documents ({shortest} or more)")
        longest = inputs if number % 2 else SHORT * shortest
        documents = []
        while inputs:
            size = int(generator.integers(shortest, min(inputs, longest) + 1))
            size = inputs if inputs - size < shortest else size
            depth, first = float(generator.random()), int(generator.integers(len(FILLER)))
            documents.append(self.document(size + 1, depth, draw_key(generator, held_out=False), first))
            inputs -= size
        return documents


def draw_key(generator: np.random.Generator, held_out: bool) -> str:
    """A random key; a tenth of all keys is held out: never in training, and the only ones to be asked for in tests."""
    while True:
        key = "".join(map(str, generator.integers(10, size=DIGITS)))
        if (derive(0, "held-out passkey", key) % 10 == 0) == held_out:
            return key
