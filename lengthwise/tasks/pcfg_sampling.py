"""Drawing expressions that resemble those of PCFG SET.

The original pairs were drawn from random grammars and then thinned out until they resembled sentences, so no simple
grammar makes them. The tables below say how they came out: all measured on the development set of PCFG SET
(4,860 pairs, `pcfgset_dev`), for 9 and more functions on the published test set.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from lengthwise.data.examples import ABSENT
from lengthwise.tasks.pcfg_language import BINARY, FUNCTIONS, SYMBOLS, UNARY

DEV_COUNTS = (0, 71, 627, 907, 952, 595, 501, 336, 260)
"""Pairs of 0, 1, .. 8 functions in the development set."""
DEV_SCALE = 11_333 / 611
"""All original pairs for each in the development set, judged by those of 9 and more functions."""
BINARY_AT_ROOT = (0, 0.14, 0.38, 0.49, 0.52, 0.52, 0.57, 0.55, 0.59)
"""How often the first of 1, .. 8 functions is binary."""
BINARY_BELOW = (0, 0.28, 0.43, 0.49, 0.55, 0.57, 0.53, 0.54)
"""The same for the first function of an argument, if the argument has 1, .. 7 functions."""
SPLIT, SPLIT_AT_ROOT = 0.8, {3: 4.0, 4: 1.9, 5: 1.2}
"""A binary function gives its two arguments a and b functions in proportion to (1 + min(a, b)) ** -SPLIT; the first
function of 3, 4 and 5 does so still more unevenly."""
LEAF_SIZES = {1: (0.26, 0.37, 0.27, 0.10), 2: (0.275, 0.26, 0.25, 0.215), 3: (0.19, 0.34, 0.26, 0.21)}
OTHER_LEAF_SIZES = (0.14, 0.29, 0.29, 0.28)
"""Shares of leaves of two, three, four and five symbols, by number of functions."""
LONGEST_PROMPT, LONGEST_RESULT = 71, 736
"""Words of the longest original ones; what is longer is drawn again."""

_LEAF = len(FUNCTIONS)  # the kind of a node: the index of its function, or this


def sample(functions: int, count: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Prompts and results of new expressions; ids count from COMMA, ABSENT where there is no word."""
    if functions < 1:
        raise ValueError(f"an expression has at least one function, not {functions}")
    kept = [Trees.draw(functions, count, generator)]
    while missing := count - sum(len(trees.results) for trees in kept):
        kept.append(Trees.draw(functions, missing, generator))
    grids = zip(*((trees.prompts(), trees.evaluated()) for trees in kept), strict=True)
    prompts, results = (_stack(grid) for grid in grids)
    return prompts, results


def _stack(grids: Iterable[np.ndarray]) -> np.ndarray:
    grids = list(grids)
    width = max(grid.shape[1] for grid in grids)
    padded = [np.pad(grid, ((0, 0), (0, width - grid.shape[1])), constant_values=ABSENT) for grid in grids]
    return np.concatenate(padded)


@dataclass(frozen=True)
class Trees:
    """Many expressions of the same number of functions; a column is one, its nodes in reading order.

    Shapes: N nodes (most that an expression can have), E expressions.
    """

    kinds: np.ndarray
    """(N, E): the function's index, or _LEAF; ABSENT behind the last node."""
    seconds: np.ndarray
    """(N, E): whether a node is the second argument of its parent, so that a comma comes before it."""
    leaves: np.ndarray
    """(N, E, 5): the symbols of a leaf, ABSENT where there is none."""
    sizes: np.ndarray
    """(N, E): how many symbols the node's value has."""
    nodes: np.ndarray
    """(N, E): how many nodes the node and all below it are."""

    @classmethod
    def draw(cls, functions: int, count: int, generator: np.random.Generator) -> "Trees":
        """`count` trees, less those longer than any original."""
        kinds, seconds = _draw_shapes(functions, count, generator)
        leaf_sizes = LEAF_SIZES.get(functions, OTHER_LEAF_SIZES)
        size = generator.choice(np.arange(2, 6), size=kinds.shape, p=np.array(leaf_sizes) / sum(leaf_sizes))
        size[kinds != _LEAF] = 0
        leaves = generator.integers(len(SYMBOLS), size=(*kinds.shape, 5), dtype=np.int32)
        leaves[np.arange(5) >= size[..., None]] = ABSENT
        sizes, nodes = _measure(kinds, size)
        words = size.sum(axis=0) + seconds.sum(axis=0) + functions
        fits = (words <= LONGEST_PROMPT) & (sizes[0] <= LONGEST_RESULT)
        return cls(kinds[:, fits], seconds[:, fits], leaves[:, fits], sizes[:, fits], nodes[:, fits])

    @property
    def results(self) -> np.ndarray:
        """(E,): how many symbols each result has."""
        return self.sizes[0]

    def prompts(self) -> np.ndarray:
        """The words of every expression: for each node a comma, a function and five symbols, most of them ABSENT."""
        comma = np.where(self.seconds, 0, ABSENT)
        function = np.where((self.kinds != ABSENT) & (self.kinds != _LEAF), 1 + self.kinds, ABSENT)
        symbols = np.where(self.leaves == ABSENT, ABSENT, 1 + len(FUNCTIONS) + self.leaves)
        words = np.concatenate([comma[..., None], function[..., None], symbols], axis=2)
        return words.transpose(1, 0, 2).reshape(words.shape[1], -1)

    def evaluated(self) -> np.ndarray:
        """The symbols of every result: each place of a result asks, function by function, which leaf it comes from.

        So no sequence is ever built, and all expressions go down together, whatever their functions.
        """
        tree = np.repeat(np.arange(len(self.results)), self.results)
        place = np.arange(len(tree)) - np.repeat(np.cumsum(self.results) - self.results, self.results)
        found = np.full((len(self.results), self.results.max(initial=0)), ABSENT, dtype=np.int32)
        home, node, at = place, np.zeros_like(tree), place  # where a symbol will stand; where it is looked for
        while len(tree):
            kind = self.kinds[node, tree]
            leaf = kind == _LEAF
            found[tree[leaf], home[leaf]] = 1 + len(FUNCTIONS) + self.leaves[node[leaf], tree[leaf], at[leaf]]
            inner = ~leaf
            tree, home, node, at, kind = tree[inner], home[inner], node[inner], at[inner], kind[inner]
            node, at = self._origin(tree, node, at, kind)
        return found

    def _origin(
        self, tree: np.ndarray, node: np.ndarray, at: np.ndarray, kind: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """The argument, and the place in it, from which place `at` of a node's value comes."""
        first = node + 1
        size = self.sizes[first, tree]
        origin, second = at.copy(), np.zeros(len(at), dtype=bool)
        for i, name in enumerate(FUNCTIONS):
            of = np.flatnonzero(kind == i)
            a, n = at[of], size[of]
            match name:
                case "reverse":
                    origin[of] = n - 1 - a
                case "shift":
                    origin[of] = (a + 1) % n
                case "echo":
                    origin[of] = np.minimum(a, n - 1)
                case "swap_first_last":
                    origin[of] = np.where(a == 0, n - 1, np.where(a == n - 1, 0, a))
                case "repeat":
                    origin[of] = a % n
                case "append":
                    second[of] = a >= n
                    origin[of] = np.where(a >= n, a - n, a)
                case "prepend":
                    after = first[of] + self.nodes[first[of], tree[of]]
                    front = self.sizes[after, tree[of]]
                    second[of] = a < front
                    origin[of] = np.where(a < front, a, a - front)
                case "remove_first":
                    second[of] = True
        return np.where(second, first + self.nodes[first, tree], first), origin


def _draw_shapes(functions: int, count: int, generator: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Kinds and seconds of random trees, written in reading order, all trees one node at a time."""
    binary_rate, split_rates = _rates(functions)
    most = 2 * functions + 1
    kinds, seconds = np.full((most, count), ABSENT, dtype=np.int8), np.zeros((most, count), dtype=bool)
    waiting = np.zeros((functions + 2, count), dtype=np.int16)  # a stack for each tree: functions still to be placed
    is_second = np.zeros((functions + 2, count), dtype=bool)
    waiting[0] = functions
    tree, height = np.arange(count), np.ones(count, dtype=np.int64)
    for step in range(most):
        tree = tree[height[tree] > 0]
        height[tree] -= 1
        inside = waiting[height[tree], tree]
        seconds[step, tree] = is_second[height[tree], tree]
        binary = generator.random(len(tree)) < binary_rate[inside]
        first = (generator.random(len(tree))[:, None] >= split_rates[inside]).sum(axis=1)  # functions of argument one
        unary_kind = generator.integers(len(UNARY), size=len(tree))
        binary_kind = len(UNARY) + generator.integers(len(BINARY), size=len(tree))
        kinds[step, tree] = np.where(inside == 0, _LEAF, np.where(binary, binary_kind, unary_kind))
        for pushed, amount, flag in (
            (binary, inside - 1 - first, True),  # the second argument lies below the first
            (inside > 0, np.where(binary, first, inside - 1), False),
        ):
            on = tree[pushed]
            waiting[height[on], on] = amount[pushed]
            is_second[height[on], on] = flag
            height[on] += 1
    return kinds, seconds


def _rates(functions: int) -> tuple[np.ndarray, np.ndarray]:
    """By number of functions in a (sub)expression: how often its first function is binary, and then cumulatively how
    often the first argument has 0, 1, .. of the remaining ones."""
    inside = np.arange(functions + 1)
    if functions < len(BINARY_AT_ROOT):
        binary = np.array([*BINARY_BELOW[:functions], BINARY_AT_ROOT[functions]])
    else:  # long expressions have become long by unary functions: two formulas that fit the published test set
        binary = np.minimum(0.52, 0.21 * (9 / functions) ** 1.35 * inside**0.6)
    splits = np.ones((functions + 1, functions + 1))
    for n in inside[1:]:
        edge = np.minimum(np.arange(n), np.arange(n)[::-1])  # 0 where one argument has no function at all
        rate = (1.0 + edge) ** -(SPLIT_AT_ROOT.get(functions, SPLIT) if n == functions else SPLIT)
        splits[n, :n] = np.cumsum(rate) / rate.sum()
        splits[n, n - 1] = 1
    return binary, splits


def _measure(kinds: np.ndarray, leaf_sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sizes and nodes of `Trees`, from the last node to the first."""
    sizes, nodes = leaf_sizes.astype(np.int64), np.zeros(kinds.shape, dtype=np.int64)
    trees = np.arange(kinds.shape[1])
    for step in reversed(range(len(kinds))):
        kind = kinds[step]
        nodes[step] = kind != ABSENT
        if step + 1 == len(kinds):
            continue
        inner, below = (kind != ABSENT) & (kind != _LEAF), step + 1
        nodes[step, inner] += nodes[below, inner]
        first = sizes[below]
        for i, name in enumerate(UNARY):
            of = kind == i
            sizes[step, of] = 2 * first[of] if name == "repeat" else first[of] + (name == "echo")
        for i, name in enumerate(BINARY, start=len(UNARY)):
            of = trees[kind == i]
            after = below + nodes[below, of]
            second = sizes[after, of]
            nodes[step, of] += nodes[after, of]
            match name:
                case "remove_first":
                    sizes[step, of] = second
                case "remove_second":
                    sizes[step, of] = first[of]
                case _:
                    sizes[step, of] = first[of] + second
    return sizes, nodes
