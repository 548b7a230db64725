"""The rows of every training step, as a function of the step alone: nothing to save, nothing to lose.

Every token of a document but its first is predicted once in an epoch. A document of n tokens is read up to its last
token but one, in consecutive windows of `context` tokens; the last place of a window predicts the first token of the
next. What is shorter than a window shares a row with others: each is a segment that sees itself alone, and positions
count from 0 in every segment. The first token of a window in the middle of a document is nothing special.
Shape letters: D documents, P pieces of documents, R rows, T tokens of a row, K steps.
"""

from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from lengthwise.data.examples import offsets
from lengthwise.data.packing import pack
from lengthwise.language.passkey_rows import Passkeys
from lengthwise.language.store import Documents
from lengthwise.seeding import stream
from lengthwise.training.batches import NO_TARGET, Batches

PACKED_TOGETHER = 256
"""Short pieces that look for room among each other; more would find little more, and take longer."""
MILLION = 1_000_000


@dataclass(frozen=True)
class Rows:
    """Some rows, ready to be read."""

    tokens_RT: np.ndarray
    segments_RT: np.ndarray
    """Which piece of its row a token belongs to, from 1; 0 for padding."""
    positions_RT: np.ndarray
    targets_RT: np.ndarray
    """The token that follows in the document; NO_TARGET where there is padding."""

    @classmethod
    def empty(cls, rows: int, context: int, padding: int) -> "Rows":
        shape = (rows, context)
        filled = (np.full(shape, value, dtype=np.int32) for value in (padding, 0, 0, NO_TARGET))
        return cls(*filled)

    def put(self, row: int, first: int, segment: int, document: np.ndarray) -> None:
        """A whole document, from place `first` of a row on."""
        place = (row, slice(first, first + len(document) - 1))
        self.tokens_RT[place] = document[:-1]
        self.segments_RT[place] = segment
        self.positions_RT[place] = np.arange(len(document) - 1)
        self.targets_RT[place] = document[1:]


class Arrangement:
    """Which piece of which document stands where in the rows of an epoch."""

    def __init__(self, documents: Documents, context: int, padding: int) -> None:
        self.documents, self.context, self.padding = documents, context, padding
        inputs_D = np.diff(documents.starts) - 1
        count_D = -(-inputs_D // context)
        document_P = np.repeat(np.arange(len(documents)), count_D)
        passed_P = _ramp(count_D) * context
        start_P = documents.starts[document_P] + passed_P
        size_P = np.minimum(context, inputs_D[document_P] - passed_P)
        row_P, first_P, segment_P = _places(size_P, context)
        order_P = np.lexsort((first_P, row_P))
        self.start_P, self.size_P, self.first_P, self.segment_P = (
            each[order_P] for each in (start_P, size_P, first_P, segment_P)
        )
        self.pieces_of = offsets(np.bincount(row_P))
        """Row r has the pieces number pieces_of[r] to pieces_of[r + 1]."""

    def __len__(self) -> int:
        """Rows of an epoch."""
        return len(self.pieces_of) - 1

    def fill(self, numbers: np.ndarray, into: Rows | None = None, at: np.ndarray | None = None) -> Rows:
        """The rows with these numbers; `at`: to which rows of `into` they go."""
        into = into or Rows.empty(len(numbers), self.context, self.padding)
        at = np.arange(len(numbers)) if at is None else at
        pieces = self.pieces_of[numbers + 1] - self.pieces_of[numbers]
        chosen = np.repeat(self.pieces_of[numbers], pieces) + _ramp(pieces)
        size = self.size_P[chosen]
        within = _ramp(size)
        source = np.repeat(self.start_P[chosen], size) + within
        cell = np.repeat(np.repeat(at, pieces) * self.context + self.first_P[chosen], size) + within
        into.tokens_RT.ravel()[cell] = self.documents.tokens[source]
        into.targets_RT.ravel()[cell] = self.documents.tokens[source + 1]
        into.segments_RT.ravel()[cell] = np.repeat(self.segment_P[chosen], size)
        into.positions_RT.ravel()[cell] = within
        return into


class Windows:
    """The endless sequence of training rows: epochs, each in its own random order, with passkey rows among them."""

    def __init__(self, arrangement: Arrangement, seed: int, passkeys: Passkeys | None = None, share: float = 0) -> None:
        """`share`: of the rows that `passkeys` makes."""
        self.arrangement, self.seed, self.passkeys = arrangement, seed, passkeys
        self.share = round(share * MILLION) if passkeys else 0
        self._order = lru_cache(maxsize=2)(self._permutation)

    def _permutation(self, epoch: int) -> np.ndarray:
        return stream(self.seed, "order of windows", epoch).permutation(len(self.arrangement))

    def rows(self, numbers: np.ndarray) -> Rows:
        """Rows of the sequence by their numbers, from 0."""
        made_before = numbers * self.share // MILLION
        is_made = (numbers + 1) * self.share // MILLION > made_before
        rows = Rows.empty(len(numbers), self.arrangement.context, self.arrangement.padding)
        read = np.flatnonzero(~is_made)
        epoch, place = np.divmod((numbers - made_before)[read], len(self.arrangement))
        for each in np.unique(epoch):
            now = epoch == each
            self.arrangement.fill(self._order(int(each))[place[now]], rows, read[now])
        for row in np.flatnonzero(is_made).tolist():
            assert self.passkeys is not None
            first = 0
            made = self.passkeys.row(self.arrangement.context, self.seed, int(made_before[row]))
            for segment, document in enumerate(made, start=1):
                rows.put(row, first, segment, document.tokens)
                first += len(document.tokens) - 1
        return rows

    def batches(self, first: int, end: int, rows: int, part: range | None = None) -> Batches:
        """Steps `first` to `end` with `rows` rows each, or only `part` of the rows of each, for a fleet of one.

        All steps have one shape: padding goes through the output layer too, and has no target.
        """
        part = part or range(rows)
        numbers_KR = np.arange(first, end)[:, None] * rows + np.array(part)
        found = self.rows(numbers_KR.ravel())
        steps, cells = end - first, len(part) * self.arrangement.context
        shape = (steps, 1, len(part), self.arrangement.context)
        return Batches(
            tokens_KNRT=found.tokens_RT.reshape(shape),
            segments_KNRT=found.segments_RT.reshape(shape),
            positions_KNRT=found.positions_RT.reshape(shape),
            predicting_KNP=np.tile(np.arange(cells, dtype=np.int32), (steps, 1, 1)),
            targets_KNP=found.targets_RT.reshape(steps, 1, cells),
            rows_K=np.full(steps, len(part)),
            predictions_K=np.full(steps, cells),
            tokens=int((found.segments_RT > 0).sum()),
            consecutive=True,  # a piece counts its tokens
            from_zero=True,
        )


def _places(size_P: np.ndarray, context: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Row, place in the row and segment of each piece: whole windows first, then short pieces in rows together."""
    row_P, first_P, segment_P = np.zeros_like(size_P), np.zeros_like(size_P), np.ones_like(size_P)
    whole_P = size_P == context
    row_P[whole_P] = np.arange(whole_P.sum())
    # Long and short ones among each other, whatever the order of the corpus.
    short = stream(0, "packing of windows").permutation(np.flatnonzero(~whole_P))
    groups = -(-len(short) // PACKED_TOGETHER)
    size_ME = np.zeros(groups * PACKED_TOGETHER, dtype=np.int64)
    size_ME[: len(short)] = size_P[short]
    placement = pack(size_ME.reshape(groups, PACKED_TOGETHER), context)
    before_M = whole_P.sum() + offsets(placement.rows_M)[:-1]
    row_P[short] = (before_M[:, None] + placement.row_ME).ravel()[: len(short)]
    first_P[short] = placement.offset_ME.ravel()[: len(short)]
    segment_P[short] = placement.segment_ME.ravel()[: len(short)]
    return row_P, first_P, segment_P


def _ramp(counts: np.ndarray) -> np.ndarray:
    """0, 1, ... for each count: [2, 3] gives [0, 1, 0, 1, 2]."""
    return np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
