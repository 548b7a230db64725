"""Examples as a model reads them: prompt, target, end, padded on the right to one width."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np

from lengthwise.data.examples import Examples, Part
from lengthwise.data.scratchpad import Scratchpad
from lengthwise.data.symbol_tracks import symbol_tracks
from lengthwise.data.tokens import SymbolTokens, Tokens
from lengthwise.errors import UserError
from lengthwise.placements.placement import Generators, Placement
from lengthwise.tasks.task import Task

ROWS_AT_ONCE = 1024
"""Sequences that are laid out in one go, so that they stay in a processor's cache."""


@dataclass(frozen=True)
class Sequences:
    """`tokens[i, :prompt[i]]` is the prompt, `tokens[i, prompt[i]:size[i]]` the target, its last token the end."""

    tokens: np.ndarray
    prompt: np.ndarray
    size: np.ndarray
    buckets: np.ndarray
    positions: np.ndarray | None = None
    """Of every token, as `tokens`; None for 0, 1, 2 and so on."""
    tracks: Mapping[str, np.ndarray] = field(default_factory=dict)
    """What the task says of every token, as `tokens`, by name; see `Task.tracks`."""

    def __len__(self) -> int:
        return len(self.size)

    @property
    def consecutive(self) -> bool:
        """Whether positions count up by one within each sequence, wherever they begin."""
        if self.positions is None or self.positions.shape[1] < 2:
            return True
        inside = np.arange(1, self.positions.shape[1]) < self.size[:, None]
        return bool((np.diff(self.positions, axis=1)[inside] == 1).all())

    @property
    def from_zero(self) -> bool:
        """Whether they also begin at 0."""
        return self.consecutive and (self.positions is None or not self.positions[:, :1].any())

    def select(self, indices: np.ndarray | slice) -> "Sequences":
        """The chosen ones, at the width that they need."""
        size = self.size[indices]
        width = int(size.max()) if len(size) else 0
        positions = None if self.positions is None else self.positions[indices, :width]
        tracks = {name: track[indices, :width] for name, track in self.tracks.items()}
        return Sequences(
            self.tokens[indices, :width], self.prompt[indices], size, self.buckets[indices], positions, tracks
        )


def render(
    task: Task,
    examples: Examples,
    scratchpad: Scratchpad,
    anchor: bool = True,
    tokens: Tokens | None = None,
    tracks: Sequence[str] = (),
) -> Sequences:
    """Examples in a scratchpad format; `anchor=False` leaves out the constant first words.

    `tokens`: by default one for each symbol. `tracks`: names of what the task shall say of its tokens.
    """
    tokens = tokens or SymbolTokens(task.vocabulary)
    symbols = kept_parts(task, examples, scratchpad, anchor)
    kept = tokens.convert(symbols)
    prompt = kept.count(kept.parts <= Part.PROMPT)
    if not prompt.all():
        raise UserError(
            f"task {task.name} has examples without a prompt: there is nothing to predict their first token from"
            + ("" if anchor else "; data.anchor = true gives them one")
        )
    size = kept.sizes + 1
    ids = laid_out(kept, int(size.max()), tokens.pad)
    ids[np.arange(len(kept)), size - 1] = tokens.end
    followed = _tracks(task, symbols, tokens, tracks, ids.shape[1]) if tracks else {}
    return Sequences(ids, prompt.astype(np.int32), size.astype(np.int32), kept.buckets, tracks=followed)


def _tracks(task: Task, symbols: Examples, tokens: Tokens, names: Sequence[str], width: int) -> dict[str, np.ndarray]:
    """What the task, or a symbol itself, says of symbols, for every token of their words; 0 for the end."""
    said = symbol_tracks(task.vocabulary, symbols, names) | task.tracks(symbols)
    converted, source = tokens.convert_and_trace(symbols)
    found = {}
    for name in names:
        if name not in said:
            raise UserError(
                f"the placement needs the track {name!r}, and the task {task.name} has none of that name"
                + (f"; it has {', '.join(said)}" if said else "")
            )
        values = replace(converted, tokens=said[name][source].astype(np.int32))
        found[name] = laid_out(values, width, 0)
    return found


def kept_parts(task: Task, examples: Examples, scratchpad: Scratchpad, anchor: bool = True) -> Examples:
    """The symbols of examples that `render` makes tokens of."""
    kept = task.formatted(examples, scratchpad)
    return kept if anchor else kept.keep([part for part in Part if part is not Part.ANCHOR])


def laid_out(examples: Examples, width: int, fill: int) -> np.ndarray:
    """The tokens of each example in a row of its own, `fill` behind them: (examples, width)."""
    ids = np.full((len(examples), width), fill, dtype=np.int32)
    column = np.arange(width)
    for first in range(0, len(examples), ROWS_AT_ONCE):
        rows = slice(first, first + ROWS_AT_ONCE)
        begin, end = examples.starts[first], examples.starts[min(first + ROWS_AT_ONCE, len(examples))]
        ids[rows][column < examples.sizes[rows, None]] = examples.tokens[begin:end]
    return ids


def placed(sequences: Sequences, placement: Placement, generators: Generators) -> Sequences:
    """The same sequences with the positions that a placement gives them."""
    positions_EW = placement.place(sequences.size, sequences.tracks, generators)
    return replace(sequences, positions=positions_EW)


def pieces_of(examples: Examples, tokens: Tokens) -> list[tuple[list[str], list[str]]]:
    """Tokens of the prompt and of the target of each example, its end included, as people read them."""
    converted = tokens.convert(examples)
    found = []
    for begin, end in pairwise(converted.starts.tolist()):
        pieces = tokens.pieces(converted.tokens[begin:end])
        prompt = int((converted.parts[begin:end] <= Part.PROMPT).sum())
        found.append((pieces[:prompt], [*pieces[prompt:], tokens.piece(tokens.end)]))
    return found


def join(parts: list[Sequences], pad: int) -> Sequences:
    """One after the other, at the width of the widest."""
    width = max(part.tokens.shape[1] for part in parts)

    def padded(arrays: list[np.ndarray], filling: int) -> np.ndarray:
        return np.concatenate(
            [np.pad(each, ((0, 0), (0, width - each.shape[1])), constant_values=filling) for each in arrays]
        )

    positions = [
        np.broadcast_to(np.arange(part.tokens.shape[1]), part.tokens.shape)
        if part.positions is None
        else part.positions
        for part in parts
    ]
    return Sequences(
        padded([part.tokens for part in parts], pad),
        np.concatenate([part.prompt for part in parts]),
        np.concatenate([part.size for part in parts]),
        np.concatenate([part.buckets for part in parts]),
        None if all(part.positions is None for part in parts) else padded(positions, 0),
        {name: padded([part.tracks[name] for part in parts], 0) for name in parts[0].tracks},
    )
