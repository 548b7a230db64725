"""Buffers in which steps of fixed shape read and write: a cache, and what is known of each row that is continued.

Everything that a step changes lies in tensors on the device, so that a step is the same program whatever its number:
the most likely token is found, written, and compared with the end without asking the host.
Shape letters: B rows, C slots (one for each token of a row), T tokens of prompts, P last tokens of prompts, V rows of
the vocabulary.
"""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from lengthwise.evaluation.generate import side_by_side
from lengthwise.model.cache import Cache
from lengthwise.model.decoder import Decoder
from lengthwise.model.fixed_cache import SEQUENCE, FixedCache

LARGEST_PASS = {"cpu": 2**24, "cuda": 2**28}
"""Elements of the largest arrays of a pass over prompts: more prompts are read a few at a time."""


class DecodingBuffers:
    """Buffers for `rows` texts of up to `capacity` tokens, prompts among them."""

    def __init__(self, model: Decoder, sample: Cache, rows: int, capacity: int) -> None:
        """`sample`: a cache that the model has filled, however small: what is kept has the shapes of what it keeps."""
        self.model, self.rows, self.capacity = model, rows, capacity
        self.device = model.embedding.weight.device

        def empty(kept: Tensor, dim: int | None) -> Tensor:
            shape = [rows, *kept.shape[1:]]
            if dim is not None:
                shape[dim] = capacity
            return kept.new_zeros(shape)

        self.cache = sample.mapped(empty)
        self.text_BC = torch.zeros(rows, capacity, dtype=torch.int64, device=self.device)
        self.token_B1, self.position_B1, self.last_B1 = torch.zeros(3, rows, 1, dtype=torch.int64, device=self.device)
        self.ended_B1 = torch.zeros(rows, 1, dtype=torch.bool, device=self.device)
        self.place_1, self.end_1 = torch.zeros(2, 1, dtype=torch.int64, device=self.device)
        self.width = 0
        """Slots of the prompts."""
        self.place = 0
        """What `place_1` is, as the host counts: the slot of the last token that was found."""

    def read(self, prompts: Sequence[np.ndarray], budgets: Sequence[int], pad: int, end: int) -> None:
        """Reads prompts and finds the first token after each.

        `budgets`: how many tokens each row may write at most; a row of 0 has ended at once.
        """
        rows = len(prompts)
        ids, segments = side_by_side(prompts, pad)
        self.width = self.place = ids.shape[1]
        # Nothing of earlier texts stays: a weight of 0 times a NaN would be one.
        self.cache.mapped(lambda kept, _: kept[:rows].zero_())
        self.cache.segments_BC[:rows, self.width :] = SEQUENCE
        sizes = [len(prompt) for prompt in prompts]
        for tensor, numbers in (
            (self.position_B1, (np.array(sizes) - 1) * self.model.unit),
            (self.last_B1, self.width - 1 + np.asarray(budgets)),
        ):
            tensor[:rows, 0] = torch.from_numpy(numbers.astype(np.int64)).to(self.device)
        self.ended_B1[:rows] = False
        self.place_1.fill_(self.width - 1)
        self.end_1.fill_(end)
        ids_BT, segments_BT = (torch.from_numpy(each).to(self.device) for each in (ids, segments))
        config = self.model.config
        largest = self.width * max(config.heads * self.width, 4 * config.width, config.inner_width)
        together = max(1, LARGEST_PASS[self.device.type] // largest)
        found = [
            self._read(first, ids_BT[first : first + together], segments_BT[first : first + together])
            for first in range(0, rows, together)
        ]
        self.note(torch.cat(found)[:, None])

    def _read(self, first: int, ids_BT: Tensor, segments_BT: Tensor) -> Tensor:
        """The tokens (B,) that follow some of the prompts."""
        rows, width = ids_BT.shape
        cache = self.cache.mapped(lambda kept, _: kept[first : first + rows])
        loops = [cache, *cache.later_loops]
        kept_states = [each.states for each in loops]
        for each in loops:
            each.states = {}  # mixers begin with nothing
        layout = self.model.layout(ids_BT, None, segments_BT, cache, unit=self.model.unit)
        last_P = torch.arange(1, rows + 1, device=self.device) * width - 1
        logits_PV = self.model.unembed(self.model.hidden(ids_BT, layout, cache, chosen_P=last_P))
        for each, states in zip(loops, kept_states, strict=True):
            for layer, state in each.states.items():
                states[layer].copy_(state)
        return logits_PV.argmax(dim=-1)

    def step(self, rows: int, slots: int) -> None:
        """Reads the last token of each row and finds the next one, among so many slots."""
        self.note(self.logits(rows, slots).argmax(dim=-1))

    def logits(self, rows: int, slots: int) -> Tensor:
        """Of what follows the last token of each row, (B, 1, V)."""
        cache = FixedCache.over(self.cache, rows, slots, self.place_1)
        layout = cache.layout(self.position_B1[:rows])
        return self.model.unembed(self.model.hidden(self.token_B1[:rows], layout, cache))

    def note(self, next_B1: Tensor) -> None:
        """Writes the next tokens of the first rows, and notes which of these have ended."""
        rows = len(next_B1)
        self.place_1.add_(1)
        self.text_BC[:rows].index_copy_(1, self.place_1, next_B1)
        self.token_B1[:rows].copy_(next_B1)
        self.ended_B1[:rows].logical_or_((next_B1 == self.end_1) | (self.last_B1[:rows] <= self.place_1))
        position_B1 = self.position_B1[:rows].add_(self.model.unit)
        if self.model.last_position is not None:  # rows that have ended go on being read until they are dropped
            position_B1.clamp_(max=self.model.last_position)

    def ended(self, rows: int) -> np.ndarray:
        """Which of the first rows have ended, (B,): the host waits for the device here, and in `texts`."""
        return self.ended_B1[:rows, 0].cpu().numpy()

    def texts(self, rows: int) -> np.ndarray:
        """What the first rows have written so far."""
        return self.text_BC[:rows, self.width : self.place + 1].clone().cpu().numpy()  # never the buffer's own memory

    def keep(self, chosen: np.ndarray) -> None:
        """Makes these rows the first ones."""
        chosen_B = torch.from_numpy(chosen).to(self.device)
        rows = len(chosen)

        def moved(kept: Tensor, _: int | None) -> Tensor:
            return kept[:rows].copy_(kept.index_select(0, chosen_B))

        self.cache.mapped(moved)
        for each in (self.text_BC, self.token_B1, self.position_B1, self.last_B1, self.ended_B1):
            moved(each, None)


def bytes_of_row(sample: Cache, capacity: int) -> float:
    """Of memory that a row of so many slots takes in a cache."""
    found = 0.0

    def add(kept: Tensor, dim: int | None) -> Tensor:
        nonlocal found
        found += kept[0].nbytes * (1 if dim is None else capacity / kept.shape[dim])
        return kept

    sample.mapped(add)
    return found
