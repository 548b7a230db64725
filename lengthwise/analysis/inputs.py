"""What analyzed models read: examples of a task by length, a text, or a repeated sequence of random tokens.

Shape letters: E examples, B examples of a batch, T tokens.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lengthwise import door
from lengthwise.data import splits
from lengthwise.data.examples import Examples
from lengthwise.data.sequences import Sequences, join
from lengthwise.data.splits import Split
from lengthwise.data.tokens import Tokens
from lengthwise.errors import UserError
from lengthwise.evaluation.test_set import SEED, rendered
from lengthwise.seeding import stream
from lengthwise.study import Run
from lengthwise.tasks.task import Span
from lengthwise.training.run_sizes import sequence_lengths

ELEMENTS = 2**22
"""Attention weights of one head over a batch: 16 MiB, and twelve times that for a layer of twelve heads."""
LARGEST_TEXT = 2**28
"""Bytes."""
MOST = 64
"""Examples in a batch."""


@dataclass(frozen=True)
class InputBatch:
    """Sequences of equal size: nothing is padded, so nothing has to be masked anywhere."""

    tokens_BT: Tensor
    length_B: Tensor
    """The place of each example's length in the inputs' `lengths`."""
    example_B: np.ndarray
    """Which examples of the inputs these are."""


@dataclass(frozen=True)
class Inputs:
    """Examples by length; for a text, a length is a number of tokens."""

    sequences: Sequences
    length_E: np.ndarray
    longest_trained: int
    """The greatest length of training."""
    trained_tokens: int
    """Tokens of the longest training sequence."""
    tokens: Tokens | None = None
    """Of the ids, where they are known."""

    @cached_property
    def lengths(self) -> list[int]:
        return sorted(set(self.length_E.tolist()))

    @property
    def longest(self) -> int:
        """In tokens."""
        return int(self.sequences.size.max())

    def seen(self, length: int) -> bool:
        return length <= self.longest_trained

    def batches(self, examples: np.ndarray | None = None) -> Iterator[InputBatch]:
        """All examples, or those named, in batches of equal size, the shortest first."""
        chosen = np.arange(len(self.sequences)) if examples is None else examples
        place = {length: i for i, length in enumerate(self.lengths)}
        for size in np.unique(self.sequences.size[chosen]).tolist():
            alike = chosen[self.sequences.size[chosen] == size]
            step = max(1, min(MOST, ELEMENTS // size**2))
            for first in range(0, len(alike), step):
                part = alike[first : first + step]
                tokens_BT = torch.from_numpy(self.sequences.tokens[part, :size].astype(np.int64))
                length_B = torch.tensor([place[length] for length in self.length_E[part].tolist()])
                yield InputBatch(tokens_BT, length_B, part)

    def require_positions(self, name: str, last_position: int | None) -> None:
        """Refuses lengths that a model's table of positions does not reach."""
        if last_position is None or self.longest - 1 <= last_position:
            return
        fitting = [n for n in self.lengths if self.sequences.size[self.length_E == n].max() - 1 <= last_position]
        advice = f"choose --lengths up to {fitting[-1]}" if fitting else "no length that was asked for fits"
        raise UserError(
            f"{name} knows positions up to {last_position}, and length {self.lengths[-1]} needs "
            f"{self.longest - 1}; {advice}"
        )


def task_inputs(run: Run, count: int, lengths: Sequence[int] = ()) -> Inputs:
    """Up to `count` test examples of each length, the same for every encoding and seed; by default all the study's."""
    return material_of(run, drawn_by_length(run, count, lengths))


def drawn_by_length(run: Run, count: int, lengths: Sequence[int] = (), split: Split = Split.TEST) -> list[Examples]:
    """Up to `count` examples of each length; by default of all lengths of the study. Those of training lengths are in
    `split` alone."""
    task = run.make_task()
    train, test = run.data.spans(task)
    wanted = lengths or sorted({task.length_of(b) for span in (train, test) for b in task.buckets(span)})
    division = run.data.division(task)
    return [
        splits.draw(
            task,
            split,
            Span(length, length),
            count,
            SEED,
            apart=train.first <= length <= train.last,
            division=division,
        )
        for length in wanted
    ]


def material_of(run: Run, drawn: Sequence[Examples]) -> Inputs:
    """Examples as the models of a run read them."""
    task, tokens = run.make_task(), run.make_tokens()
    sequences = join([rendered(task, examples, run.data) for examples in drawn], tokens.pad)
    length_E = np.array([task.length_of(int(bucket)) for bucket in sequences.buckets])
    return Inputs(
        sequences, length_E, run.data.spans(task)[0].last, trained_tokens=sequence_lengths(run).trained, tokens=tokens
    )


def repeated_inputs(vocabulary: int, count: int, lengths: Sequence[int], trained: int) -> Inputs:
    """A repeated sequence of random tokens: the second half can be predicted by induction, and by nothing else."""
    generator = stream(SEED, "analysis", "repeated")
    rows = []
    for length in lengths:
        half = generator.integers(vocabulary, size=(count, -(-length // 2)))
        rows.append(np.concatenate([half, half], axis=1)[:, :length])
    return _windows(rows, lengths, trained)


def text_inputs(file: Path, tokenizer: Any, count: int, lengths: Sequence[int], trained: int) -> Inputs:
    """Windows of a text, spread evenly over it."""
    ids = np.array(tokenizer(door.read_text(file, LARGEST_TEXT, UserError))["input_ids"])
    if len(ids) < max(lengths):
        raise UserError(f"{file} has {len(ids)} tokens; the longest length asked for is {max(lengths)}")
    rows = []
    for length in lengths:
        starts = np.unique(np.linspace(0, len(ids) - length, count).astype(int))
        rows.append(ids[starts[:, None] + np.arange(length)])
    return _windows(rows, lengths, trained)


def _windows(rows: list[np.ndarray], lengths: Sequence[int], trained: int) -> Inputs:
    parts = [
        Sequences(
            tokens.astype(np.int64),
            np.zeros(len(tokens), np.int32),
            np.full(len(tokens), length, np.int32),
            np.full(len(tokens), length, np.int32),
        )
        for tokens, length in zip(rows, lengths, strict=True)
    ]
    sequences = join(parts, 0)
    return Inputs(sequences, sequences.buckets.astype(np.int64), trained, trained)
