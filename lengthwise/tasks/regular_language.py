"""Regular languages: from an expression to the smallest automaton that accepts it, and what theory predicts of it.

letters        a b ... z A ... Z 0 ... 9, `.` for any letter of the alphabet
(ab|bbaa)*     one after the other, `|` either, `*` any number of times, `+` once or more, `?` once or not at all
"""

from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from string import ascii_letters, digits

import numpy as np

ALPHABET = digits + ascii_letters
LONGEST = 160
"""Letters of an expression: it is part of a title."""
DEEPEST = 40
MOST_STATES = 500


@dataclass(frozen=True)
class Named:
    """An expression that papers have a name for."""

    expression: str
    letters: str
    """The alphabet, where the expression does not have all of its letters."""


def nested(depth: int) -> str:
    """Brackets `a` and `b` that are balanced and at most so deep: D_1 is (ab)*, D_n is (a D_n-1 b)*."""
    return f"(a{nested(depth - 1)}b)*" if depth > 1 else "(ab)*"


NAMED = {
    "parity": Named("(0*10*1)*0*", "01"),
    "even_pairs": Named("0((0|1)*0)?|1((0|1)*1)?", "01"),
    "tomita_1": Named("1*", "01"),
    "tomita_2": Named("(10)*", "01"),
    "tomita_3": Named("0*((11)+0+|1(11)*(00)+)*1*", "01"),
    "tomita_4": Named("(0|00)?(1(0|00)?)*", "01"),
    "tomita_5": Named("(00|11|(01|10)(00|11)*(01|10))*", "01"),
    "tomita_6": Named("(10|(0|11)(01)*(1|00))*", "01"),
    "tomita_7": Named("0*1*0*1*", "01"),
    "flip_flop": Named("(0|1|2)*02*", "012"),
    **{f"D_{depth}": Named(nested(depth), "ab") for depth in range(2, 13)},
}
"""Known names, in place of an expression."""


@dataclass(frozen=True, eq=False)
class Language:
    """A complete automaton with the fewest states; the first state is 0."""

    letters: str
    moves: np.ndarray
    """(states, letters): the state that follows."""
    accepting: np.ndarray
    """(states,): whether a word that ends there is in the language."""


@lru_cache(maxsize=64)
def language_of(expression: str, letters: str = "") -> Language:
    """The language of an expression or of one of NAMED, over its letters and `letters`; refuses what is neither."""
    if expression in NAMED:
        expression, letters = NAMED[expression].expression, letters + NAMED[expression].letters
    if not 1 <= len(expression) <= LONGEST:
        raise ValueError(f"expression must have 1 to {LONGEST} characters, not {len(expression)}")
    if unknown := sorted(set(letters) - set(ALPHABET)):
        raise ValueError(f"letters must be of a-z, A-Z and 0-9, not {unknown[0]!r}")
    alphabet = "".join(sorted((set(expression) | set(letters)) & set(ALPHABET)))
    if not alphabet:
        raise ValueError(
            f"expression {expression!r} has no letter; write a-z, A-Z or 0-9, or one of {', '.join(NAMED)}"
        )
    return _smallest(_Reader(expression, alphabet).automaton())


class _Reader:
    """Reads an expression from left to right into an automaton with empty moves (Thompson's construction)."""

    def __init__(self, expression: str, alphabet: str) -> None:
        self.expression, self.alphabet = expression, alphabet
        self.place, self.depth = 0, 0
        self.empty: list[list[int]] = []  # state -> states that it may become without a letter
        self.reads: list[tuple[str, int] | None] = []  # state -> letters and the state that follows

    def automaton(self) -> tuple[str, "_Reader", int, int]:
        first, last = self.either()
        if self.place < len(self.expression):
            raise self.wrong("there is a ) without its (")
        return self.alphabet, self, first, last

    def wrong(self, told: str) -> ValueError:
        return ValueError(f"expression {self.expression!r}: {told}, at character {self.place + 1}")

    def state(self, *empty: int) -> int:
        self.empty.append(list(empty))
        self.reads.append(None)
        return len(self.empty) - 1

    def next(self) -> str:
        return self.expression[self.place : self.place + 1]

    def either(self) -> tuple[int, int]:
        """`x|y|z`; each may be empty."""
        parts = [self.sequence()]
        while self.next() == "|":
            self.place += 1
            parts.append(self.sequence())
        last = self.state()
        for _, end in parts:
            self.empty[end].append(last)
        return self.state(*(begin for begin, _ in parts)), last

    def sequence(self) -> tuple[int, int]:
        first = last = self.state()
        while self.next() not in ("", "|", ")"):
            begin, end = self.repeated()
            self.empty[last].append(begin)
            last = end
        return first, last

    def repeated(self) -> tuple[int, int]:
        begin, end = self.single()
        while self.next() and self.next() in "*+?":
            sign = self.next()
            self.place += 1
            last = self.state()
            self.empty[end] += [begin, last] if sign in "*+" else [last]
            begin, end = self.state(begin, last) if sign in "*?" else self.state(begin), last
        return begin, end

    def single(self) -> tuple[int, int]:
        letter = self.next()
        if letter == "(":
            self.depth += 1
            if self.depth > DEEPEST:
                raise self.wrong(f"brackets are more than {DEEPEST} deep")
            self.place += 1
            found = self.either()
            if self.next() != ")":
                raise self.wrong("a ( has no )")
            self.place += 1
            self.depth -= 1
            return found
        if letter not in self.alphabet and letter != ".":
            known = "letters are a-z, A-Z and 0-9, signs ( ) | * + ? ."
            raise self.wrong(f"{letter!r} cannot stand here; {known}; named: {', '.join(NAMED)}")
        self.place += 1
        begin, end = self.state(), self.state()
        self.reads[begin] = (self.alphabet if letter == "." else letter, end)
        return begin, end


def _smallest(read: tuple[str, _Reader, int, int]) -> Language:
    """Sets of states become states; then those that no word tells apart become one."""
    letters, reader, first, last = read

    def closed(states: set[int]) -> frozenset[int]:
        waiting = list(states)
        while waiting:
            for follower in reader.empty[waiting.pop()]:
                if follower not in states:
                    states.add(follower)
                    waiting.append(follower)
        return frozenset(states)

    numbers = {closed({first}): 0}
    moves: list[list[int]] = []
    for states in (found := list(numbers)):
        after = [(letter, reader.reads[state]) for letter in letters for state in states]
        row = []
        for letter in letters:
            following = {move[1] for this, move in after if this == letter and move and letter in move[0]}
            reached = closed(following)
            if reached not in numbers:
                numbers[reached] = len(numbers)
                found.append(reached)
                if len(numbers) > 4 * MOST_STATES:
                    raise ValueError(f"expression {reader.expression!r} needs more than {MOST_STATES} states")
            row.append(numbers[reached])
        moves.append(row)
    table, accepting = np.array(moves), np.array([last in states for states in found])
    classes = accepting.astype(np.int64)
    while True:  # states stay together while they agree on where every letter leads
        _, finer = np.unique(np.column_stack([classes, classes[table]]), axis=0, return_inverse=True)
        if finer.max() == classes.max():
            break
        classes = finer.reshape(-1)
    if classes.max() >= MOST_STATES:
        raise ValueError(f"expression {reader.expression!r} needs more than {MOST_STATES} states")
    order = list(dict.fromkeys(classes.tolist()))  # by when they are met, so that the first state is 0
    member = [classes.tolist().index(each) for each in order]
    rank = np.argsort(order)
    return Language(letters, rank[classes[table[member]]], accepting[member])


MOST_DECIDED = 60
"""States of a strongly connected part for which `predicted` does the exact arithmetic."""


def predicted(expression: str, letters: str = "") -> str:
    """`in` or `out` of C-RASP, what Transformers without positions should generalize on; `unknown` if it is too large.

    Our reading of the test of 2608.13433, whose text we did not have: a language is in C-RASP if, within each strongly
    connected part of its smallest automaton, states can be distinguished by heights. A height is a number that every
    letter raises by an amount of its own, whatever the path; once some heights are known, a letter's amount may depend
    on them. Groups and flip-flops have no heights. The answer is asked for behind the word, as the tasks here do it. It
    agrees with the pair that the paper is known for and with 15 answers that a public program of the test lists.
    """
    language = language_of(expression, letters)
    for part in _strongly_connected(language.moves):
        if len(part) > MOST_DECIDED:
            return "unknown"
        if not _heights_tell_apart(language.moves, part):
            return "out"
    return "in"


def _strongly_connected(moves: np.ndarray) -> list[list[int]]:
    """Sets of states that all reach each other."""
    reaches = np.eye(len(moves), dtype=bool)
    reaches[np.arange(len(moves))[:, None], moves] = True
    for middle in range(len(moves)):
        reaches |= reaches[:, middle, None] & reaches[middle]
    mutual = reaches & reaches.T
    return [list(part) for part in dict.fromkeys(tuple(np.flatnonzero(row).tolist()) for row in mutual)]


def _heights_tell_apart(moves: np.ndarray, part: list[int]) -> bool:
    """Whether every two states of a strongly connected part get different heights, refined until nothing changes."""
    place = {state: i for i, state in enumerate(part)}
    classes = [0] * len(part)
    while True:
        labelled: dict[tuple[int, int], tuple[int, int]] = {}  # letter and class before it -> an edge that has them
        equations = _Equations(len(part))
        for state in part:
            for letter, follower in enumerate(moves[state].tolist()):
                if follower in place:
                    begin, end = place[state], place[follower]
                    first = labelled.setdefault((letter, classes[begin]), (begin, end))
                    equations.add((begin, -1), (end, 1), (first[0], 1), (first[1], -1))
        heights = equations.solutions()
        numbers: dict[tuple[int, tuple[Fraction, ...]], int] = {}
        finer = [numbers.setdefault((c, h), len(numbers)) for c, h in zip(classes, heights, strict=True)]
        if len(numbers) == len(set(classes)):
            return len(numbers) == len(part)
        classes = finer


class _Equations:
    """Linear equations with the sum 0, solved exactly."""

    def __init__(self, unknowns: int) -> None:
        self.unknowns = unknowns
        self.pivots: dict[int, dict[int, Fraction]] = {}  # unknown -> an equation that begins with it, times 1

    def add(self, *terms: tuple[int, int]) -> None:
        """`terms`: unknowns and their factors; an unknown may come twice."""
        row: dict[int, Fraction] = {}
        for unknown, factor in terms:
            row[unknown] = row.get(unknown, Fraction(0)) + factor
        while row := {unknown: factor for unknown, factor in row.items() if factor}:
            first = min(row)
            if first not in self.pivots:
                self.pivots[first] = {unknown: factor / row[first] for unknown, factor in row.items()}
                return
            scale = row[first]
            for unknown, factor in self.pivots[first].items():
                row[unknown] = row.get(unknown, Fraction(0)) - scale * factor

    def solutions(self) -> list[tuple[Fraction, ...]]:
        """For each unknown its value in every solution that sets one free unknown to 1 and the others to 0."""
        free = [unknown for unknown in range(self.unknowns) if unknown not in self.pivots]
        found: dict[int, tuple[Fraction, ...]] = {
            unknown: tuple(Fraction(unknown == each) for each in free) for unknown in free
        }
        for first in sorted(self.pivots, reverse=True):
            rest = [(factor, found[unknown]) for unknown, factor in self.pivots[first].items() if unknown != first]
            found[first] = tuple(-sum((f * v[i] for f, v in rest), Fraction(0)) for i in range(len(free)))
        return [found[unknown] for unknown in range(self.unknowns)]
