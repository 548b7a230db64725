"""How many cells agree with the published ones, beside what predictors that ignore the encoding would get."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations

import numpy as np

from lengthwise.records.equivalence import Extreme, Judgement, Verdict, judge
from lengthwise.records.published import Score


@dataclass(frozen=True)
class Pair:
    """Our figure and the published one of a cell, and the accuracy of a guesser."""

    ours: Score
    published: Score
    chance: float

    @property
    def judgement(self) -> Judgement:
        return judge(self.ours, self.published, self.chance)


@dataclass(frozen=True)
class Counts:
    """Cells by verdict. Every informative cell is in exactly one of the four after `informative`."""

    informative: int
    equivalent: int
    undecided: int
    different: int
    no_verdict: int
    """Neither side has a standard deviation."""
    close: int
    """Informative cells whose difference is at most the margin."""
    floor: int
    """Not informative: both sides are at the floor; so with the ceiling."""
    ceiling: int
    equivalent_of_all: int
    """Of all judged cells, floor and ceiling included.

    Which cells are informative depends on our results: left out are some where ours are right to be at the floor, and
    with them the misses of a predictor that ignores the encoding. So its count is to be seen without that choice too.
    """
    close_of_all: int

    @property
    def judged(self) -> int:
        return self.informative + self.floor + self.ceiling


@dataclass(frozen=True)
class Permuted:
    """The same counts where our results are those of another encoding; means over permutations."""

    permutations: int
    """All of them but the one that leaves every encoding in its place."""
    informative: float
    equivalent: float
    close: float
    equivalent_of_all: float
    close_of_all: float
    p_equivalent: float
    """Share of all permutations, ours counted among them, with at least as many (informative) equivalent cells as ours;
    so with the others."""
    p_close: float
    p_equivalent_of_all: float
    p_close_of_all: float


@dataclass(frozen=True)
class Baselines:
    """What agreement is worth: the counts of predictors that know nothing of the encoding."""

    tasks: int
    """Those that have every encoding which is compared at all; the others are left out here."""
    ours: Counts
    """Over these tasks."""
    task_means: Counts
    """Of a predictor that says the published mean over encodings of the task, whatever the encoding.

    It has our standard deviation and our seeds, and is judged on the cells that are informative for ours, so that the
    two counts are of the same cells.
    """
    permuted: Permuted | None
    """None for a single encoding."""


def counts(judgements: Iterable[Judgement]) -> Counts:
    """How many of the judged cells are what."""
    found = list(judgements)
    informative = [each for each in found if each.informative]
    verdicts, extremes = Counter(each.verdict for each in informative), Counter(each.extreme for each in found)
    return Counts(
        informative=len(informative),
        equivalent=verdicts[Verdict.equivalent],
        undecided=verdicts[Verdict.undecided],
        different=verdicts[Verdict.different],
        no_verdict=verdicts[None],
        close=sum(each.close for each in informative),
        floor=extremes[Extreme.floor],
        ceiling=extremes[Extreme.ceiling],
        equivalent_of_all=sum(each.verdict == Verdict.equivalent for each in found),
        close_of_all=sum(each.close for each in found),
    )


def baselines(tasks: Mapping[str, Sequence[Pair]]) -> Baselines | None:
    """`tasks`: the pairs of each task, the same encodings in the same order in all of them. None without tasks."""
    if not tasks:
        return None
    ours = [pair.judgement for pairs in tasks.values() for pair in pairs]
    predicted = [
        replace(_predicted(pair, pairs).judgement, extreme=pair.judgement.extreme)
        for pairs in tasks.values()
        for pair in pairs
    ]
    return Baselines(len(tasks), counts(ours), counts(predicted), _permuted(list(tasks.values())))


def _predicted(pair: Pair, of_task: Sequence[Pair]) -> Pair:
    """The published mean of the task in place of our mean."""
    mean = float(np.mean([each.published.mean for each in of_task]))
    return replace(pair, ours=replace(pair.ours, mean=mean))


def _permuted(tasks: Sequence[Sequence[Pair]]) -> Permuted | None:
    """The same permutation in all tasks: a predictor that knows every task and takes one encoding for another.

    Which cells are informative is decided anew for each permutation, as it was for ours: every permutation must be
    counted by the same rule for their share to be a p-value. A fixed set would give permutations the cells that become
    floor against floor.
    """
    encodings = range(len(tasks[0]))
    if len(encodings) < 2:
        return None
    # Every result of ours against every published one of its task, once: permutations only choose among them.
    judged = [
        [[judge(ours.ours, theirs.published, ours.chance) for ours in pairs] for theirs in pairs] for pairs in tasks
    ]
    ours, *others = (
        counts(table[theirs][own] for table in judged for theirs, own in enumerate(order))
        for order in permutations(encodings)  # the first one leaves all in place
    )
    compared = ("equivalent", "close", "equivalent_of_all", "close_of_all")
    means = [float(np.mean([getattr(each, name) for each in others])) for name in ("informative", *compared)]
    as_many = [sum(getattr(each, name) >= getattr(ours, name) for each in others) for name in compared]
    return Permuted(len(others), *means, *((1 + number) / (1 + len(others)) for number in as_many))
