"""SCAN: commands in simple English become sequences of actions; the whole language is listed, 20,910 commands."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache

import numpy as np

from lengthwise.data.examples import ABSENT, Column, Part
from lengthwise.data.vocabulary import TIE
from lengthwise.tasks.task import Span, Task

ACTIONS = {"walk": "Walk", "look": "Look", "run": "Run", "jump": "Jump"}
TURNS = {"left": "Left", "right": "Right"}
TIMES = {"": 1, "twice": 2, "thrice": 3}
WORDS = (*ACTIONS, "turn", *TURNS, "opposite", "around", "twice", "thrice", "and", "after")
OUTPUTS = (*ACTIONS.values(), *TURNS.values())
FIRST_WORD = "Solve:"
SEPARATOR = TIE + "[SEP]"
"""As published, no space is before it."""


class Scan(Task):
    """A command of the SCAN language; the target is the actions that carry it out.

    `x left` turns, then does x; `x opposite left` turns twice before; `x around left` does both four times; `turn`
    does nothing of its own. `twice` and `thrice` repeat, `a and b` does a first, `a after b` does b first.

    Examples:
        Solve: walk[SEP] -> Walk
        Solve: turn opposite right[SEP] -> Right Right
        Solve: jump left after look twice[SEP] -> Look Look Left Jump
        Solve: run around right[SEP] -> Right Run Right Run Right Run Right Run
    Length: number of actions.

    All 20,910 commands: 17,774 of at most 25 actions to learn from, 3,136 of more to be tested on. Lengths have as
    many examples as the language has commands, as in the published sets.
    """

    name = "scan"
    family = "instructions"
    published_split = "mdlen_tr25_ts48"
    train_lengths = Span(1, 25)
    test_lengths = Span(26, 48)
    length_means = "number of actions"
    published_counts = (15_997, 1_777, 3_136)
    repeats = False

    def symbols(self) -> Iterable[str]:
        return [FIRST_WORD, SEPARATOR, *WORDS, *OUTPUTS]

    def draw(self, length: int, count: int, generator: np.random.Generator) -> list[Column]:
        listed = language()[length]
        return self.columns(listed, generator.integers(len(listed), size=count))

    def every(self, length: int) -> list[Column]:
        listed = language()[length]
        return self.columns(listed, np.arange(len(listed)))

    def buckets(self, span: Span) -> list[int]:
        """Not every number of actions occurs: none has 29, for example."""
        return [length for length in span if length in language()]

    def share(self, length: int) -> float:
        return float(len(language()[length]))

    def chance(self, length: int) -> float:
        """Exact match of a guesser who draws from the different outputs of this length without reading the command."""
        return 1 / language()[length].outputs

    def columns(self, listed: "Commands", chosen: np.ndarray) -> list[Column]:
        first = self.vocabulary.id(WORDS[0])  # WORDS, then OUTPUTS, have ids in a row
        commands, actions = (
            np.where(ids == ABSENT, ABSENT, ids + first) for ids in (listed.words[chosen], listed.actions[chosen])
        )
        return [
            (Part.ANCHOR, self.fixed(FIRST_WORD)),
            (Part.PROMPT, commands),
            (Part.PROMPT, self.fixed(SEPARATOR)),
            (Part.ANSWER, actions),
        ]


@dataclass(frozen=True)
class Commands:
    """All commands of one number of actions; ids count from the first of WORDS, OUTPUTS follow."""

    words: np.ndarray
    """(commands, words), ABSENT behind the end."""
    actions: np.ndarray
    """(commands, actions)."""
    outputs: int
    """How many different action sequences there are."""

    def __len__(self) -> int:
        return len(self.words)


@cache
def language() -> dict[int, Commands]:
    """Number of actions -> its commands; listed once per process, in a tenth of a second."""
    id_of = {word: i for i, word in enumerate((*WORDS, *OUTPUTS))}
    pairs: dict[int, list[tuple[list[int], list[int]]]] = {}
    for command, actions in commands():
        ids = [id_of[word] for word in command], [id_of[action] for action in actions]
        pairs.setdefault(len(actions), []).append(ids)
    found = {}
    for length, listed in sorted(pairs.items()):
        words = np.full((len(listed), max(len(command) for command, _ in listed)), ABSENT, dtype=np.int32)
        for i, (command, _) in enumerate(listed):
            words[i, : len(command)] = command
        actions = np.array([actions for _, actions in listed], dtype=np.int32)
        found[length] = Commands(words, actions, len({tuple(row) for row in actions.tolist()}))
    return found


Meaning = tuple[tuple[str, ...], tuple[str, ...]]
"""The words of a phrase and its actions."""


def commands() -> Iterator[Meaning]:
    """Every command of the language once: a phrase, or two joined by `and` or `after`."""
    single = [*phrases()]
    yield from single
    for left, first in single:
        for right, second in single:
            yield (*left, "and", *right), first + second
            yield (*left, "after", *right), second + first


def phrases() -> Iterator[Meaning]:
    """Every command without `and` and `after`."""
    for words, actions in verbs():
        for word, times in TIMES.items():
            yield (*words, *word.split()), actions * times


def verbs() -> Iterator[Meaning]:
    """Every action with every direction; `turn` needs one."""
    for verb, act in [*((verb, (action,)) for verb, action in ACTIONS.items()), ("turn", ())]:
        if act:
            yield (verb,), act
        for side, turn in TURNS.items():
            yield (verb, side), (turn, *act)
            yield (verb, "opposite", side), (turn, turn, *act)
            yield (verb, "around", side), (turn, *act) * 4
