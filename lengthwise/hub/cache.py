"""Our cache as generation of Transformers asks for one: it grows, its rows follow beams, its last tokens can go.

Shape letters: B batch, T tokens.
"""

import torch
from torch import Tensor
from transformers import Cache as HubCache

from lengthwise.model.cache import Cache
from lengthwise.model.decoder import Decoder

SPARE = 2
"""Room for so many times the tokens that are needed, so that most steps copy nothing."""


class LengthwiseCache(HubCache):
    """Keeps what a decoder keeps: keys and values, numbers of tokens, states of mixers, all loops."""

    def __init__(self) -> None:
        super().__init__(layers=[])
        self.inner: Cache | None = None

    def with_room(self, decoder: Decoder, tokens_BT: Tensor) -> Cache:
        """The decoder's own cache, with room for new tokens."""
        batch, length = tokens_BT.shape
        if self.inner is None:
            self.inner = decoder.new_cache(batch, SPARE * length)
        if len(self.inner.positions_BC) != batch:
            raise ValueError(f"the cache is of {len(self.inner.positions_BC)} rows, and there are tokens of {batch}")
        needed = self.inner.used + length
        if needed > self.inner.positions_BC.shape[1]:
            self.inner.grow(SPARE * needed)
        return self.inner

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0 if self.inner is None else self.inner.used

    def get_max_length(self, layer_idx: int | None = None) -> int:
        return -1  # none

    def reorder_cache(self, beam_idx: Tensor) -> None:
        if self.inner is not None:
            self.inner.choose_rows(beam_idx.to(self.inner.positions_BC.device))

    def batch_select_indices(self, indices: Tensor) -> None:
        self.reorder_cache(indices)

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.inner is not None:
            self.reorder_cache(torch.arange(len(self.inner.positions_BC)).repeat_interleave(repeats))

    def crop(self, tokens_to_remove: int) -> None:
        """`tokens_to_remove`: minus their number."""
        if tokens_to_remove > 0:
            raise ValueError(f"crop takes minus the number of tokens that are to go, not {tokens_to_remove}")
        if self.inner is not None:
            self.inner.drop_last(-tokens_to_remove)

    def reset(self) -> None:
        self.inner = None

    @property
    def batch_size(self) -> int:
        return -1 if self.inner is None else len(self.inner.positions_BC)

    @property
    def is_initialized(self) -> bool:
        return self.inner is not None

    @property
    def is_croppable(self) -> bool:
        return self.inner is None or not any(each.states for each in (self.inner, *self.inner.later_loops))
