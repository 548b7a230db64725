"""Regular languages: is a word in the language of an expression? Two variants."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from lengthwise.data.examples import Column
from lengthwise.errors import UserError
from lengthwise.tasks.copy import SEPARATOR
from lengthwise.tasks.regular_language import Language, language_of
from lengthwise.tasks.separated import Separated
from lengthwise.tasks.task import Span

MOST_COUNTS = 20_000_000
"""Numbers of letters times states: a few hundred megabytes."""
NO, YES = "No", "Yes"
RARE = 400
"""With fewer words of one kind than this, training, validation and test share the words of a length, and say so."""


class Regular(Separated):
    """A word of n letters; the target says whether it is in a regular language, by default that of `(ab|bbaa)*`.

    Examples:
        Accept: b b a a a b [SEP] -> Yes
        Accept: b b a a b a [SEP] -> No
    Length: number of letters.

    `expression` is a regular expression (`|`, `*`, `+`, `?`, brackets; `.` for any letter) or a known name: parity,
    even_pairs, tomita_1 to tomita_7, D_2 to D_12, flip_flop. The alphabet has the letters of the expression and those
    of `letters`. Of every length half of the words are in the language, uniform among those of that length, and half
    are uniform among the others. Lengths with words of one kind only are left out, unless all are such. Where one kind
    has fewer than 400 words of a length, seen lengths are tested with words that training may have shown.
    """

    name = "regular"
    family = "formal languages"
    first_word = "Accept:"
    train_lengths = Span(8, 32)
    test_lengths = Span(33, 64)
    length_means = "number of letters"
    titled = ("expression", "letters")

    @dataclass(frozen=True)
    class Config:
        expression: str = "(ab|bbaa)*"
        letters: str = ""

        def __post_init__(self) -> None:
            language_of(self.expression, self.letters)

    config: Config

    @cached_property
    def language(self) -> Language:
        return language_of(self.config.expression, self.config.letters)

    @cached_property
    def counts(self) -> list[np.ndarray]:
        """Of each number of letters (2, states): the logarithm of how many words of so many lead out of or into it."""
        with np.errstate(divide="ignore"):
            return [np.log(np.stack([~self.language.accepting, self.language.accepting]).astype(float))]

    def symbols(self) -> Iterable[str]:
        return [self.first_word, SEPARATOR, NO, YES, *self.language.letters]

    def count(self, length: int) -> list[np.ndarray]:
        """`counts` of 0 to `length` letters."""
        states = len(self.language.moves)
        if length * states > MOST_COUNTS:
            raise UserError(
                f"task {self.name}: words of {length:,} letters of a language with {states} states are too long to "
                f"count; choose lengths up to {MOST_COUNTS // states:,}"
            )
        while len(self.counts) <= length:
            self.counts.append(np.logaddexp.reduce(self.counts[-1][:, self.language.moves], axis=2))
        return self.counts

    def buckets(self, span: Span) -> list[int]:
        """Lengths that have words of both kinds, where there are any: at the others a constant answer is right."""
        both = [length for length in span if np.isfinite(self.count(length)[length][:, 0]).all()]
        return both or list(span)

    def shares(self, length: int) -> bool:
        """Words of the rarer kind may be so few that hardly any would be held out."""
        numbers = self.count(length)[length][:, 0]
        return bool(np.any(np.isfinite(numbers) & (numbers < np.log(RARE))))

    def draw(self, length: int, count: int, generator: np.random.Generator) -> list[Column]:
        counts, moves = self.count(length), self.language.moves
        exists = np.isfinite(counts[length][:, 0])
        inside = generator.integers(2, size=count) if exists.all() else np.full(count, int(exists[1]))
        word = np.empty((count, length), dtype=np.int32)
        state = np.zeros(count, dtype=np.int64)
        for i in range(length):
            rest = counts[length - i - 1][:, moves]  # (2, states, letters)
            with np.errstate(invalid="ignore"):
                share = np.exp(rest - rest.max(axis=2, keepdims=True))
            # Where nothing leads on nobody stands. The last sum is exactly 1, so that no letter of share 0 is chosen.
            upto = np.cumsum(np.nan_to_num(share), axis=2)
            upto /= np.maximum(upto[..., -1:], 1e-300)
            word[:, i] = (generator.random(count)[:, None] >= upto[inside, state]).sum(axis=1)
            state = moves[state, word[:, i]]
        return self.judged(word)

    def judged(self, word: np.ndarray) -> list[Column]:
        """`word`: numbers of letters (examples, letters)."""
        state, accepted = np.zeros(len(word), dtype=np.int64), np.empty(word.shape, dtype=np.int32)
        for i in range(word.shape[1]):
            state = self.language.moves[state, word[:, i]]
            accepted[:, i] = self.language.accepting[state]
        first = self.vocabulary.id(self.language.letters[0])
        return self.columns(first + word, self.vocabulary.id(NO) + self.target(accepted))

    def target(self, accepted: np.ndarray) -> np.ndarray:
        return accepted[:, -1:]

    def chance(self, length: int) -> float:
        """A coin; where all lengths have words of one kind only, a guesser who knows the length is always right."""
        return 0.5

    def read_answer(self, text: str) -> str | None:
        return text if set(text.split()) <= {NO, YES} else None


class Prefixes(Regular):
    """A word of n letters; the target says of its first 1, 2 and so on up to n letters whether they are a word of the
    language, by default that of `(ab|bbaa)*`.

    Examples:
        Accept: b b a a a b [SEP] -> No No No Yes No Yes
    Length: number of letters.

    As `regular`, with every prefix judged.
    """

    name = "regular.prefixes"
    family = "formal languages"

    def target(self, accepted: np.ndarray) -> np.ndarray:
        return accepted

    def chance(self, length: int) -> float:
        return 0.5**length
