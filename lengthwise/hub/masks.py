"""Which keys a query may see in a model of Transformers, found for a few queries at a time.

Transformers asks an attention implementation for its mask and hands what it gets to every layer. The usual answer is a
matrix of length x length; ours is a `Mask`, which makes the rows that somebody asks for.
Shape letters: B batch, T queries, S keys, Q some of the queries.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers import AttentionMaskInterface
from transformers.masking_utils import causal_mask_function, prepare_padding_mask, sdpa_mask

from lengthwise.errors import UserError

NAME = "lengthwise"
"""Of our attention among those of Transformers."""

Sees = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Rows of the batch, heads, queries and keys by their index in the sequence, to True where a key may be seen."""


@dataclass(frozen=True)
class Mask:
    """In place of a matrix (B, 1, T, S)."""

    batch: int
    queries: int
    keys: int
    first_query: int
    """Tokens of the sequence before the first query, and before the first key that a cache still holds."""
    first_key: int
    sees: Sees
    real_BS: Tensor | None
    """False for padding among the keys; None where there is none."""
    before_B1: Tensor | int
    """Tokens that are no padding before the first key that a cache still holds."""
    device: torch.device

    def contiguous(self) -> "Mask":
        """What `generate` asks of the mask for a cache of fixed size."""
        raise UserError(
            "an extended model keeps keys in a cache that grows, not in a static one: leave cache_implementation out"
        )

    @property
    def is_causal(self) -> bool:
        """Whether nothing but the causal order hides a key."""
        return self.sees is causal_mask_function and self.real_BS is None

    @property
    def places_BS(self) -> Tensor:
        """How many tokens that are no padding precede each key; (1, S) where there is no padding."""
        if self.real_BS is None:
            return torch.arange(self.keys, device=self.device)[None] + self.before_B1
        return (self.real_BS.long().cumsum(1) - 1 + self.before_B1).clamp(min=0)

    @property
    def own_key_T(self) -> Tensor:
        """The index of the key that is each query's own token."""
        return torch.arange(self.queries, device=self.device) + (self.first_query - self.first_key)

    def hidden_rows(self, index_Q: Tensor) -> Tensor:
        """True where a key may not be seen: (B or 1, Q, S). A query that is padding sees itself, and is not used."""
        row_B111 = torch.arange(self.batch, device=self.device)[:, None, None, None]
        head_1111 = torch.zeros(1, 1, 1, 1, dtype=torch.long, device=self.device)
        own_Q1 = self.own_key_T[index_Q][:, None]
        key_S = torch.arange(self.keys, device=self.device)
        seen_BQS = self.sees(
            row_B111, head_1111, (own_Q1 + self.first_key)[None, None], (key_S + self.first_key)[None, None, None]
        )[:, 0]
        if self.real_BS is not None:
            seen_BQS = (seen_BQS & self.real_BS[:, None]) | (key_S == own_Q1)
        return ~seen_BQS


def make_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Any = causal_mask_function,
    attention_mask: Tensor | None = None,
    use_vmap: bool = False,
    device: torch.device | str = "cpu",
    **others: Any,
) -> Mask | Tensor | None:
    """What Transformers calls for every kind of mask that a model has; the names are its own."""
    if use_vmap:  # a function that takes one pair at a time
        return sdpa_mask(
            batch_size, q_length, kv_length, int(q_offset), kv_offset, mask_function, attention_mask,
            allow_is_causal_skip=False, use_vmap=True, device=device, **others,
        )  # fmt: skip
    real_BS, before_B1 = prepare_padding_mask(attention_mask, kv_length, kv_offset), kv_offset
    if real_BS is not None and bool(real_BS.all()):
        real_BS = None
    if real_BS is not None:
        whole_BS = real_BS.bool()
        real_BS, before_B1 = (
            whole_BS[:, kv_offset : kv_offset + kv_length],
            whole_BS[:, :kv_offset].sum(1, keepdim=True),
        )
    return Mask(
        batch_size, q_length, kv_length, int(q_offset), kv_offset, mask_function, real_BS, before_B1,
        torch.device(device),
    )  # fmt: skip


AttentionMaskInterface.register(NAME, make_mask)
