"""LEGO: a chain of variables, each plus or minus the one before it; what is the value of a late one?

Steps follow the chain and stop at the variable that was asked for:

    in c comp out -1 re t = - c, q = + t # in t comp - c = - -1 out +1 re q = + t # in q comp + t = + +1 out +1 re
"""

import re
from collections.abc import Iterable
from string import ascii_lowercase

import numpy as np

from lengthwise.data.examples import ABSENT, Column, Part
from lengthwise.data.scratchpad import Step, step_columns, with_steps
from lengthwise.data.vocabulary import TIE
from lengthwise.tasks.task import Span, Task

SIGNS = ("-", "+")
VALUES = ("-1", "+1")
NAME, SIGN, PREVIOUS, COMMA = 0, 2, 3, 4  # places in a clause `name = sign previous ,`; place 1 is the `=`


class Lego(Task):
    """A chain of n variables with values -1 and +1; each is given by the one before it, and one of them is asked for.

    Examples:
        If c = -1, t = - c, q = + t. Then, what is the value of q? -> The answer is +1.
        If a = -1, b = + a. Then, what is the value of b? -> The answer is -1.
    Length: number of variables in the chain, those behind the one asked for included.

    Values are drawn independently, names are different letters. Only variables in the second half of the chain are
    asked for, and of every chain all of these, so examples that are drawn next to each other share their chain. The
    questions about one chain are different prompts, and may be in different splits.
    """

    name = "lego"
    family = "state tracking"
    published_split = "len"
    train_lengths = Span(4, 8)
    test_lengths = Span(9, 16)
    length_means = "number of variables"
    published_counts = (100_000, 14_996, 9_984)
    step_parts = (Part.INPUT, Part.COMPUTATION, Part.OUTPUT, Part.REMAINING)

    def symbols(self) -> Iterable[str]:
        words = ("If", "=", "Then,", "what", "is", "the", "value", "of", "The", "answer")
        own = [*words, *SIGNS, *VALUES, TIE + ",", TIE + "?", TIE + "."]
        return [*with_steps(own, self.step_parts), *ascii_lowercase]

    def buckets(self, span: Span) -> list[int]:
        """One variable has no second half, and there are 26 names."""
        return [length for length in span if 2 <= length <= len(ascii_lowercase)]

    def asked(self, length: int) -> np.ndarray:
        """The second half of a chain: places from 0 that are asked for. Of an odd number, the middle is not."""
        return np.arange((length + 1) // 2, length)

    def draw(self, length: int, count: int, generator: np.random.Generator) -> list[Column]:
        queries = self.asked(length)
        chains = -(-count // len(queries))
        letters = np.tile(np.arange(len(ascii_lowercase), dtype=np.int32), (chains, 1))
        names = generator.permuted(letters, axis=1)[:, :length]
        values = generator.integers(2, size=(chains, length))
        # In random order: if `count` cuts the last chain short, late queries are not rarer for it.
        query = generator.permuted(np.tile(queries, (chains, 1)), axis=1).ravel()[:count]
        chain = np.repeat(np.arange(chains), len(queries))[:count]
        return self.columns(self.vocabulary.id("a") + names[chain], values[chain], query)

    def columns(self, names: np.ndarray, values: np.ndarray, query: np.ndarray) -> list[Column]:
        """`names`: ids; `values`: 0 for -1, 1 for +1; both (examples, variables). `query`: (examples,)."""
        everyone = np.arange(len(names))
        value_ids = self.vocabulary.ids(VALUES)[values]
        clauses = self.clauses(names, values, value_ids)
        return [
            (Part.ANCHOR, self.fixed("If")),
            (Part.PROMPT, clauses.reshape(len(names), -1)),
            (Part.PROMPT, self.vocabulary.ids([TIE + "."])),
            (Part.PROMPT, self.fixed("Then, what is the value of")),
            (Part.PROMPT, names[everyone, query][:, None]),
            (Part.PROMPT, self.vocabulary.ids([TIE + "?"])),
            *step_columns(self.steps(names, value_ids, clauses, query), self.vocabulary),
            (Part.ANSWER, self.fixed("The answer is")),
            (Part.ANSWER, value_ids[everyone, query][:, None]),
            (Part.ANSWER, self.vocabulary.ids([TIE + "."])),
        ]

    def clauses(self, names: np.ndarray, values: np.ndarray, value_ids: np.ndarray) -> np.ndarray:
        """(examples, variables, 5): `t = - c ,`, but `c = -1 ,` in front, and no comma at the end."""
        clauses = np.full((*names.shape, 5), self.vocabulary.id("="), dtype=np.int32)
        clauses[:, :, NAME] = names
        clauses[:, 0, SIGN] = value_ids[:, 0]
        clauses[:, 1:, SIGN] = self.vocabulary.ids(SIGNS)[(values[:, 1:] == values[:, :-1]).astype(int)]
        clauses[:, 0, PREVIOUS] = ABSENT
        clauses[:, 1:, PREVIOUS] = names[:, :-1]
        clauses[:, :, COMMA] = self.vocabulary.id(TIE + ",")
        clauses[:, -1, COMMA] = ABSENT
        return clauses

    def steps(self, names: np.ndarray, value_ids: np.ndarray, clauses: np.ndarray, query: np.ndarray) -> list[Step]:
        count, length = names.shape
        equals = np.full(count, self.vocabulary.id("="))
        steps = []
        for i in range(length):
            computation = np.empty((count, 0))
            if i:
                sign = clauses[:, i, SIGN]
                computation = np.stack([sign, names[:, i - 1], equals, sign, value_ids[:, i - 1]], axis=1)
            parts = {
                Part.INPUT: names[:, i, None],
                Part.COMPUTATION: computation,
                Part.OUTPUT: value_ids[:, i, None],
                # To the end of the chain, beyond the query: empty only when the last variable is asked for.
                Part.REMAINING: clauses[:, i + 1 :].reshape(count, 5 * (length - i - 1)),
            }
            steps.append(Step(parts, present=i <= query))
        return steps

    def chance(self, length: int) -> float:
        return 1 / len(VALUES)

    def read_answer(self, text: str) -> str | None:
        """The sign."""
        found = re.fullmatch(r"The answer is ([+-])1\.", text)
        return found[1] if found else None
