"""Reverse tasks: the target shows the prompt's symbols backwards; three variants."""

import numpy as np

from lengthwise.data.examples import Column
from lengthwise.tasks.copy import NEXT, Copy


class Reverse(Copy):
    """What the reverse tasks share: n symbols drawn independently, after `Reverse:`."""

    first_word = "Reverse:"

    def draw(self, length: int, count: int, generator: np.random.Generator) -> list[Column]:
        source = self.random_words(length, count, generator)
        return self.columns(source, *self.target(source))

    def every(self, length: int) -> list[Column] | None:
        source = self.all_words(length)
        return None if source is None else self.columns(source, *self.target(source))

    def target(self, source: np.ndarray) -> list[np.ndarray]:
        raise NotImplementedError

    def copied_index(self, place: np.ndarray, size: np.ndarray) -> np.ndarray:
        return size - place % size


class Words(Reverse):
    """n symbols; the target is the sequence backwards.

    Examples:
        Reverse: station cooling little [SEP] -> little cooling station
    Length: number of source symbols.
    """

    name = "reverse.words"
    family = "order"
    published_split = "mc"

    def target(self, source: np.ndarray) -> list[np.ndarray]:
        return [source[:, ::-1]]


class WordsTwice(Reverse):
    """n symbols; the target is the sequence backwards, `[NEXT]`, backwards again.

    Examples:
        Reverse: station cooling [SEP] -> cooling station [NEXT] cooling station
    Length: number of source symbols.
    """

    name = "reverse.words_twice"
    family = "order"
    published_split = "mc2x"

    def target(self, source: np.ndarray) -> list[np.ndarray]:
        return [source[:, ::-1], self.fixed(NEXT), source[:, ::-1]]


class AndBack(Reverse):
    """n symbols; the target is the sequence backwards, `[NEXT]`, the sequence in its own order.

    Examples:
        Reverse: station cooling [SEP] -> cooling station [NEXT] station cooling
    Length: number of source symbols.
    """

    name = "reverse.and_back"
    family = "order"
    published_split = "mcrv"

    def target(self, source: np.ndarray) -> list[np.ndarray]:
        return [source[:, ::-1], self.fixed(NEXT), source]

    def copied_index(self, place: np.ndarray, size: np.ndarray) -> np.ndarray:
        return np.where(place < size, size - place, 1 + place % size)
